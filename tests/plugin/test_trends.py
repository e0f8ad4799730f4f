"""Trend gates, decisions and a history elsewhere, through real sessions."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_gnus.records.fingerprint import canonical_sha256, record_digest
from tests.conftest import ToyWorkspace


def rewrite(path: Path, score: float, build: str, gates: dict[str, bool] | None = None) -> None:
    """Turn the record of a run into that of another build with another score, in the product's own form."""
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    record["results"]["colours"]["score"] = score
    record["fingerprint"]["model_manifest_sha256"] = build * 64
    record["fingerprint_hash"] = canonical_sha256(record["fingerprint"])
    record["samples"] = record["samples_sha256"] = None
    for gate in record["gates"]:
        if gates and gate["name"] in gates:
            gate |= {"passed": gates[gate["name"]], "evaluated": True, "severity": "warn"}
    record["record_sha256"] = record_digest(record)
    path.write_text(json.dumps(record), encoding="utf-8")


def newest(toy: ToyWorkspace) -> Path:
    paths = (toy.path / "artifacts" / "benchmarks").glob("toy_colours_quantized_*.json")
    return max(paths, key=lambda path: path.stem.rsplit("_", 1)[-1])


@pytest.fixture
def constant(toy: ToyWorkspace) -> ToyWorkspace:
    """A niche whose model scores 0.5 in every run."""
    toy.niche(blocking=["colours"], model={"quantized": "demo:constant", "reference": "demo:constant"})
    return toy


def test_the_first_run_has_nothing_to_compare_with_and_is_promoted(constant: ToyWorkspace) -> None:
    assert constant.run("--niche=toy").ret == 0
    verdict = constant.verdict()
    assert verdict["verdict"] == "promote"
    assert any("previous_run: no earlier run" in text for text in verdict["not_evaluated"])
    assert any("composite: fewer than 2 of 3" in text for text in verdict["not_evaluated"])


def test_a_build_that_falls_warns_and_the_third_in_a_row_blocks(constant: ToyWorkspace) -> None:
    constant.run("--niche=toy")
    rewrite(newest(constant), 0.9, "a")
    first = constant.run("--niche=toy")
    assert first.ret == 0
    gate = next(g for g in constant.records()[-1]["gates"] if g["name"] == "previous_run")
    assert (gate["passed"], gate["severity"], gate["consecutive_failures"]) == (False, "warn", 1)
    again = constant.run("--niche=toy")  # the same build once more counts once
    assert again.ret == 0
    gate = next(g for g in constant.records()[-1]["gates"] if g["name"] == "previous_run")
    assert (gate["severity"], gate["consecutive_failures"]) == ("warn", 1)
    # Two other builds fell before this one.
    paths = sorted((constant.path / "artifacts" / "benchmarks").glob("toy_colours_quantized_*.json"))
    rewrite(paths[1], 0.8, "b", {"previous_run": False})
    rewrite(paths[2], 0.7, "c", {"previous_run": False})
    third = constant.run("--niche=toy")
    assert third.ret == 1
    gate = next(g for g in constant.records()[-1]["gates"] if g["name"] == "previous_run")
    assert (gate["severity"], gate["consecutive_failures"]) == ("block", 3)
    assert constant.verdict()["verdict"] == "block"
    third.stdout.fnmatch_lines(["*what to look at: *repairs*toy_*.md"])
    (report,) = (constant.path / "artifacts" / "repairs").glob("*.md")
    assert "previous_run (quantized)" in report.read_text(encoding="utf-8")


def test_a_record_that_cannot_be_read_is_named_and_never_passes(constant: ToyWorkspace) -> None:
    constant.run("--niche=toy")
    path = newest(constant)
    path.write_text(path.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    result = constant.run("--niche=toy")
    gates = json.loads(newest(constant).read_text(encoding="utf-8"))["gates"]
    (gate,) = [gate for gate in gates if gate["name"] == "previous_run"]
    assert (gate["passed"], gate["evaluated"], gate["severity"]) == (None, False, "warn")
    assert path.name in gate["detail"]
    assert result.ret == 0
    assert any(path.name in text for text in constant.verdict()["warnings"])


def test_the_baseline_and_the_composite(constant: ToyWorkspace) -> None:
    constant.niche(
        blocking=["colours"],
        model={"quantized": "demo:random", "reference": "demo:random", "baseline": "demo:constant"},
        consecutive_failures_to_block=1,
    )
    result = constant.run("--niche=toy", "--gnus-variant=all")
    assert result.ret == 1  # half of the baseline's score
    gates = {g["name"]: g for g in constant.record("colours")["gates"]}
    assert gates["baseline_deviation"]["passed"] is False
    assert gates["baseline_deviation"]["severity"] == "block"
    (composite,) = constant.verdict()["gates"]
    assert (composite["name"], composite["passed"], composite["value"]) == ("composite", False, 1.0)


def test_an_accepted_run_is_the_new_reference_point(
    constant: ToyWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = {"quantized": "demo:random", "reference": "demo:constant"}
    constant.niche(blocking=["colours"], model=model)
    assert constant.run("--niche=toy").ret == 1  # half of the reference's score
    (constant.path / "gitconfig").write_text("[user]\n\tname = Ada\n", encoding="utf-8")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(constant.path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    done = constant.pytester.run(
        sys.executable, "-m", "pytest_gnus.cli", "accept", "latest", "--reason", "known trade-off"
    )
    assert done.ret == 0
    result = constant.run("--niche=toy")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*relies on a decision: *accepted by Ada on *: known trade-off*"])
    (told,) = constant.verdict()["accepted"]
    assert "known trade-off" in told
    gate = next(g for g in constant.records()[-1]["gates"] if g["name"] == "quantization_regression")
    assert "known trade-off" in gate["accepted"]


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_a_history_elsewhere_outlives_the_artifacts(constant: ToyWorkspace, workers: list[str]) -> None:
    for number in range(2):
        options = ["--niche=toy", "--gnus-history=kept", f"--gnus-artifacts=run{number}", *workers]
        assert constant.run(*options).ret == 0
    kept = sorted((constant.path / "kept" / "toy" / "colours" / "quantized").glob("*.json"))
    assert len(kept) == 2
    gates = {g["name"]: g for g in json.loads(kept[-1].read_text(encoding="utf-8"))["gates"]}
    assert (gates["previous_run"]["passed"], gates["previous_run"]["value"]) == (True, 0.0)


def test_a_history_that_cannot_be_used_is_a_usage_error(constant: ToyWorkspace) -> None:
    result = constant.run("--niche=toy", "--gnus-history=nosuch://place")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--gnus-history: *nosuch*"])


def test_a_history_that_cannot_be_written_does_not_pass(constant: ToyWorkspace) -> None:
    (constant.path / "kept").write_text("a file", encoding="utf-8")
    result = constant.run("--niche=toy", "--gnus-history=kept")
    assert result.ret != 0
    assert "kept" in result.stdout.str()
