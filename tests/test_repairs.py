"""What a repair report says of known drops: what fell, whether that is noise, and what the cause is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_gnus.gates.result import GateResult
from pytest_gnus.records.store import RecordStore, StoredRecord, read
from pytest_gnus.repairs import BenchmarkRepair, repair_report
from pytest_gnus.reporting import repair
from tests.making_history import item_of, keep, rights, run_id

NOW = 600.0
FAILED = GateResult("quantization_regression", False, value=0.5, threshold=0.1, detail="drop +50 %")


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(tmp_path / "artifacts")


def repaired(
    store: RecordStore, quantized: int, reference: int | None, earlier_reference: int | None, *, fails: bool
) -> BenchmarkRepair:
    """Scores are documents right of 100."""
    if earlier_reference is not None:
        keep(store, began=0, build="a", item=item_of("reference"), right=rights(earlier_reference))
    paths = [
        keep(
            store,
            began=NOW,
            build="d",
            right=rights(quantized),
            status="failed",
            gates=[FAILED] if fails else [GateResult("hard_floor", False, detail="below")],
        )
    ]
    if reference is not None:
        paths.append(keep(store, began=NOW, build="b", item=item_of("reference"), right=rights(reference)))
    records = [StoredRecord(path, read(path)) for path in paths]
    report = repair_report(store, "toy", run_id(NOW), records, ["colours"])
    assert report is not None
    (entry,) = report.benchmarks
    return entry


@pytest.mark.parametrize(
    ("quantized", "reference", "earlier", "fails", "cause"),
    [
        (40, 80, 80, True, "quantization"),
        (40, 80, None, True, "quantization"),
        (50, 50, 80, False, "training"),
        (30, 55, 80, True, "quantization and training"),
        (79, 80, 80, False, "not clear"),
        (40, None, None, False, "not clear"),
    ],
)
def test_the_cause_is_told_by_what_fell(
    store: RecordStore, quantized: int, reference: int | None, earlier: int | None, fails: bool, cause: str
) -> None:
    entry = repaired(store, quantized, reference, earlier, fails=fails)
    assert entry.cause == cause
    assert entry.suggestions


def test_the_report_has_the_numbers_and_changes_nothing(store: RecordStore) -> None:
    entry = repaired(store, 40, 80, 80, fails=True)
    change = entry.quantized_to_reference
    assert change is not None
    assert (change.score_before, change.score_now, change.fell) == (0.8, 0.4, True)
    before = sorted(path.name for path in store.folder.iterdir())
    record = StoredRecord(p := sorted(store.folder.glob("*quantized*.json"))[0], read(p))
    report = repair_report(store, "toy", run_id(NOW), [record], ["colours"])
    assert report is not None
    path = repair.write(store, report)
    assert path == store.artifacts / "repairs" / f"toy_{run_id(NOW)}.md"
    text = path.read_text(encoding="utf-8")
    assert "Likely cause: **quantization**" in text
    assert "+0.4000" in text
    assert "significant" in text
    content = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert content["benchmarks"][0]["quantized_to_reference"]["comparison"]["absolute_drop"] == pytest.approx(
        0.4
    )
    assert sorted(path.name for path in store.folder.iterdir()) == before


def test_a_drop_that_may_be_noise_names_the_documents_it_needs(store: RecordStore) -> None:
    entry = repaired(store, 76, 80, 80, fails=False)
    assert any("may be noise" in text for text in entry.suggestions)


def test_without_a_score_there_is_nothing_to_report(store: RecordStore) -> None:
    path = keep(store, began=NOW, status="error")
    record = StoredRecord(path, read(path))
    assert repair_report(store, "toy", run_id(NOW), [record], ["colours"]) is None
