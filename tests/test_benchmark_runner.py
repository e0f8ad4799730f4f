"""The Python API, without a pytest session."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_gnus import BenchmarkRunner, LoadedModel, Provider
from pytest_gnus.errors import ConfigError, DataError, ModelError
from pytest_gnus.models.compute import ComputeOptions
from pytest_gnus.models.registry import load
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.records.schema import validate
from tests.conftest import choice_documents, choice_task


@pytest.fixture
def project(tmp_path: Path) -> Path:
    def write(path: str, content: Any) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(content))

    for name in ("colours", "shapes"):
        write(
            f"benchmarks/{name}.yaml",
            {"name": name, "task": choice_task(name), "num_fewshot": 0, "gates": {"hard_floor": 0.1}},
        )
        data = tmp_path / "data" / "benchmarks" / name
        data.mkdir(parents=True)
        rows = choice_documents([0, 0, 1, 2])
        (data / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write("benchmarks/later.yaml", {"name": "later", "status": "not_implemented", "reason": "no sandbox"})
    write(
        "config/specialists/toy.yaml",
        {
            "niche": "toy",
            "model": {"quantized": "demo:constant", "reference": "demo:constant"},
            "benchmarks": {"blocking": ["colours", "later"], "diagnostic": ["shapes"]},
        },
    )
    return tmp_path


def test_it_writes_a_record_per_benchmark_and_returns_the_paths(project: Path) -> None:
    runner = BenchmarkRunner(project)
    reference = runner.run_benchmarks("toy", source="local", quantized=False)
    quantized = runner.run_benchmarks("toy", source="local")
    assert [path.name.split("_")[:3] for path in quantized] == [
        ["toy", "colours", "quantized"],
        ["toy", "later", "quantized"],
        ["toy", "shapes", "quantized"],
    ]
    records = [json.loads(path.read_text()) for path in reference + quantized]
    for record in records:
        validate(record)
    assert [record["status"] for record in records] == ["passed", "not_implemented", "passed"] * 2
    assert [record["quantized"] for record in records] == [False] * 3 + [True] * 3
    assert len({record["run_id"] for record in records}) == 2
    gates = {gate["name"]: gate for gate in records[3]["gates"]}
    assert gates["quantization_regression"]["reference"] == 0.5


def test_the_api_source_is_judge_only(project: Path) -> None:
    with pytest.raises(NotImplementedError, match="judge-only"):
        BenchmarkRunner(project).run_benchmarks("toy", source="api")


def test_without_lm_eval_it_says_so(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gnus.benchmark_runner.find_spec", lambda _name: None)
    with pytest.raises(RuntimeError, match="lm-eval is not installed"):
        BenchmarkRunner(project).run_benchmarks("toy", source="local")


def test_wrong_names_are_all_named_at_once(project: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        BenchmarkRunner(project).run_benchmarks("toi", mode="fast", source="floppy")
    text = str(raised.value)
    assert "Did you mean 'toy'?" in text
    assert "canonical, diagnostic" in text
    assert "huggingface, local" in text


def test_a_failure_is_recorded_and_raised(project: Path) -> None:
    (project / "data" / "benchmarks" / "colours" / "test.jsonl").write_text("")
    with pytest.raises(DataError, match="is empty"):
        BenchmarkRunner(project).run_benchmarks("toy", source="local")
    (path,) = (project / "artifacts" / "benchmarks").glob("*.json")
    record = json.loads(path.read_text())
    assert record["status"] == "error"
    assert "is empty" in record["reason"]


def test_a_niche_without_a_model_entry_is_looked_for_in_its_place(project: Path) -> None:
    file = project / "config" / "specialists" / "toy.yaml"
    content = yaml.safe_load(file.read_text())
    del content["model"]
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(ModelError, match="models/specialists_mlx/toy"):
        BenchmarkRunner(project).run_benchmarks("toy", source="local")


class Other(Provider):
    name = "other"

    def load(self, spec: ModelSpec, options: ComputeOptions) -> LoadedModel:
        return replace(load(ModelSpec("demo", "constant")), spec=spec)


def test_providers_of_others_are_given_as_an_argument(project: Path) -> None:
    file = project / "config" / "specialists" / "toy.yaml"
    content = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump(content | {"model": {"quantized": "other:x"}}))
    with pytest.raises(ConfigError, match="a provider of mlx, hf, openai, lm_eval, demo"):
        BenchmarkRunner(project)
    (path, *_) = BenchmarkRunner(project, providers=[Other()]).run_benchmarks("toy", source="local")
    record = json.loads(path.read_text())
    assert (record["model"]["provider"], record["results"]["colours"]["score"]) == ("other", 0.5)
    with pytest.raises(ConfigError, match="provider of BenchmarkRunner: name: found 'other'"):
        BenchmarkRunner(project, providers=[Other(), Other()])


def test_a_project_is_found_upwards(project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (project / "deep" / "down").mkdir(parents=True)
    monkeypatch.chdir(project / "deep" / "down")
    assert BenchmarkRunner().workspace.root == project.resolve()


def test_no_project_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gnus.workspace.find_root", lambda *_starts: None)
    with pytest.raises(ConfigError, match="no workspace"):
        BenchmarkRunner()
