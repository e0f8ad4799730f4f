"""Scores that may mean nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gnus.gates.trust import ChanceLevels, chance_levels, flags

FAR = ChanceLevels(random_choice=0.0, constant_choice=0.0)


def test_chance_levels_by_hand() -> None:
    """Positions 0, 0, 1, 2 among 4, 4, 2 and 4 choices: (1/4 + 1/4 + 1/2 + 1/4) / 4, and 2 of 4."""
    assert chance_levels([0, 0, 1, 2], [4, 4, 2, 4]) == ChanceLevels(0.3125, 0.5)


def test_the_constant_choice_is_the_most_frequent_position_wherever_it_stands() -> None:
    levels = chance_levels([3, 1, 3, 3, 0], [4] * 5)
    assert levels == ChanceLevels(random_choice=0.25, constant_choice=0.6)


def test_a_single_document_is_always_right_by_one_constant_choice() -> None:
    assert chance_levels([2], [5]) == ChanceLevels(0.2, 1.0)


def test_without_documents_there_are_no_chance_levels() -> None:
    assert chance_levels([], []) is None


@pytest.mark.parametrize(("score", "shown"), [(0.0, "0%"), (1.0, "100%")])
def test_all_or_none_right_is_flagged_from_50_documents_on(score: float, shown: str) -> None:
    said = f"a score of {shown} on 50 documents: check the benchmark before you trust it"
    assert flags(score, 50, None) == [said]
    assert flags(score, 49, None) == []


@pytest.mark.parametrize("score", [0.001, 0.5, 0.999])
def test_an_ordinary_score_is_not_flagged(score: float) -> None:
    assert flags(score, 1000, None) == []
    assert flags(score, 1000, FAR) == []


def test_a_metric_without_a_unit_range_may_be_0_or_1() -> None:
    assert flags(1.0, 1000, None, unit_range=False) == []


@pytest.mark.parametrize(("score", "flagged"), [(0.24, True), (0.25, True), (0.26, False)])
def test_what_a_random_choice_reaches_is_flagged(score: float, flagged: bool) -> None:
    found = flags(score, 100, ChanceLevels(random_choice=0.25, constant_choice=0.0))
    assert found == (["no better than a random choice (0.2500)"] if flagged else [])


@pytest.mark.parametrize(("score", "flagged"), [(0.39, True), (0.40, True), (0.41, False)])
def test_what_a_constant_choice_reaches_is_flagged(score: float, flagged: bool) -> None:
    found = flags(score, 100, ChanceLevels(random_choice=0.0, constant_choice=0.40))
    assert found == (["no better than always the same choice (0.4000)"] if flagged else [])


def test_every_doubt_is_said() -> None:
    found = flags(0.0, 50, ChanceLevels(0.25, 0.3))
    assert [text.split(" (")[0].split(" on ")[0] for text in found] == [
        "a score of 0%",
        "no better than a random choice",
        "no better than always the same choice",
    ]


@pytest.mark.parametrize(("choices", "documents"), [(2, 50), (3, 60), (4, 60), (6, 90), (7, 210)])
def test_exactly_the_random_level_is_flagged_whatever_its_last_bit(choices: int, documents: int) -> None:
    levels = chance_levels(list(range(choices)) * (documents // choices), [choices] * documents)
    found = flags((documents // choices) / documents, documents, levels)
    assert any(text.startswith("no better than a random choice") for text in found)


@given(st.lists(st.tuples(st.integers(2, 8), st.integers(0, 7)), min_size=1, max_size=60))
def test_the_best_constant_answerer_is_always_flagged(documents: list[tuple[int, int]]) -> None:
    golds = [position % count for count, position in documents]
    levels = chance_levels(golds, [count for count, _ in documents])
    assert levels is not None
    assert 1 / 8 - 1e-9 <= levels.random_choice <= 1 / 2 + 1e-9
    right = max(sum(gold == choice for gold in golds) for choice in range(8))
    assert levels.constant_choice == right / len(golds)
    found = flags(right / len(golds), len(golds), levels)
    assert any(text.startswith("no better than always the same choice") for text in found)
