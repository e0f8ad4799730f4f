"""The figures of a report, on results made up for it."""

from __future__ import annotations

import json
import math

import pytest

from pytest_gnus.errors import RecordError
from pytest_gnus.experiments.plan import ExperimentItem, ExperimentPlan
from pytest_gnus.experiments.report import averaged, make_report
from pytest_gnus.experiments.result import ExperimentResult
from pytest_gnus.gates.categories import holm
from pytest_gnus.gates.comparison import compare
from pytest_gnus.gates.pairing import CannotPair, Outcome
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.plan import Request
from pytest_gnus.schema import Benchmark, Thresholds

REQUEST = Request("x", "canonical", "local", 0, 1234, False, None, {}, {}, None, False, None, (), None)


def documents(scores, task="t"):
    return [Outcome(task, index, f"hash{index}", score) for index, score in enumerate(scores)]


def result(model, round_index, scores, benchmark="colours", **changes):
    content = {
        "run_id": "r",
        "experiment": "e",
        "round_index": round_index,
        "niche": "toy",
        "benchmark": benchmark,
        "model": f"demo:{model}",
        "model_label": model,
        "status": "measured",
        "required": True,
        "timestamp_utc": "2026-01-01T00:00:00+00:00",
        "mode": "canonical",
        "source": "local",
        "limit": None,
        "score": sum(scores) / len(scores) if scores else None,
        "metric": "acc,none",
        "n": len(scores),
        "higher_is_better": True,
        "stderr": 0.05,
    }
    return ExperimentResult.from_dict(content | changes)


def report_of(results, files, minimum_pairs=30):
    items = tuple(
        ExperimentItem(
            "toy",
            Benchmark(name=r.benchmark, task="x"),
            "quantized",
            True,
            ModelSpec("demo", r.model_label),
            Thresholds(),
            REQUEST,
            minimum_pairs=minimum_pairs,
            model_identifier=r.model,
            label=r.model_label,
            round_index=r.round_index,
        )
        for r in results
    )
    models = tuple(dict.fromkeys(r.model for r in results))
    plan = ExperimentPlan("e", "file", None, 2, models, ("toy",), "canonical", items)

    def read(r):
        found = files[r.name]
        if isinstance(found, Exception):
            raise found
        return found

    return make_report(plan, "r", "out.jsonl", results, read)


def both(**of_models):
    """Results and their documents, from the scores of each model by round."""
    results = [
        result(model, index, rounds[index])
        for index in range(max(map(len, of_models.values())))
        for model, rounds in of_models.items()
        if index < len(rounds) and rounds[index]
    ]
    files = {r.name: documents(of_models[r.model_label][r.round_index]) for r in results}
    return results, files


def test_mean_spread_and_the_interval_over_documents_averaged_over_rounds():
    rounds = [[1.0, 0.0, 1.0, 1.0], [1.0, 0.0, 0.0, 1.0]]
    (summary,) = report_of(*both(a=rounds)).summaries
    assert summary.scores == {0: 0.75, 1: 0.5}
    assert summary.mean == 0.625
    assert summary.std == pytest.approx(0.25 / math.sqrt(2))
    means = [1.0, 0.0, 0.5, 1.0]
    s = math.sqrt(sum((x - 0.625) ** 2 for x in means) / 3)
    half = 3.182446305284263 * s / 2  # t(0.975, 3)
    assert summary.ci95 == pytest.approx((0.625 - half, 0.625 + half))
    assert (summary.interval_method, summary.n) == ("t over documents", 4)


def test_identical_rounds_have_no_spread_and_do_not_make_the_interval_smaller():
    scores = [1.0] * 30 + [0.0] * 10
    (one,) = report_of(*both(a=[scores])).summaries
    (two,) = report_of(*both(a=[scores, scores])).summaries
    assert (one.std, two.std) == (None, 0.0)
    assert one.ci95 == two.ci95
    assert one.interval_method == "Wilson"
    # (30 + z²/2 ± z sqrt(40 · 0.75 · 0.25 + z²/4)) / (40 + z²) with z = 1.959964
    assert one.ci95 == pytest.approx((0.5980604, 0.8581288), abs=1e-6)


