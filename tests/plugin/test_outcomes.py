"""What an item's outcome is, what it shows, and what it leaves on disk."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

import pytest

from tests.conftest import choice_documents, choice_task


def test_a_passing_gate(toy):
    result = toy.run("--niche=toy")
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "gnus: niche=toy, mode=canonical, source=local, device=*, lm_eval *, mlx *, mlx-lm *",
            "*benchmark summary*",
            "niche *benchmark *variant *score ± error *floor *drop *gates *seconds *outcome",
            "toy * colours * reference * 0.10 * 2/2 * passed",
            "toy * colours * quantized * 0.10 * +0.0% * 3/3 * passed",
            "toy: PROMOTE",
            "  not evaluated: colours (quantized) previous_run: no earlier run to compare with; the next *",
        ]
    )
    verdict = toy.verdict()
    assert (verdict["verdict"], verdict["reasons"], verdict["not_evaluated"]) == (
        "promote",
        [],
        [
            "colours (quantized) previous_run: no earlier run to compare with; the next run has this one",
            "colours (quantized) baseline_deviation: no comparable record of the baseline; run "
            "`pytest --niche=toy --gnus-variant=baseline -k colours`",
            "composite: fewer than 2 of 3 dimensions evaluated: floors held, previous_run not evaluated, "
            "baseline_deviation not evaluated",
            "sgfp4 (quantized): the weights are not in SGFP4",
        ],
    )
    reference, quantized = toy.records()
    assert reference["run_id"] == quantized["run_id"] == verdict["run_id"]
    assert [gate["name"] for gate in quantized["gates"]] == [
        "hard_floor",
        "truncated_share",
        "quantization_regression",
        "previous_run",
        "baseline_deviation",
    ]
    assert quantized["fingerprint_valid"] is True
    assert quantized["status"] == "passed"


def test_the_sidecar_holds_one_outcome_per_document_and_makes_the_score(toy):
    toy.run("--niche=toy", "-k", "quantized and nothing or reference").assert_outcomes(passed=1)
    record = toy.record("colours", "reference")
    path = toy.path / "artifacts" / "benchmarks" / record["samples"]
    samples = [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
    assert [sample["doc_id"] for sample in samples] == list(range(60))
    assert len({sample["doc_hash"] for sample in samples}) == 60
    result = record["results"]["colours"]
    assert sum(sample["score"] for sample in samples) / 60 == pytest.approx(result["score"], abs=1e-12)
    assert result["n"] == record["counts"]["documents"] == record["counts"]["scored"] == 60


def test_a_floor_that_is_missed_fails_with_a_gate_table_and_no_traceback(toy):
    toy.benchmark("colours", gates={"hard_floor": 0.9})
    result = toy.run("--niche=toy", "--gnus-variant=reference")
    result.assert_outcomes(failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "hard_floor failed: 0.* < 0.9000: acc,none 0.* ± 0.* (n=60, 95% * to *)",
            "gate *verdict *value *limit *detail",
            "hard_floor *FAILED*",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*collection.py*")
    assert toy.record("colours", "reference")["status"] == "failed"


def test_a_drop_beyond_the_limit_fails_the_regression_gate(toy):
    toy.niche(blocking=["colours"], model={"quantized": "demo:random", "reference": "demo:constant"})
    result = toy.run("--niche=toy")
    result.assert_outcomes(passed=1, failed=1)
    record = toy.record("colours")
    gate = next(gate for gate in record["gates"] if gate["name"] == "quantization_regression")
    score = record["results"]["colours"]["score"]
    assert gate["passed"] is False
    assert gate["reference"] == 0.5
    assert gate["value"] == pytest.approx((0.5 - score) / 0.5)
    assert toy.verdict()["verdict"] == "block"


def test_the_reference_may_come_from_an_earlier_run(toy):
    toy.run("--niche=toy", "--gnus-variant=reference").assert_outcomes(passed=1)
    toy.run("--niche=toy", "--gnus-variant=quantized").assert_outcomes(passed=1)
    gates = {gate["name"]: gate for gate in toy.record("colours")["gates"]}
    reference = toy.record("colours", "reference")["results"]["colours"]["score"]
    assert gates["quantization_regression"]["reference"] == reference
    assert gates["quantization_regression"]["passed"] is True


def test_without_a_reference_a_blocking_benchmark_fails_and_names_the_command(toy):
    result = toy.run("--niche=toy", "--gnus-variant=quantized")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*quantization_regression not evaluated: *`pytest --niche=toy --gnus-variant=reference -k colours`*"]
    )


def test_a_reference_of_other_documents_is_not_compared_with(toy):
    toy.run("--niche=toy", "--gnus-variant=reference").assert_outcomes(passed=1)
    toy.data("colours/test.jsonl", choice_documents([0, 1, 2, 3] * 15))
    result = toy.run("--niche=toy", "--gnus-variant=quantized")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not evaluated*differs in dataset_revision*"])


def test_a_corrupt_record_is_named_and_never_used(toy):
    toy.run("--niche=toy", "--gnus-variant=reference").assert_outcomes(passed=1)
    (path,) = (toy.path / "artifacts" / "benchmarks").glob("*.json")
    path.write_text(path.read_text()[:-40])
    result = toy.run("--niche=toy", "--gnus-variant=quantized")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{path.name} cannot be read*"])


def test_a_missing_model_is_one_error_per_item_and_is_tried_once(toy):
    toy.benchmark("shapes")
    toy.data("shapes/test.jsonl", choice_documents([0, 1]))
    toy.niche(blocking=["colours", "shapes"], model={"quantized": "models/none"})
    result = toy.run("--niche=toy", "--junitxml=report.xml")
    # Whether a hub's weights are in SGFP4 is known when they are there: that item fails with the others.
    result.assert_outcomes(errors=3)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*ModelError: *models/none*"])
    result.stdout.no_fnmatch_line("*Traceback*")
    for record in toy.records():
        assert (record["status"], record["results"][record["benchmark"]]["score"]) == ("error", None)
        assert "models/none" in record["reason"]
    cases = ElementTree.parse(toy.path / "report.xml").getroot().iter("testcase")
    assert [[child.tag for child in case if child.tag != "properties"] for case in cases] == [
        ["error"],
        ["error"],
        ["error"],
    ]


def test_gate_failures_are_failures_in_junit_with_the_score(toy):
    toy.benchmark("colours", gates={"hard_floor": 0.9})
    toy.run("--niche=toy", "--gnus-variant=reference", "--junitxml=report.xml", "-W", "error")
    (case,) = ElementTree.parse(toy.path / "report.xml").getroot().iter("testcase")
    (failure,) = case.iter("failure")
    assert failure.get("message", "").startswith("hard_floor failed: ")
    properties = {entry.get("name"): entry.get("value") for entry in case.iter("property")}
    assert properties["gnus_metric"] == "acc,none"
    assert properties["gnus_n"] == "60"


def test_not_implemented_is_a_skip_with_a_record_and_does_not_pass_the_build(toy):
    toy.benchmark("later", task=None, metric=None, status="not_implemented", reason="no sandbox yet")
    toy.niche(blocking=["later"])
    result = toy.run("--niche=toy", "-rs")
    # Neither item fails; the verdict does, so that no reader of the report takes the build for good.
    result.assert_outcomes(skipped=2, failed=1)
    result.stdout.fnmatch_lines(["SKIPPED*not implemented: no sandbox yet"])
    record = toy.record("later")
    assert record["status"] == "not_implemented"
    assert record["results"]["later"]["score"] is None
    assert toy.verdict()["verdict"] == "block"
    # Exit status 0 means "ship": a blocking benchmark that nobody measured must not give it.
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("mark", ["skip(reason='not today')", "xfail(reason='known')"])
def test_a_mark_of_the_users_does_not_make_a_blocking_failure_pass(toy, mark):
    toy.benchmark("colours", gates={"hard_floor": 0.99})
    (toy.path / "benchmarks" / "conftest.py").write_text(
        "import pytest\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        f"        item.add_marker(pytest.mark.{mark})\n"
    )
    result = toy.run("--niche=toy", "--gnus-variant=reference")
    assert result.parseoutcomes()["failed"] == 1  # the verdict, not the item
    result.stdout.fnmatch_lines(["FAILED config/specialists/toy.yaml::verdict[[]toy[]] *"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert toy.verdict()["verdict"] == "block"
    if "xfail" in mark:
        assert toy.record("colours", "reference")["status"] == "failed"


def test_a_niche_that_nothing_blocks_decides_nothing(toy):
    toy.niche(blocking=[], diagnostic=["colours"])
    result = toy.run("--niche=toy")
    result.assert_outcomes(passed=2, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["toy: BLOCK", "*the niche has no blocking benchmark*"])


def test_a_direction_that_contradicts_lm_eval_is_an_error(toy):
    toy.benchmark("colours", higher_is_better=False, gates={"hard_floor": 0.9})
    result = toy.run("--niche=toy", "--gnus-variant=reference")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["EvaluationError: colours: higher_is_better is False *lm-eval says True*"])


def test_a_perplexity_is_read_the_right_way_round(toy):
    task = choice_task(
        "colours",
        output_type="loglikelihood_rolling",
        doc_to_text="",
        doc_to_target="{{ question }}",
        doc_to_choice=None,
        metric_list=[{"metric": "word_perplexity"}],
    )
    content = {"task": {k: v for k, v in task.items() if v is not None}, "metric": "word_perplexity"}
    toy.benchmark("colours", **content, gates={"hard_floor": 1.0001})
    toy.run("--niche=toy", "--gnus-variant=reference").assert_outcomes(failed=1)
    record = toy.record("colours", "reference")
    results = record["results"]["colours"]
    assert results["higher_is_better"] is False
    assert results["score"] > 1.0001
    toy.benchmark("colours", **content, gates={"hard_floor": 1e9})
    toy.run("--niche=toy", "--gnus-variant=reference").assert_outcomes(passed=1)


def test_a_workspace_behind_a_link_is_collected(toy):
    (toy.path / "elsewhere").symlink_to(toy.path / "benchmarks")
    toy.run("elsewhere/colours.yaml", "--niche=toy", "-k", "reference").assert_outcomes(
        passed=1, deselected=1
    )


def test_a_diagnostic_benchmark_that_is_not_implemented_blocks_nothing(toy):
    toy.benchmark("later", task=None, metric=None, status="not_implemented", reason="no sandbox yet")
    toy.niche(blocking=["colours"], diagnostic=["later"])
    result = toy.run("--niche=toy")
    result.assert_outcomes(passed=2, skipped=2)
    assert result.ret == pytest.ExitCode.OK
    assert toy.verdict()["verdict"] == "promote"


def test_a_diagnostic_benchmark_below_its_floor_passes_with_a_warning(toy):
    toy.benchmark("aside", gates={"hard_floor": 0.99})
    toy.data("aside/test.jsonl", choice_documents([0, 1, 2, 3] * 5))
    toy.niche(blocking=["colours"], diagnostic=["aside"])
    result = toy.run("--niche=toy")
    result.assert_outcomes(passed=4)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*GnusWarning: aside[[]toy-reference[]]: hard_floor failed: *never fail*"])
    assert toy.record("aside")["status"] == "warned"
    assert toy.verdict()["verdict"] == "promote"


def test_absent_data_skip_a_diagnostic_benchmark_and_are_an_error_for_a_blocking_one(toy):
    toy.benchmark("aside")
    toy.niche(blocking=["colours"], diagnostic=["aside"])
    result = toy.run("--niche=toy", "-rs")
    result.assert_outcomes(passed=2, skipped=2)
    result.stdout.fnmatch_lines(["SKIPPED*no local data for aside: put *data/benchmarks/aside/*"])
    toy.niche(blocking=["colours", "aside"])
    result = toy.run("--niche=toy")
    result.assert_outcomes(passed=2, errors=2)
    assert toy.verdict()["verdict"] == "block"


@pytest.mark.parametrize(
    ("setup", "message"),
    [
        (lambda toy: toy.data("colours/test.jsonl", []), "*data/benchmarks/colours/test.jsonl is empty*"),
        (
            lambda toy: (toy.path / "data/benchmarks/colours/test.jsonl").rename(
                toy.path / "data/benchmarks/colours/dev.jsonl"
            ),
            "*needs the split 'test'*found: dev.jsonl*",
        ),
        (
            lambda toy: toy.data("colours/test.jsonl", [{"question": "?", "answer": 0}]),
            "*doc_to_choice needs choices, which is not there; fields: question, answer*",
        ),
        (
            lambda toy: toy.data("colours/test.jsonl", [{"choices": ["a", "b"], "answer": 0}]),
            "*doc_to_text needs a field that is not there ('question' is undefined)*",
        ),
        (
            lambda toy: toy.data(
                "colours/test.jsonl", [*choice_documents([0]), {"choices": ["a", "b"], "answer": 0}]
            ),
            "*doc_to_text needs question, which is null or missing*",
        ),
        (
            lambda toy: toy.data("colours/test.jsonl", [*choice_documents([0, 1, 4])]),
            "*colours, document 2: doc_to_target gives 4, which is none of its 4 choices*",
        ),
        (
            lambda toy: toy.benchmark("colours", dataset={"local": "../../secret"}),
            "*leads out of*data/benchmarks*",
        ),
    ],
    ids=[
        "empty",
        "missing split",
        "missing choices",
        "missing field",
        "null field",
        "wrong choice",
        "outside",
    ],
)
def test_unusable_data_are_an_error_that_says_which(toy, setup, message):
    setup(toy)
    result = toy.run("--niche=toy", "--gnus-variant=reference")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"DataError: {message}"])
    assert toy.record("colours", "reference")["status"] == "error"


def test_a_crash_in_a_tasks_function_is_an_error_that_names_its_cause(toy):
    toy.yaml("benchmarks/explode.py", "def text(doc):\n    raise RuntimeError('the task exploded')\n")
    toy.benchmark("colours")
    text = (toy.path / "benchmarks/colours.yaml").read_text()
    toy.yaml(
        "benchmarks/colours.yaml",
        text.replace("doc_to_text: 'Q: {{ question }}\n\n    A:'", "doc_to_text: !function explode.text"),
    )
    assert "!function" in (toy.path / "benchmarks/colours.yaml").read_text()
    result = toy.run("--niche=toy", "--gnus-variant=reference")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*RuntimeError: the task exploded*"])
    reason = toy.record("colours", "reference")["reason"]
    assert reason.startswith(
        "DataError: colours, document 0: doc_to_text cannot be made: RuntimeError: the task"
    )


def test_a_limit_marks_the_record_and_never_gates(toy):
    toy.benchmark("colours", gates={"hard_floor": 0.99})
    result = toy.run("--niche=toy", "--gnus-limit=5", "--gnus-variant=reference")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*GnusWarning: *limited to 5 documents by --gnus-limit: never gated*"])
    record = toy.record("colours", "reference")
    assert (record["limit"], record["status"], record["results"]["colours"]["n"]) == (5, "warned", 5)
    verdict = toy.verdict()
    assert verdict["verdict"] == "block"
    assert "limited to 5 documents" in verdict["reasons"][0]
    # ... and such a record is no reference for a canonical run.
    toy.benchmark("colours", gates={"hard_floor": 0.0})
    toy.run("--niche=toy", "--gnus-variant=quantized").assert_outcomes(failed=1)


def test_a_limit_of_the_benchmark_is_part_of_it_and_gates(toy):
    toy.benchmark("colours", gates={"hard_floor": 0.0}, limit=6)
    toy.run("--niche=toy").assert_outcomes(passed=2)
    record = toy.record("colours")
    assert (record["limit"], record["status"], record["results"]["colours"]["n"]) == (None, "passed", 6)
    assert toy.verdict()["verdict"] == "promote"


def test_diagnostic_mode_takes_the_overrides_and_gates_nothing(toy):
    toy.benchmark(
        "colours",
        gates={"hard_floor": 0.99},
        diagnostic={"task": {"doc_to_text": "Say: {{ question }}"}, "limit": 9},
    )
    canonical = toy.run("--niche=toy", "--gnus-variant=reference")
    canonical.assert_outcomes(failed=1)
    diagnostic = toy.run("--niche=toy", "--gnus-variant=reference", "--gnus-mode=diagnostic")
    diagnostic.assert_outcomes(passed=1)
    diagnostic.stdout.fnmatch_lines(["*GnusWarning: *a diagnostic run is never gated (D-03)*"])
    first, second = toy.records()
    assert (first["mode"], second["mode"]) == ("canonical", "diagnostic")
    assert (first["results"]["colours"]["n"], second["results"]["colours"]["n"]) == (60, 9)
    assert first["fingerprint"]["prompt_hash"] != second["fingerprint"]["prompt_hash"]
    assert second["status"] == "warned"


def test_requested_and_effective_shots_that_differ_are_an_error(toy):
    toy.benchmark("colours", task=choice_task("colours", num_fewshot=0), num_fewshot=5)
    result = toy.run("--niche=toy", "--gnus-variant=reference")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["EvaluationError: *num_fewshot is 5, but lm-eval ran colours with 0*"])


def test_an_unknown_metric_is_an_error_that_lists_what_there_is(toy):
    toy.benchmark("colours", metric="f1")
    result = toy.run("--niche=toy", "--gnus-variant=reference")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["EvaluationError: *did not give the metric 'f1'; it gave acc,none"])


def test_exitfirst_last_failed_and_deselect(toy):
    toy.benchmark("colours", gates={"hard_floor": 0.99})
    toy.benchmark("shapes")
    toy.data("shapes/test.jsonl", choice_documents([0, 1, 2, 3]))
    toy.niche(blocking=["colours", "shapes"])
    stopped = toy.run("--niche=toy", "-x")
    stopped.assert_outcomes(failed=1)
    assert len(toy.records()) == 1
    again = toy.run("--niche=toy", "--lf", "-v")
    again.stdout.fnmatch_lines(["*colours[[]toy-reference[]] FAILED*"])
    again.assert_outcomes(failed=1)
    left_out = toy.run(
        "--niche=toy",
        "--deselect",
        "benchmarks/colours.yaml",
        "-p",
        "no:cacheprovider",
        "--durations=0",
        "-vv",
    )
    left_out.assert_outcomes(passed=2, deselected=2)
    left_out.stdout.fnmatch_lines(["*slowest*", "*setup*shapes*"])


def test_a_conftest_may_add_fixtures_and_replace_the_model(toy):
    (toy.path / "benchmarks" / "conftest.py").write_text(
        "import pytest\n"
        "from pytest_gnus.models.registry import load\n"
        "from pytest_gnus.models.spec import ModelSpec\n"
        "@pytest.fixture(autouse=True)\n"
        "def announced(request):\n"
        "    print('ANNOUNCED', request.node.name)\n"
        "@pytest.fixture\n"
        "def gnus_model():\n"
        "    return load(ModelSpec('demo', 'constant'))\n"
    )
    result = toy.run("--niche=toy", "--gnus-variant=reference", "-s")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*ANNOUNCED colours[[]toy-reference[]]*"])
    assert toy.record("colours", "reference")["results"]["colours"]["score"] == 0.5


def test_a_suspicious_score_is_flagged(toy):
    toy.data("colours/test.jsonl", choice_documents([0] * 50))
    toy.niche(blocking=["colours"], model={"quantized": "demo:constant", "reference": "demo:constant"})
    result = toy.run("--niche=toy", "--gnus-variant=reference")
    result.assert_outcomes(passed=1, warnings=3)
    assert toy.record("colours", "reference")["flags"] == [
        "a score of 100% on 50 documents: check the benchmark before you trust it",
        "no better than always the same choice (1.0000)",
    ]


def test_an_artifacts_folder_that_cannot_be_written_does_not_pass(toy):
    (toy.path / "artifacts").write_text("a file where the folder should be")
    result = toy.run("--niche=toy", "--gnus-variant=reference")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: pytest-gnus: nothing can be written to *artifacts/benchmarks: *"])


def test_artifacts_may_lie_elsewhere(toy):
    toy.run("--niche=toy", "--gnus-variant=reference", "--gnus-artifacts=out/here").assert_outcomes(passed=1)
    assert len(list((toy.path / "out" / "here" / "benchmarks").glob("*.json"))) == 1
    assert not (toy.path / "artifacts").exists()


def test_nothing_is_printed_by_lm_eval_and_no_git_is_run(toy):
    (toy.path / "bin").mkdir()
    git = toy.path / "bin" / "git"
    git.write_text(f"#!/bin/sh\necho called >> {toy.path}/git-calls\n")
    git.chmod(0o755)
    toy.pytester._monkeypatch.setenv("PATH", f"{git.parent}{os.pathsep}{os.environ['PATH']}")
    result = toy.run_process("--niche=toy", "--gnus-variant=reference", "-s", "-q")
    result.assert_outcomes(passed=1)
    assert result.stderr.str() == ""
    assert not (toy.path / "git-calls").exists()


def test_the_global_generators_are_left_as_they_were(toy):
    (toy.path / "benchmarks" / "conftest.py").write_text(
        "import random, numpy, pytest\n"
        "@pytest.fixture(autouse=True)\n"
        "def drawn(request):\n"
        "    random.seed(7); numpy.random.seed(7)\n"
        "    expected = (random.Random(7).random(), numpy.random.RandomState(7).random())\n"
        "    yield\n"
        "    assert (random.random(), numpy.random.random()) == expected\n"
    )
    toy.run("--niche=toy", "--gnus-variant=reference").assert_outcomes(passed=1)


def test_after_an_interrupt_what_was_measured_is_on_disk(toy):
    toy.benchmark("shapes")
    toy.data("shapes/test.jsonl", choice_documents([0, 1, 2, 3]))
    toy.niche(blocking=["colours", "shapes"])
    (toy.path / "benchmarks" / "conftest.py").write_text(
        "import time, pytest\n"
        "@pytest.fixture(autouse=True)\n"
        "def wait(request):\n"
        "    if 'shapes' in request.node.name:\n"
        "        print('WAITING', flush=True)\n"
        "        time.sleep(120)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "--niche=toy", "-s", "-p", "no:cacheprovider"],
        cwd=toy.path,
        stdout=subprocess.PIPE,
        text=True,
        # Started in the background, the tests may have inherited a SIGINT that is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "WAITING" in line:
            break
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert [record["benchmark"] for record in toy.records()] == ["colours"]
    assert not list((toy.path / "artifacts" / "benchmarks").glob(".*"))
    assert "KeyboardInterrupt" in output


def test_documents_that_share_a_passage_are_compared_in_clusters(toy):
    documents = choice_documents([0, 1, 2, 3] * 15)
    for number, document in enumerate(documents):
        document["passage"] = f"passage {number // 2}"
    toy.data("colours/test.jsonl", documents)
    toy.benchmark("colours", gates={"hard_floor": 0.05}, cluster="passage")
    toy.run("--niche=toy").assert_outcomes(passed=2)
    gate = toy.record("colours")["gates"][2]
    assert gate["name"] == "quantization_regression"
    assert "60 pairs in 30 clusters" in gate["detail"]
    toy.benchmark("colours", gates={"hard_floor": 0.05}, cluster="passages")
    result = toy.run("--niche=toy", "-k", "reference")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*document 0 has no field 'passages', which `cluster` names; it has answer, choices, pass*"]
    )
