"""The tables at the end of an experiment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_gnus.experiments.output import ExperimentOutput
from pytest_gnus.experiments.report import comparison_table, summary_table, told


def show(
    output: ExperimentOutput,
    terminal: pytest.TerminalReporter,
    *,
    changed_exit_status: bool,
    reporter_errors: Sequence[str] = (),
) -> None:
    """Write the tables, what was not measured, and where everything is; nothing where nothing ran."""
    report = output.report
    if report is None or not (report.results or output.file.notes or reporter_errors):
        return
    terminal.section(f"experiment {report.name}")
    terminal.write_line(f"measured with {told(report.settings)}")
    if report.summaries:
        terminal.write_line(summary_table(report))
        terminal.write_line("")
    if report.comparisons:
        terminal.write_line(comparison_table(report))
        terminal.write_line("")
    for result in report.unmeasured:
        terminal.write_line(result.reason)
    if len(report.results) < report.planned:
        terminal.write_line(f"{len(report.results)} of {report.planned} combinations ran")
    for note in output.file.notes:
        terminal.write_line(note, yellow=True)
    terminal.write_line(f"results: {_shown(output.file.path)}")
    terminal.write_line(f"report: {', '.join(map(_shown, output.report_files))}")
    if changed_exit_status:
        terminal.write_line("no test failed, but the experiment is not whole: exit status 1", red=True)
    for error in output.write_errors:
        terminal.write_line(f"could not be written: {error}", red=True)
    for error in reporter_errors:
        terminal.write_line(f"a reporter failed: {error}", yellow=True)


def _shown(path: Path) -> str:
    relative = os.path.relpath(path)
    return relative if not relative.startswith("..") else str(path)
