"""A reporter: each score as a line of CSV as soon as it is there, and the verdicts as a Markdown summary.

Put this beside `benchmarks/` and `config/`, or into a plugin of your own. Under pytest-xdist it is called
once for each item, by the process that writes the records. What it raises is shown at the end of the run
and changes nothing that was measured.
"""

import csv
import os
from pathlib import Path

COLUMNS = ("niche", "benchmark", "variant", "status", "metric", "score", "n")


def pytest_gnus_item_finished(niche, outcome, record, config):
    results = record["results"][outcome.benchmark] if record else {}
    row = [niche, outcome.benchmark, outcome.variant, outcome.status]
    row += [results.get(key) for key in ("metric", "score", "n")]
    file = config.rootpath / "scores.csv"
    new = not file.exists()
    with file.open("a", newline="", encoding="utf-8") as opened:
        writer = csv.writer(opened)
        if new:
            writer.writerow(COLUMNS)
        writer.writerow(row)


def pytest_gnus_run_finished(run_id, verdicts):
    # GitHub shows this file on the page of the job; the terminal has its own summary anyway.
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if not summary:
        return
    lines = [f"### Release gate `{run_id}`", "", "| niche | verdict | why |", "| --- | --- | --- |"]
    for verdict in verdicts:
        why = "; ".join(verdict.reasons) or "all blocking benchmarks passed"
        lines.append(f"| {verdict.niche} | **{verdict.verdict}** | {why} |")
    with Path(summary).open("a", encoding="utf-8") as file:
        file.write("\n".join([*lines, ""]))


def pytest_gnus_experiment_finished(report):
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary and report.results:
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(report.to_markdown() + "\n")
