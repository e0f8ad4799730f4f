"""Hard floors and category floors."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gnus.gates.floors import category_floors, hard_floor
from pytest_gnus.gates.result import GateResult

shares = st.floats(min_value=0.0, max_value=1.0)


def floor_of(score: float | None, threshold: float, *, higher_is_better: bool = True) -> GateResult:
    gate = hard_floor(score, threshold, higher_is_better=higher_is_better)
    assert gate is not None
    return gate


@pytest.mark.parametrize(
    ("score", "threshold", "passed", "detail"),
    [
        (0.30, 0.30, True, "0.3000 >= 0.3000"),
        (0.31, 0.30, True, "0.3100 >= 0.3000"),
        (0.29, 0.30, False, "0.2900 < 0.3000"),
        (0.0, 0.0, True, "0.0000 >= 0.0000"),
    ],
)
def test_a_score_at_or_above_its_floor_passes(
    score: float, threshold: float, passed: bool, detail: str
) -> None:
    gate = floor_of(score, threshold)
    assert (gate.name, gate.passed, gate.value, gate.threshold) == ("hard_floor", passed, score, threshold)
    assert gate.detail == detail


def test_a_score_one_bit_below_the_floor_fails() -> None:
    assert floor_of(math.nextafter(0.3, 0.0), 0.3).passed is False


@pytest.mark.parametrize(
    ("score", "passed", "detail"),
    [
        (12.0, True, "12.0000 <= 12.0000"),
        (11.5, True, "11.5000 <= 12.0000"),
        (12.5, False, "12.5000 > 12.0000"),
    ],
)
def test_where_lower_is_better_the_floor_is_the_highest_score_allowed(
    score: float, passed: bool, detail: str
) -> None:
    gate = floor_of(score, 12.0, higher_is_better=False)
    assert (gate.passed, gate.detail) == (passed, detail)


@pytest.mark.parametrize("score", [None, math.nan])
@pytest.mark.parametrize("higher", [True, False])
def test_what_was_not_measured_is_not_evaluated(score: float | None, higher: bool) -> None:
    gate = floor_of(score, 0.3, higher_is_better=higher)
    assert (gate.passed, gate.evaluated, gate.holds) == (None, False, False)
    assert (gate.value, gate.threshold, gate.detail) == (None, 0.3, "not measured")


@pytest.mark.parametrize(("score", "higher"), [(math.inf, True), (-math.inf, False)])
def test_an_infinite_score_passes_no_floor(score: float, higher: bool) -> None:
    assert floor_of(score, 0.3, higher_is_better=higher).holds is False


def test_without_a_floor_there_is_no_gate() -> None:
    assert hard_floor(0.9, None) is None


def test_the_interval_is_shown_and_does_not_decide() -> None:
    gate = hard_floor(0.31, 0.30, ci95=(0.21, 0.41))
    assert gate is not None
    assert gate.ci95 == (0.21, 0.41)
    assert gate.holds


@given(score=shares, threshold=shares)
def test_a_floor_holds_exactly_where_the_score_is_not_worse(score: float, threshold: float) -> None:
    assert floor_of(score, threshold).holds is (not score < threshold)
    assert floor_of(score, threshold, higher_is_better=False).holds is (not score > threshold)


MMLU = {"mmlu_anatomy": 0.40, "mmlu_virology": 0.20, "stem": 0.50}


@pytest.mark.parametrize(
    ("name", "floor", "passed", "value"),
    [
        ("mmlu_anatomy", 0.40, True, 0.40),
        ("anatomy", 0.40, True, 0.40),
        ("virology", 0.25, False, 0.20),
        ("stem", 0.50, True, 0.50),
    ],
)
def test_a_category_is_found_by_its_full_or_its_short_name(
    name: str, floor: float, passed: bool, value: float
) -> None:
    (gate,) = category_floors(MMLU, {name: floor})
    assert (gate.name, gate.passed, gate.value, gate.threshold) == (
        f"category_floor[{name}]",
        passed,
        value,
        floor,
    )


def test_a_category_that_was_not_measured_is_not_evaluated() -> None:
    (gate,) = category_floors(MMLU, {"astrology": 0.1})
    assert (gate.name, gate.passed, gate.detail) == ("category_floor[astrology]", None, "not measured")


def test_a_part_of_a_word_is_no_short_name() -> None:
    (gate,) = category_floors({"mmlu_neuroanatomy": 0.9}, {"anatomy": 0.1})
    assert gate.passed is None


def test_an_ambiguous_short_name_is_not_evaluated() -> None:
    (gate,) = category_floors({"high_school_biology": 0.9, "college_biology": 0.9}, {"biology": 0.1})
    assert gate.passed is None


def test_a_full_name_wins_over_other_categories_that_end_in_it() -> None:
    (gate,) = category_floors({"biology": 0.2, "college_biology": 0.9}, {"biology": 0.5})
    assert (gate.passed, gate.value) == (False, 0.2)


def test_each_floor_gives_one_gate_in_its_order() -> None:
    gates = category_floors(MMLU, {"stem": 0.6, "virology": 0.1, "other": 0.5})
    assert [(gate.name, gate.passed) for gate in gates] == [
        ("category_floor[stem]", False),
        ("category_floor[virology]", True),
        ("category_floor[other]", None),
    ]


def test_a_category_floor_respects_lower_is_better() -> None:
    gates = category_floors({"en": 9.0, "de": 11.0}, {"en": 10.0, "de": 10.0}, higher_is_better=False)
    assert [gate.passed for gate in gates] == [True, False]


def test_a_category_scored_nan_is_not_evaluated() -> None:
    (gate,) = category_floors({"en": math.nan}, {"en": 0.0})
    assert gate.passed is None


def test_no_floors_give_no_gates() -> None:
    assert category_floors(MMLU, {}) == []
