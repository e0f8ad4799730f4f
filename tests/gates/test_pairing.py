"""Which documents of two measurements belong together."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gnus.gates.pairing import CannotPair, Outcome, Side, pair


def outcome(
    doc_hash: str, score: float | None, doc_id: int = 0, task: str = "t", cluster: str | None = None
) -> Outcome:
    return Outcome(task, doc_id, doc_hash, score, cluster)


def test_the_same_documents_are_paired_wherever_they_stand() -> None:
    reference = [outcome("a", 0.1, 0), outcome("b", 0.2, 1), outcome("c", 0.3, 2)]
    candidate = [outcome("c", 0.6, 0), outcome("a", 0.4, 1), outcome("b", 0.5, 2)]
    found = pair(reference, candidate)
    assert found.paired
    pairs = zip(found.reference.scores, found.candidate.scores, strict=True)
    assert sorted(pairs) == [(0.1, 0.4), (0.2, 0.5), (0.3, 0.6)]


def test_one_text_in_two_tasks_is_two_documents() -> None:
    reference = [outcome("a", 0.1, task="x"), outcome("a", 0.2, task="y")]
    found = pair(reference, [outcome("a", 0.9, task="y"), outcome("a", 0.8, task="x")])
    pairs = zip(found.reference.scores, found.candidate.scores, strict=True)
    assert sorted(pairs) == [(0.1, 0.8), (0.2, 0.9)]
    assert not pair(reference, [outcome("a", 0.9, task="y"), outcome("a", 0.8, task="z")]).paired


def test_duplicates_are_matched_in_the_order_of_their_places() -> None:
    reference = [outcome("a", 0.1, 7), outcome("a", 0.2, 3), outcome("a", 0.3, 30)]
    candidate = [outcome("a", 1.3, 9), outcome("a", 1.2, 2), outcome("a", 1.4, 10)]
    found = pair(reference, candidate)
    assert found.reference.scores == (0.2, 0.1, 0.3)
    assert found.candidate.scores == (1.2, 1.3, 1.4)


def test_a_duplicate_without_its_counterpart_leaves_all_unpaired() -> None:
    reference = [outcome("a", 0.1, 0), outcome("a", 0.2, 1), outcome("b", 0.3, 2)]
    found = pair(reference, [outcome("a", 0.1, 0), outcome("b", 0.3, 1)])
    assert (found.paired, found.only_in_reference, found.only_in_candidate) == (False, 1, 0)
    assert (len(found.reference.scores), len(found.candidate.scores)) == (3, 2)


def test_different_documents_are_counted_on_each_side() -> None:
    reference = [outcome("a", 0.1, 0), outcome("b", 0.2, 1), outcome("c", 0.2, 2)]
    found = pair(reference, [outcome("b", 0.5, 0), outcome("d", 0.6, 1)])
    assert (found.paired, found.only_in_reference, found.only_in_candidate) == (False, 2, 1)


def test_a_document_without_a_score_makes_the_comparison_impossible() -> None:
    reference = [outcome("a", 0.1, 0), outcome("b", 0.2, 1)]
    with pytest.raises(CannotPair, match=r"no per-document scores: 1 of the candidate's 2 have none"):
        pair(reference, [outcome("a", None, 0), outcome("b", 0.2, 1)])
    with pytest.raises(CannotPair, match="2 of the reference's 2"):
        pair([outcome("a", None, 0), outcome("b", None, 1)], reference)


def test_two_outcomes_for_one_place_are_no_measurement() -> None:
    twice = [outcome("a", 0.1, 4), outcome("b", 0.2, 4)]
    with pytest.raises(CannotPair, match="the reference has several outcomes for document 4 of t"):
        pair(twice, [outcome("a", 0.1, 0)])


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_refused(score: float) -> None:
    with pytest.raises(ValueError, match=f"document 3 of t has the score {score}"):
        pair([outcome("a", 0.1)], [outcome("a", score, 3)])


def test_nothing_pairs_with_nothing() -> None:
    found = pair([], [])
    assert (found.paired, found.reference.scores) == (True, ())


def test_a_pair_takes_the_cluster_of_the_candidate_or_else_of_the_reference() -> None:
    """As where the benchmark's file named its clusters only after the reference was recorded."""
    reference = [outcome("a", 0.1, 0), outcome("b", 0.2, 1, cluster="old"), outcome("c", 0.3, 2, cluster="p")]
    candidate = [outcome("a", 0.1, 0, cluster="new"), outcome("b", 0.2, 1), outcome("c", 0.3, 2, cluster="q")]
    found = pair(reference, candidate)
    assert found.candidate.clusters == found.reference.clusters == ("new", "old", "q")


def test_unpaired_sides_keep_their_own_clusters() -> None:
    found = pair([outcome("a", 0.1, cluster="p")], [outcome("b", 0.1, cluster="q")])
    assert (found.reference.clusters, found.candidate.clusters) == (("p",), ("q",))


def test_a_document_without_a_cluster_is_one_of_its_own() -> None:
    side = Side((0.0,) * 5, ("p", None, "q", None, "p"))
    assert side.labels == [0, 1, 2, 3, 0]
    assert side.clustered
    assert not Side((0.0,) * 3, ("p", None, None)).clustered


@pytest.mark.parametrize(
    ("scores", "binary"),
    [((0.0, 1.0), True), ((1.0, 1.0), True), ((0.0, 0.5), False), ((0.0, 2.0), False), ((-1.0, 1.0), False)],
)
def test_right_or_wrong_is_nothing_but_0_and_1(scores: tuple[float, ...], binary: bool) -> None:
    assert Side(scores, (None,) * len(scores)).binary is binary


keys = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), max_size=12)


@given(keys=keys, other=keys, seed=st.integers(0, 10**6))
def test_the_order_of_the_outcomes_means_nothing(
    keys: list[tuple[str, str]], other: list[tuple[str, str]], seed: int
) -> None:
    sides = [
        [outcome(name, place / 16, place, task) for place, (task, name) in enumerate(side)]
        for side in (keys, other)
    ]
    mixed = [random.Random(seed).sample(side, len(side)) for side in sides]
    assert pair(mixed[0], mixed[1]) == pair(sides[0], sides[1])


@given(keys=keys, other=keys)
def test_paired_means_the_same_multiset_of_documents(
    keys: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    sides = [
        [outcome(name, 1.0, place, task) for place, (task, name) in enumerate(side)] for side in (keys, other)
    ]
    found = pair(sides[0], sides[1])
    assert found.paired is (sorted(keys) == sorted(other))
    assert len(keys) - found.only_in_reference == len(other) - found.only_in_candidate
