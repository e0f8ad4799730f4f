"""From lm-eval's results to a measurement: each trap is a case."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_gnus.errors import DataError, EvaluationError
from pytest_gnus.evaluation import measure, plain, prepare, primary_metric
from pytest_gnus.measurement import Measurement
from pytest_gnus.models.demo_models import ConstantModel, RandomModel
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.plan import BenchmarkItem, Planner
from pytest_gnus.schema import Benchmark, Niche, NicheBenchmarks
from pytest_gnus.settings import Settings
from pytest_gnus.workspace import Workspace
from tests.conftest import choice_documents, choice_task


def item_of(
    root: Path, documents: list[dict[str, Any]], mode: str = "canonical", **content: Any
) -> BenchmarkItem:
    """An item of a one-benchmark workspace whose documents are `documents`."""
    name = "colours"
    folder = root / "data" / "benchmarks" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "test.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))
    benchmark = Benchmark(**{"name": name, "task": choice_task(name), "num_fewshot": 0, **content})
    niche = Niche(niche="toy", benchmarks=NicheBenchmarks(blocking=[name]))
    workspace = Workspace(root, benchmarks={name: benchmark}, benchmark_files={}, niches={"toy": niche})
    settings = Settings(niches=("toy",), source="local", mode=mode)  # type: ignore[arg-type]
    (item,) = Planner(workspace, settings, root).items()
    return item


def measured(item: BenchmarkItem, lm: Any) -> Measurement:
    return measure(item, prepare(item), LoadedModel(ModelSpec("demo", "test"), lm))


class Spoiled(ConstantModel):
    """Gives a log-probability that is not finite for one request in eight."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self._value = value

    def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
        scores = super().loglikelihood(requests)
        return [(self._value, False) if index % 8 == 5 else score for index, score in enumerate(scores)]


@pytest.mark.parametrize("value", [math.nan, -math.inf, math.inf])
def test_a_log_probability_that_is_not_finite_is_an_error_that_counts(tmp_path: Path, value: float) -> None:
    item = item_of(tmp_path, choice_documents([0] * 10))
    with pytest.raises(EvaluationError, match="non-finite log-probabilities in 5 of 40 requests"):
        measured(item, Spoiled(value))


def test_without_the_check_a_broken_model_would_be_right_every_time(tmp_path: Path) -> None:
    """Why the check is there: lm-eval takes the first choice where nothing is a number."""
    assert int(np.argmax([math.nan] * 4)) == 0
    with pytest.raises(EvaluationError, match="non-finite"):
        measured(item_of(tmp_path, choice_documents([0] * 4)), Spoiled(math.nan))


@pytest.mark.parametrize("model", [RandomModel, ConstantModel])
def test_sentinels_land_at_chance_within_three_standard_errors(tmp_path: Path, model: Any) -> None:
    golds = [0, 1, 2, 3] * 100
    random.Random(1).shuffle(golds)
    measurement = measured(item_of(tmp_path, choice_documents(golds)), model())
    assert measurement.stderr is not None
    assert abs(measurement.score - 0.25) <= 3 * measurement.stderr
    assert measurement.chance is not None
    assert (measurement.chance.random_choice, measurement.chance.constant_choice) == (0.25, 0.25)


def test_scores_errors_and_counts_by_hand(tmp_path: Path) -> None:
    measurement = measured(item_of(tmp_path, choice_documents([0, 0, 0, 1, 2])), ConstantModel())
    assert measurement.score == pytest.approx(3 / 5)
    # standard error of a mean of five: sqrt(0.6 * 0.4 / 4)
    assert measurement.stderr == pytest.approx(math.sqrt(0.24 / 4))
    # Wilson's interval, as the roots of (p - 0.6)^2 = z^2 p (1 - p) / 5.
    assert measurement.ci95 == pytest.approx((0.230724, 0.882379), abs=1e-6)
    assert [outcome.score for outcome in measurement.outcomes] == [1.0, 1.0, 1.0, 0.0, 0.0]
    counts = measurement.counts
    assert (counts.documents, counts.scored, counts.unscored, counts.failed) == (5, 5, 0, 0)
    assert counts.requests == 20


def test_a_document_without_a_score_is_an_error_and_no_smaller_denominator(tmp_path: Path) -> None:
    (tmp_path / "partial.py").write_text(
        "def results(doc, results):\n    return {'acc': 1.0} if doc['answer'] == 0 else {}\n"
    )
    from pytest_gnus.workspace import FunctionReference

    task = choice_task("colours", process_results=FunctionReference("partial.results", tmp_path))
    item = item_of(tmp_path, choice_documents([0, 0, 1]), task=task)
    with pytest.raises(EvaluationError, match="of 3 documents 2 were scored, 1 were not, and 0 are missing"):
        measured(item, ConstantModel())


def test_a_right_choice_that_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match="colours, document 1: doc_to_target gives 7, which is none of its 4 "
    ):
        measured(item_of(tmp_path, choice_documents([0, 7])), ConstantModel())


class Recording(ConstantModel):
    """Remembers what it was asked."""

    def generate_until(self, requests: list[Any]) -> list[str]:
        self.settings = [dict(request.args[1]) for request in requests]
        return ["red"] * len(requests)


def generating(**settings: Any) -> dict[str, Any]:
    return {
        "task": "colours",
        "dataset_path": "nobody/nothing",
        "output_type": "generate_until",
        "test_split": "test",
        "doc_to_text": "{{ question }}",
        "doc_to_target": "{{ choices[answer] }}",
        "generation_kwargs": {"until": "\n\n", "max_gen_toks": 7, **settings},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }


