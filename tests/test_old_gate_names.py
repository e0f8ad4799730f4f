"""Records by version 0.1.0: `sgfp4_regression` for weights of every format, `hard_floor` for ceilings.

Histories and decisions made then still count.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_gnus.gates.result import GateResult
from pytest_gnus.gates.verdict import ItemOutcome
from pytest_gnus.judging import Judgement, References, judge, standing_of
from pytest_gnus.niche_judging import NicheJudging, fallen_benchmarks
from pytest_gnus.records.decisions import accept
from pytest_gnus.records.store import RecordStore, StoredRecord, read
from pytest_gnus.release.collector import Row
from pytest_gnus.repairs import repair_report
from pytest_gnus.reporting.terminal import _cells
from tests.making_history import fields, item_of, keep, measured, rights, run_id

OLD, NEW = "sgfp4_regression", "quantization_regression"
NOW = 1000.0


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(tmp_path / "artifacts")


def judged(store: RecordStore, score: float, reference: float, *, is_sgfp4: bool = False) -> Judgement:
    known = fields("b")
    references = References(store, run_id(NOW))
    references.remember(item_of("reference"), measured(reference), known)
    return judge(item_of(), measured(score), known, references, is_sgfp4=is_sgfp4)


def regression_of(judgement: Judgement) -> GateResult:
    (gate,) = [gate for gate in judgement.gates if "regression" in gate.name]
    return gate


@pytest.mark.parametrize(("is_sgfp4", "name"), [(False, NEW), (True, OLD)])
def test_the_gate_says_which_format_it_judges(store: RecordStore, is_sgfp4: bool, name: str) -> None:
    assert regression_of(judged(store, 0.5, 0.5, is_sgfp4=is_sgfp4)).name == name


@pytest.mark.parametrize("name", [OLD, NEW])
def test_a_decision_counts_until_a_build_held_by_either_name(store: RecordStore, name: str) -> None:
    failed = GateResult(name, False, value=0.33, threshold=0.1)
    path = keep(store, 0.6, began=2, build="b", gates=[failed])
    accept(store, [StoredRecord(path, read(path))], "Ann", "smaller")
    relied = regression_of(judged(store, 0.6, 0.9))
    assert (relied.name, relied.passed, relied.reference) == (NEW, True, 0.6)
    assert relied.accepted is not None

    keep(store, 0.9, began=3, build="d", gates=[GateResult(name, True, value=0.0, threshold=0.1)])
    judgement = judged(store, 0.6, 0.9)
    assert (regression_of(judgement).passed, regression_of(judgement).accepted) == (False, None)
    assert any(f"counts no longer: run {run_id(3)} held without it" in text for text in judgement.warnings)


def test_a_standing_is_found_by_either_name() -> None:
    content = {"gates": [GateResult(OLD, False, severity="warn").to_record()]}
    assert standing_of(content, NEW) == standing_of(content, OLD) == "failed"
    assert standing_of(content, "previous_run") == "absent"


def test_floors_of_old_records_are_the_composites_floors(store: RecordStore) -> None:
    """`hard_floor` where a lower score is better is what `hard_ceiling` is now."""

    def composite(limit: str, category: str, holds: bool) -> bool | None:
        gates = [
            GateResult(limit, True),
            GateResult(category, holds),
            GateResult("previous_run", True),
            GateResult("baseline_deviation", True),
        ]
        record = {
            "gates": [gate.to_record() for gate in gates],
            "fingerprint": fields("c"),
            "fingerprint_valid": True,
        }
        judging = NicheJudging("toy", ["colours"], References(store, run_id(NOW)), 3)
        return judging.composite({"colours": record}).passed

    for limit, category in (("hard_floor", "category_floor[a]"), ("hard_ceiling", "category_ceiling[a]")):
        assert composite(limit, category, True) is True
        assert composite(limit, category, False) is None  # applies only where all limits hold


def test_what_fell_is_found_by_either_name() -> None:
    def compared(name: str, p_value: float) -> dict[str, Any]:
        return {"gates": [GateResult(name, True, p_value=p_value, ci95=(0.01, 0.2)).to_record()]}

    assert fallen_benchmarks({"a": compared(OLD, 0.001), "b": compared(OLD, 0.9)}) == [
        f"{OLD}: fell significantly, Holm over 2 benchmarks: a (p = 0.002)"
    ]
    assert fallen_benchmarks({"a": compared(NEW, 0.001), "b": compared(OLD, 0.9)}) == [
        f"{NEW}, {OLD}: fell significantly, Holm over 2 benchmarks: a (p = 0.002)"
    ]


@pytest.mark.parametrize("name", [OLD, NEW])
def test_a_repair_report_knows_the_cause_by_either_name(store: RecordStore, name: str) -> None:
    path = keep(store, began=NOW, build="d", right=rights(79), gates=[GateResult(name, False, detail="fell")])
    other = keep(store, began=NOW, build="b", item=item_of("reference"), right=rights(80))
    report = repair_report(
        store, "toy", run_id(NOW), [StoredRecord(p, read(p)) for p in (path, other)], ["colours"]
    )
    assert report is not None
    assert report.benchmarks[0].cause == "quantization"


@pytest.mark.parametrize("name", ["hard_floor", "hard_ceiling"])
def test_a_repair_report_knows_a_reference_beyond_its_limit(store: RecordStore, name: str) -> None:
    beyond = [GateResult(name, False, detail="13.0 > 12.0")]
    path = keep(store, began=NOW, build="d", right=rights(80))
    other = keep(store, began=NOW, build="b", item=item_of("reference"), right=rights(80), gates=beyond)
    report = repair_report(
        store, "toy", run_id(NOW), [StoredRecord(p, read(p)) for p in (path, other)], ["colours"]
    )
    assert report is not None
    assert report.benchmarks[0].cause == "training"


def test_a_repair_report_says_what_to_do_about_prompts_that_do_not_fit(store: RecordStore) -> None:
    truncated = [GateResult("truncated_share", False, value=1.0, threshold=0.0)]
    path = keep(store, began=NOW, build="d", right=rights(80), gates=truncated)
    report = repair_report(store, "toy", run_id(NOW), [StoredRecord(path, read(path))], ["colours"])
    assert report is not None
    assert "truncated_max_share" in report.benchmarks[0].suggestions[0]


@pytest.mark.parametrize(
    ("limit", "regression", "shown"),
    [
        ("hard_floor", OLD, ["0.30", "+5.0%"]),
        ("hard_floor", NEW, ["0.30", "+5.0%"]),
        ("hard_ceiling", NEW, ["<= 0.30", "+5.0%"]),
    ],
)
def test_the_table_shows_limit_and_drop_by_either_name(limit: str, regression: str, shown: list[str]) -> None:
    gates = [GateResult(limit, True, threshold=0.3), GateResult(regression, True, value=0.05)]
    record = {"results": {}, "gates": [gate.to_record() for gate in gates]}
    outcome = ItemOutcome("colours", "quantized", True, "passed")
    cells = _cells(Row("toy", outcome, record, None, 1.0))
    assert cells[4:6] == shown
    assert _cells(replace(Row("toy", outcome, record, None, 1.0), record=None))[4:6] == ["-", "-"]
