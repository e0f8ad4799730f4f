"""The composite gate of a niche over the records of its benchmarks, and what fell over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_gnus.errors import RecordError
from pytest_gnus.gates.result import GateResult, not_evaluated
from pytest_gnus.judging import References
from pytest_gnus.niche_judging import NicheJudging, fallen_benchmarks
from pytest_gnus.records.decisions import accept
from pytest_gnus.records.store import RecordStore, StoredRecord, read
from tests.making_history import fields, item_of, keep, run_id

NOW = 100.0
A, B = "colours", "shapes"


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(tmp_path / "artifacts")


def gates(
    previous: bool | None, baseline: bool | None, floor: bool | None = True, category: bool | None = True
) -> list[GateResult]:
    return [
        GateResult("hard_floor", floor),
        GateResult("category_floor[warm]", category),
        GateResult("quantization_regression", True),
        GateResult("previous_run", previous, severity="note" if previous is None else "warn"),
        GateResult("baseline_deviation", baseline, severity="note" if baseline is None else "warn"),
    ]


def record(of: Sequence[GateResult], build: str = "c", **changes: Any) -> dict[str, Any]:
    return {
        "gates": [gate.to_record() for gate in of],
        "fingerprint": fields(build),
        "fingerprint_valid": True,
        **changes,
    }


def composite(
    store: RecordStore,
    records: Mapping[str, Mapping[str, Any]],
    blocking: Sequence[str] = (A,),
    failures_to_block: int = 3,
) -> GateResult:
    references = References(store, run_id(NOW))
    return NicheJudging("toy", blocking, references, failures_to_block).composite(records)


BAD = gates(False, False)
GOOD = gates(True, True)


def earlier(
    store: RecordStore, second: float, build: str, of: Sequence[GateResult] = BAD, benchmark: str = A
) -> Path:
    return keep(store, began=second, build=build, gates=of, item=item_of(benchmark=benchmark))


@pytest.mark.parametrize(
    ("one", "other", "passed", "value"),
    [
        ((True, True), (True, True), True, 3.0),
        ((False, True), (True, True), True, 2.0),
        ((False, True), (True, False), False, 1.0),  # each benchmark alone has two of three
        ((None, True), (True, True), True, 3.0),
        ((None, True), (None, True), True, 2.0),
        ((None, None), (True, None), True, 2.0),
        ((None, None), (False, None), False, 1.0),
    ],
)
def test_a_dimension_is_that_of_all_benchmarks(
    store: RecordStore,
    one: tuple[bool | None, bool | None],
    other: tuple[bool | None, bool | None],
    passed: bool,
    value: float,
) -> None:
    found = composite(store, {A: record(gates(*one)), B: record(gates(*other))}, (A, B))
    assert (found.passed, found.value) == (passed, value)


@pytest.mark.parametrize("floor", [gates(True, True, floor=False), gates(True, True, category=False)])
def test_no_benchmark_carries_another_over_its_floor(store: RecordStore, floor: list[GateResult]) -> None:
    found = composite(store, {A: record(GOOD), B: record(floor)}, (A, B))
    assert (found.passed, found.severity) == (None, "note")
    assert "one does not hold" in found.detail


@pytest.mark.parametrize(
    "records",
    [
        {A: record(GOOD)},
        {A: record(GOOD), B: record([])},
        {A: record(GOOD), B: record(gates(True, True, floor=None))},
    ],
    ids=["not run", "not measured", "not evaluated"],
)
def test_the_composite_waits_for_every_blocking_benchmark(
    store: RecordStore, records: dict[str, dict[str, Any]]
) -> None:
    found = composite(store, records, (A, B))
    assert (found.passed, found.severity) == (None, "note")
    assert found.detail == f"applies after all floors of the niche: not evaluated for {B}"


def test_a_floor_that_fails_tells_more_than_one_that_is_missing(store: RecordStore) -> None:
    found = composite(store, {A: record(gates(True, True, floor=False))}, (A, B))
    assert "one does not hold" in found.detail


def test_it_warns_first_and_blocks_from_the_third_build_on(store: RecordStore) -> None:
    """Its past is made again from the records: no state is kept."""
    now = {A: record(BAD, "3")}
    for number, (severity, count) in enumerate((("warn", 1), ("warn", 2), ("block", 3)), 1):
        found = composite(store, now)
        assert (found.passed, found.severity, found.consecutive_failures) == (False, severity, count)
        earlier(store, number, str(number + 3))
    assert composite(store, now, failures_to_block=5).consecutive_failures == 4


def test_a_build_that_held_ends_the_row(store: RecordStore) -> None:
    earlier(store, 1, "1")
    earlier(store, 2, "2", GOOD)
    earlier(store, 3, "4")
    assert composite(store, {A: record(BAD, "3")}).consecutive_failures == 2


def test_the_same_build_run_again_counts_once(store: RecordStore) -> None:
    earlier(store, 1, "3")
    earlier(store, 2, "4")
    earlier(store, 3, "4")
    earlier(store, 4, "3")
    assert composite(store, {A: record(BAD, "3")}).consecutive_failures == 2


def test_a_build_is_all_weights_of_the_niche(store: RecordStore) -> None:
    """Another package for one of the benchmarks is another build."""
    for benchmark, build in ((A, "1"), (B, "2")):
        earlier(store, 1, build, BAD, benchmark)
    now = {A: record(BAD, "1"), B: record(BAD, "3")}
    assert composite(store, now, (A, B)).consecutive_failures == 2
    assert composite(store, {A: record(BAD, "1"), B: record(BAD, "2")}, (A, B)).consecutive_failures == 1


def test_runs_of_a_part_of_the_niche_neither_count_nor_end_the_row(store: RecordStore) -> None:
    for benchmark in (A, B):
        earlier(store, 1, "1", BAD, benchmark)
    earlier(store, 2, "2", GOOD, A)
    now = {A: record(BAD, "3"), B: record(BAD, "3")}
    assert composite(store, now, (A, B)).consecutive_failures == 2


@pytest.mark.parametrize("missing", [gates(None, None), gates(False, False, floor=False)])
def test_runs_in_which_it_was_not_evaluated_neither_count_nor_end_the_row(
    store: RecordStore, missing: list[GateResult]
) -> None:
    earlier(store, 1, "1")
    earlier(store, 2, "2", missing)
    assert composite(store, {A: record(BAD, "3")}).consecutive_failures == 2


def test_siblings_and_later_runs_do_not_count(store: RecordStore) -> None:
    earlier(store, NOW, "4")
    earlier(store, NOW + 1, "5")
    assert composite(store, {A: record(BAD, "3")}).consecutive_failures == 1


def test_runs_with_a_limit_do_not_count(store: RecordStore) -> None:
    keep(store, began=1, build="1", gates=BAD, item=item_of(run_limit=5))
    assert composite(store, {A: record(BAD, "3")}).consecutive_failures == 1


def test_a_record_that_cannot_be_read_counts_as_a_failure(store: RecordStore) -> None:
    for second in (1, 2):
        earlier(store, second, str(second), GOOD).write_text("{")
    found = composite(store, {A: record(BAD, "3")})
    assert (found.severity, found.consecutive_failures) == ("block", 3)


def test_without_a_valid_fingerprint_two_runs_are_not_one_build(store: RecordStore) -> None:
    """A build of which nobody knows what it is cannot be forgiven as the same one."""
    for second in (1, 2):
        keep(store, began=second, build="1", gates=BAD, prompt_hash=None)
    now = {A: record(BAD, "1", fingerprint_valid=False)}
    assert composite(store, now).consecutive_failures == 3


def accepted(store: RecordStore, path: Path) -> None:
    accept(store, [StoredRecord(path, read(path))], "Ann", "smaller")


def test_what_was_accepted_does_not_count(store: RecordStore) -> None:
    earlier(store, 1, "1")
    decided = earlier(store, 2, "2")
    accepted(store, decided)
    assert composite(store, {A: record(BAD, "3")}).consecutive_failures == 1
    earlier(store, 3, "4")
    assert composite(store, {A: record(BAD, "3")}).consecutive_failures == 2


def test_a_decision_about_an_altered_record_does_not_count(store: RecordStore) -> None:
    earlier(store, 1, "1")
    decided = earlier(store, 2, "2")
    accepted(store, decided)
    decided.write_text(decided.read_text().replace('"score": 0.5', '"score": 0.1'))
    found = composite(store, {A: record(BAD, "3")})
    assert (found.severity, found.consecutive_failures) == ("block", 3)


def test_a_history_that_cannot_be_listed_is_an_error_of_the_caller(store: RecordStore) -> None:
    class Gone:
        """A remote history that nobody reaches."""

        def names(self, *_key: str) -> list[str]:
            raise RecordError("the history s3://x cannot be listed")

        def decisions(self) -> list[str]:
            raise RecordError("the history s3://x cannot be listed")

    gone: Any = Gone()
    lost = RecordStore(store.artifacts, gone)
    with pytest.raises(RecordError, match="cannot be listed"):
        composite(lost, {A: record(BAD, "3")})
    assert composite(lost, {A: record(GOOD, "3")}).passed is True


def compared(p_value: float | None, low: float = 0.01) -> dict[str, Any]:
    gate = GateResult("previous_run", True, p_value=p_value, ci95=(low, 0.2))
    return {"gates": [gate.to_record()]}


def test_what_fell_over_several_benchmarks_is_corrected_for_their_number() -> None:
    found = fallen_benchmarks({"a": compared(0.001), "b": compared(0.03), "c": compared(0.04)})
    assert found == ["previous_run: fell significantly, Holm over 3 benchmarks: a (p = 0.003)"]
    assert fallen_benchmarks({"a": compared(0.03), "b": compared(0.04)}) == []


def test_what_rose_did_not_fall() -> None:
    assert fallen_benchmarks({"a": compared(0.001, -0.3), "b": compared(0.9)}) == []


def test_one_benchmark_alone_is_not_corrected() -> None:
    assert fallen_benchmarks({"a": compared(0.001)}) == []
    assert fallen_benchmarks({"a": compared(0.001), "b": compared(None)}) == []
    assert fallen_benchmarks({"a": compared(0.001), "b": {"gates": []}}) == []
    noted = {"gates": [not_evaluated("previous_run", "none").to_record()]}
    assert fallen_benchmarks({"a": noted, "b": noted}) == []