def test_every_pair_of_models_is_compared_on_averaged_documents_with_holm_over_all():
    a = [[1.0] * 40, [1.0] * 40]
    b = [[1.0] * 28 + [0.0] * 12, [1.0] * 26 + [0.0] * 14]
    c = [[0.0] * 20 + [1.0] * 20, [0.0] * 20 + [1.0] * 20]
    report = report_of(*both(a=a, b=b, c=c))
    assert [(c.first, c.second) for c in report.comparisons] == [("a", "b"), ("a", "c"), ("b", "c")]
    mean_b = [(one + other) / 2 for one, other in zip(*b, strict=True)]
    expected = compare(documents(a[0]), documents(mean_b))
    first = report.comparisons[0]
    assert first.difference == -expected.absolute_drop == pytest.approx(-13 / 40)
    assert first.ci95 == (-expected.ci95[1], -expected.ci95[0])
    assert first.p_value == expected.p_value
    adjusted = holm([comparison.p_value for comparison in report.comparisons])
    assert [comparison.adjusted_p for comparison in report.comparisons] == [p for p, _ in adjusted]
    assert first.rounds == (0, 1)
    assert [comparison.better for comparison in report.comparisons][:2] == ["a", "a"]


def test_where_lower_is_better_the_lower_one_is_better():
    results, files = both(a=[[1.0] * 40], b=[[3.0 + i % 2 for i in range(40)]])
    results = [ExperimentResult.from_dict(r.to_dict() | {"higher_is_better": False}) for r in results]
    (comparison,) = report_of(results, files).comparisons
    assert comparison.difference == pytest.approx(2.5)
    assert comparison.ci95[0] > 0
    assert comparison.better == "a"


def test_only_rounds_that_both_were_measured_in_are_compared():
    results, files = both(a=[[1.0] * 40, [1.0] * 40], b=[[], [0.0] * 20 + [1.0] * 20])
    (comparison,) = report_of(results, files).comparisons
    assert comparison.rounds == (1,)
    assert comparison.difference == -0.5
    results, files = both(a=[[1.0] * 40, []], b=[[], [1.0] * 40])
    (comparison,) = report_of(results, files).comparisons
    assert (comparison.p_value, comparison.note) == (None, "no round in which both were measured")


def test_too_few_documents_are_insufficient_data_and_no_part_of_the_correction():
    results, files = both(a=[[1.0] * 10], b=[[0.0] * 10])
    (comparison,) = report_of(results, files).comparisons
    assert comparison.p_value is comparison.adjusted_p is comparison.better is None
    assert comparison.note == "insufficient data: 10 pairs of documents, 30 are needed"
    assert report_of(results, files, minimum_pairs=10).comparisons[0].better == "a"


def test_a_score_that_is_no_mean_over_documents_takes_its_own_standard_error():
    results, files = both(a=[[1.0, 0.0] * 20, [1.0, 0.0] * 20])
    results = [ExperimentResult.from_dict(r.to_dict() | {"score": 0.8}) for r in results]
    (summary,) = report_of(results, files).summaries
    assert summary.ci95 == pytest.approx((0.8 - 1.96 * 0.05, 0.8 + 1.96 * 0.05))
    assert summary.interval_method == "1.96 standard errors of a round: the score is no mean over documents"
    without = [ExperimentResult.from_dict(r.to_dict() | {"stderr": None}) for r in results]
    assert report_of(without, files).summaries[0].ci95 is None


def test_documents_that_cannot_be_read_are_said_and_not_guessed():
    results, files = both(a=[[1.0, 0.0] * 20], b=[[1.0, 0.0] * 20])
    files[results[0].name] = RecordError("documents are gone")
    report = report_of(results, files)
    assert report.comparisons[0].note == "documents are gone"
    assert report.summaries[0].interval_method.endswith("documents are gone")


def test_what_was_not_measured_is_in_the_results_and_in_no_figure():
    results, files = both(a=[[1.0, 0.0] * 20])
    failed = result("b", 0, [], status="error", error="ModelError: no\n  weights")
    report = report_of([*results, failed], files)
    assert [summary.model_label for summary in report.summaries] == ["a"]
    assert report.comparisons == []
    assert report.unmeasured == [failed]
    assert "- colours[toy-b-round0]: error: ModelError: no weights" in report.to_markdown()


def test_the_report_is_plain_json_with_the_keys_of_old():
    results, files = both(a=[[1.0] * 40], b=[[0.0] * 20 + [1.0] * 20])
    content = report_of(results, files).to_dict()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert {"benchmark_file", "output_file", "repeat", "benchmarks", "models", "results"} <= content.keys()
    assert content["results"][0]["details"] == {"round_index": 0}
    assert content["models"] == ["demo:a", "demo:b"]


def test_documents_are_averaged_only_over_rounds_that_have_the_same():
    first, second = documents([1.0, 0.0]), documents([0.0, None])
    assert [outcome.score for outcome in averaged([first, second])] == [0.5, None]
    for other in (
        documents([1.0]),
        documents([1.0, 0.0], task="u"),
        [first[0], Outcome("t", 1, "other", 1.0)],
    ):
        with pytest.raises(CannotPair, match="the rounds have different documents"):
            averaged([first, other])
