"""From gates to an item's status, and from statuses to a niche's verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gnus.gates.result import GateResult, Severity, not_evaluated
from pytest_gnus.gates.verdict import ItemOutcome, Missing, NicheVerdict, Status, niche_verdict, status_of

HOLDS = GateResult("hard_floor", True, value=0.5, threshold=0.3)
FAILS = GateResult("hard_floor", False, value=0.2, threshold=0.3)
UNKNOWN = not_evaluated("quantization_regression", "no reference", 0.1)
WARNS = GateResult("previous_run", False, value=0.2, threshold=0.1, severity="warn", consecutive_failures=1)
NOTED = not_evaluated("baseline_deviation", "no baseline", 0.2, severity="note")
STATUSES: tuple[Status, ...] = get_args(Status)


def outcome(
    benchmark: str, status: Status = "passed", variant: str = "quantized", detail: str = ""
) -> ItemOutcome:
    """Of a blocking benchmark, unless it is mmlu."""
    return ItemOutcome(benchmark, variant, benchmark != "mmlu", status, detail)


def required(benchmarks: Sequence[str]) -> list[tuple[str, str]]:
    """What a niche must pass that has no reference weights."""
    return [(benchmark, "quantized") for benchmark in benchmarks]


def verdict(*outcomes: ItemOutcome, blocking: Sequence[str] = ("a", "b")) -> NicheVerdict:
    return niche_verdict("toy", required(blocking), outcomes)


@pytest.mark.parametrize(
    ("gates", "gated", "status"),
    [
        ([HOLDS], True, "passed"),
        ([HOLDS, HOLDS], False, "passed"),
        ([HOLDS, FAILS], True, "failed"),
        ([FAILS], False, "warned"),
        ([HOLDS, UNKNOWN], True, "failed"),
        ([HOLDS, UNKNOWN], False, "warned"),
        ([UNKNOWN], True, "failed"),
        ([HOLDS, WARNS], True, "warned"),
        ([HOLDS, WARNS], False, "warned"),
        ([WARNS, FAILS], True, "failed"),
        ([HOLDS, NOTED], True, "passed"),
        ([NOTED], True, "passed"),
        ([NOTED, WARNS], True, "warned"),
        ([NOTED, UNKNOWN], True, "failed"),
    ],
)
def test_the_status_is_passed_only_where_nothing_is_against_the_item(
    gates: list[GateResult], gated: bool, status: Status
) -> None:
    assert status_of(gates, gated=gated) == status


@pytest.mark.parametrize("gated", [True, False])
def test_a_measured_item_without_any_gate_has_nothing_to_fail(gated: bool) -> None:
    """As a reference whose benchmark has no floor; the quantized variant always has its regression gate."""
    assert status_of([], gated=gated) == "passed"


def test_a_gate_that_was_not_evaluated_neither_holds_nor_fails() -> None:
    assert (UNKNOWN.evaluated, UNKNOWN.holds, UNKNOWN.passed) == (False, False, None)
    assert (FAILS.evaluated, FAILS.holds) == (True, False)
    assert UNKNOWN.to_record() == {
        "name": "quantization_regression",
        "passed": None,
        "evaluated": False,
        "value": None,
        "threshold": 0.1,
        "reference": None,
        "ci95": None,
        "p_value": None,
        "detail": "no reference",
        "severity": "block",
        "consecutive_failures": None,
        "accepted": None,
        "significant": None,
    }


def test_a_gate_is_against_its_item_where_it_does_not_hold_and_is_more_than_a_note() -> None:
    assert [gate.is_against for gate in (HOLDS, FAILS, UNKNOWN, WARNS, NOTED)] == [
        False,
        True,
        True,
        True,
        False,
    ]


def test_an_interval_is_recorded_as_a_list() -> None:
    assert GateResult("g", True, ci95=(0.0, 0.5)).to_record()["ci95"] == [0.0, 0.5]


def test_promote_where_every_blocking_benchmark_passed_on_quantized() -> None:
    found = verdict(outcome("a"), outcome("b"), outcome("a", variant="reference"))
    assert found == NicheVerdict("toy", "promote", (), (), (), must_fail=False)


@pytest.mark.parametrize("status", ["not_implemented", "skipped", "error"])
def test_a_blocking_benchmark_that_was_not_measured_blocks_and_is_named(status: Status) -> None:
    found = verdict(outcome("a"), outcome("b", status, detail="no data"))
    said = f"b (quantized): {status.replace('_', ' ')}: no data"
    assert found.verdict == "block"
    assert found.reasons == (f"not evaluated: {said}",)
    assert found.not_evaluated == (said,)


def test_a_blocking_benchmark_that_was_not_run_blocks_and_is_named() -> None:
    found = verdict(outcome("a"))
    assert found.verdict == "block"
    assert found.reasons == ("not evaluated: b (quantized): was not run",)


def test_a_pass_on_the_reference_does_not_stand_for_quantized() -> None:
    found = verdict(outcome("a"), outcome("b", variant="reference"))
    assert found.verdict == "block"
    assert found.not_evaluated == ("b (quantized): was not run",)


def test_a_failed_gate_blocks_and_says_which() -> None:
    found = verdict(outcome("a"), outcome("b", "failed", detail="hard_floor: 0.2000 < 0.3000"))
    assert found.verdict == "block"
    assert found.reasons == ("b (quantized) failed: hard_floor: 0.2000 < 0.3000",)
    assert found.not_evaluated == ()


def test_a_failed_reference_blocks() -> None:
    found = verdict(outcome("a"), outcome("b"), outcome("b", "failed", variant="reference"))
    assert (found.verdict, found.reasons) == ("block", ("b (reference) failed",))


def test_a_blocking_reference_in_error_blocks() -> None:
    found = verdict(outcome("a"), outcome("b"), outcome("b", "error", variant="reference", detail="no model"))
    assert found.verdict == "block"
    assert found.reasons == ("not evaluated: b (reference): error: no model",)


@pytest.mark.parametrize("status", STATUSES)
def test_a_diagnostic_benchmark_never_blocks(status: Status) -> None:
    assert verdict(outcome("a"), outcome("b"), outcome("mmlu", status)).verdict == "promote"


def test_a_diagnostic_benchmark_below_its_thresholds_is_a_warning() -> None:
    found = verdict(outcome("a"), outcome("b"), outcome("mmlu", "warned", detail="below"))
    assert (found.warnings, found.not_evaluated) == (("mmlu (quantized): below",), ())


def test_a_diagnostic_benchmark_that_was_not_measured_is_said() -> None:
    found = verdict(outcome("a"), outcome("b"), outcome("mmlu", "skipped", detail="no data"))
    assert found.not_evaluated == ("mmlu (quantized): skipped: no data (diagnostic)",)
    assert found.warnings == ()


def test_a_blocking_benchmark_that_only_warns_ships_and_says_so() -> None:
    """Its gates warn only where the tier says so (D-06)."""
    found = verdict(outcome("a"), outcome("b", "warned", detail="previous_run: the first failure"))
    assert (found.verdict, found.reasons, found.must_fail) == ("promote", (), False)
    assert found.warnings == ("b (quantized): previous_run: the first failure",)


def test_what_was_noted_is_listed_and_does_not_block() -> None:
    found = verdict(
        ItemOutcome("a", "quantized", True, "passed", notes=("previous_run: no earlier run",)),
        outcome("b"),
        ItemOutcome("mmlu", "quantized", False, "passed", notes=("previous_run: no earlier run",)),
    )
    assert (found.verdict, found.not_evaluated) == (
        "promote",
        ("a (quantized) previous_run: no earlier run",),
    )


def test_decisions_that_items_rely_on_are_named() -> None:
    accepted = ItemOutcome("a", "quantized", True, "passed", accepted=("previous_run accepted by Ann",))
    assert verdict(accepted, outcome("b")).accepted == ("a (quantized) previous_run accepted by Ann",)


@pytest.mark.parametrize(
    ("severity", "expected", "must_fail"), [("block", "block", True), ("warn", "promote", False)]
)
def test_a_gate_of_the_niche_blocks_or_warns_by_its_severity(
    severity: Severity, expected: str, must_fail: bool
) -> None:
    gate = GateResult("composite", False, value=1.0, threshold=2.0, detail="1 of 3", severity=severity)
    found = niche_verdict("toy", required("a"), [outcome("a")], gates=[gate])
    assert (found.verdict, found.must_fail, found.gates) == (expected, must_fail, (gate,))
    told = found.reasons if severity == "block" else found.warnings
    assert told == (f"composite {'failed' if severity == 'block' else ''}: 1 of 3".replace(" :", ":"),)


def test_a_gate_of_the_niche_that_was_not_evaluated_is_listed() -> None:
    noted = not_evaluated("composite", "fewer than 2", severity="note")
    found = niche_verdict("toy", required("a"), [outcome("a")], gates=[noted])
    assert (found.verdict, found.not_evaluated) == ("promote", ("composite: fewer than 2",))
    unknown = not_evaluated("composite", "the history cannot be read")
    found = niche_verdict("toy", required("a"), [outcome("a")], gates=[unknown])
    assert (found.verdict, found.must_fail) == ("block", True)
    assert found.reasons == ("composite failed: the history cannot be read",)


def test_what_else_a_person_should_know_is_a_warning() -> None:
    found = niche_verdict("toy", required("a"), [outcome("a")], warnings=["fell together"])
    assert (found.verdict, found.warnings) == ("promote", ("fell together",))


def test_a_niche_without_blocking_benchmarks_is_never_promoted() -> None:
    found = verdict(outcome("mmlu"), blocking=())
    assert (found.verdict, found.reasons) == ("block", ("the niche has no blocking benchmark",))


def test_a_run_that_is_not_gated_never_promotes() -> None:
    found = niche_verdict(
        "toy", required("a"), [outcome("a")], not_gated="a diagnostic run is never gated (D-03)"
    )
    assert (found.verdict, found.reasons) == ("block", ("a diagnostic run is never gated (D-03)",))


def test_every_reason_is_given_not_the_first() -> None:
    found = verdict(outcome("a", "failed"), outcome("b", "error"), outcome("c", "failed"), blocking="abcd")
    assert found.reasons == (
        "a (quantized) failed",
        "c (quantized) failed",
        "not evaluated: d (quantized): was not run",
        "not evaluated: b (quantized): error",
    )


@given(
    st.dictionaries(
        st.tuples(
            st.sampled_from(["a", "b", "mmlu"]), st.sampled_from(["baseline", "reference", "quantized"])
        ),
        st.sampled_from(STATUSES),
    ),
    st.lists(st.sampled_from(["a", "b"]), unique=True),
)
def test_whatever_happened_promote_means_that_no_blocking_benchmark_failed(
    statuses: dict[tuple[str, str], Status], blocking: list[str]
) -> None:
    outcomes = [
        ItemOutcome(name, variant, name in blocking, status) for (name, variant), status in statuses.items()
    ]
    found = niche_verdict("toy", required(blocking), outcomes)
    good = ("passed", "warned")
    passed = bool(blocking) and all(statuses.get((name, "quantized")) in good for name in blocking)
    if found.verdict == "promote":
        assert passed
        assert not any(o.blocking and o.status in ("failed", "error") for o in outcomes)
    else:
        assert found.reasons


@pytest.mark.parametrize(
    ("outcomes", "blocking", "not_gated", "must_fail"),
    [
        ([outcome("a"), outcome("b")], "ab", None, False),
        ([outcome("a")], "ab", None, True),  # nobody asked for a part, and one is missing
        ([outcome("a", variant="reference")], "ab", None, True),
        ([outcome("a", "skipped"), outcome("b")], "ab", None, True),
        ([outcome("a", "not_implemented")], "ab", None, True),
        ([outcome("a", "failed"), outcome("b")], "ab", None, True),
        ([outcome("a", "warned"), outcome("b")], "ab", None, False),
        ([outcome("mmlu")], "", None, True),  # nothing blocks this niche: nothing was decided
        ([outcome("a", "warned"), outcome("b", "warned")], "ab", "a limit", False),
    ],
)
def test_a_session_must_fail_where_something_that_ran_blocks(
    outcomes: list[ItemOutcome], blocking: str, not_gated: str | None, must_fail: bool
) -> None:
    assert niche_verdict("toy", required(blocking), outcomes, not_gated=not_gated).must_fail is must_fail


REFERENCE = Missing(("a", "reference"), evidence="passed in run 1 (a.json)")
FELL = Missing(("sgfp4", "quantized"), problem="was not run; it failed in run 1 (s.json)")


def test_an_earlier_record_stands_for_an_item_and_is_named() -> None:
    needed = [("a", "reference"), ("a", "quantized")]
    found = niche_verdict("toy", needed, [outcome("a")], missing=[REFERENCE], part=True)
    assert (found.verdict, found.reasons, found.must_fail) == ("promote", (), False)
    assert found.earlier == ("a (reference): passed in run 1 (a.json)",)


def test_an_earlier_record_says_nothing_of_what_was_measured_now() -> None:
    needed = [("a", "reference"), ("a", "quantized")]
    now = [outcome("a"), outcome("a", "failed", variant="reference")]
    found = niche_verdict("toy", needed, now, missing=[REFERENCE])
    assert (found.verdict, found.earlier) == ("block", ())


@pytest.mark.parametrize("part", [True, False])
def test_an_item_that_fell_before_and_was_left_out_blocks(part: bool) -> None:
    needed = [("sgfp4", "quantized"), ("a", "quantized")]
    found = niche_verdict("toy", needed, [outcome("a")], missing=[FELL], part=part)
    assert found.verdict == "block"
    assert found.reasons == ("not evaluated: sgfp4 (quantized): was not run; it failed in run 1 (s.json)",)
    assert found.must_fail is not part


def test_a_run_that_measured_nothing_promotes_nothing() -> None:
    found = niche_verdict("toy", required("a"), [], missing=[replace(REFERENCE, key=("a", "quantized"))])
    assert found.verdict == "block"
    assert found.reasons == ("not evaluated: nothing was measured in this run",)


@pytest.mark.parametrize("not_gated", [None, "a limit"])
def test_a_run_that_cannot_be_trusted_blocks_and_must_fail(not_gated: str | None) -> None:
    found = niche_verdict("toy", required("a"), [outcome("a")], problems=["disk full"], not_gated=not_gated)
    assert (found.verdict, found.must_fail) == ("block", True)
    assert "disk full" in found.reasons
