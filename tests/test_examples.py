"""The worked examples, each put into a workspace as its text says."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from tests.conftest import ToyWorkspace, choice_documents

EXAMPLES = Path(__file__).parents[1] / "examples"


def put(toy: ToyWorkspace, example: str) -> None:
    shutil.copyfile(EXAMPLES / example / "conftest.py", toy.path / "conftest.py")


def test_a_provider_of_word_counts(toy):
    put(toy, "provider")
    (toy.path / "data" / "words.txt").write_text("blue blue blue blue red red green\n")
    toy.data("colours/test.jsonl", choice_documents([2, 2, 2, 0]))
    result = toy.run("--niche=toy", "--gnus-model=unigram:data/words.txt", "--gnus-variant=quantized")
    record = toy.record("colours")
    assert record["results"]["colours"]["score"] == 0.75  # always "blue"
    assert record["model"]["provider"] == "unigram"
    assert record["model"]["path"] == str(toy.path / "data" / "words.txt")
    assert record["fingerprint_valid"] is True
    assert record["timing"]["prompt_tokens"] > 0
    missing = toy.run("--niche=toy", "--gnus-model=unigram:none.txt", "--gnus-variant=quantized")
    missing.assert_outcomes(errors=1)
    missing.stdout.fnmatch_lines(["*ModelError: there is no text */none.txt*"])
    wrong = toy.run("--niche=toy", "--gnus-model=unigram:words")
    assert wrong.ret == pytest.ExitCode.USAGE_ERROR
    wrong.stderr.fnmatch_lines(["*found 'unigram:words'; allowed: a text file, as in unigram:*"])
    unknown = toy.run("--niche=toy", "--gnus-model=unigramm:words.txt")
    assert unknown.ret == pytest.ExitCode.USAGE_ERROR
    unknown.stderr.fnmatch_lines(
        ["*a provider of mlx, hf, openai, lm_eval, demo, unigram*Did you mean 'unigram'?"]
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED  # no reference to compare with


def test_a_gate_on_the_lower_end_of_the_interval(toy):
    put(toy, "gate")
    toy.niche(blocking=["colours"], model={"quantized": "demo:constant", "reference": "demo:constant"})
    toy.benchmark("colours", gates={"hard_floor": 0.3})
    toy.run("--niche=toy").assert_outcomes(passed=2)
    gates = {gate["name"]: gate for gate in toy.record("colours")["gates"]}
    assert gates["floor_beyond_doubt"]["passed"] is True
    assert gates["floor_beyond_doubt"]["value"] == pytest.approx(0.3774, abs=1e-3)  # Wilson, 30 of 60
    toy.benchmark("colours", gates={"hard_floor": 0.45})  # 0.5 reaches it, 0.37 does not
    result = toy.run("--niche=toy")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*floor_beyond_doubt*the lower end of 0.37* is below 0.45*"])
    assert toy.verdict()["verdict"] == "block"
    assert any("floor_beyond_doubt" in reason for reason in toy.verdict()["reasons"])


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_reporter_of_scores_and_verdicts(toy, monkeypatch, workers):
    put(toy, "reporter")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(toy.path / "summary.md"))
    toy.run("--niche=toy", *workers).assert_outcomes(passed=2)
    with (toy.path / "scores.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["variant"], row["status"], row["n"]) for row in rows] == [
        ("reference", "passed", "60"),
        ("quantized", "passed", "60"),
    ]
    assert float(rows[0]["score"]) == toy.record("colours", "reference")["results"]["colours"]["score"]
    summary = (toy.path / "summary.md").read_text()
    assert "| toy | **promote** | all blocking benchmarks passed |" in summary
    assert summary.count("Release gate") == 1


def test_a_reporter_of_an_experiment(toy, monkeypatch):
    put(toy, "reporter")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(toy.path / "summary.md"))
    models = ("--gnus-model=demo:random", "--gnus-model=demo:constant")
    toy.run("--niche=toy", "--gnus-experiment", *models).assert_outcomes(passed=2)
    report = next((toy.path / "artifacts" / "experiments").glob("*.report.md")).read_text(encoding="utf-8")
    assert (toy.path / "summary.md").read_text() == report + "\n"