def test_canonical_decoding_reaches_the_model_over_what_the_task_says(tmp_path: Path) -> None:
    task = generating(do_sample=True, temperature=0.9)
    lm = Recording()
    measurement = measured(item_of(tmp_path, choice_documents([0, 1]), task=task), lm)
    expected = {"until": "\n\n", "max_gen_toks": 7, "do_sample": False, "temperature": 0.0}
    assert lm.settings == [expected, expected]
    assert dict(measurement.protocol.generation_params) == expected
    assert measurement.score == 0.5


def test_diagnostic_decoding_is_what_the_benchmark_overrides(tmp_path: Path) -> None:
    task = generating(do_sample=True, temperature=0.9)
    overrides = {"generation_kwargs": {"temperature": 0.3}, "num_fewshot": 0}
    lm = Recording()
    item = item_of(tmp_path, choice_documents([0]), "diagnostic", task=task, diagnostic=overrides)
    measured(item, lm)
    assert lm.settings == [{"until": "\n\n", "max_gen_toks": 7, "do_sample": True, "temperature": 0.3}]


def test_shots_are_the_benchmarks_own_and_seeded(tmp_path: Path) -> None:
    prompts: list[list[str]] = []

    class Listening(ConstantModel):
        def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
            prompts.append([request.args[0] for request in requests])
            return super().loglikelihood(requests)

    task = choice_task("colours", fewshot_split="train")
    item = item_of(tmp_path, choice_documents([0, 1]), task=task, num_fewshot=3)
    train = [{"question": f"Shot {n}?", "choices": ["x", "y"], "answer": n % 2} for n in range(9)]
    path = tmp_path / "data" / "benchmarks" / "colours" / "train.jsonl"
    path.write_text("".join(json.dumps(document) + "\n" for document in train))
    first = measured(item, Listening())
    second = measured(item, Listening())
    assert first.num_fewshot == 3
    assert prompts[0][0].count("Shot ") == 3
    assert prompts[0] == prompts[1]
    assert first.protocol == second.protocol


def test_the_prompt_hash_sees_every_prompt(tmp_path: Path) -> None:
    def prompt_hash(documents: list[dict[str, Any]], **content: Any) -> str:
        return measured(item_of(tmp_path, documents, **content), ConstantModel()).protocol.prompt_hash

    base = prompt_hash(choice_documents([0, 1]))
    assert prompt_hash(choice_documents([0, 1])) == base
    changed = choice_documents([0, 1])
    changed[1]["question"] += "!"
    assert prompt_hash(changed) != base
    assert prompt_hash(choice_documents([0, 1]), task=choice_task("colours", description="Think. ")) != base


def test_the_chat_template_is_applied_and_hashed(tmp_path: Path) -> None:
    plainly = measured(item_of(tmp_path, choice_documents([0])), ConstantModel())
    chatting = measured(item_of(tmp_path, choice_documents([0]), chat_template=True), ConstantModel())
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert plainly.protocol.chat_template_hash == empty
    assert chatting.protocol.chat_template_hash != empty
    assert chatting.protocol.prompt_hash != plainly.protocol.prompt_hash


@pytest.mark.parametrize(
    ("results", "wanted", "expected"),
    [
        ({"acc,none": 0.5, "acc_norm,none": 0.6, "acc_stderr,none": 0.1}, None, "acc_norm,none"),
        ({"acc,none": 0.5, "acc_norm,none": 0.6}, "acc", "acc,none"),
        ({"pass@1,create_test": 0.2, "f1,none": 0.3}, None, "pass@1,create_test"),
        ({"rougeL,none": 0.2, "rouge1,none": 0.3, "alias": "x"}, None, "rouge1,none"),
        (
            {"exact_match,strict": 0.1, "exact_match,flexible": 0.2},
            "exact_match,strict",
            "exact_match,strict",
        ),
    ],
)
def test_the_primary_metric(results: dict[str, Any], wanted: str | None, expected: str) -> None:
    assert primary_metric(results, wanted) == expected


@pytest.mark.parametrize(
    ("results", "wanted", "message"),
    [
        ({"bleu,none": 3.0}, None, r"did not give any metric of acc_norm, .*; it gave bleu,none"),
        ({"acc,none": 0.5}, "f1", r"did not give the metric 'f1'; it gave acc,none"),
        ({}, "acc", r"it gave \(none\)"),
        (
            {"exact_match,a": 0.1, "exact_match,b": 0.2},
            "exact_match",
            r"several filters: name one of exact_match,a",
        ),
        ({"exact_match,a": 0.1, "exact_match,b": 0.2}, None, r"several filters"),
    ],
)
def test_a_metric_that_is_not_found_is_an_error(
    results: dict[str, Any], wanted: str | None, message: str
) -> None:
    with pytest.raises(EvaluationError, match=message):
        primary_metric(results, wanted)


def test_plain_values_are_json_and_nothing_else() -> None:
    value = {
        "a": np.float64(0.5),
        "b": np.int64(3),
        "c": (np.bool_(True), np.array([1.5, 2.5])),
        "d": Path("x"),
        "e": math.nan,
    }
    assert plain(value) == {"a": 0.5, "b": 3, "c": [True, [1.5, 2.5]], "d": "x", "e": "nan"}
    assert json.dumps(plain(value), allow_nan=False)
    assert type(plain(np.float64(0.5))) is float


def test_no_address_of_a_function_enters_a_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def results(doc, results):\n    return {'acc': 1.0}\n")
    from pytest_gnus.workspace import FunctionReference

    task = choice_task("colours", process_results=FunctionReference("steps.results", tmp_path))
    measurement = measured(item_of(tmp_path, choice_documents([0]), task=task), ConstantModel())
    text = json.dumps(dict(measurement.protocol.answer_extraction))
    assert "0x" not in text
    assert "results" in text
