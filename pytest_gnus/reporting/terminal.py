"""The table at the end of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tabulate import tabulate

from pytest_gnus.reporting.summary import Row, RunSummary

_HEADERS = ("niche", "benchmark", "variant", "score ± error", "floor", "drop", "gates", "seconds", "outcome")


def show(summary: RunSummary, terminal: pytest.TerminalReporter) -> None:
    """Write the table and a line per niche; nothing where nothing ran."""
    if not (summary.rows or summary.reporter_errors or summary.passes_although_blocked):
        return
    terminal.section("benchmark summary")
    terminal.write_line(
        tabulate(
            [_cells(row) for row in summary.rows],
            headers=_HEADERS,
            disable_numparse=True,
            colalign=("left", "left", "left", "right", "right", "right", "left", "right", "left"),
        )
    )
    terminal.write_line("")
    for verdict in summary.verdicts:
        promoted = verdict.verdict == "promote"
        terminal.write_line(
            f"{verdict.niche}: {verdict.verdict.upper()}", green=promoted, red=not promoted, bold=True
        )
        for reason in verdict.reasons:
            terminal.write_line(f"  {reason}")
        for decision in verdict.accepted:
            terminal.write_line(f"  relies on a decision: {decision}", yellow=True)
        for warning in verdict.warnings:
            terminal.write_line(f"  warning: {warning}", yellow=True)
        if verdict.niche in summary.repairs:
            terminal.write_line(f"  what to look at: {summary.repairs[verdict.niche]}")
        for entry in verdict.not_evaluated:
            if f"not evaluated: {entry}" not in verdict.reasons:
                terminal.write_line(f"  not evaluated: {entry}")
    if summary.changed_exit_status:
        blocked = any(verdict.must_fail for verdict in summary.verdicts)
        why = "a niche is blocked" if blocked else "not everything could be written"
        terminal.write_line(f"no test failed, but {why}: exit status 1", red=True)
    if summary.passes_although_blocked:
        terminal.write_line(
            f"exit status 0 says nothing of {', '.join(summary.passes_although_blocked)}: a part was not "
            "measured, or nothing was gated",
            red=True,
        )
    for error in summary.write_errors:
        terminal.write_line(f"could not be written: {error}", red=True)
    for error in summary.reporter_errors:
        terminal.write_line(f"a reporter failed: {error}", yellow=True)


def _cells(row: Row) -> list[str]:
    record = row.record or row.artifact or {}
    results: Mapping[str, Any] = next(iter(record.get("results", {}).values()), {})
    gates = {gate["name"]: gate for gate in record.get("gates", [])}
    return [
        row.niche,
        row.outcome.benchmark,
        row.outcome.variant,
        _score(results),
        _number(gates.get("hard_floor", {}).get("threshold")),
        _percent(gates.get("sgfp4_regression", {}).get("value")),
        _gates(gates),
        f"{row.seconds:.1f}",
        _outcome(row),
    ]


def _outcome(row: Row) -> str:
    status, reruns = row.outcome.status.replace("_", " "), len(row.before)
    return f"{status}, {reruns} {'rerun' if reruns == 1 else 'reruns'}" if reruns else status


def _score(results: Mapping[str, Any]) -> str:
    if results.get("score") is None:
        return "-"
    error = f" ± {results['stderr']:.4f}" if results.get("stderr") is not None else ""
    return f"{results['score']:.4f}{error}"


def _gates(gates: Mapping[str, Mapping[str, Any]]) -> str:
    """`2/2`, and the names of those that do not hold; what was only noted is not counted."""
    if not gates:
        return "-"
    counted = {name: g for name, g in gates.items() if g["passed"] or g["severity"] != "note"}
    broken = [f"{name} {_word(g)}" for name, g in counted.items() if not g["passed"]]
    return f"{len(counted) - len(broken)}/{len(counted)}{' ' + ', '.join(broken) if broken else ''}"


def _word(gate: Mapping[str, Any]) -> str:
    if not gate["evaluated"]:
        return "not evaluated"
    return "FAILED" if gate["severity"] == "block" else "warns"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1%}"
