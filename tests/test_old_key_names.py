"""Keys of files by their old names: understood, told once for each file, and never beside the new one."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_gnus.benchmark_runner import BenchmarkRunner
from pytest_gnus.errors import ConfigError, Problem
from pytest_gnus.experiments.request import ExperimentRequest
from pytest_gnus.experiments.runner import ExperimentRunner
from pytest_gnus.renaming import RenamedKeyWarning, with_new_names
from pytest_gnus.schema import Niche, PromptBundle
from pytest_gnus.workspace import load_workspace
from tests.conftest import choice_task

OLD = {"regression_max_pct": 0.1, "previous_run_max_pct": 0.2, "deviation_max_pct": 0.3}
NEW = {
    "max_relative_drop": 0.1,
    "max_relative_drop_from_previous": 0.2,
    "max_relative_drop_from_baseline": 0.3,
}


class Project:
    """The files of a workspace: the niche `toy` with the benchmark `colours`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.benchmark()
        self.niche()

    def write(self, path: str, content: Mapping[str, Any]) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(dict(content), sort_keys=False), encoding="utf-8")

    def benchmark(self, gates: Mapping[str, Any] | None = None) -> None:
        content = {"name": "colours", "task": choice_task("colours"), "metric": "acc"}
        self.write("benchmarks/colours.yaml", content | ({"gates": dict(gates)} if gates else {}))

    def niche(self, gates: Mapping[str, Any] | None = None) -> None:
        content = {"niche": "toy", "benchmarks": {"blocking": ["colours"]}}
        self.write("config/specialists/toy.yaml", content | ({"gates": dict(gates)} if gates else {}))

    def pipeline(self, gates: Mapping[str, Any]) -> None:
        self.write("config/pipeline.yaml", {"gates": dict(gates)})

    def problems(self) -> tuple[Problem, ...]:
        with pytest.raises(ConfigError) as raised:
            load_workspace(self.root)
        return raised.value.problems


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize("level", ["benchmark", "niche", "per_benchmark", "pipeline"])
def test_old_names_mean_the_new_keys_at_every_level(project: Project, level: str) -> None:
    place = {
        "benchmark": "benchmarks/colours.yaml",
        "niche": "config/specialists/toy.yaml",
        "per_benchmark": "config/specialists/toy.yaml",
        "pipeline": "config/pipeline.yaml",
    }[level]
    if level == "per_benchmark":
        project.niche({"per_benchmark": {"colours": OLD}})
    else:
        getattr(project, level)(OLD)
    workspace = load_workspace(project.root)
    found = workspace.thresholds(workspace.niches["toy"], workspace.benchmarks["colours"])
    assert {name: getattr(found, name) for name in NEW} == NEW
    prefix = "gates.per_benchmark.colours" if level == "per_benchmark" else "gates"
    assert workspace.deprecations == (
        f"{place}: 3 keys have new names: {prefix}.regression_max_pct is now max_relative_drop, "
        f"{prefix}.previous_run_max_pct is now max_relative_drop_from_previous, "
        f"{prefix}.deviation_max_pct is now max_relative_drop_from_baseline; the old names are deprecated",
    )


def test_new_names_are_told_nothing(project: Project) -> None:
    project.benchmark(NEW)
    project.niche({**NEW, "per_benchmark": {"colours": NEW}})
    project.pipeline(NEW)
    assert load_workspace(project.root).deprecations == ()


def test_one_sentence_for_each_file(project: Project) -> None:
    project.benchmark({"regression_max_pct": 0.1})
    project.pipeline(OLD)
    found = load_workspace(project.root).deprecations
    assert [text.split(":")[0] for text in found] == ["config/pipeline.yaml", "benchmarks/colours.yaml"]
    assert found[1] == (
        "benchmarks/colours.yaml: a key has a new name: gates.regression_max_pct is now max_relative_drop; "
        "the old name is deprecated"
    )


@pytest.mark.parametrize("order", [1, -1])
def test_both_names_in_one_mapping_are_a_problem(project: Project, order: int) -> None:
    both = [("regression_max_pct", 0.1), ("max_relative_drop", 0.2)][::order]
    project.niche({"per_benchmark": {"colours": dict(both)}})
    (problem,) = project.problems()
    assert str(problem) == (
        "config/specialists/toy.yaml: gates.per_benchmark.colours.regression_max_pct: "
        "found max_relative_drop beside it; allowed: one of the two. "
        "Leave out regression_max_pct: max_relative_drop is its new name."
    )


def test_a_wrong_value_is_told_by_the_key_that_the_file_has(project: Project) -> None:
    project.benchmark({"regression_max_pct": 10})
    project.niche({"deviation_max_pct": "x"})
    assert [(problem.where, problem.key) for problem in project.problems()] == [
        ("benchmarks/colours.yaml", "gates.regression_max_pct"),
        ("config/specialists/toy.yaml", "gates.deviation_max_pct"),
    ]


def test_what_is_proposed_has_the_new_names_only(project: Project) -> None:
    project.benchmark({"regresion_max_pct": 0.1, "max_relative_drp": 0.1})
    for problem in project.problems():
        assert "max_pct" not in problem.allowed + problem.hint
        assert "max_relative_drop_from_baseline" in problem.allowed
    assert project.problems()[1].hint == "Did you mean 'max_relative_drop'?"


def test_a_benchmark_may_have_the_name_of_an_old_key() -> None:
    content = {"per_benchmark": {"regression_max_pct": {"deviation_max_pct": 0.1}}}
    found = with_new_names("f", {"gates": content}, Niche)
    assert found.content == {
        "gates": {"per_benchmark": {"regression_max_pct": {"max_relative_drop_from_baseline": 0.1}}}
    }


@pytest.mark.parametrize("content", [None, [], "text", {"gates": None}, {"gates": [1]}, {1: 2, None: {}}])
def test_content_of_any_shape_comes_through(content: Any) -> None:
    assert with_new_names("f", content, Niche).content == content


def test_a_prompt_bundle_by_its_old_keys() -> None:
    found = with_new_names(
        "config/prompts/p.yaml",
        {"name": "p", "system_prompt": "s", "generation": {"temperature": 0.5}},
        PromptBundle,
    )
    bundle = PromptBundle.model_validate(found.content)
    assert (bundle.system_instruction, bundle.generation_kwargs) == ("s", {"temperature": 0.5})
    assert found.told("config/prompts/p.yaml") == (
        "config/prompts/p.yaml: 2 keys have new names: system_prompt is now system_instruction, "
        "generation is now generation_kwargs; the old names are deprecated"
    )


def test_a_program_is_warned_once_of_each_file(project: Project) -> None:
    project.pipeline(OLD)
    with pytest.warns(RenamedKeyWarning) as told:
        BenchmarkRunner(project.root)
    assert len(told) == 1
    assert str(told[0].message).startswith("config/pipeline.yaml: 3 keys have new names: ")
    assert issubclass(RenamedKeyWarning, FutureWarning)  # which Python shows to everybody


def test_a_program_is_warned_of_a_prompt_bundle_when_it_uses_it(project: Project) -> None:
    project.write("config/prompts/clerk.yaml", {"name": "clerk", "system_prompt": "You are a clerk."})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runner = ExperimentRunner(project.root)
    request = ExperimentRequest(
        niches=["toy"], model_identifiers=["demo:random"], prompt_bundle_name="clerk", source="local"
    )
    with pytest.warns(RenamedKeyWarning, match="config/prompts/clerk.yaml: a key has a new name") as told:
        (item,) = runner.build_task_requests(request)
    assert len(told) == 1
    assert item.request.system_instruction == "You are a clerk."
