"""The JSON-lines file of results: appended to, repaired, never overwritten."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from pytest_gnus.errors import RecordError
from pytest_gnus.experiments.output import ResultsFile, read_documents

RESULT = {
    "run_id": "r",
    "experiment": "e",
    "round_index": 0,
    "benchmark": "b",
    "model": "m",
    "status": "error",
}
FIRST, SECOND = ({**RESULT, "score": score} for score in (0.25, 0.5))
LINE, NEXT = (json.dumps(content).encode() + b"\n" for content in (FIRST, SECOND))


def append(path: Path, *contents: dict) -> ResultsFile:
    file = ResultsFile(path)
    file.open()
    for content in contents:
        file.append(content)
    file.close()
    return file


def beside(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.damaged-*"))


def test_lines_are_appended_over_runs(tmp_path):
    path = tmp_path / "new" / "results.jsonl"
    append(path, FIRST)
    assert append(path, SECOND).notes == []
    assert [json.loads(line) for line in path.read_text().splitlines()] == [FIRST, SECOND]


@pytest.mark.parametrize("cut", range(1, len(LINE)))
def test_a_line_cut_off_anywhere_is_moved_aside_and_said(tmp_path, cut):
    path = tmp_path / "results.jsonl"
    path.write_bytes(LINE + LINE[:cut])
    notes = append(path, SECOND).notes
    if cut == len(LINE) - 1:  # only the end of the line is missing: nothing is lost
        assert path.read_bytes() == LINE + LINE + NEXT
        assert notes == beside(path) == []
        return
    assert path.read_bytes() == LINE + NEXT
    (damaged,) = beside(path)
    assert damaged.read_bytes() == LINE[:cut]
    assert notes == [
        f"results.jsonl: its last line was not whole, as a killed run leaves it: {cut} bytes were moved to "
        f"{damaged.name}"
    ]


def test_zeros_that_a_crash_of_the_machine_leaves_are_moved_aside(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_bytes(LINE + b"\0" * 100)
    append(path)
    assert path.read_bytes() == LINE
    assert beside(path)[0].read_bytes() == b"\0" * 100


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"# Read me\n", 1), (b"notes", 1), (LINE + b"[1]\n", 2), (LINE + LINE[:9] + b"\n" + LINE, 2)],
)
def test_what_is_no_file_of_results_is_left_as_it_is(tmp_path, content, line):
    path = tmp_path / "results.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=f"line {line} is no result of an experiment"):
        ResultsFile(path).open()
    assert path.read_bytes() == content
    assert beside(path) == []


def test_two_runs_do_not_write_to_one_file(tmp_path):
    path = tmp_path / "results.jsonl"
    first = ResultsFile(path)
    first.open()
    with pytest.raises(RecordError, match="another run is writing its results to it"):
        ResultsFile(path).open()
    first.close()
    append(path, FIRST)


def test_what_could_not_be_written_leaves_no_part_of_a_line(tmp_path, monkeypatch):
    path = tmp_path / "results.jsonl"
    file = ResultsFile(path)
    file.open()
    file.append(FIRST)

    def full(_descriptor):
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space left"):
            file.append(SECOND)
    file.append(SECOND)
    file.close()
    assert [json.loads(line) for line in path.read_text().splitlines()] == [FIRST, SECOND]


def test_numbers_that_are_no_json_are_refused(tmp_path):
    file = ResultsFile(tmp_path / "results.jsonl")
    file.open()
    with pytest.raises(ValueError, match="not JSON compliant"):
        file.append({"score": float("nan")})
    assert file.path.read_bytes() == b""


def test_broken_documents_are_an_error_that_names_the_file(tmp_path):
    path = tmp_path / "documents.jsonl.gz"
    for content in (None, b"", b"not gzip"):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(RecordError, match=r"documents\.jsonl\.gz cannot be read"):
            read_documents(path)


@pytest.mark.parametrize(
    "line", ['{"question": "Which?", "answer": 1}', '{"run_id": "r", "score": 0.5}', "[1]"]
)
def test_json_lines_of_something_else_are_left_alone(tmp_path, line):
    path = tmp_path / "test.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(RecordError, match="line 1 is no result of an experiment"):
        append(path, FIRST)
    assert path.read_text() == f"{line}\n"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_takes_no_results(tmp_path, make):
    path = tmp_path / "results.jsonl"
    make(path)
    with pytest.raises(RecordError, match="results go to a file, and this is none"):
        ResultsFile(path).open()
