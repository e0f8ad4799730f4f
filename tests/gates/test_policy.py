"""What fails a regression gate under each policy."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import get_args

import pytest

from pytest_gnus.gates.comparison import Comparison, NotCompared, compare_pairing
from pytest_gnus.gates.pairing import Pairing, Side
from pytest_gnus.gates.policy import RegressionPolicy, RegressionVerdict, regression_gate
from pytest_gnus.gates.regression import regression

POLICIES: tuple[RegressionPolicy, ...] = get_args(RegressionPolicy)
LIMIT = 0.10


def documents(both: int, worse: int, better: int, neither: int, *, higher: bool = True) -> Comparison:
    none = (None,) * (both + worse + better + neither)
    reference = (1.0,) * (both + worse) + (0.0,) * (better + neither)
    candidate = (1.0,) * both + (0.0,) * worse + (1.0,) * better + (0.0,) * neither
    pairing = Pairing(Side(reference, none), Side(candidate, none), 0, 0)
    found = compare_pairing(pairing, higher_is_better=higher)
    assert isinstance(found, Comparison)
    return found


#: Relative drops of 4.2 % and 16.7 % from 0.6, each once clear and once lost in flips.
SMALL_NOISE = documents(800, 400, 350, 450)
SMALL_CLEAR = documents(1145, 55, 5, 795)
LARGE_NOISE = documents(19, 11, 6, 14)
LARGE_CLEAR = documents(990, 210, 10, 790)
TOO_FEW = NotCompared("insufficient data: 12 pairs of documents, 30 are needed", 12)


def judged(
    comparison: Comparison | NotCompared | None,
    policy: RegressionPolicy,
    *,
    score: float | None = None,
    reference: float | None = None,
    threshold: float | None = LIMIT,
) -> RegressionVerdict:
    if isinstance(comparison, Comparison) and score is None:
        score, reference = comparison.candidate_mean, comparison.reference_mean
    return regression_gate("sgfp4_regression", comparison, score, reference, threshold, policy)


def test_the_examples_are_what_they_are_called() -> None:
    small, large = [SMALL_NOISE, SMALL_CLEAR], [LARGE_NOISE, LARGE_CLEAR]
    assert [round(c.relative_drop or 0.0, 3) for c in small + large] == [0.042, 0.042, 0.167, 0.167]
    assert [c.significant_drop for c in small + large] == [False, True, False, True]


@pytest.mark.parametrize(
    ("comparison", "passed"),
    [
        (SMALL_NOISE, {"threshold": True, "significant": True, "both": True, "either": True}),
        (SMALL_CLEAR, {"threshold": True, "significant": False, "both": True, "either": False}),
        (LARGE_NOISE, {"threshold": False, "significant": True, "both": True, "either": False}),
        (LARGE_CLEAR, {"threshold": False, "significant": False, "both": False, "either": False}),
    ],
    ids=["small noise", "small clear", "large noise", "large clear"],
)
@pytest.mark.parametrize("policy", POLICIES)
def test_the_table_of_policies(
    comparison: Comparison, passed: dict[RegressionPolicy, bool], policy: RegressionPolicy
) -> None:
    assert judged(comparison, policy).gate.passed is passed[policy]


@pytest.mark.parametrize("nothing", [TOO_FEW, None, NotCompared("no per-document scores: 9 of 9", 9)])
@pytest.mark.parametrize(("score", "within"), [(0.58, True), (0.40, False)])
def test_insufficient_data_stops_all_but_the_threshold(
    nothing: NotCompared | None, score: float, within: bool
) -> None:
    for policy in POLICIES:
        gate = judged(nothing, policy, score=score, reference=0.6).gate
        assert gate.passed is (within if policy == "threshold" else None)
        assert (gate.p_value, gate.ci95) == (None, None)
        assert gate.value == pytest.approx((0.6 - score) / 0.6)
        assert "significance not claimed: " in gate.detail
        assert nothing is None or nothing.reason in gate.detail


def test_the_threshold_policy_is_the_plain_gate_with_the_evidence_beside_it() -> None:
    plain = regression("sgfp4_regression", 0.575, 0.6, LIMIT)
    gate = judged(SMALL_NOISE, "threshold").gate
    assert (gate.name, gate.passed, gate.threshold) == (plain.name, plain.passed, plain.threshold)
    assert gate.value == pytest.approx(plain.value)
    assert gate.detail.startswith(plain.detail)
    assert gate.detail == f"{plain.detail}; {SMALL_NOISE.summary()}"


def test_other_policies_are_named_in_the_detail() -> None:
    assert judged(LARGE_CLEAR, "both").gate.detail.startswith("policy both: drop +16.67% from 0.6000, limit")


def test_a_drop_of_exactly_the_limit_passes_whatever_its_last_bit() -> None:
    assert judged(TOO_FEW, "threshold", score=0.63, reference=0.70).gate.passed is True


def test_the_interval_has_the_units_of_the_value() -> None:
    gate = judged(LARGE_CLEAR, "threshold").gate
    low, high = LARGE_CLEAR.ci95
    assert gate.ci95 == (low / 0.6, high / 0.6)
    assert gate.value is not None
    assert gate.ci95[0] < gate.value < gate.ci95[1]
    assert gate.p_value == LARGE_CLEAR.p_value


@pytest.mark.parametrize(
    ("comparison", "policy", "warned"),
    [
        (SMALL_CLEAR, "threshold", "a significant drop within the limit"),
        (SMALL_CLEAR, "both", "a significant drop within the limit"),
        (LARGE_NOISE, "significant", "a drop beyond the limit that may be noise"),
        (LARGE_NOISE, "both", "a drop beyond the limit that may be noise"),
    ],
)
def test_a_pass_with_half_of_the_reasons_against_it_warns(
    comparison: Comparison, policy: RegressionPolicy, warned: str
) -> None:
    verdict = judged(comparison, policy)
    assert verdict.gate.holds
    assert verdict.warnings[0] == f"{warned}: {comparison.summary()}"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_quiet_pass_and_a_clear_failure_do_not_warn(policy: RegressionPolicy) -> None:
    assert judged(SMALL_NOISE, policy).warnings == ()
    assert judged(LARGE_CLEAR, policy).warnings == ()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_limit_tighter_than_the_documents_can_show_warns(policy: RegressionPolicy) -> None:
    verdict = judged(LARGE_NOISE, policy)
    assert verdict.warnings[-1] == LARGE_NOISE.underpowered(LIMIT * 0.6)
    assert "underpowered: 50 documents" in verdict.warnings[-1]


def test_a_score_that_is_not_the_mean_of_its_documents_claims_no_significance() -> None:
    """By the comparison's own word, and by the numbers where nobody told the comparison."""
    told = dataclasses.replace(LARGE_CLEAR, mean_of_documents=False)
    for policy in ("significant", "both", "either"):
        assert judged(told, policy).gate.passed is None
        assert judged(LARGE_CLEAR, policy, score=0.7, reference=0.8).gate.passed is None
    gate = judged(LARGE_CLEAR, "threshold", score=0.78, reference=0.8).gate
    assert (gate.passed, gate.p_value, gate.ci95) == (True, None, None)
    assert "the score is not the mean of its documents" in gate.detail


