"""The whole path with a real 135M model, and lm-eval's own `hf` model as the other side.

Run by `.ci/run` with `--real-model DIR --real-data DIR`; the data are read from there and never kept.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lm_eval
import pytest
from lm_eval.api.instance import Instance

from pytest_gnus import ExperimentRequest, ExperimentRunner
from pytest_gnus.evaluation import CANONICAL_DECODING, measure, prepare
from pytest_gnus.harness import SEEDS, quiet_harness
from pytest_gnus.models.cpu import load_fast_blas
from pytest_gnus.models.registry import load
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.plan import BenchmarkItem, Planner
from pytest_gnus.settings import Settings
from pytest_gnus.workspace import load_workspace
from tests.conftest import ToyWorkspace

load_fast_blas()

REPOSITORY = Path(__file__).parents[2]
SUBJECTS = ("anatomy", "virology")


@pytest.fixture(scope="module")
def directory(pytestconfig: pytest.Config) -> Path:
    return Path(pytestconfig.getoption("--real-model"))


@pytest.fixture(scope="module")
def data(pytestconfig: pytest.Config) -> Path:
    return Path(pytestconfig.getoption("--real-data"))


@pytest.fixture(scope="module")
def ours(directory: Path) -> Any:
    return load(ModelSpec("mlx", str(directory)))


@pytest.fixture(scope="module")
def theirs(directory: Path) -> Any:
    from lm_eval.models.huggingface import HFLM

    return HFLM(pretrained=str(directory), device="cpu", dtype="float32", batch_size=4)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[Path]:
    """The shipped benchmarks over real local data, laid out as a user would."""
    root = tmp_path_factory.mktemp("real")
    shutil.copytree(REPOSITORY / "benchmarks", root / "benchmarks")
    (root / "config" / "specialists").mkdir(parents=True)
    (root / "config" / "specialists" / "real.yaml").write_text(
        "niche: real\nmodel: {quantized: 'demo:random'}\n"
        "benchmarks: {blocking: [pubmedqa, medmcqa, mmlu], diagnostic: []}\n"
    )
    mmlu = root / "benchmarks" / "mmlu.yaml"
    mmlu.write_text(mmlu.read_text() + f"subtasks: [{', '.join(SUBJECTS)}]\n")
    folder = root / "data" / "benchmarks"
    for subject in SUBJECTS:
        for split in ("dev", "test"):
            copy(data / "mmlu" / f"{subject}.{split}.jsonl", folder / "mmlu" / subject / f"{split}.jsonl")
    copy(data / "pubmedqa" / "test.jsonl", folder / "pubmedqa" / "test.jsonl")
    rows = (data / "medmcqa" / "validation.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    for split, part in (("train", rows[-50:]), ("validation", rows[:-50])):
        path = folder / "medmcqa" / f"{split}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(part), encoding="utf-8")
    yield root
    shutil.rmtree(root)


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def item_of(workspace: Path, benchmark: str, limit: int) -> BenchmarkItem:
    settings = Settings(niches=("real",), source="local", limit=limit)
    items = Planner(load_workspace(workspace), settings, workspace).items()
    (item,) = [item for item in items if item.benchmark.name == benchmark]
    return item


def test_log_probabilities_equal_lm_evals_torch_model_per_request(ours: Any, theirs: Any, data: Path) -> None:
    rows = [json.loads(line) for line in (data / "mmlu" / "virology.test.jsonl").open(encoding="utf-8")][:6]
    pairs = []
    for row in rows:
        choices = "".join(f"\n{letter}. {text}" for letter, text in zip("ABCD", row["choices"], strict=True))
        pairs += [(f"{row['question']}{choices}\nAnswer:", f" {letter}") for letter in "ABCD"]
        pairs += [(f"{row['question']} ", text) for text in row["choices"]]
    pairs += [("", "The capital of France is Paris."), ("Q: 2+2=", "4")]
    requests = [Instance("loglikelihood", {}, pair, index) for index, pair in enumerate(pairs)]
    mine = ours.lm.loglikelihood(requests)
    reference = theirs.loglikelihood(requests, disable_tqdm=True)
    assert [a[0] for a in mine] == pytest.approx([b[0] for b in reference], abs=1e-3)
    assert [a[1] for a in mine] == [b[1] for b in reference]


def test_rolling_log_likelihood_equals_lm_evals_torch_model(ours: Any, theirs: Any) -> None:
    texts = [
        "A pump for water comprises a housing, a rotor and a valve.",
        "Virology is the study of viruses.",
    ]
    requests = [Instance("loglikelihood_rolling", {}, (text,), index) for index, text in enumerate(texts)]
    reference = theirs.loglikelihood_rolling(requests, disable_tqdm=True)
    assert ours.lm.loglikelihood_rolling(requests) == pytest.approx(reference, abs=1e-3)


def test_generated_text_equals_lm_evals_torch_model(ours: Any, theirs: Any) -> None:
    settings = {"until": ["\n", "."], "max_gen_toks": 24, "do_sample": False}
    prompts = ["The capital of France is", "Question: What is a pump?\nAnswer:", "Once upon a time"]
    requests = [
        Instance("generate_until", {}, (prompt, dict(settings)), index)
        for index, prompt in enumerate(prompts)
    ]
    assert ours.lm.generate_until(requests) == theirs.generate_until(requests, disable_tqdm=True)


@pytest.mark.parametrize(("benchmark", "limit"), [("pubmedqa", 5), ("medmcqa", 5), ("mmlu", 2)])
def test_scores_equal_lm_evals_own_run_on_the_same_files(
    ours: Any, theirs: Any, workspace: Path, benchmark: str, limit: int
) -> None:
    item = item_of(workspace, benchmark, limit)
    measurement = measure(item, prepare(item), ours)
    built = prepare(item)
    with quiet_harness(item.request.fewshot_seed):
        results = lm_eval.simple_evaluate(
            model=theirs,
            tasks=[built.task],
            task_manager=built.manager,
            num_fewshot=item.request.num_fewshot,
            limit=limit,
            bootstrap_iters=100,
            gen_kwargs=dict(CANONICAL_DECODING),
            fewshot_random_seed=item.request.fewshot_seed,
            **SEEDS,
        )
    expected = results["results"][built.name]
    assert measurement.score == expected[measurement.metric]
    assert measurement.stderr == pytest.approx(expected["acc_stderr,none"])
    for leaf, score in measurement.per_category.items():
        assert score == results["results"][leaf]["acc,none"]
    documents = [sample for leaf in sorted(built.leaves) for sample in results["samples"][leaf]]
    assert [o.score for o in measurement.outcomes] == [
        sample["acc"] for sample in documents if sample["filter"] == "none"
    ]
    assert [o.doc_hash for o in measurement.outcomes] == [sample["doc_hash"] for sample in documents]


def test_the_provider_hf_scores_and_generates_the_same(ours: Any, directory: Path) -> None:
    torch_model: Any = load(ModelSpec("hf", str(directory)))
    pairs = [("The capital of France is", " Paris"), ("Q: 2+2=", "4"), ("", "A pump with a valve.")]
    requests = [Instance("loglikelihood", {}, pair, index) for index, pair in enumerate(pairs)]
    found = torch_model.lm.loglikelihood(requests)
    assert [a[0] for a in found] == pytest.approx([b[0] for b in ours.lm.loglikelihood(requests)], abs=1e-3)
    settings = {"until": "\n", "max_gen_toks": 24, "do_sample": False, "temperature": 0.0}
    prompts = ["The capital of France is", "Once upon a time"]
    asked = [Instance("generate_until", {}, (prompt, dict(settings)), 0) for prompt in prompts]
    assert torch_model.lm.generate_until(asked) == ours.lm.generate_until(asked)
    assert torch_model.directories == {"model": directory}


def test_the_plugin_runs_the_real_model(pytester: pytest.Pytester, directory: Path) -> None:
    for name in ("benchmarks", "config", "data"):
        shutil.copytree(REPOSITORY / name, pytester.path / name)
    toy = ToyWorkspace(pytester)
    result = toy.run(
        "--niche=patents", f"--gnus-model=mlx:{directory}", "--gnus-limit=8", "-k", "uspto and quantized"
    )
    result.assert_outcomes(passed=1, deselected=5)
    record = toy.record("uspto_classification")
    tokenizer = record["model"].pop("tokenizer")
    assert (tokenizer["size"], tokenizer["begin"], tokenizer["end"]) == (49152, 1, 2)
    assert record["model"] == {
        "provider": "mlx",
        "path": str(directory.resolve()),
        "adapter": None,
        "dtype": "float32",
        "embedded_demonstration": False,
    }
    assert record["fingerprint_valid"] is True
    assert record["results"]["uspto_classification"]["n"] == 8


def test_an_experiment_of_two_rounds_on_the_real_model(
    ours: Any, workspace: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Round 0 has the canonical score, both rounds are of one load, and the models are compared."""
    loads: list[ModelSpec] = []
    monkeypatch.setattr(
        "pytest_gnus.models.registry.load",
        lambda spec, **options: loads.append(spec) or load(spec, **options),  # type: ignore[func-returns-value]
    )
    request = ExperimentRequest(
        niches=["real"],
        benchmark_names=["medmcqa"],
        model_identifiers=[f"mlx:{directory}", "demo:random"],
        repeat=2,
        source="local",
        limit=12,
    )
    report = ExperimentRunner(workspace).run(request)
    assert [(result.round_index, result.status) for result in report.results] == [
        (0, "measured"),
        (0, "measured"),
        (1, "measured"),
        (1, "measured"),
    ]
    assert [str(spec) for spec in loads] == [f"mlx:{directory}", "demo:random"]
    item = item_of(workspace, "medmcqa", 12)
    assert report.results[0].score == measure(item, prepare(item), ours).score
    summary = report.summaries[0]
    assert summary.n == 12
    assert summary.mean == pytest.approx(sum(summary.scores.values()) / 2)
    (comparison,) = report.comparisons
    assert comparison.n == 12
    assert comparison.difference is None
    assert comparison.note is not None
    assert "12" in comparison.note, "too few documents to compare, and said so"
