"""Old names of keys, ceilings and truncated prompts in whole sessions."""

from __future__ import annotations

import pytest

from tests.conftest import choice_documents, choice_task

CLERK = {"name": "clerk", "system_prompt": "You are a clerk."}


def test_old_names_are_told_once_and_fail_no_build_under_any_filter(toy):
    toy.benchmark("colours", gates={"hard_floor": 0.1, "regression_max_pct": 0.1})
    result = toy.run("--niche=toy", "-W", "error::FutureWarning", "-n", "2")
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.OK
    text = result.stdout.str()
    assert text.count("gates.regression_max_pct is now max_relative_drop") == 1
    result.stdout.fnmatch_lines(["*RenamedKeyWarning: benchmarks/colours.yaml: a key has a new name: *"])
    assert toy.verdict()["verdict"] == "promote"
    assert toy.record("colours")["gates"][2]["threshold"] == 0.1


def test_an_experiment_tells_old_names_of_its_prompt_bundle(toy):
    toy.yaml("config/prompts/clerk.yaml", CLERK)
    toy.yaml(
        "config/experiments/trial.yaml",
        {"name": "trial", "niche": "toy", "models": ["demo:random"], "prompt_bundle": "clerk"},
    )
    result = toy.run("--gnus-experiment=trial")
    result.assert_outcomes(passed=1)
    told = "config/prompts/clerk.yaml: a key has a new name: system_prompt is now system_instruction"
    assert result.stdout.str().count(told) == 1


def perplexity(**gates):
    """The benchmark `colours` as a perplexity; nothing in its file says in which direction it is better."""
    task = choice_task(
        "colours",
        output_type="loglikelihood_rolling",
        doc_to_text="",
        doc_to_target="{{ question }}",
        metric_list=[{"metric": "word_perplexity"}],
    )
    del task["doc_to_choice"]
    return {"task": task, "metric": "word_perplexity", "gates": gates}


def test_a_ceiling_is_shown_as_one(toy):
    toy.benchmark("colours", **perplexity(hard_ceiling=1.0001))
    result = toy.run("--niche=toy", "--gnus-variant=reference")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "hard_ceiling failed: * > 1.0001: word_perplexity,none *",
            "hard_ceiling *FAILED *1.0001*",
            "toy * colours * reference * <= 1.00 * 1/2 hard_ceiling FAILED*",
        ]
    )
    assert "hard_floor" not in result.stdout.str()
    gate = toy.record("colours", "reference")["gates"][0]
    assert (gate["name"], gate["passed"]) == ("hard_ceiling", False)
    assert toy.record("colours", "reference")["counts"]["truncated_prompts"] == 0


def test_a_ceiling_for_a_score_of_which_lm_eval_says_that_higher_is_better(toy):
    """The file does not show it: the metric is one of the task's own."""
    task = choice_task("colours", metric_list=[{"metric": "acc_bytes", "aggregation": "mean"}])
    task["metric_list"][0]["higher_is_better"] = True
    toy.benchmark("colours", task=task, metric="acc_bytes", gates={"hard_ceiling": 0.9})
    result = toy.run("--niche=toy", "--gnus-variant=reference")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["EvaluationError: colours: gates.hard_ceiling is set, but for acc_bytes,none * write hard_floor"]
    )


@pytest.fixture
def long_prompts(toy):
    """One of three questions is longer than the embedded model's context; each is asked four times."""
    documents = choice_documents([0, 1, 2])
    documents[1]["question"] = "a valve and a pump " * 400
    toy.data("colours/test.jsonl", documents)
    toy.niche(blocking=["colours"], model={"quantized": "demo:patents", "reference": "demo:patents"})
    toy.benchmark("colours", gates={"hard_floor": 0.0})
    return toy


def test_prompts_longer_than_the_context_block(long_prompts):
    result = long_prompts.run("--niche=toy", "--gnus-variant=reference")
    result.assert_outcomes(failed=1)
    told = (
        "4 of 12 prompts were longer than the model's context of * tokens; their oldest tokens were dropped"
    )
    result.stdout.fnmatch_lines([f"truncated_share failed: {told}; truncated_max_share allows 0.00%: acc*"])
    result.stdout.no_fnmatch_line("note: *oldest tokens*")  # the gate says it
    record = long_prompts.record("colours", "reference")
    gate = next(gate for gate in record["gates"] if gate["name"] == "truncated_share")
    assert (gate["passed"], gate["threshold"], gate["severity"]) == (False, 0.0, "block")
    assert gate["value"] == pytest.approx(1 / 3)
    assert (record["counts"]["truncated_prompts"], record["counts"]["requests"]) == (4, 12)


def test_a_file_may_allow_a_share_which_is_then_a_warning(long_prompts):
    long_prompts.benchmark("colours", gates={"hard_floor": 0.0, "truncated_max_share": 0.34})
    result = long_prompts.run("--niche=toy", "--gnus-variant=reference")
    result.assert_outcomes(passed=1)
    text = result.stdout.str()
    assert text.count("their oldest tokens were dropped") == 1
    assert "GnusWarning: colours[toy-reference]: 4 of 12 prompts were longer than the model's context" in text


def test_in_a_diagnostic_benchmark_it_warns(long_prompts):
    long_prompts.niche(diagnostic=["colours"], model={"reference": "demo:patents"})
    result = long_prompts.run("--niche=toy", "--gnus-variant=reference")
    result.assert_outcomes(passed=1, failed=1)  # the verdict: nothing blocks this niche
    warned = [line for line in result.stdout.lines if "GnusWarning" in line and "oldest tokens" in line]
    assert len(warned) == 1
    assert "truncated_share failed: 4 of 12 prompts" in warned[0]
    assert long_prompts.record("colours", "reference")["status"] == "warned"


def test_a_model_that_does_not_count_does_not_look_as_if_nothing_had_been_cut(toy):
    toy.niche(blocking=["colours"], model={"quantized": "lm_eval:dummy", "reference": "lm_eval:dummy"})
    toy.benchmark("colours", gates={"hard_floor": 0.0})
    toy.run("--niche=toy", "--gnus-variant=reference").assert_outcomes(passed=1)
    record = toy.record("colours", "reference")
    assert record["counts"]["truncated_prompts"] is None
    gate = next(gate for gate in record["gates"] if gate["name"] == "truncated_share")
    assert (gate["passed"], gate["severity"]) == (None, "note")
    assert any("truncated_share: the model does not say" in text for text in toy.verdict()["not_evaluated"])
