"""The release gate beside other pytest plugins: a table, and exit status 1 where a plugin changes anything.

    .venv/bin/python tools/plugin_matrix.py [--jobs 2] [--only pytest-randomly] [--output table.md]

Each case is installed into a folder of its own, which is put in front of this environment. There the embedded
gate (`pytest --niche=patents`) and its failing counterpart (`--gnus-variant=baseline`) are run in a copy of
the workspace. Compared with a run without the plugin are exit statuses, verdicts, and the results in the
records, byte by byte; a record more or less is a difference, and so are an ERROR and a broken order.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import xml.etree.ElementTree
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
WORKSPACE = ("benchmarks", "config", "data", "pyproject.toml")

PLUGINS = (
    "pytest-benchmark",
    "pytest-codspeed",
    "pytest-randomly",
    "pytest-rerunfailures",
    "pytest-timeout",
    "pytest-html",
    "pytest-json-report",
    "pytest-cov",
    "pytest-asyncio",
    "pytest-repeat",
    "pytest-sugar",
    "pytest-order",
    "anyio",
)

GATE = ("--niche=patents",)
BASELINE = ("--niche=patents", "--gnus-variant=baseline")


@dataclass(frozen=True)
class Case:
    """Plugins that are installed, and what is asked of them."""

    name: str
    plugins: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What one pytest process came to; `results` are those of its records in the order of their writing."""

    exit_status: int
    verdict: str
    results: tuple[tuple[str, str], ...]
    errors: int
    loaded: str
    output: str


@dataclass(frozen=True)
class Row:
    """A case as the table shows it."""

    case: Case
    version: str
    outcomes: tuple[Outcome, ...]
    seconds: float
    differences: tuple[str, ...] = field(default=())


ALONE = Case("none")
CASES = (
    *(Case(name, (name,)) for name in PLUGINS),
    Case("all of them", PLUGINS),
    # What is asked of a plugin must not change what is measured either.
    Case("pytest-rerunfailures --reruns 2", ("pytest-rerunfailures",), ("--reruns=2",)),
    Case(
        "pytest-randomly and pytest-xdist -n 2",
        ("pytest-randomly", "pytest-xdist"),
        ("-n2", "--randomly-seed=7"),
    ),
    Case(
        "all of them, each asked for",
        PLUGINS,
        (
            "--reruns=2",
            "--count=2",
            "--timeout=300",
            "--html=report.html",
            "--self-contained-html",
            "--json-report",
            "--cov=pytest_gnus",
            "--randomly-seed=3",
            "--asyncio-mode=auto",
            "--benchmark-disable",
        ),
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default: 2)")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="only the cases with this in their name"
    )
    parser.add_argument("--output", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    cases = [
        case for case in CASES if not arguments.only or any(part in case.name for part in arguments.only)
    ]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        # Longest first, so that no core is idle at the end.
        order = sorted([ALONE, *cases], key=lambda case: len(case.options), reverse=True)
        numbered = list(enumerate(order))
        rows = list(pool.map(lambda entry: run_case(entry[1], Path(folder) / str(entry[0])), numbered))
    by_case = {row.case: row for row in rows}
    alone = by_case[ALONE]
    compared = [compare(by_case[case], alone) for case in (ALONE, *cases)]
    text = table(compared)
    print(text)
    if arguments.output is not None:
        arguments.output.write_text(text + "\n", encoding="utf-8")
    different = [row for row in compared if row.differences]
    for row in different:
        for outcome in row.outcomes:
            print(f"\n== {row.case.name}: {'; '.join(row.differences)}\n{outcome.output}", file=sys.stderr)
    return 1 if different else 0


def run_case(case: Case, folder: Path) -> Row:
    started = time.monotonic()
    site = install(case.plugins, folder / "environment")
    outcomes = tuple(
        run(arguments, case.options, site, folder / str(number))
        for number, arguments in enumerate((GATE, BASELINE))
    )
    version = version_of(case.plugins[0], site) if len(case.plugins) == 1 else "-"
    seconds = time.monotonic() - started
    statuses = ", ".join(str(outcome.exit_status) for outcome in outcomes)
    print(f"{case.name} {version}: exit {statuses}, {seconds:.0f} s", file=sys.stderr, flush=True)
    return Row(case, version, outcomes, seconds)


def install(plugins: Sequence[str], folder: Path) -> Path:
    """Install what this environment lacks into a folder; returns its `site-packages`.

    A virtual environment that knows this one's packages, so that pip brings none of them a second time.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    parent = sysconfig.get_path("purelib")
    (site / "parent.pth").write_text(f"import site; site.addsitedir({parent!r})\n", encoding="utf-8")
    if plugins:
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "--quiet"]
        subprocess.run([*pip, "install", "--no-warn-script-location", *plugins], check=True)
    return site


def version_of(plugin: str, site: Path) -> str:
    found = next(iter(metadata.distributions(name=plugin, path=[str(site)])), None)
    return found.version if found is not None else metadata.version(plugin)


def run(arguments: Sequence[str], options: Sequence[str], site: Path, folder: Path) -> Outcome:
    """Run pytest in a copy of the workspace, on this interpreter with the plugins in front."""
    folder.mkdir(parents=True)
    for name in WORKSPACE:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, folder / name)
    paths = [str(site), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment.pop("PYTEST_ADDOPTS", None)
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, *options, "--junitxml=report.xml"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return Outcome(
        finished.returncode,
        verdict_in(folder),
        results_in(folder),
        errors_in(folder) + len(re.findall(r"^INTERNALERROR>", finished.stdout, re.MULTILINE)),
        " ".join(re.findall(r"^plugins: (.*)$", finished.stdout, re.MULTILINE)),
        finished.stdout,
    )


def verdict_in(folder: Path) -> str:
    path = folder / "artifacts" / "verdicts" / "patents.json"
    return str(json.loads(path.read_text(encoding="utf-8"))["verdict"]) if path.is_file() else "none"


def results_in(folder: Path) -> tuple[tuple[str, str], ...]:
    """The name of each record's item and its results as text, in the order in which they were written."""
    records = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in (folder / "artifacts" / "benchmarks").glob("*.json")
    ]
    records.sort(key=lambda record: record["timestamp_utc"])
    return tuple(
        (f"{record['benchmark']} ({record['variant']})", json.dumps(record["results"], sort_keys=True))
        for record in records
    )


