"""What documents do to a measurement: copies of one, choices that are all the same, floors they make easy."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from pytest_gnus.comparing import BenchmarkComparison, RunComparison, render
from pytest_gnus.errors import DataError
from pytest_gnus.evaluation import measure, prepare
from pytest_gnus.gates.comparison import Comparison, compare
from pytest_gnus.gates.pairing import Outcome
from pytest_gnus.gates.verdict import ItemOutcome, niche_verdict
from pytest_gnus.judging import References, judge
from pytest_gnus.measurement import Measurement
from pytest_gnus.models.demo_models import ConstantModel
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.plan import BenchmarkItem, Planner
from pytest_gnus.records.store import RecordStore
from pytest_gnus.run import ItemState, Run
from pytest_gnus.schema import Benchmark, Niche, NicheBenchmarks, Thresholds
from pytest_gnus.settings import Settings
from pytest_gnus.workspace import Workspace
from tests.conftest import ToyWorkspace, choice_documents, choice_task

Document = dict[str, Any]


def item_of(root: Path, documents: list[Document], **content: Any) -> BenchmarkItem:
    folder = root / "data" / "benchmarks" / "colours"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "test.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))
    benchmark = Benchmark(**{"name": "colours", "task": choice_task("colours"), "num_fewshot": 0, **content})
    niche = Niche(niche="toy", benchmarks=NicheBenchmarks(blocking=["colours"]))
    workspace = Workspace(root, benchmarks={"colours": benchmark}, benchmark_files={}, niches={"toy": niche})
    (item,) = Planner(workspace, Settings(niches=("toy",), source="local"), root).items()
    return item


def measured(item: BenchmarkItem) -> Measurement:
    return measure(item, prepare(item), LoadedModel(ModelSpec("demo", "test"), ConstantModel()))


def wilson(hits: int, n: int) -> Any:
    found = stats.binomtest(hits, n).proportion_ci(method="wilson")
    return pytest.approx((found.low, found.high))


#: The constant model takes the first choice: right in two of twelve.
GOLDS = [0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3]


# --- copies ---


@pytest.mark.parametrize("with_ids", [False, True])
def test_twelve_documents_written_three_times(tmp_path: Path, with_ids: bool) -> None:
    documents = choice_documents(GOLDS) * 3
    if with_ids:
        documents = [document | {"id": place} for place, document in enumerate(documents)]
    item = item_of(tmp_path, documents)
    measurement = measured(item)
    assert (measurement.n, measurement.score) == (36, pytest.approx(1 / 6))
    assert measurement.stderr == pytest.approx(math.sqrt(1 / 6 * 5 / 6 / 11))
    assert measurement.ci95 == wilson(2, 12)
    assert measurement.counts.duplicates == 24
    # A digest of what is asked is noted only where the document's own does not say it.
    assert {outcome.question is not None for outcome in measurement.outcomes} == {with_ids}
    assert ("question" in measurement.outcomes[0].to_record()) is with_ids
    state = ItemState(item, measurement=measurement)
    assert any("24 of 36 documents repeat another one" in text for text in state.warnings)


def test_documents_that_differ_have_lm_evals_error_and_wilsons_interval(tmp_path: Path) -> None:
    item = item_of(tmp_path, choice_documents(GOLDS))
    measurement = measured(item)
    assert measurement.stderr == pytest.approx(math.sqrt(1 / 6 * 5 / 6 / 11))
    assert measurement.ci95 == wilson(2, 12)
    assert measurement.counts.duplicates == 0
    assert not any("repeat" in text for text in ItemState(item, measurement=measurement).warnings)


def test_choices_in_another_order_are_the_same_question(tmp_path: Path) -> None:
    documents = choice_documents([0, 1])
    turned = {**documents[0], "choices": documents[0]["choices"][::-1], "answer": 3}
    assert measured(item_of(tmp_path, [*documents, turned])).counts.duplicates == 1


@pytest.mark.parametrize(("gold", "score"), [(0, 1.0), (1, 0.0)])
def test_a_score_of_all_or_nothing_has_an_interval_with_a_width(
    tmp_path: Path, gold: int, score: float
) -> None:
    measurement = measured(item_of(tmp_path, choice_documents([gold] * 20)))
    assert (measurement.score, measurement.stderr) == (score, 0.0)
    assert measurement.ci95 == wilson(round(20 * score), 20)


def test_the_clusters_of_a_benchmark_are_in_its_scores_error(tmp_path: Path) -> None:
    """Six passages with two questions each, both right or both wrong."""
    golds = [0, 0, 0, 0, *[1] * 8]
    documents = [
        document | {"passage": f"passage {place // 2}"}
        for place, document in enumerate(choice_documents(golds))
    ]
    measurement = measured(item_of(tmp_path, documents, cluster="passage"))
    assert measurement.stderr == pytest.approx(math.sqrt(1 / 3 * 2 / 3 / 5))
    half = stats.t.ppf(0.975, 5) * math.sqrt(1 / 3 * 2 / 3 / 5)
    assert measurement.ci95 == pytest.approx((1 / 3 - half, 1 / 3 + half))
    assert measurement.counts.duplicates == 0


GENERATING: dict[str, Any] = {
    "output_type": "generate_until",
    "doc_to_choice": None,
    "doc_to_text": "{{ question }}",
    "doc_to_target": "{{ choices[answer] }}",
    "generation_kwargs": {"until": "\n", "max_gen_toks": 4},
}


def test_a_score_that_is_no_mean_has_no_interval_of_zero_width(tmp_path: Path) -> None:
    metrics = [{"metric": "f1", "aggregation": "f1", "higher_is_better": True}]
    measurement = measured(
        item_of(tmp_path, choice_documents([0] * 6), task=choice_task("colours", metric_list=metrics))
    )
    assert measurement.metric == "f1,none"
    assert measurement.ci95 is None or measurement.ci95[0] < measurement.ci95[1]


def test_other_scores_that_do_not_vary_have_no_interval(tmp_path: Path) -> None:
    """ROUGE is 0 for every document: no spread says how far the mean may be off."""
    task = choice_task(
        "colours",
        **GENERATING,
        metric_list=[{"metric": "rouge1", "aggregation": "mean", "higher_is_better": True}],
    )
    documents = [{**document, "choices": ["half right"] * 4} for document in choice_documents([0] * 6)]
    measurement = measured(item_of(tmp_path, documents, task=task))
    scores = {outcome.score for outcome in measurement.outcomes}
    assert len(scores) == 1
    assert measurement.ci95 == (wilson(0, 6) if scores == {0.0} else None)


# --- choices that are all the same ---


def test_choices_that_are_all_the_same_are_an_error_before_a_model_is_loaded(tmp_path: Path) -> None:
    documents = choice_documents([0, 1, 0, 1])
    for place in (1, 3):
        documents[place]["choices"] = ["red", "red ", "red", "red"]
    item = item_of(tmp_path, documents)
    with pytest.raises(DataError, match=r"colours: 2 of 4 documents cannot be scored.* first is document 1"):
        prepare(item)
    # What is not measured is not looked at.
    assert prepare(replace(item, request=replace(item.request, limit=1))).name == "colours"


# --- floors that guessing reaches ---


def judged(item: BenchmarkItem, measurement: Measurement, tmp_path: Path, **limits: Any) -> tuple[str, ...]:
    references = References(RecordStore(tmp_path / "artifacts"), "20260101T000000Z-deadbeef")
    fields = {"model_manifest_sha256": None}
    reference = replace(item, variant="reference", thresholds=Thresholds(**limits))
    return judge(reference, measurement, fields, references).guessed_floors


@pytest.mark.parametrize(
    ("floor", "told"),
    [
        (0.34, ()),
        (
            0.30,
            (
                "hard_floor 0.3000 is reached by guessing, with always the same choice (0.3333); set it "
                "above 0.3333",
            ),
        ),
        (
            0.25,
            (
                "hard_floor 0.2500 is reached by guessing, with a random choice (0.2500) and always the same "
                "choice (0.3333); set it above 0.3333",
            ),
        ),
    ],
)
def test_a_floor_that_guessing_reaches_is_told(tmp_path: Path, floor: float, told: tuple[str, ...]) -> None:
    item = item_of(tmp_path, choice_documents(GOLDS))
    assert judged(item, measured(item), tmp_path, hard_floor=floor) == told


def test_a_single_choice_makes_every_floor_one_that_guessing_reaches(tmp_path: Path) -> None:
    documents = [{**document, "choices": ["red"]} for document in choice_documents([0] * 5)]
    item = item_of(tmp_path, documents)
    (told,) = judged(item, measured(item), tmp_path, hard_floor=1.0)
    assert "a random choice (1.0000) and always the same choice (1.0000)" in told


def test_a_constant_answer_is_a_guess_where_answers_are_generated(tmp_path: Path) -> None:
    metrics = [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}]
    task = choice_task("colours", **GENERATING, metric_list=metrics)
    item = item_of(tmp_path, choice_documents([2, 2, 2, 1, 0]), task=task)
    measurement = measured(item)
    assert measurement.chance is not None
    assert (measurement.chance.random_choice, measurement.chance.constant_choice) == (None, 0.6)
    assert judged(item, measurement, tmp_path, hard_floor=0.61) == ()
    (told,) = judged(item, measurement, tmp_path, hard_floor=0.6)
    assert "hard_floor 0.6000 is reached by guessing, with always the same answer (0.6000)" in told


def test_floors_of_categories_have_chance_levels_of_their_own(tmp_path: Path) -> None:
    item = item_of(tmp_path, choice_documents(GOLDS))
    plain = measured(item)
    assert plain.chance is not None
    measurement = replace(
        plain,
        per_category={"mmlu_anatomy": 0.5, "mmlu_virology": 0.5},
        category_chance={
            "mmlu_anatomy": plain.chance,
            "mmlu_virology": replace(plain.chance, constant_choice=0.4),
        },
    )
    floors = {"anatomy": 0.35, "mmlu_virology": 0.35}
    (told,) = judged(item, measurement, tmp_path, hard_floor=0.5, category_floors=floors)
    assert told.startswith("category_floor[mmlu_virology] 0.3500 is reached by guessing")


def test_the_verdict_says_which_floors_guessing_reaches(tmp_path: Path) -> None:
    item = item_of(tmp_path, choice_documents([0] * 12))
    item = replace(item, thresholds=Thresholds(hard_floor=0.5), variant="reference")
    run = Run(RecordStore(tmp_path / "artifacts"))
    state = ItemState(item)
    model = LoadedModel(ModelSpec("demo", "test"), ConstantModel())
    run.measure(state, prepare(item), model)
    status = run.judge(state)
    assert status == "passed"
    outcome = run.finish(state, status).outcome
    assert len(outcome.warnings) == 1
    verdict = niche_verdict("toy", ["colours"], [outcome])
    told = f"colours (reference): {outcome.warnings[0]}"
    assert told in verdict.warnings
    assert f"colours[toy-reference]: {outcome.warnings[0]}" in state.warnings
    assert niche_verdict("toy", [], [ItemOutcome("a", "quantized", True, "passed")]).warnings == ()


def test_a_gate_on_copied_documents_with_a_floor_that_guessing_reaches(toy: ToyWorkspace) -> None:
    """On the terminal, in the verdict's file and in the record, from a worker too."""
    toy.benchmark("colours", gates={"hard_floor": 0.25}, num_fewshot=2)
    toy.data("colours/test.jsonl", choice_documents([0, 0, 0, 1, 2, 3] * 2) * 3)
    toy.niche(blocking=["colours"], model={"quantized": "demo:constant", "reference": "demo:constant"})
    result = toy.run("--niche=toy", "-n", "1")
    output = result.stdout.str()
    assert "24 of 36 documents repeat another one" in output
    assert "72 of 72 few-shot examples are documents that are evaluated too" in output
    result.stdout.fnmatch_lines(["*warning: colours (quantized): hard_floor 0.2500 is reached by guessing*"])
    assert any("hard_floor 0.2500 is reached by guessing" in text for text in toy.verdict()["warnings"])
    record = toy.record("colours")
    counts, gates = record["counts"], {gate["name"]: gate for gate in record["gates"]}
    assert (counts["duplicates"], counts["examples_of_evaluated_documents"]) == (24, 72)
    assert "12 pairs of different documents, 30 are needed" in gates["quantization_regression"]["detail"]
    assert [gate["significant"] for gate in gates.values()] == [None] * 5


@pytest.mark.parametrize(("fallen", "mark"), [(12, " *"), (0, "")])
def test_a_comparison_of_runs_marks_what_is_significant(fallen: int, mark: str) -> None:
    before = [Outcome("task", place, f"{place:03}", 1.0) for place in range(40)]
    after = [replace(outcome, score=float(outcome.doc_id >= fallen)) for outcome in before]
    entry = BenchmarkComparison(
        "colours", 1.0, 1 - fallen / 40, "acc,none", True, compare(before, after), (), adjusted_p=None
    )
    assert not entry.significant  # not corrected, not claimed
    assert isinstance(entry.result, Comparison)
    entry = replace(entry, adjusted_p=entry.result.p_value)
    assert entry.significant is bool(mark)
    shown = render(RunComparison("a", "b", (entry,)))
    assert f" {entry.adjusted_p:.2g}{mark} " in shown
