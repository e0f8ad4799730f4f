"""The release gate of the embedded specialist, as `make gate` runs it, in a copy of the workspace."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_gnus import ExperimentRequest, ExperimentRunner
from pytest_gnus.demo import model_directory
from pytest_gnus.models.cpu import expected_blas
from pytest_gnus.models.spec import SGFP4_MANIFEST
from pytest_gnus.records.fingerprint import file_sha256
from pytest_gnus.records.schema import validate
from tests.conftest import ToyWorkspace, choice_task

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def patents(toy: ToyWorkspace) -> ToyWorkspace:
    """The repository's own workspace."""
    for name in ("benchmarks", "config", "data"):
        shutil.rmtree(toy.path / name)
        shutil.copytree(REPOSITORY / name, toy.path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return toy


def test_the_gate_passes_each_model_is_loaded_once_and_the_records_are_valid(patents):
    (patents.path / "conftest.py").write_text(
        "import pytest\n"
        "@pytest.fixture(scope='session', autouse=True)\n"
        "def counted(gnus_models):\n"
        "    yield\n"
        "    print('LOADED', [str(spec) for spec in gnus_models.loads])\n"
    )
    result = patents.run("--niche=patents", "-s")
    result.assert_outcomes(passed=5, skipped=2)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*LOADED [[]'demo:patents-reference', 'demo:patents'[]]*", "*: PROMOTE"])
    records = patents.records()
    assert len(records) == 4
    for record in records:
        validate(record)
        assert record["fingerprint_valid"] is True
        assert record["model"]["embedded_demonstration"] is True
        assert record["model_version"] == "embedded demonstration"
        # The artifact is read before any model is loaded; MLX must have been given its BLAS by then.
        if record["environment"]["device"] == "cpu":
            assert record["environment"]["blas"] == expected_blas().name
    floors = {"bigpatent": 0.20, "uspto_classification": 0.30}
    for record in records:
        score = record["results"][record["benchmark"]]["score"]
        assert score > 2 * floors[record["benchmark"]]
    assert {record["variant"]: record["quantization_config"] for record in records}["reference"] is None
    record = patents.record("bigpatent")
    assert record["quantization_config"]["format"] == "sgfp4"
    assert record["quantization_config"]["bits_per_weight"] < 4.26
    package = model_directory("quantized")
    assert record["fingerprint"]["sgfp4_manifest_sha256"] == file_sha256(package / SGFP4_MANIFEST)
    reference = patents.record("bigpatent", "reference")["fingerprint"]
    assert record["fingerprint"]["model_manifest_sha256"] == reference["model_manifest_sha256"]
    assert reference["sgfp4_manifest_sha256"] is None
    assert patents.verdict("patents")["verdict"] == "promote"


def test_the_untrained_baseline_fails_the_floors(patents):
    result = patents.run("--niche=patents", "--gnus-variant=baseline", "-m", "blocking")
    result.assert_outcomes(failed=2, deselected=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["hard_floor failed: * < 0.2000*", "hard_floor failed: * < 0.3000*"])


@pytest.mark.parametrize("model", ["demo:random", "demo:constant"])
def test_what_knows_nothing_lands_at_chance_and_fails_the_floors(patents, model):
    result = patents.run(
        "--niche=patents", "--gnus-variant=quantized", f"--gnus-model={model}", "-m", "blocking"
    )
    result.assert_outcomes(failed=2, deselected=1)
    results = patents.record("uspto_classification")["results"]["uspto_classification"]
    assert abs(results["score"] - results["chance"]["random_choice"]) <= 3 * results["stderr"]
    for name in ("bigpatent", "uspto_classification"):
        gates = {gate["name"]: gate["passed"] for gate in patents.record(name)["gates"]}
        assert gates["hard_floor"] is False


def test_outputs_cut_by_stop_string_and_by_limit_are_counted(toy):
    task = choice_task(
        "colours",
        output_type="generate_until",
        doc_to_choice=None,
        doc_to_target="{{ choices[answer] }}",
        doc_to_text="Description: The present invention relates to a pump {{ question }}",
        generation_kwargs={"until": ["e"], "max_gen_toks": 12},
        metric_list=[{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    )
    toy.benchmark("colours", task={k: v for k, v in task.items() if v is not None}, metric="exact_match")
    toy.niche(blocking=["colours"], model={"quantized": "demo:patents-reference"})
    toy.run("--niche=toy", "-k", "colours")
    counts = toy.record("colours")["counts"]
    assert counts["documents"] == 60
    assert counts["stopped_by_string"] + counts["stopped_by_limit"] <= 60
    assert counts["stopped_by_string"] > 0
    assert toy.record("colours")["timing"]["generated_tokens"] > 0


def test_a_session_that_is_killed_leaves_only_whole_records(toy):
    (toy.path / "benchmarks" / "conftest.py").write_text(
        "import time, pytest\n"
        "from pytest_gnus.records import store\n"
        "def pytest_configure():\n"
        "    whole = store.os.fsync\n"
        "    def slow(descriptor):\n"
        "        print('WRITING', flush=True)\n"
        "        time.sleep(60)\n"
        "        whole(descriptor)\n"
        "    store.os.fsync = slow\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "--niche=toy", "-s", "-p", "no:cacheprovider", "benchmarks"],
        cwd=toy.path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert any("WRITING" in line for line in process.stdout)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    folder = toy.path / "artifacts" / "benchmarks"
    assert list(folder.glob("*.json")) == []
    assert [path.name[0] for path in folder.iterdir()] == ["."]
    # The next session is not disturbed by what is left.
    (toy.path / "benchmarks" / "conftest.py").unlink()
    toy.run("--niche=toy").assert_outcomes(passed=2)
    for path in folder.glob("*.json"):
        validate(json.loads(path.read_text()))


def test_the_experiment_of_this_repository_compares_its_three_models(patents):
    result = patents.run("--gnus-experiment=patents_variants", "-k", "uspto")
    result.assert_outcomes(passed=6, deselected=6)
    assert result.ret == pytest.ExitCode.OK
    (path,) = (patents.path / "artifacts" / "experiments").glob("*.report.json")
    report = json.loads(path.read_text())
    means = {summary["model_label"]: summary["mean"] for summary in report["summaries"]}
    assert list(means) == ["patents", "patents-reference", "patents-baseline"]
    assert [summary["std"] for summary in report["summaries"]] == [0.0] * 3  # no shots, nothing is sampled
    better = [comparison["better"] for comparison in report["comparisons"]]
    assert better == [None, "patents", "patents-reference"]


def test_the_prompt_bundle_of_this_repository_samples():
    request = ExperimentRequest(
        niches=["patents"], model_identifiers=["demo:patents"], prompt_bundle_name="examiner"
    )
    for item in ExperimentRunner(REPOSITORY).build_task_requests(request):
        assert item.request.system_instruction == "You are a patent examiner."
        expected = {"do_sample": True, "temperature": 0.7, "top_p": 0.95}
        assert item.request.generation_kwargs == expected
