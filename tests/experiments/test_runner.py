"""The Python API of experiments, without a pytest session."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_gnus import ExperimentRequest, ExperimentRunner
from pytest_gnus.errors import ConfigError, RecordError
from pytest_gnus.experiments.output import read_results
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
        rows = choice_documents([0, 0, 1, 2] * 10)
        (data / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write("benchmarks/later.yaml", {"name": "later", "status": "not_implemented", "reason": "no sandbox"})
    write("config/pipeline.yaml", {"source": "local"})
    write(
        "config/specialists/toy.yaml",
        {"niche": "toy", "benchmarks": {"blocking": ["colours", "shapes"], "diagnostic": ["later"]}},
    )
    write(
        "config/experiments/trial.yaml",
        {"name": "trial", "niche": "toy", "models": ["constant"], "default_provider": "demo"},
    )
    return tmp_path


def request(**changes: Any) -> ExperimentRequest:
    default: dict[str, Any] = {
        "benchmark_file": "config/specialists/toy.yaml",
        "benchmark_names": ["shapes", "colours"],
        "model_identifiers": ["demo:random", "constant"],
        "default_provider": "demo",
    }
    return ExperimentRequest(**{**default, **changes})


def test_task_requests_are_benchmarks_by_models_as_of_old(project: Path) -> None:
    items = ExperimentRunner(project).build_task_requests(request(repeat=3))
    assert [(item.benchmark.name, item.model_identifier) for item in items] == [
        ("shapes", "demo:random"),
        ("shapes", "constant"),
        ("colours", "demo:random"),
        ("colours", "constant"),
    ]


def test_no_model_is_a_value_error(project: Path) -> None:
    runner = ExperimentRunner(project)
    for call in (runner.build_task_requests, runner.run):
        with pytest.raises(ValueError, match="ExperimentRequest requires at least one model identifier"):
            call(request(model_identifiers=[]))
    assert not (project / "artifacts").exists()


@pytest.mark.parametrize(("repeat", "rounds"), [(2, 2), (0, 1), (-1, 1)])
def test_rounds_stand_outermost_and_each_result_is_on_disk(project: Path, repeat: int, rounds: int) -> None:
    output = project / "out.jsonl"
    report = ExperimentRunner(project).run(request(repeat=repeat, output_file=output))
    assert report.repeat == rounds
    assert [(r.round_index, r.model, r.benchmark) for r in report.results] == [
        (index, model, benchmark)
        for index in range(rounds)
        for model in ("demo:random", "constant")
        for benchmark in ("shapes", "colours")
    ]
    assert [result.to_dict() for result in read_results(output)] == [r.to_dict() for r in report.results]
    assert report.benchmark_file == "config/specialists/toy.yaml"
    assert report.output_file == str(output)
    assert (report.benchmarks, report.models) == (["shapes", "colours"], ["demo:random", "constant"])
    assert report.results[0].to_dict()["details"] == {"round_index": 0}
    assert json.loads(output.with_name("out.report.json").read_text()) == report.to_dict()
    assert output.with_name("out.report.md").read_text() == report.to_markdown()


def test_all_of_a_niche_without_names_and_what_cannot_be_measured_is_a_result(project: Path) -> None:
    asked = request(benchmark_names=[], model_identifiers=["demo:constant", "mlx:models/none"], name="all")
    report = ExperimentRunner(project).run(asked)
    assert [(r.benchmark, r.model, r.status) for r in report.results] == [
        ("colours", "demo:constant", "measured"),
        ("shapes", "demo:constant", "measured"),
        ("later", "demo:constant", "not_implemented"),
        ("colours", "mlx:models/none", "error"),
        ("shapes", "mlx:models/none", "error"),
        ("later", "mlx:models/none", "not_implemented"),
    ]
    (path,) = (project / "artifacts" / "experiments").glob("all_*.jsonl")
    assert len(read_results(path)) == 6
    assert "models/none" in (report.results[3].error or "")


def test_a_file_of_the_workspace_is_a_request(project: Path) -> None:
    runner = ExperimentRunner(project)
    report = runner.run(runner.request_from_file("trial"))
    assert (report.name, report.benchmark_file) == ("trial", "config/experiments/trial.yaml")
    assert [r.status for r in report.results] == ["measured", "measured", "not_implemented"]
    with pytest.raises(ConfigError, match=r"'trail', which is no file; allowed: trial.*Did you mean 'trial'"):
        runner.request_from_file("trail")


def test_a_benchmark_file_is_one_benchmark_and_the_same_run_gives_the_same_scores(project: Path) -> None:
    runner = ExperimentRunner(project)
    asked = request(benchmark_file="benchmarks/shapes.yaml", benchmark_names=[], limit=12)
    one, other = runner.run(asked), runner.run(asked)
    assert [(r.benchmark, r.niche, r.n) for r in one.results] == [("shapes", None, 12)] * 2
    assert [r.score for r in one.results] == [r.score for r in other.results]
    assert [r.fingerprint for r in one.results] == [r.fingerprint for r in other.results]


def test_every_problem_of_a_request_comes_at_once(project: Path) -> None:
    wrong = request(
        benchmark_file="benchmarks/none.yaml", niches=["toi"], overrides={"num_few_shot": 1, "limit": 0}
    )
    with pytest.raises(ConfigError) as raised:
        ExperimentRunner(project).run(wrong)
    text = str(raised.value)
    for expected in (
        "ExperimentRequest: benchmark_file: found benchmarks/none.yaml",
        "ExperimentRequest: niche: found 'toi'; allowed: toy. Did you mean 'toy'?",
        "ExperimentRequest: overrides.num_few_shot: found an unknown key",
        "Did you mean 'num_fewshot'?",
        "ExperimentRequest: overrides.limit: found 0; allowed: greater than or equal to 1",
    ):
        assert expected in text
    with pytest.raises(ConfigError, match="mode: found 'fast'; allowed: canonical, diagnostic"):
        ExperimentRunner(project).run(request(mode="fast"))


def test_a_file_that_is_no_file_of_results_stops_it_before_anything_runs(project: Path) -> None:
    with pytest.raises(RecordError, match=r"toy\.yaml: line 1 is no result"):
        ExperimentRunner(project).run(request(output_file=project / "config/specialists/toy.yaml"))


def test_importing_the_names_imports_nothing_heavy() -> None:
    code = (
        "import sys; from pytest_gnus import ExperimentRequest, ExperimentRunner\n"
        "print(sorted({'lm_eval', 'mlx', 'datasets', 'transformers', 'scipy', 'numpy'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"repeat": "2"}, "repeat: found '2'; allowed: a whole number"),
        ({"repeat": 2.5}, "repeat: found 2.5; allowed: a whole number"),
        ({"limit": 0}, "limit: found 0; allowed: a whole number from 1 up"),
        ({"name": "../../x y"}, "name: found '../../x y'; allowed: letters, digits"),
        ({"model_identifiers": "demo:random"}, "models: found 'demo:random'; allowed: a list"),
        ({"benchmark_names": "colours"}, "benchmarks: found 'colours'; allowed: a list"),
        ({"niches": "toy"}, "niche: found 'toy'; allowed: a list"),
        ({"overrides": 3}, "overrides: found 3; allowed: a mapping"),
        (
            {"overrides": {"generation_kwargs": {"temprature": 0.7}}},
            "the unknown setting 'temprature'. Did you mean 'temperature'?",
        ),
    ],
)
def test_what_a_program_asks_for_is_checked_as_a_file_is(project, changes, message):
    with pytest.raises(ConfigError) as raised:
        ExperimentRunner(project).run(request(**changes))
    assert message in str(raised.value)
    assert not (project / "artifacts").exists()


def test_the_report_says_how_it_was_measured_and_that_of_an_earlier_run_stays(project):
    runner = ExperimentRunner(project)
    asked = request(output_file=project / "out.jsonl", limit=4)
    reports = [runner.run(asked) for _ in range(2)]
    assert reports[0].settings == {
        "mode": "canonical",
        "source": "local",
        "limit": 4,
        "prompt_bundle": None,
        "changes": {},
    }
    written = sorted(project.glob("out*.report.json"))
    assert [json.loads(path.read_text())["run_id"] for path in written] == [one.run_id for one in reports]
    markdown = (project / "out.report.md").read_text()
    assert "Measured with mode canonical, source local, limit 4." in markdown
