"""The repair report as JSON and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from pytest_gnus.gates.comparison import Comparison, NotCompared
from pytest_gnus.records.store import RecordStore, write_atomically, write_json
from pytest_gnus.repairs import Change, RepairReport, drop_of

REPAIR_VERSION = 1


def write(store: RecordStore, report: RepairReport) -> Path:
    """Write the report as JSON and Markdown to `repairs/`; returns the path of the latter."""
    folder = store.artifacts / "repairs"
    path = folder / f"{report.niche}_{report.run_id}.md"
    write_json(path.with_suffix(".json"), to_json(report))
    write_atomically(path, markdown(report).encode("utf-8"))
    return path


def to_json(report: RepairReport) -> dict[str, Any]:
    """Plain JSON values."""
    return {
        "schema_version": REPAIR_VERSION,
        "niche": report.niche,
        "run_id": report.run_id,
        "benchmarks": [
            {
                "benchmark": entry.benchmark,
                "failed_gates": list(entry.failed_gates),
                "quantized_to_reference": _change_json(entry.quantized_to_reference),
                "quantized_to_previous": _change_json(entry.quantized_to_previous),
                "reference_to_previous": _change_json(entry.reference_to_previous),
                "cause": entry.cause,
                "because": entry.because,
                "suggestions": list(entry.suggestions),
            }
            for entry in report.benchmarks
        ],
    }


def _change_json(change: Change | None) -> Mapping[str, Any] | None:
    if change is None:
        return None
    return {
        "against": change.against,
        "score_before": change.score_before,
        "score_now": change.score_now,
        "significant": change.fell,
        "comparison": _result_json(change.result),
        "categories": [
            {
                "category": drop.category,
                "significant": drop.flagged,
                "adjusted_p": drop.adjusted_p,
                "comparison": _result_json(drop.result),
            }
            for drop in change.categories
        ],
    }


def _result_json(result: Comparison | NotCompared) -> Mapping[str, Any]:
    return result.to_record() if isinstance(result, Comparison) else {"not_compared": result.reason}


def markdown(report: RepairReport) -> str:
    """The report for a person."""
    parts = [f"# {report.niche}: what to look at", "", f"Run {report.run_id}. Nothing was changed.", ""]
    for entry in report.benchmarks:
        parts += [f"## {entry.benchmark}", "", *(f"- {gate}" for gate in entry.failed_gates), ""]
        parts += [f"Likely cause: **{entry.cause}**: {entry.because}.", ""]
        changes = [
            ("quantized", entry.quantized_to_reference),
            ("quantized", entry.quantized_to_previous),
            ("reference", entry.reference_to_previous),
        ]
        parts += _changes_table(changes)
        for who, change in changes:
            parts += _categories_table(who, change)
        parts += ["Suggestions:", "", *(f"- {text}" for text in entry.suggestions), ""]
    return "\n".join(parts)


def _changes_table(changes: Sequence[tuple[str, Change | None]]) -> list[str]:
    rows = [
        [
            f"{who} against {change.against}",
            f"{change.score_before:.4f}",
            f"{change.score_now:.4f}",
            *_numbers(change.result),
            {True: "significant", False: "may be noise", None: "not known"}[change.fell],
        ]
        for who, change in changes
        if change is not None
    ]
    if not rows:
        return ["There is nothing to compare with.", ""]
    headers = ["compared", "before", "now", "drop", "95 %", "p", "n", ""]
    return [tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True), ""]


def _categories_table(who: str, change: Change | None) -> list[str]:
    if change is None or not change.categories:
        return []
    rows = [
        [drop.category, *_numbers(drop.result, drop.adjusted_p), "significant" if drop.flagged else ""]
        for drop in sorted(change.categories, key=drop_of, reverse=True)
    ]
    headers = ["category", "drop", "95 %", "p (Holm)", "n", ""]
    title = f"Categories, {who} against {change.against}, the worst first:"
    return [title, "", tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True), ""]


def _numbers(result: Comparison | NotCompared, p_value: float | None = None) -> list[str]:
    """Drop, interval, p, n."""
    if isinstance(result, NotCompared):
        return ["-", result.reason, "-", str(result.n)]
    low, high = result.ci95
    p_shown = result.p_value if p_value is None else p_value
    return [f"{result.absolute_drop:+.4f}", f"{low:+.4f} to {high:+.4f}", f"{p_shown:.2g}", str(result.n)]
