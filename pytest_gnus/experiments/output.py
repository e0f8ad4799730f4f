"""What an experiment leaves on disk: a line per result at once, its documents, a report at the end."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from pytest_gnus.errors import RecordError
from pytest_gnus.experiments.plan import ExperimentPlan
from pytest_gnus.experiments.report import ExperimentReport, make_report
from pytest_gnus.experiments.result import ExperimentResult
from pytest_gnus.gates.pairing import Outcome
from pytest_gnus.records.store import STAMP, write_atomically, write_json

#: What every line of results has, and a line of other data hardly.
_KEYS = {"run_id", "experiment", "round_index", "benchmark", "model", "status"}


class ResultsFile:
    """A JSON-lines file that results are appended to. At most the line being written can be lost.

    Opening it takes a lock, and moves what a killed run left of its last line into a file beside it.
    `notes` says so.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []
        self._file: IO[bytes] | None = None

    def open(self) -> None:
        """Make the file ready to be appended to.

        Raises:
            RecordError: another run is writing to it, or it holds something else than results.
            OSError: it cannot be written.
        """
        if self.path.exists() and not self.path.is_file():
            raise RecordError(f"{self.path}: results go to a file, and this is none")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = self.path.open("a+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._repair(file)
        except BlockingIOError:
            file.close()
            raise RecordError(f"{self.path}: another run is writing its results to it") from None
        except BaseException:
            file.close()
            raise
        self._file = file

    def append(self, content: Mapping[str, Any]) -> None:
        """Write one line and have it on disk.

        Raises:
            OSError: it could not be written; nothing of it is left.
        """
        if self._file is None:
            raise ValueError(f"{self.path} is not open")
        line = json.dumps(content, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        before = self._file.seek(0, os.SEEK_END)
        try:
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError:
            os.ftruncate(self._file.fileno(), before)
            raise

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _repair(self, file: IO[bytes]) -> None:
        file.seek(0)
        lines = file.readlines()
        place = next((index for index, line in enumerate(lines) if not _is_result(line)), None)
        if place is None:
            return
        line, is_last = lines[place], place == len(lines) - 1
        if is_last and _is_result(line + b"\n"):
            file.write(b"\n")  # only the line's end was lost
        elif is_last and _may_be_part_of_a_result(line):
            self._move_aside(file, line, sum(map(len, lines[:-1])))
        else:
            raise RecordError(
                f"{self.path}: line {place + 1} is no result of an experiment; name another file with "
                "--gnus-output, or look at what it holds"
            )

    def _move_aside(self, file: IO[bytes], line: bytes, start: int) -> None:
        stamp = datetime.now(UTC).strftime(STAMP)
        damaged = self.path.with_name(f"{self.path.name}.damaged-{stamp}")
        write_atomically(damaged, line)
        os.ftruncate(file.fileno(), start)
        os.fsync(file.fileno())
        self.notes.append(
            f"{self.path.name}: its last line was not whole, as a killed run leaves it: "
            f"{len(line)} bytes were moved to {damaged.name}"
        )


def _is_result(line: bytes) -> bool:
    content = _content(line) if line.endswith(b"\n") else None
    return isinstance(content, dict) and content.keys() >= _KEYS


def _content(line: bytes) -> Any:
    """What a line says; None where it is no JSON."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def _may_be_part_of_a_result(line: bytes) -> bool:
    """A line of ours that was cut off, or that a crash of the machine left as zeros."""
    begins = line.startswith((b'{"run_id"', b"\0")) or b'{"run_id"'.startswith(line)
    return begins and _content(line) is None


def read_results(path: Path) -> list[ExperimentResult]:
    """The results in a file, in the order of its lines. A last line that is not whole is left out."""
    lines = path.read_bytes().splitlines(keepends=True)
    if lines and not _is_result(lines[-1]):
        lines.pop()
    return [ExperimentResult.from_dict(json.loads(line)) for line in lines]


def read_documents(path: Path) -> list[Outcome]:
    """The outcome of each document, from the file that `ExperimentResult.samples` names.

    Raises:
        RecordError: it is missing or broken.
    """
    try:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        if not lines:
            raise ValueError("it is empty")
        return [
            Outcome(
                str(entry["task"]),
                int(entry["doc_id"]),
                str(entry["doc_hash"]),
                entry["score"],
                entry.get("cluster"),
                entry.get("question"),
            )
            for entry in map(json.loads, lines)
        ]
    except (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error) as error:
        raise RecordError(f"{path.name} cannot be read: {error}") from error


class ExperimentOutput:
    """Takes the results of one run as they come and writes them; makes the report at its end.

    Args:
        artifacts: the folder below which documents go, and results too unless the plan names a file.
    """

    def __init__(self, plan: ExperimentPlan, run_id: str, artifacts: Path) -> None:
        self._plan = plan
        self.name = plan.name
        self._run_id = run_id
        folder = artifacts / "experiments"
        self._documents = folder / f"{plan.name}_{run_id}"
        self.file = ResultsFile(plan.output_file or folder / f"{plan.name}_{run_id}.jsonl")
        self.results: list[ExperimentResult] = []
        self.report: ExperimentReport | None = None
        self.write_errors: list[str] = []
        stem = self.file.path.name.removesuffix(".jsonl")
        if self.file.path.with_name(f"{stem}.report.json").exists():
            stem = f"{stem}_{run_id}"  # results are appended; the report of an earlier run stays
        self._stem = stem

    @property
    def report_files(self) -> tuple[Path, Path]:
        """JSON and Markdown, beside the results."""
        path = self.file.path
        return path.with_name(f"{self._stem}.report.json"), path.with_name(f"{self._stem}.report.md")

    def open(self) -> None:
        """See `ResultsFile.open`."""
        self.file.open()

    def take(self, result: ExperimentResult, documents: Sequence[Mapping[str, Any]] = ()) -> ExperimentResult:
        """Write one result at once: its documents first, so that no line names a file that is not there.

        Returns the result with the name of its documents' file.
        """
        try:
            if documents:
                result = replace(result, samples=self._write_documents(result, documents))
            self.file.append(result.to_dict())
        except OSError as error:
            self.write_errors.append(f"{result.name}: {error}")
        self.results.append(result)
        return result

    def _write_documents(self, result: ExperimentResult, documents: Sequence[Mapping[str, Any]]) -> str:
        name = "_".join(filter(None, (result.niche, result.benchmark, result.model_label)))
        path = self._documents / f"{name}_round{result.round_index}.jsonl.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = "".join(json.dumps(entry, sort_keys=True, allow_nan=False) + "\n" for entry in documents)
        write_atomically(path, gzip.compress(lines.encode(), mtime=0))
        return Path(os.path.relpath(path, self.file.path.parent)).as_posix()

    def close(self) -> ExperimentReport:
        """Make the report, rounds outermost in whatever order the results came, and write it."""
        self.file.close()
        order = {
            (item.round_index, item.niche or None, item.benchmark.name, item.label): place
            for place, item in enumerate(self._plan.items)
        }
        # An item that xdist tried again has two lines; what it came to is the last one.
        last = {order[r.round_index, r.niche, r.benchmark, r.model_label]: r for r in self.results}
        results = [last[place] for place in sorted(last)]
        self.report = make_report(self._plan, self._run_id, self.file.path, results, self._documents_of)
        json_file, markdown_file = self.report_files
        try:
            write_json(json_file, self.report.to_dict())
            write_atomically(markdown_file, self.report.to_markdown().encode())
        except OSError as error:
            self.write_errors.append(f"report: {error}")
        return self.report

    def _documents_of(self, result: ExperimentResult) -> list[Outcome]:
        if result.samples is None:
            raise RecordError(f"{result.name}: the outcomes of its documents were not written")
        return read_documents(self.file.path.parent / result.samples)
