"""The trend gates of an item: what it is compared with, its tier, and decisions that it relies on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_gnus.errors import RecordError
from pytest_gnus.gates.result import GateResult
from pytest_gnus.gates.verdict import status_of
from pytest_gnus.judging import Judgement, References, judge
from pytest_gnus.plan import BenchmarkItem
from pytest_gnus.records.decisions import accept
from pytest_gnus.records.store import RecordStore, StoredRecord, read
from tests.making_history import LIMITS, REQUEST, fields, item_of, keep, measured, rights, run_id

NOW = 1000.0


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(tmp_path / "artifacts")


def judged(
    store: RecordStore,
    score: float = 0.5,
    *,
    build: str = "c",
    now: float = NOW,
    item: BenchmarkItem | None = None,
    right: Sequence[bool] | None = None,
    reference: float | None = None,
    **changes: Any,
) -> Judgement:
    """What the gates say of a build in a run that begins now; its reference scores the same."""
    item = item or item_of()
    known = fields(build, **changes)
    measurement = measured(score, right)
    references = References(store, run_id(now))
    other = measurement if reference is None else measured(reference)
    references.remember(replace(item, variant="reference"), other, known)
    return judge(item, measurement, known, references)


def gate_of(judgement: Judgement, name: str = "previous_run") -> GateResult:
    (gate,) = [gate for gate in judgement.gates if gate.name == name]
    return gate


def ran(store: RecordStore, second: float, score: float, build: str, **changes: Any) -> GateResult:
    """A whole run: judged, and its record kept."""
    judgement = judged(store, score, build=build, now=second, **changes)
    keep(store, score, began=second, build=build, gates=judgement.gates)
    return gate_of(judgement)


def test_the_first_run_has_nothing_to_compare_with_and_passes(store: RecordStore) -> None:
    judgement = judged(store)
    assert [(gate.name, gate.passed, gate.severity) for gate in judgement.gates] == [
        ("hard_floor", True, "block"),
        ("quantization_regression", True, "block"),
        ("previous_run", None, "note"),
        ("baseline_deviation", None, "note"),
    ]
    assert gate_of(judgement).detail == "no earlier run to compare with; the next run has this one"
    assert gate_of(judgement, "baseline_deviation").detail == (
        "no comparable record of the baseline; run `pytest --niche=toy --gnus-variant=baseline -k colours`"
    )
    assert status_of(judgement.gates, gated=True) == "passed"


@pytest.mark.parametrize(("score", "passed"), [(0.45, True), (0.4499, False), (0.6, True)])
def test_the_drop_from_the_previous_run_has_its_own_limit(
    store: RecordStore, score: float, passed: bool
) -> None:
    keep(store, 0.5, began=1, build="a")
    gate = gate_of(judged(store, score))
    assert (gate.passed, gate.threshold, gate.reference) == (passed, 0.1, 0.5)
    assert gate.value == pytest.approx((0.5 - score) / 0.5)
    wide = item_of(thresholds=replace_limits(max_relative_drop_from_previous=0.5))
    assert gate_of(judged(store, score, item=wide)).passed is True


def replace_limits(**changes: Any) -> Any:
    return LIMITS.model_copy(update=changes)


def test_a_sibling_is_never_the_previous_run(store: RecordStore) -> None:
    keep(store, 0.9, began=NOW, build="a")
    assert gate_of(judged(store)).passed is None


@pytest.mark.parametrize("item", [item_of(run_limit=5), item_of(request=replace(REQUEST, mode="diagnostic"))])
def test_what_is_not_gated_has_no_trend(store: RecordStore, item: BenchmarkItem) -> None:
    keep(store, 0.9, began=1, build="a")
    names = [gate.name for gate in judged(store, item=item).gates]
    assert names == ["hard_floor", "quantization_regression"]


@pytest.mark.parametrize("variant", ["reference", "baseline"])
def test_only_what_ships_has_a_trend(store: RecordStore, variant: Any) -> None:
    keep(store, 0.9, began=1, item=item_of(variant))
    judgement = judge(item_of(variant), measured(), fields(), References(store, run_id(NOW)))
    assert [gate.name for gate in judgement.gates] == ["hard_floor"]


def test_a_protocol_that_differs_is_named_and_not_compared(store: RecordStore) -> None:
    path = keep(store, 0.9, began=1, build="a", dataset_revision="sha256:y", fewshot_seed=7)
    gate = gate_of(judged(store))
    assert (gate.passed, gate.severity) == (None, "note")
    assert f"{path.name}: differs in dataset_revision, fewshot_seed" in gate.detail


def test_builds_that_fall_warn_twice_and_then_block(store: RecordStore) -> None:
    keep(store, 0.9, began=1, build="0")
    found = [ran(store, 2, 0.8, "1"), ran(store, 3, 0.7, "2"), ran(store, 4, 0.6, "3")]
    assert [(g.passed, g.severity, g.consecutive_failures) for g in found] == [
        (False, "warn", 1),
        (False, "warn", 2),
        (False, "block", 3),
    ]
    assert [gate.reference for gate in found] == [0.9, 0.9, 0.9], "a run that did not hold is no measure"
    assert "2 newer did not hold" in found[2].detail
    assert found[2].detail.endswith("not held on 3 or more builds in a row, blocks from 3")
    held = ran(store, 5, 0.85, "4")
    assert (held.passed, held.consecutive_failures, held.reference) == (True, 0, 0.9)
    again = ran(store, 6, 0.5, "5")
    assert (again.consecutive_failures, again.reference) == (1, 0.85)


def test_a_level_that_fell_once_and_stays_is_not_forgiven(store: RecordStore) -> None:
    keep(store, 0.9, began=1, build="0")
    found = [ran(store, second, 0.6, build) for second, build in ((2, "1"), (3, "2"), (4, "3"), (5, "4"))]
    assert [gate.severity for gate in found] == ["warn", "warn", "block", "block"]
    assert {gate.reference for gate in found} == {0.9}


def test_where_no_run_held_there_is_no_measure_and_the_gate_does_not_hold(store: RecordStore) -> None:
    path = keep(store, 0.9, began=1, build="0")
    ran(store, 2, 0.6, "1")
    path.unlink()
    gate = ran(store, 3, 0.6, "2")
    assert (gate.passed, gate.severity, gate.consecutive_failures) == (None, "warn", 2)
    assert gate.detail.startswith("in none of the 1 runs before did it hold")


def test_a_build_that_is_run_again_counts_once_and_is_not_compared_with_itself(store: RecordStore) -> None:
    keep(store, 0.9, began=1, build="0")
    found = [ran(store, second, 0.8, "1") for second in (2, 3, 4, 5)]
    assert {(g.passed, g.severity, g.consecutive_failures, g.reference) for g in found} == {
        (False, "warn", 1, 0.9)
    }


def test_the_number_of_builds_is_the_niches(store: RecordStore) -> None:
    keep(store, 0.9, began=1, build="0")
    assert gate_of(judged(store, 0.5, item=item_of(failures_to_block=1))).severity == "block"
    assert gate_of(judged(store, 0.5, item=item_of(failures_to_block=2))).severity == "warn"


def test_a_first_failure_warns_and_the_item_ships(store: RecordStore) -> None:
    keep(store, 0.9, began=1, build="0")
    judgement = judged(store, 0.5)
    assert status_of(judgement.gates, gated=True) == "warned"
    ran(store, 2, 0.8, "1")
    ran(store, 3, 0.7, "2")
    assert status_of(judged(store, 0.5).gates, gated=True) == "failed"


@pytest.mark.parametrize("failing", ["limited", "other protocol", "error"])
def test_runs_that_cannot_be_compared_with_do_not_count(store: RecordStore, failing: str) -> None:
    changes: dict[str, Any] = {
        "limited": {"item": item_of(run_limit=5)},
        "other protocol": {"prompt_hash": "f" * 64},
        "error": {"status": "error"},
    }[failing]
    keep(store, 0.9, began=1, build="0")
    against = [GateResult("previous_run", False, severity="warn")]
    for second in (2, 3):
        keep(store, 0.8, began=second, build=str(second), gates=against, **changes)
    assert gate_of(judged(store)).consecutive_failures == 1


def test_a_build_of_which_nobody_knows_what_it_is_counts_each_time(store: RecordStore) -> None:
    keep(store, 0.9, began=1, build="0")
    against = [GateResult("previous_run", False, severity="warn")]
    for second in (2, 3):
        keep(store, 0.8, began=second, gates=against, model_manifest_sha256=None)
    assert gate_of(judged(store, model_manifest_sha256=None)).consecutive_failures == 3


def garble(path: Path) -> None:
    path.write_text("{")


def alter(path: Path) -> None:
    path.write_text(path.read_text().replace('"score": 0.9', '"score": 0.1'))


def make_newer(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 2}))


def swap(path: Path) -> None:
    """Another, lower record in its place."""
    older = min(path.parent.glob("*.json"))
    path.write_bytes(older.read_bytes())


@pytest.mark.parametrize("break_it", [garble, alter, make_newer, swap])
def test_a_newer_record_that_cannot_be_read_counts_as_a_failure(
    store: RecordStore, break_it: Callable[[Path], None]
) -> None:
    keep(store, 0.1, began=1, build="a")
    path = keep(store, 0.9, began=2, build="b")
    break_it(path)
    judgement = judged(store)
    gate = gate_of(judgement)
    assert (gate.passed, gate.severity, gate.reference) == (None, "warn", None)
    # The file itself has no standing either: it counts as a build that failed.
    assert gate.consecutive_failures == 2
    assert path.name in gate.detail
    assert status_of(judgement.gates, gated=True) == "warned"
    assert gate_of(judged(store, item=item_of(failures_to_block=2))).severity == "block"
    assert path.exists()


@pytest.mark.parametrize("break_it", [garble, alter, make_newer, swap])
def test_so_it_is_with_the_baseline_and_the_reference(
    store: RecordStore, break_it: Callable[[Path], None]
) -> None:
    for variant in ("baseline", "reference"):
        keep(store, 0.1, began=1, item=item_of(variant))
        break_it(keep(store, 0.9, began=2, item=item_of(variant)))
    judgement = judge(item_of(), measured(), fields(), References(store, run_id(NOW)))
    deviation, regression = (
        gate_of(judgement, name) for name in ("baseline_deviation", "quantization_regression")
    )
    assert (deviation.passed, deviation.severity, deviation.consecutive_failures) == (None, "warn", 1)
    assert (regression.passed, regression.severity) == (None, "block")
    assert status_of(judgement.gates, gated=True) == "failed"


def test_records_that_cannot_be_read_never_turn_a_block_into_less(store: RecordStore) -> None:
    """Whichever of a falling row is lost."""
    keep(store, 0.9, began=1, build="0")
    ran(store, 2, 0.8, "1")
    ran(store, 3, 0.7, "2")
    paths = sorted(store.folder.glob("*.json"))
    assert gate_of(judged(store, 0.6)).severity == "block"
    for path in paths[1:]:
        whole = path.read_bytes()
        garble(path)
        assert gate_of(judged(store, 0.6)).severity == "block"
        path.write_bytes(whole)


def test_outcomes_that_were_altered_do_not_make_a_failure_a_note(store: RecordStore) -> None:
    """Where the policy asks for significance, there is none to be had of them."""
    item = item_of(regression_policy="significant")
    path = keep(store, began=1, build="a", right=rights(80))
    assert gate_of(judged(store, item=item, right=rights(60))).passed is False
    (store.folder / read(path)["samples"]).write_bytes(b"")
    gate = gate_of(judged(store, item=item, right=rights(60)))
    assert (gate.passed, gate.severity) == (None, "warn")
    assert f"{read(path)['samples']} cannot be read" in gate.detail


def test_the_baseline_of_this_run_is_preferred_to_a_record(store: RecordStore) -> None:
    keep(store, 0.9, began=1, item=item_of("baseline"))
    assert gate_of(judged(store), "baseline_deviation").reference == 0.9
    references = References(store, run_id(NOW))
    references.remember(item_of("baseline"), measured(0.6), fields("e"))
    gate = gate_of(judge(item_of(), measured(0.48), fields(), references), "baseline_deviation")
    assert (gate.passed, gate.reference, gate.threshold) == (True, 0.6, 0.2)
    gate = gate_of(judge(item_of(), measured(0.47), fields(), references), "baseline_deviation")
    assert (gate.passed, gate.severity) == (False, "warn")


def test_a_baseline_that_scored_nothing_is_only_noted(store: RecordStore) -> None:
    """As an untrained backbone may: there is no share of nothing."""
    keep(store, 0.0, began=1, item=item_of("baseline"))
    gate = gate_of(judged(store), "baseline_deviation")
    assert (gate.passed, gate.severity) == (None, "note")
    assert "no relative drop exists" in gate.detail


def accepting(store: RecordStore, path: Path, reason: str = "smaller") -> Path:
    return accept(store, [StoredRecord(path, read(path))], "Ann", reason)


def test_an_accepted_drop_does_not_block_again(store: RecordStore) -> None:
    """The build is run again after a person has accepted it."""
    keep(store, 0.9, began=1, build="a")
    path = keep(store, 0.6, began=2, build="b")
    before = judged(store, 0.6, build="b", reference=0.9)
    assert [gate_of(before, n).passed for n in ("quantization_regression", "previous_run")] == [False, False]
    accepting(store, path)
    judgement = judged(store, 0.6, build="b", reference=0.9)
    for name in ("quantization_regression", "previous_run"):
        gate = gate_of(judgement, name)
        assert (gate.passed, gate.reference, gate.value) == (True, 0.6, 0.0)
        assert gate.accepted is not None
        assert gate.accepted.startswith("accepted by Ann on ")
        assert f"smaller (run {run_id(2)}, score 0.6000)" in gate.accepted
        assert "without it: drop +33.33% from 0.9000" in gate.detail
    assert status_of(judgement.gates, gated=True) == "passed"


def test_a_drop_from_the_baseline_can_be_accepted(store: RecordStore) -> None:
    keep(store, 0.9, began=1, item=item_of("baseline"))
    accepting(store, keep(store, 0.6, began=2, build="b"))
    gate = gate_of(judged(store, 0.58), "baseline_deviation")
    assert (gate.passed, gate.reference) == (True, 0.6)
    assert gate.accepted


def test_what_falls_below_the_accepted_score_fails_and_says_so(store: RecordStore) -> None:
    accepting(store, keep(store, 0.6, began=2, build="b"))
    judgement = judged(store, 0.5, reference=0.9)
    gate = gate_of(judgement, "quantization_regression")
    assert (gate.passed, gate.reference, gate.accepted) == (False, 0.9, None)
    assert "lower than what was accepted by Ann" in gate.detail
    assert status_of(judgement.gates, gated=True) == "failed"


def test_a_score_that_erodes_is_measured_from_what_was_accepted(store: RecordStore) -> None:
    """Not each from the one before: else small steps lead anywhere."""
    accepting(store, keep(store, 0.6, began=2, build="b"))
    assert gate_of(judged(store, 0.56, reference=0.9), "quantization_regression").passed is True
    keep(store, 0.56, began=3, build="d")
    assert gate_of(judged(store, 0.52, reference=0.9), "quantization_regression").passed is False


def test_the_previous_run_moves_on_from_what_was_accepted(store: RecordStore) -> None:
    accepting(store, keep(store, 0.5, began=2, build="b"))
    keep(store, 0.9, began=3, build="d")
    gate = gate_of(judged(store, 0.5))
    assert (gate.passed, gate.reference, gate.accepted) == (False, 0.9, None)


def test_a_decision_is_not_relied_on_where_none_is_needed(store: RecordStore) -> None:
    accepting(store, keep(store, 0.5, began=2, build="b"))
    judgement = judged(store, 0.5)
    assert [gate.accepted for gate in judgement.gates] == [None] * 4
    assert gate_of(judgement).passed is True


def test_a_floor_cannot_be_accepted(store: RecordStore) -> None:
    accepting(store, keep(store, 0.2, began=2, build="b"))
    gate = gate_of(judged(store, 0.2), "hard_floor")
    assert (gate.passed, gate.accepted) == (False, None)


def test_runs_up_to_the_accepted_one_do_not_count(store: RecordStore) -> None:
    keep(store, 0.9, began=1, build="0")
    ran(store, 2, 0.8, "1")
    ran(store, 3, 0.7, "2")
    accepting(store, sorted(store.folder.glob("*.json"))[-1])
    gate = gate_of(judged(store, 0.6, build="3"))
    assert (gate.passed, gate.severity, gate.consecutive_failures) == (False, "warn", 1)


@pytest.mark.parametrize("item", ["shapes", "other"])
def test_a_decision_is_about_its_item_only(store: RecordStore, item: str) -> None:
    other = item_of(benchmark="shapes") if item == "shapes" else item_of(niche="other")
    keep(store, 0.9, began=1, build="a")
    accepting(store, keep(store, 0.5, began=2, build="b", item=other))
    assert gate_of(judged(store, 0.5)).passed is False


def test_a_decision_on_this_run_or_a_later_one_does_not_count(store: RecordStore) -> None:
    keep(store, 0.9, began=1, build="a")
    accepting(store, keep(store, 0.5, began=NOW, build="c"))
    accepting(store, keep(store, 0.5, began=NOW + 1, build="c"))
    assert gate_of(judged(store, 0.5)).passed is False


def altered_decision(store: RecordStore, decision: Path, _record: Path) -> str:
    decision.write_text(decision.read_text().replace("Ann", "Bob"))
    return f"a decision is not counted: {decision.name}: it does not fit its own digest: it was altered"


def broken_decision(store: RecordStore, decision: Path, _record: Path) -> str:
    decision.write_text("{")
    return f"a decision is not counted: {decision.name} cannot be read"


def altered_record(store: RecordStore, _decision: Path, record: Path) -> str:
    record.write_text(record.read_text().replace('"score": 0.6', '"score": 0.61'))
    return f"the decision on run {run_id(3)} does not count: {record.name}: it does not fit its own digest"


def replaced_record(store: RecordStore, _decision: Path, record: Path) -> str:
    """Made anew by someone who can, under the same name."""
    record.unlink()
    keep(store, 0.61, began=3, build="2")
    return f"the decision on run {run_id(3)} does not count: {record.name} is not the record that was"


def lost_record(store: RecordStore, _decision: Path, record: Path) -> str:
    record.unlink()
    return f"the decision on run {run_id(3)} does not count: {record.name} cannot be read"


@pytest.mark.parametrize(
    "spoil", [altered_decision, broken_decision, altered_record, replaced_record, lost_record]
)
def test_a_decision_that_cannot_be_believed_does_not_count_and_is_told(
    store: RecordStore, spoil: Callable[[RecordStore, Path, Path], str]
) -> None:
    """Neither for the drop nor for the row of failures."""
    keep(store, 0.9, began=1, build="0")
    against = [GateResult("previous_run", False, severity="warn")]
    keep(store, 0.8, began=2, build="1", gates=against)
    record = keep(store, 0.6, began=3, build="2", gates=against)
    decision = accepting(store, record)
    assert gate_of(judged(store, 0.6, build="2")).accepted
    told = spoil(store, decision, record)
    judgement = judged(store, 0.6, build="2", reference=0.9)
    assert gate_of(judgement, "quantization_regression").passed is False
    assert [gate.accepted for gate in judgement.gates] == [None] * 4
    assert any(told in text for text in judgement.warnings), judgement.warnings
    row = 3 if spoil is not lost_record and spoil is not replaced_record else 2
    assert gate_of(judged(store, 0.3, build="3")).consecutive_failures == row


class Unreachable:
    """A remote history that nobody reaches."""

    def names(self, *_key: str) -> list[str]:
        raise RecordError("the history s3://x cannot be listed: timeout")

    def decisions(self) -> list[str]:
        raise RecordError("the history s3://x cannot be listed: timeout")


def test_a_history_that_cannot_be_reached_is_never_a_pass(store: RecordStore) -> None:
    keep(store, 0.5, began=1, build="a")
    unreachable: Any = Unreachable()
    judgement = judged(RecordStore(store.artifacts, unreachable))
    for name in ("previous_run", "baseline_deviation"):
        gate = gate_of(judgement, name)
        assert (gate.passed, gate.severity) == (None, "block")
        assert "the history s3://x cannot be listed: timeout" in gate.detail
    assert status_of(judgement.gates, gated=True) == "failed"
    assert "a decision is not counted: the history s3://x cannot be listed: timeout" in judgement.warnings


def test_a_reference_of_the_same_weights_is_told(store: RecordStore) -> None:
    told = (
        "quantization_regression: the reference has the same weights as the quantized variant: it shows "
        "nothing"
    )
    assert told in judged(store).warnings
    item, measurement = item_of(), measured(0.5)
    references = References(store, run_id(NOW))
    references.remember(replace(item, variant="reference"), measurement, fields("another"))
    assert told not in judge(item, measurement, fields("c"), references).warnings


def test_too_few_documents_for_a_policy_that_asks_for_them_do_not_pass(store: RecordStore) -> None:
    item = item_of(regression_policy="significant", minimum_pairs=1000)
    keep(store, began=1, build="a", right=rights(80))
    gate = gate_of(judged(store, item=item, right=rights(20)))
    assert (gate.passed, gate.severity, gate.consecutive_failures) == (None, "warn", 1)


def test_a_folder_that_cannot_be_listed_does_not_pass(store: RecordStore) -> None:
    store.artifacts.mkdir()
    store.folder.write_text("a file in its place")
    judgement = judged(store)
    gate = gate_of(judgement)
    assert (gate.passed, gate.severity) == (None, "block")
    assert f"{store.folder} cannot be listed: Not a directory" in gate.detail
