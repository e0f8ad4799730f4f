"""The table at the end of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
from tabulate import tabulate

from pytest_gnus.gates.names import HARD_CEILING, is_hard_limit, is_regression
from pytest_gnus.release.collector import Row, RunSummary

_HEADERS = ("niche", "benchmark", "variant", "score ± error", "floor", "drop", "gates", "seconds", "outcome")


def show(summary: RunSummary, terminal: pytest.TerminalReporter) -> None:
    """Write the table and a line per niche; nothing where nothing ran."""
    if not (summary.rows or summary.verdicts or summary.reporter_errors):
        return
    terminal.section("benchmark summary")
    if summary.rows:
        terminal.write_line(_table(summary.rows))
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
        for record in verdict.earlier:
            terminal.write_line(f"  relies on an earlier run: {record}", yellow=True)
        for warning in verdict.warnings:
            terminal.write_line(f"  warning: {warning}", yellow=True)
        if verdict.niche in summary.repairs:
            terminal.write_line(f"  what to look at: {summary.repairs[verdict.niche]}")
        for entry in verdict.not_evaluated:
            if f"not evaluated: {entry}" not in verdict.reasons:
                terminal.write_line(f"  not evaluated: {entry}")
    if summary.changed_exit_status:
        terminal.write_line("no test failed, but a niche is blocked: exit status 1", red=True)
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


def _table(rows: Sequence[Row]) -> str:
    return tabulate(
        [_cells(row) for row in rows],
        headers=_HEADERS,
        disable_numparse=True,
        colalign=("left", "left", "left", "right", "right", "right", "left", "right", "left"),
    )


def _cells(row: Row) -> list[str]:
    record = row.record or row.artifact or {}
    results: Mapping[str, Any] = next(iter(record.get("results", {}).values()), {})
    gates = {gate["name"]: gate for gate in record.get("gates", [])}
    return [
        row.niche,
        row.outcome.benchmark,
        row.outcome.variant,
        _score(results),
        _limit(gates.values()),
        _percent(_first(gates.values(), is_regression).get("value")),
        _gates(gates),
        f"{row.seconds:.1f}",
        _outcome(row),
    ]


def _first(gates: Iterable[Mapping[str, Any]], is_meant: Callable[[str], bool]) -> Mapping[str, Any]:
    return next((gate for gate in gates if is_meant(gate["name"])), {})


def _limit(gates: Iterable[Mapping[str, Any]]) -> str:
    """The floor of a benchmark; a ceiling with the sign that tells it from one."""
    gate = _first(gates, is_hard_limit)
    sign = "<= " if gate and gate["name"] == HARD_CEILING else ""
    return sign + _number(gate.get("threshold")) if gate.get("threshold") is not None else "-"


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