def errors_in(folder: Path) -> int:
    """How many items pytest reports as an ERROR; one where it did not report at all."""
    path = folder / "report.xml"
    if not path.is_file():
        return 1
    suites = xml.etree.ElementTree.parse(path).getroot().iter("testsuite")
    return sum(int(suite.get("errors", "0")) for suite in suites)


def compare(row: Row, alone: Row) -> Row:
    differences = []
    for plugin in row.case.plugins:
        loaded = f" {row.outcomes[0].loaded}"
        if f" {plugin.removeprefix('pytest-')}-" not in loaded:
            differences.append(f"{plugin} was not loaded")
    for name, outcome, expected, wanted in zip(
        ("gate", "baseline"), row.outcomes, alone.outcomes, ((0, "promote"), (1, "block")), strict=True
    ):
        if (outcome.exit_status, outcome.verdict) != wanted:
            differences.append(f"{name}: exit {outcome.exit_status}, verdict {outcome.verdict}")
        if outcome.errors:
            differences.append(f"{name}: {outcome.errors} errors")
        names, expected_names = ([item for item, _ in of.results] for of in (outcome, expected))
        if names != expected_names:
            differences.append(f"{name}: records of {names} instead of {expected_names}")
        elif outcome.results != expected.results:
            differences.append(f"{name}: other results")
        if not outcome.results:
            differences.append(f"{name}: nothing was measured")
    return Row(row.case, row.version, row.outcomes, row.seconds, tuple(differences))


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| plugin | version | exit | verdict | records | seconds | difference |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        cells = [
            row.case.name,
            row.version,
            ", ".join(str(outcome.exit_status) for outcome in row.outcomes),
            ", ".join(outcome.verdict for outcome in row.outcomes),
            ", ".join(str(len(outcome.results)) for outcome in row.outcomes),
            f"{row.seconds:.0f}",
            "; ".join(row.differences) or "none",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
