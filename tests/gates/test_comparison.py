"""Two measurements compared: which method, which direction, and where no claim is made."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gnus.gates import intervals
from pytest_gnus.gates.comparison import Comparison, NotCompared, compare
from pytest_gnus.gates.pairing import Outcome


def outcomes(
    scores: Sequence[float | None], *, start: int = 0, clusters: Sequence[str | None] | None = None
) -> list[Outcome]:
    named = clusters or [None] * len(scores)
    return [
        Outcome("task", start + place, f"hash{start + place:04}", score, cluster)
        for place, (score, cluster) in enumerate(zip(scores, named, strict=True))
    ]


def compared(
    reference: list[Outcome], candidate: list[Outcome], *, higher_is_better: bool = True
) -> Comparison:
    found = compare(reference, candidate, higher_is_better=higher_is_better)
    assert isinstance(found, Comparison), found
    return found


def counts(both: int, worse: int, better: int, neither: int) -> tuple[list[Outcome], list[Outcome]]:
    reference = [1.0] * (both + worse) + [0.0] * (better + neither)
    candidate = [1.0] * both + [0.0] * worse + [1.0] * better + [0.0] * neither
    return outcomes(reference), outcomes(candidate)


def test_right_or_wrong_by_hand() -> None:
    """25 fall, 15 rise of 200; 120 were right: a drop of 10 / 200, a twelfth of the reference."""
    found = compared(*counts(95, 25, 15, 65))
    assert found.absolute_drop == 0.05
    assert found.relative_drop == pytest.approx(1 / 12)
    assert found.p_value == intervals.mcnemar_p(25, 15)
    assert found.ci95 == intervals.paired_binary(25, 15, 200).ci95
    assert (found.n, found.n_clusters, found.paired) == (200, None, True)
    assert (found.reference_mean, found.candidate_mean) == (0.6, 0.55)
    assert found.method == "exact McNemar test, Tango score interval"
    assert not found.significant_drop
    assert found.summary() == (
        "absolute drop +0.0500, 95% interval -0.0124 to +0.1140, p = 0.15, not significant, 200 pairs "
        "(exact McNemar test, Tango score interval)"
    )


def test_where_lower_is_better_a_rise_is_a_drop() -> None:
    reference, candidate = counts(95, 5, 25, 75)
    found = compared(reference, candidate, higher_is_better=False)
    assert found.absolute_drop == 0.1
    assert found.relative_drop == pytest.approx(0.2)
    assert found.significant_drop
    assert not compared(reference, candidate).significant_drop


def test_an_improvement_is_no_drop_however_clear() -> None:
    found = compared(*counts(50, 0, 40, 10))
    assert found.absolute_drop == -0.4
    assert found.p_value < 1e-6
    assert found.ci95[1] < 0.0
    assert not found.significant_drop


def scores(seed: int, n: int = 60, shift: float = 0.0) -> list[float]:
    generator = random.Random(seed)
    return [min(1.0, max(0.0, generator.gauss(0.4, 0.1) - shift)) for _ in range(n)]


def test_other_scores_are_bootstrapped_with_the_t_interval_beside() -> None:
    reference = scores(1)
    candidate = [score - 0.02 - 0.01 * (place % 5) for place, score in enumerate(reference)]
    found = compared(outcomes(reference), outcomes(candidate))
    differences = [a - b for a, b in zip(reference, candidate, strict=True)]
    expected = intervals.paired_scores(differences, None, spread=1.0)
    assert found.absolute_drop == pytest.approx(0.04)
    assert found.ci95 == pytest.approx(expected.ci95)
    assert found.t_interval == pytest.approx(expected.t_interval)
    assert found.method == "BCa bootstrap with 10000 resamples, t test"


def test_documents_in_clusters_are_not_taken_as_independent() -> None:
    """Ten documents on each of 20 passages; on three of them all fall."""
    clusters = [f"passage {place // 10}" for place in range(200)]
    candidate = [0.0] * 30 + [1.0] * 170
    found = compared(outcomes([1.0] * 200), outcomes(candidate, clusters=clusters))
    assert (found.n, found.n_clusters) == (200, 20)
    assert found.method == "cluster-robust t test (CR1)"
    assert found.absolute_drop == 0.15
    assert not found.significant_drop
    assert "200 pairs in 20 clusters" in found.summary()
    assert compared(outcomes([1.0] * 200), outcomes(candidate)).significant_drop


def test_other_scores_in_clusters() -> None:
    clusters = [f"passage {place // 3}" for place in range(60)]
    found = compared(outcomes(scores(1), clusters=clusters), outcomes(scores(2), clusters=clusters))
    assert found.method == "BCa cluster bootstrap with 10000 resamples, cluster-robust t test"
    assert found.n_clusters == 20


def test_clusters_of_one_document_each_are_no_clusters() -> None:
    reference, candidate = counts(95, 25, 15, 65)
    alone = [Outcome(o.task, o.doc_id, o.doc_hash, o.score, cluster=f"passage {o.doc_id}") for o in candidate]
    found, plain = compared(reference, alone), compared(reference, candidate)
    assert (found.method, found.ci95, found.p_value) == (plain.method, plain.ci95, plain.p_value)
    assert found.n_clusters == 200


def test_too_few_clusters_are_insufficient_data() -> None:
    clusters = [f"passage {place % 19}" for place in range(190)]
    found = compare(outcomes([1.0] * 190), outcomes([0.0] * 190, clusters=clusters))
    assert found == NotCompared("insufficient data: 190 documents in 19 clusters, 20 are needed", 190)
    few = compare(outcomes([1.0] * 190), outcomes([0.0] * 190, clusters=clusters), minimum_clusters=19)
    assert isinstance(few, Comparison)


def test_different_documents_are_compared_unpaired_and_it_is_said() -> None:
    reference, candidate = outcomes([1.0] * 60 + [0.0] * 40), outcomes([1.0] * 30 + [0.0] * 70, start=25)
    found = compared(reference, candidate)
    assert (found.paired, found.only_in_reference, found.only_in_candidate) == (False, 25, 25)
    assert found.p_value == intervals.fisher_p(60, 100, 30, 100)
    assert found.ci95 == intervals.newcombe_interval((60, 100), (30, 100))
    assert found.absolute_drop == pytest.approx(0.3)
    assert "not the same documents: 25 only in the reference, 25 only in the candidate" in found.summary()


def test_different_documents_where_lower_is_better() -> None:
    reference, candidate = outcomes([1.0] * 30 + [0.0] * 70), outcomes([1.0] * 60 + [0.0] * 60, start=500)
    found = compared(reference, candidate, higher_is_better=False)
    assert found.absolute_drop == pytest.approx(0.2)
    assert found.ci95 == intervals.newcombe_interval((60, 120), (30, 100))
    assert found.significant_drop
    assert found.n == 100


def test_different_documents_with_other_scores_or_in_clusters() -> None:
    plain = compared(outcomes(scores(1)), outcomes(scores(2, 80), start=9))
    assert (plain.method, plain.n) == ("unpaired: Welch t test", 60)
    clusters = [f"passage {place // 3}" for place in range(60)]
    binary = [float(place % 2) for place in range(60)]
    found = compared(outcomes(binary, clusters=clusters), outcomes(binary, start=9))
    assert (found.method, found.n_clusters) == ("unpaired: cluster-robust Welch t test", 20)


@pytest.mark.parametrize("n", [0, 1, 2, 29])
def test_below_the_minimum_nothing_is_claimed(n: int) -> None:
    found = compare(outcomes([1.0] * n), outcomes([0.0] * n))
    assert found == NotCompared(f"insufficient data: {n} pairs of documents, 30 are needed", n)


def test_the_minimum_is_the_callers_but_one_pair_is_never_enough() -> None:
    assert isinstance(compare(outcomes([1.0] * 5), outcomes([0.0] * 5), minimum_pairs=5), Comparison)
    assert isinstance(compare(outcomes([1.0]), outcomes([0.0]), minimum_pairs=0), NotCompared)
    assert isinstance(compare(outcomes([0.3]), outcomes([0.2]), minimum_pairs=1), NotCompared)


def test_the_smaller_side_of_different_documents_counts() -> None:
    found = compare(outcomes([1.0] * 500), outcomes([0.0] * 12))
    assert found == NotCompared("insufficient data: 12 documents, 30 are needed", 12)


def test_without_scores_of_documents_there_is_no_comparison() -> None:
    found = compare(outcomes([None] * 50), outcomes([1.0] * 50))
    assert found == NotCompared("no per-document scores: 50 of the reference's 50 have none", 50)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="has the score"):
        compare(outcomes([bad] + [1.0] * 49), outcomes([1.0] * 50))
    with pytest.raises(ValueError, match="the reported scores are"):
        compare(outcomes([1.0] * 50), outcomes([1.0] * 50), reported=(1.0, bad))


@pytest.mark.parametrize(
    ("reported", "mean"),
    [
        ((0.6, 0.55), True),
        ((0.6 + 5e-7, 0.55), True),
        ((0.6 + 5e-6, 0.55), False),
        ((0.7, 0.65), False),
        ((60.0, 55.0), False),
        (None, None),
    ],
)
def test_a_score_that_is_not_the_mean_of_its_documents_is_said(
    reported: tuple[float, float] | None, mean: bool | None
) -> None:
    """A weighted group, a corpus metric, a percentage; the same drop alone is not enough."""
    found = compare(*counts(95, 25, 15, 65), reported=reported)
    assert isinstance(found, Comparison)
    assert found.mean_of_documents is mean
    assert found.is_of(0.6, 0.55)
    assert not found.is_of(0.7, 0.65)


def test_a_reference_of_zero_has_no_relative_drop() -> None:
    found = compared(outcomes([0.0] * 40), outcomes([0.0] * 39 + [1.0]))
    assert (found.absolute_drop, found.relative_drop) == (-0.025, None)


@pytest.mark.parametrize("score", [0.0, 1.0, 0.5])
def test_the_same_outcomes_twice(score: float) -> None:
    found = compared(outcomes([score] * 40), outcomes([score] * 40))
    assert (found.absolute_drop, found.relative_drop, found.p_value) == (0.0, 0.0, 1.0)
    assert found.ci95[0] <= 0.0 <= found.ci95[1]
    if score != 0.5:
        assert found.detectable_drop == pytest.approx(0.18, abs=0.01)
    else:
        assert found.detectable_drop is None
        assert found.documents_needed(0.1) is None
        assert found.underpowered(0.0) is None


def test_a_limit_tighter_than_what_could_be_seen_is_underpowered() -> None:
    found = compared(*counts(55, 5, 5, 35))
    assert found.detectable_drop == pytest.approx(0.0940, abs=1e-4)
    assert found.underpowered(0.10) is None
    assert found.underpowered(0.06) == (
        "underpowered: 100 documents show a drop of 0.0940 or more; "
        f"a drop of 0.0600 needs about {found.documents_needed(0.06)} documents"
    )
    assert 240 < (found.documents_needed(0.06) or 0) < 270
    assert (found.underpowered(0.0) or "").endswith("no number of documents shows a drop of zero")


def test_a_comparison_is_plain_json() -> None:
    found = compared(outcomes(scores(1)), outcomes(scores(2)))
    record = json.loads(json.dumps(found.to_record(), allow_nan=False))
    assert record["ci95"] == list(found.ci95)
    assert record["p_value"] == found.p_value
    assert record["detectable_drop"] == found.detectable_drop


pairs = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=30, max_size=60)
graded = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.sampled_from([0.0, 0.25, 0.5, 1.0])),
    min_size=30,
    max_size=45,
)


@settings(deadline=None, max_examples=40)
@given(pairs=st.one_of(pairs, graded), seed=st.integers(0, 1000), grouped=st.booleans())
def test_order_sides_and_direction(pairs: list[tuple[float, float]], seed: int, grouped: bool) -> None:
    """Order means nothing; swapped sides, and the other direction, turn every sign."""
    clusters = [f"c{place % 20}" for place in range(len(pairs))] if grouped else None
    old = outcomes([float(a) for a, _ in pairs], clusters=clusters)
    new = outcomes([float(b) for _, b in pairs], clusters=clusters)
    found = compared(old, new)
    generator = random.Random(seed)
    assert compared(generator.sample(old, len(old)), generator.sample(new, len(new))) == found
    for turned in (compared(new, old), compared(old, new, higher_is_better=False)):
        assert turned.absolute_drop == pytest.approx(-found.absolute_drop)
        assert turned.ci95 == pytest.approx((-found.ci95[1], -found.ci95[0]), abs=1e-9)
        assert turned.p_value == pytest.approx(found.p_value)
        assert turned.detectable_drop == pytest.approx(found.detectable_drop)
    assert found.significant == (found.ci95[0] > 0.0 or found.ci95[1] < 0.0)
    assert found.p_value <= 0.05 or not found.significant
    assert all(map(math.isfinite, (*found.ci95, found.p_value, found.absolute_drop)))


@settings(deadline=None, max_examples=40)
@given(pairs=st.one_of(pairs, graded), shift=st.integers(1, 10))
def test_sides_of_different_documents_turn_every_sign(pairs: list[tuple[float, float]], shift: int) -> None:
    old = outcomes([float(a) for a, _ in pairs])
    new = outcomes([float(b) for _, b in pairs], start=shift)
    found, swapped = compared(old, new), compared(new, old)
    assert (found.paired, found.only_in_reference, found.only_in_candidate) == (False, shift, shift)
    assert swapped.ci95 == pytest.approx((-found.ci95[1], -found.ci95[0]), abs=1e-9)
    assert swapped.p_value == pytest.approx(found.p_value)
    assert found.significant == (found.ci95[0] > 0.0 or found.ci95[1] < 0.0)
    assert found.p_value <= 0.05 or not found.significant


def test_numpy_and_scipy_are_loaded_only_to_compare() -> None:
    """The gates are imported where tests are collected, which must cost nothing."""
    code = (
        "import sys, pytest_gnus.gates.comparison, pytest_gnus.gates.categories, pytest_gnus.gates.policy\n"
        "print([name for name in ('numpy', 'scipy', 'pytest', 'mlx', 'lm_eval') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