def test_an_improvement_passes_every_policy() -> None:
    better = documents(900, 10, 290, 800)
    for policy in POLICIES:
        verdict = judged(better, policy)
        assert verdict.gate.holds
        assert verdict.warnings == ()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("score", "reference", "said"),
    [
        (0.5, None, "run the reference first"),
        (None, 0.5, "not measured"),
        (math.nan, 0.5, "the score is nan"),
        (0.5, math.inf, "the reference is inf"),
    ],
)
def test_what_was_not_measured_is_not_evaluated(
    policy: RegressionPolicy, score: float | None, reference: float | None, said: str
) -> None:
    verdict = regression_gate(
        "regression", LARGE_CLEAR, score, reference, LIMIT, policy, missing="run the reference first"
    )
    assert (verdict.gate.name, verdict.gate.passed, verdict.gate.detail) == ("regression", None, said)
    assert (verdict.gate.threshold, verdict.warnings) == (LIMIT, ())
    json.dumps(verdict.gate.to_record(), allow_nan=False)


def test_only_significance_needs_no_limit() -> None:
    assert judged(LARGE_CLEAR, "significant", threshold=None).gate.passed is False
    assert judged(LARGE_NOISE, "significant", threshold=None).gate.passed is True
    for policy in ("threshold", "both", "either"):
        gate = judged(LARGE_CLEAR, policy, threshold=None).gate
        assert gate.passed is None
        assert "no limit is set" in gate.detail


def test_a_reference_of_zero_has_significance_but_no_relative_drop() -> None:
    """As an error rate that was none."""
    rise = documents(0, 0, 40, 160, higher=False)
    for policy in POLICIES:
        passed = False if policy == "significant" else None
        verdict = regression_gate("r", rise, 0.2, 0.0, LIMIT, policy, higher_is_better=False)
        assert (verdict.gate.passed, verdict.gate.value, verdict.gate.ci95) == (passed, None, None)
        assert "the reference scored 0.0: no relative drop exists" in verdict.gate.detail


def test_where_lower_is_better_a_rise_fails() -> None:
    rise = documents(400, 20, 120, 460, higher=False)
    for policy in POLICIES:
        gate = regression_gate("r", rise, 0.52, 0.42, LIMIT, policy, higher_is_better=False).gate
        assert gate.passed is False


def test_a_comparison_of_the_other_direction_is_refused() -> None:
    with pytest.raises(ValueError, match="compared the other way round"):
        regression_gate("r", LARGE_CLEAR, 0.5, 0.6, LIMIT, "significant", higher_is_better=False)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_limit_of_zero_allows_no_drop(policy: RegressionPolicy) -> None:
    passed = {"threshold": False, "significant": True, "both": True, "either": False}
    assert judged(SMALL_NOISE, policy, threshold=0.0).gate.passed is passed[policy]
