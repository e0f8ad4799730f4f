"""The regression of the quantized weights from their unquantized reference."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gnus.gates.regression import regression, relative_drop

positive = st.floats(min_value=1e-3, max_value=1e3)


@pytest.mark.parametrize(
    ("score", "reference", "drop"),
    [
        (0.45, 0.50, 0.10),
        (0.25, 0.50, 0.50),
        (0.60, 0.50, -0.20),
        (0.50, 0.50, 0.0),
        (0.0, 0.50, 1.0),
        (-0.6, -0.5, 0.2),
    ],
)
def test_the_drop_is_a_share_of_the_reference(score: float, reference: float, drop: float) -> None:
    assert relative_drop(score, reference) == pytest.approx(drop, abs=1e-12)


@pytest.mark.parametrize(("score", "drop"), [(11.0, 0.10), (9.0, -0.10), (10.0, 0.0), (20.0, 1.0)])
def test_where_lower_is_better_a_rise_is_a_drop(score: float, drop: float) -> None:
    """As for perplexity."""
    assert relative_drop(score, 10.0, higher_is_better=False) == pytest.approx(drop, abs=1e-12)


def test_there_is_no_share_of_a_reference_of_zero() -> None:
    assert relative_drop(0.0, 0.0) == 0.0
    assert relative_drop(0.1, 0.0) is None
    assert relative_drop(0.1, 0.0, higher_is_better=False) is None


def test_a_drop_within_the_limit_passes_with_its_numbers() -> None:
    gate = regression("sgfp4_regression", 0.48, 0.50, 0.10)
    assert (gate.name, gate.passed, gate.threshold, gate.reference) == ("sgfp4_regression", True, 0.10, 0.50)
    assert gate.value == pytest.approx(0.04)
    assert gate.detail == "drop +4.00% from 0.5000, limit 10.00%"


def test_a_drop_beyond_the_limit_fails_with_its_numbers() -> None:
    gate = regression("sgfp4_regression", 0.40, 0.50, 0.10)
    assert gate.passed is False
    assert gate.value == pytest.approx(0.20)
    assert gate.detail == "drop +20.00% from 0.5000, limit 10.00%"


@pytest.mark.parametrize(
    ("score", "reference", "limit"),
    [(0.45, 0.50, 0.10), (0.27, 0.30, 0.10), (0.63, 0.70, 0.10), (0.56, 0.70, 0.20), (0.50, 0.50, 0.0)],
)
def test_a_drop_equal_to_the_limit_passes_whatever_its_last_bit(
    score: float, reference: float, limit: float
) -> None:
    assert regression("sgfp4_regression", score, reference, limit).passed is True


def test_a_drop_of_one_document_more_than_the_limit_fails() -> None:
    assert regression("sgfp4_regression", 899 / 2000, 1000 / 2000, 0.10).passed is False
    assert regression("sgfp4_regression", 900 / 2000, 1000 / 2000, 0.10).passed is True


def test_an_improvement_passes_even_a_limit_of_zero() -> None:
    gate = regression("sgfp4_regression", 0.55, 0.50, 0.0)
    assert gate.passed is True
    assert gate.value == pytest.approx(-0.10)


def test_zero_against_zero_is_no_drop() -> None:
    gate = regression("sgfp4_regression", 0.0, 0.0, 0.10)
    assert (gate.passed, gate.value) == (True, 0.0)


def test_a_reference_of_zero_cannot_be_compared_with() -> None:
    gate = regression("sgfp4_regression", 0.2, 0.0, 0.10)
    assert (gate.passed, gate.value, gate.threshold) == (None, None, 0.10)
    assert gate.detail == "the reference scored 0.0: no relative drop exists"


def test_a_missing_reference_is_not_evaluated_and_says_why() -> None:
    gate = regression("sgfp4_regression", 0.5, None, 0.10, missing="run the reference first")
    assert (gate.passed, gate.evaluated, gate.holds) == (None, False, False)
    assert gate.detail == "run the reference first"


def test_a_missing_score_is_not_evaluated() -> None:
    gate = regression("sgfp4_regression", None, 0.5, 0.10, missing="no reference")
    assert (gate.passed, gate.detail) == (None, "not measured")


@pytest.mark.parametrize(
    ("score", "reference"),
    [(math.nan, 0.5), (0.5, math.nan), (math.inf, 0.5), (0.5, math.inf), (0.5, -math.inf)],
)
def test_what_is_not_finite_does_not_pass_and_can_be_recorded(score: float, reference: float) -> None:
    gate = regression("sgfp4_regression", score, reference, 0.10)
    assert not gate.holds
    assert json.loads(json.dumps(gate.to_record(), allow_nan=False))["passed"] is not True


def test_perplexity_may_rise_by_the_limit_and_no_more() -> None:
    assert regression("sgfp4_regression", 11.0, 10.0, 0.10, higher_is_better=False).passed is True
    assert regression("sgfp4_regression", 11.1, 10.0, 0.10, higher_is_better=False).passed is False
    assert regression("sgfp4_regression", 2.0, 10.0, 0.10, higher_is_better=False).passed is True


@given(score=positive, reference=positive)
def test_the_drop_undone_gives_the_score_again(score: float, reference: float) -> None:
    drop = relative_drop(score, reference)
    rise = relative_drop(score, reference, higher_is_better=False)
    assert drop is not None
    assert rise == -drop
    assert reference * (1.0 - drop) == pytest.approx(score, abs=1e-9)


@given(reference=positive, share=st.floats(0.0, 1.0), limit=st.floats(0.0, 1.0))
def test_a_known_drop_passes_exactly_within_its_limit(reference: float, share: float, limit: float) -> None:
    gate = regression("sgfp4_regression", reference * (1.0 - share), reference, limit)
    if abs(share - limit) > 1e-9:
        assert gate.passed is (share < limit)
    else:
        assert gate.evaluated
