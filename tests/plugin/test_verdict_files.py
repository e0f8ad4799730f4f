"""The verdict that a session leaves: on disk, on the terminal, in JUnit's file and as exit status."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest

from tests.conftest import ToyWorkspace, choice_documents

#: Both variants of the toy niche are the same model, which passes a floor of 0.1.
VANISHING = """
def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if "quantized" not in item.name]
"""
#: Whatever stands in the file of the verdict while an item runs is kept beside it.
LOOKING = """
import pathlib, shutil, pytest

@pytest.fixture(autouse=True)
def look():
    verdict = pathlib.Path("artifacts/verdicts/toy.json")
    shutil.copy(verdict, "seen.json")
"""
#: A disk that is full once the first record is to be written.
FULL_DISK = """
import errno, pathlib
from pytest_gnus.records.store import RecordStore

def full(*_arguments):
    raise OSError(errno.ENOSPC, "No space left on device")

RecordStore.write = full
"""
BROKEN_TEARDOWN = """
import pytest

@pytest.fixture(autouse=True)
def broken(request):
    yield
    if "quantized" in request.node.name:
        raise RuntimeError("could not be taken down")
"""


def conftest(toy: ToyWorkspace, text: str) -> None:
    (toy.path / "conftest.py").write_text(text, encoding="utf-8")


def junit(toy: ToyWorkspace) -> tuple[dict[str, str], list[str]]:
    """The properties of the suite, and the names of the tests that failed."""
    (suite,) = ElementTree.parse(toy.path / "junit.xml").getroot()
    properties = {entry.attrib["name"]: entry.attrib["value"] for entry in suite.iter("property")}
    failed = [case.attrib["name"] for case in suite.iter("testcase") if case.find("failure") is not None]
    return properties, failed


def test_a_verdict_is_taken_back_when_a_run_begins(toy: ToyWorkspace) -> None:
    conftest(toy, LOOKING)
    toy.yaml("artifacts/verdicts/toy.json", '{"verdict": "promote"}')
    result = toy.run("--niche=toy", "--junitxml=junit.xml")
    assert result.ret == 0
    seen = json.loads((toy.path / "seen.json").read_text())
    assert (seen["verdict"], seen["reasons"]) == ("block", ["not finished"])
    assert toy.verdict()["verdict"] == "promote"
    assert toy.verdict()["run_id"] == seen["run_id"]
    properties, failed = junit(toy)
    assert (properties["gnus_verdict[toy]"], failed) == ("promote", [])


@pytest.mark.parametrize("arguments", [("tests",), ("--setup-plan",), ("-k", "nothing")])
def test_a_session_that_measured_nothing_says_so(toy: ToyWorkspace, arguments: tuple[str, ...]) -> None:
    toy.yaml("artifacts/verdicts/toy.json", '{"verdict": "promote"}')
    (toy.path / "tests").mkdir()
    (toy.path / "tests" / "test_other.py").write_text("def test_other(): pass\n")
    result = toy.run("--niche=toy", *arguments)
    assert result.ret == (5 if "-k" in arguments else 0)
    assert toy.verdict()["reasons"] == ["not evaluated: nothing was measured in this run"]
    result.stdout.fnmatch_lines(["toy: BLOCK"])


def test_items_that_a_conftest_takes_away_fail_the_session_everywhere(toy: ToyWorkspace) -> None:
    conftest(toy, VANISHING)
    result = toy.run("--niche=toy", "--junitxml=junit.xml")
    assert result.ret == 1
    assert toy.verdict()["reasons"] == ["not evaluated: colours (quantized): was not run"]
    result.stdout.fnmatch_lines(
        ["toy: BLOCK", "no test failed, but a niche is blocked: exit status 1", "FAILED *verdict[[]toy[]]*"]
    )
    properties, failed = junit(toy)
    assert (properties["gnus_verdict[toy]"], failed) == ("block", ["verdict[toy]"])


def test_a_file_that_is_not_collected_is_missed_too(toy: ToyWorkspace) -> None:
    toy.benchmark("shapes")
    toy.data("shapes/test.jsonl", choice_documents([0, 1, 2, 3]))
    toy.niche(blocking=["colours", "shapes"])
    conftest(toy, 'collect_ignore_glob = ["benchmarks/shapes*"]\n')
    result = toy.run("--niche=toy")
    assert result.ret == 1
    assert "not evaluated: shapes (quantized): was not run" in toy.verdict()["reasons"]


def test_a_disk_that_fills_up_blocks_everywhere(toy: ToyWorkspace) -> None:
    conftest(toy, FULL_DISK)
    result = toy.run("--niche=toy", "--junitxml=junit.xml")
    assert result.ret == 1
    (reason,) = toy.verdict()["reasons"]
    assert reason.startswith("records could not be written: colours (reference): [Errno 28] No space left")
    result.stdout.fnmatch_lines(["toy: BLOCK"])
    properties, failed = junit(toy)
    assert (properties["gnus_verdict[toy]"], failed) == ("block", ["verdict[toy]"])


def test_a_folder_that_cannot_be_written_is_found_before_anything_is_measured(toy: ToyWorkspace) -> None:
    toy.yaml("artifacts/benchmarks", "a file in the place of the folder")
    result = toy.run("--niche=toy")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: pytest-gnus: nothing can be written to *benchmarks: File exists*"])
    assert not (toy.path / "artifacts" / "verdicts").exists()


def test_a_teardown_that_fails_is_no_pass(toy: ToyWorkspace) -> None:
    conftest(toy, BROKEN_TEARDOWN)
    result = toy.run("--niche=toy")
    assert result.ret == 1
    (reason,) = toy.verdict()["reasons"]
    assert "colours (quantized): error: its teardown failed: " in reason
    assert "could not be taken down" in reason
    result.stdout.fnmatch_lines(["toy: BLOCK"])


def test_parts_promote_together_as_long_as_each_passed(toy: ToyWorkspace) -> None:
    """A part relies on records of just this build and these settings, and names them."""
    assert toy.run("--niche=toy", "-k", "reference").ret == 0
    verdict = toy.verdict()
    assert (verdict["verdict"], verdict["must_fail"]) == ("block", False)
    assert verdict["reasons"] == ["not evaluated: colours (quantized): was not run"]
    result = toy.run("--niche=toy", "-k", "quantized")
    assert result.ret == 0
    record = toy.record("colours", "reference")
    name = next((toy.path / "artifacts" / "benchmarks").glob("*_reference_*.json")).name
    assert toy.verdict()["verdict"] == "promote"
    assert toy.verdict()["earlier"] == [f"colours (reference): passed in run {record['run_id']} ({name})"]
    result.stdout.fnmatch_lines(["  relies on an earlier run: colours (reference): passed in run *"])

    toy.data("colours/more.jsonl", [{"question": "?", "choices": ["a"], "answer": 0}])
    result = toy.run("--niche=toy", "-k", "quantized")
    assert result.ret == 0
    told = "was not run; earlier records are of another build or other settings"
    assert toy.verdict()["reasons"] == [f"not evaluated: colours (reference): {told}"]
    result.stdout.fnmatch_lines(["exit status 0 says nothing of toy: *"])


def test_a_part_does_not_hide_what_failed_for_the_same_build(toy: ToyWorkspace) -> None:
    toy.benchmark("shapes", gates={"hard_floor": 0.9})
    toy.data("shapes/test.jsonl", choice_documents([0, 1, 2, 3] * 10))
    toy.niche(blocking=["colours", "shapes"])
    assert toy.run("--niche=toy").ret == 1
    result = toy.run("--niche=toy", "-k", "colours")
    assert result.ret == 0
    run_id = toy.record("shapes")["run_id"]
    reasons = toy.verdict()["reasons"]
    assert len(reasons) == 2
    assert all(f"its status was 'failed' in run {run_id} (toy_shapes_" in reason for reason in reasons)
