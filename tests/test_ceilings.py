"""Floors and ceilings: the limit of a score by the direction of its metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_gnus.errors import ConfigError, Problem
from pytest_gnus.gates.result import GateResult
from pytest_gnus.judging import References, judge
from pytest_gnus.records.store import RecordStore
from pytest_gnus.schema import Thresholds
from pytest_gnus.workspace import Workspace, load_workspace
from tests.making_history import fields, item_of, measured, run_id


def gates_of(thresholds: Thresholds, score: float, tmp_path: Path, *, higher: bool) -> list[GateResult]:
    measurement = replace(
        measured(score), higher_is_better=higher, per_category={"colours_warm": score, "colours_cold": score}
    )
    item = replace(item_of("reference"), thresholds=thresholds)
    references = References(RecordStore(tmp_path), run_id(0))
    return list(judge(item, measurement, fields("c"), references).gates)


@pytest.mark.parametrize(
    ("score", "passed", "detail"),
    [
        (11.0, True, "11.0000 <= 12.0000"),
        (12.0, True, "12.0000 <= 12.0000"),
        (12.5, False, "12.5000 > 12.0000"),
    ],
)
@pytest.mark.parametrize("key", ["hard_ceiling", "hard_floor"])
def test_where_lower_is_better_the_limit_is_a_ceiling_by_either_key(
    tmp_path: Path, key: str, score: float, passed: bool, detail: str
) -> None:
    (gate,) = gates_of(Thresholds(**{key: 12.0}), score, tmp_path, higher=False)
    assert (gate.name, gate.passed, gate.threshold, gate.detail) == ("hard_ceiling", passed, 12.0, detail)


def test_a_ceiling_counts_before_a_floor_that_is_for_others(tmp_path: Path) -> None:
    """A niche's `hard_floor: 0.3` for all of its benchmarks is not for the one with a ceiling."""
    (gate,) = gates_of(Thresholds(hard_floor=0.3, hard_ceiling=12.0), 11.0, tmp_path, higher=False)
    assert (gate.name, gate.passed, gate.threshold) == ("hard_ceiling", True, 12.0)


def test_categories_have_ceilings_too(tmp_path: Path) -> None:
    limits = Thresholds(
        hard_ceiling=12.0, category_ceilings={"warm": 10.0}, category_floors={"cold": 12.0, "warm": 99.0}
    )
    gates = gates_of(limits, 11.0, tmp_path, higher=False)
    assert {gate.name: gate.passed for gate in gates} == {
        "hard_ceiling": True,
        "category_ceiling[warm]": False,
        "category_ceiling[cold]": True,
    }


@pytest.mark.parametrize(
    ("higher", "name", "word"), [(True, "hard_floor", "floor"), (False, "hard_ceiling", "ceiling")]
)
def test_a_blocking_benchmark_needs_one_of_them(tmp_path: Path, higher: bool, name: str, word: str) -> None:
    (gate,) = gates_of(Thresholds(), 0.5, tmp_path, higher=higher)
    assert (gate.name, gate.passed) == (name, None)
    assert gate.detail == f"no {word} is set: a blocking benchmark needs one (D-08)"


# --- files ---


def workspace_of(
    root: Path,
    benchmark: Mapping[str, Any],
    niche: Mapping[str, Any] | None = None,
    pipeline: Mapping[str, Any] | None = None,
) -> Workspace:
    """The niche `toy` with the benchmark `colours`; `niche` and `pipeline` are gates."""
    contents = {
        "benchmarks/colours.yaml": {"name": "colours", "task": "t", **benchmark},
        "config/specialists/toy.yaml": {
            "niche": "toy",
            "benchmarks": {"blocking": ["colours"]},
            "gates": dict(niche or {}),
        },
        "config/pipeline.yaml": {"gates": dict(pipeline or {})},
    }
    for path, content in contents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(yaml.safe_dump(content), encoding="utf-8")
    return load_workspace(root)


def problems_of(*arguments: Any) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as raised:
        workspace_of(*arguments)
    return raised.value.problems


PERPLEXITY = {"metric": "word_perplexity", "higher_is_better": False}
ACCURACY = {"metric": "acc"}


@pytest.mark.parametrize("key", ["hard_ceiling", "category_ceilings"])
@pytest.mark.parametrize("level", ["benchmark", "niche", "per_benchmark", "pipeline"])
@pytest.mark.parametrize("metric", [ACCURACY, {}, {"metric": "mine", "higher_is_better": True}])
def test_a_ceiling_where_higher_is_better_is_a_problem_with_file_and_key(
    tmp_path: Path, key: str, level: str, metric: Mapping[str, Any]
) -> None:
    gates = {key: 0.5 if key == "hard_ceiling" else {"warm": 0.5}}
    arguments: dict[str, tuple[Any, ...]] = {
        "benchmark": ({**metric, "gates": gates},),
        "niche": (metric, gates),
        "per_benchmark": (metric, {"per_benchmark": {"colours": gates}}),
        "pipeline": (metric, None, gates),
    }
    (problem,) = problems_of(tmp_path, *arguments[level])
    file, shown = {
        "benchmark": ("benchmarks/colours.yaml", f"gates.{key}"),
        "niche": ("config/specialists/toy.yaml", f"gates.{key}"),
        "per_benchmark": ("config/specialists/toy.yaml", f"gates.per_benchmark.colours.{key}"),
        "pipeline": ("config/pipeline.yaml", f"gates.{key}"),
    }[level]
    assert problem.where == file
    assert shown in str(problem)
    assert key.replace("ceiling", "floor") in str(problem)


@pytest.mark.parametrize("level", ["benchmark", "niche", "per_benchmark", "pipeline"])
def test_a_ceiling_where_lower_is_better_comes_from_every_level(tmp_path: Path, level: str) -> None:
    gates = {"hard_ceiling": 20.0}
    arguments: dict[str, tuple[Any, ...]] = {
        "benchmark": ({**PERPLEXITY, "gates": gates},),
        "niche": (PERPLEXITY, gates),
        "per_benchmark": (PERPLEXITY, {"per_benchmark": {"colours": gates}}),
        "pipeline": (PERPLEXITY, None, gates),
    }
    workspace = workspace_of(tmp_path, *arguments[level])
    found = workspace.thresholds(workspace.niches["toy"], workspace.benchmarks["colours"])
    assert found.hard_limit(higher_is_better=False) == 20.0


def test_a_floor_beside_a_ceiling_is_no_limit_of_one_score(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, {**PERPLEXITY, "gates": {"hard_floor": 1.0, "hard_ceiling": 2.0}})
    assert "both gates.hard_floor and gates.hard_ceiling" in str(problem)


def test_a_floor_for_one_benchmark_does_not_replace_its_ceiling_unseen(tmp_path: Path) -> None:
    """It would be taken for a ceiling where there was none, and count for nothing here."""
    (problem,) = problems_of(
        tmp_path,
        {**PERPLEXITY, "gates": {"hard_ceiling": 20.0}},
        {"per_benchmark": {"colours": {"hard_floor": 12.0}}},
    )
    assert (problem.where, problem.key) == (
        "config/specialists/toy.yaml",
        "gates.per_benchmark.colours.hard_floor",
    )
    assert problem.hint == "Write hard_ceiling."


def test_a_ceiling_above_one_means_nothing_for_a_unit_metric(tmp_path: Path) -> None:
    metric = {"metric": "brier_score", "higher_is_better": False}
    (problem,) = problems_of(tmp_path, {**metric, "gates": {"hard_ceiling": 20}})
    assert "gates.hard_ceiling is 20" in str(problem)
    workspace_of(tmp_path, {**metric, "gates": {"hard_ceiling": 0.2}})
