"""Finding, loading and validating `benchmarks/` and `config/`, and what is said of each mistake."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gnus.errors import ConfigError, Problem
from pytest_gnus.schema import BUILT_IN_THRESHOLDS, Benchmark, Thresholds
from pytest_gnus.workspace import FunctionReference, Workspace, find_root, load_workspace

REPOSITORY = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Files:
    """A workspace's files on disk."""

    root: Path

    def write(self, path: str, content: Mapping[str, Any] | str | bytes) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Mapping):
            content = yaml.safe_dump(dict(content), sort_keys=False)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    def benchmark(self, name: str = "colours", **content: Any) -> Path:
        return self.write(f"benchmarks/{name}.yaml", {"name": name, "task": "t", "metric": "acc", **content})

    def niche(self, name: str = "toy", **content: Any) -> Path:
        default = {"niche": name, "benchmarks": {"blocking": ["colours"]}}
        return self.write(f"config/specialists/{name}.yaml", default | content)

    def load(self) -> Workspace:
        return load_workspace(self.root)

    def problems(self) -> tuple[Problem, ...]:
        with pytest.raises(ConfigError) as raised:
            self.load()
        assert all(str(problem) in str(raised.value) for problem in raised.value.problems)
        return raised.value.problems

    def problem(self, where: Path | None = None) -> Problem:
        """The only problem, or the only one in a file."""
        (found,) = [p for p in self.problems() if where in (None, self.root / p.where)]
        return found


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A workspace without faults: the niche `toy` with the benchmark `colours`."""
    workspace = Files(tmp_path)
    workspace.benchmark()
    workspace.niche()
    return workspace


def test_a_workspace_without_faults_loads(files: Files) -> None:
    workspace = files.load()
    assert list(workspace.niches) == ["toy"]
    assert list(workspace.benchmarks) == ["colours"]
    assert workspace.benchmark_files == {"colours": files.root / "benchmarks" / "colours.yaml"}
    assert workspace.benchmarks_directory == files.root / "benchmarks"
    assert workspace.data_directory == files.root / "data" / "benchmarks"
    assert workspace.pipeline.source == "huggingface"


def test_an_empty_pipeline_file_is_as_none(files: Files) -> None:
    files.write("config/pipeline.yaml", "# nothing yet\n")
    assert files.load().pipeline.source == "huggingface"


def test_both_endings_of_yaml_files_are_read(files: Files) -> None:
    files.write("benchmarks/shapes.yml", {"name": "shapes", "task": "t"})
    assert sorted(files.load().benchmarks) == ["colours", "shapes"]


def test_other_files_are_ignored(files: Files) -> None:
    files.write("benchmarks/helper.py", "raise SystemExit")
    files.write("benchmarks/README.md", "[")
    assert list(files.load().benchmarks) == ["colours"]


def test_the_root_is_the_nearest_folder_with_specialists(files: Files, tmp_path: Path) -> None:
    deep = files.root / "a" / "b"
    deep.mkdir(parents=True)
    assert find_root(deep) == files.root
    assert find_root(Path("/"), deep) == files.root
    (deep / "config" / "specialists").mkdir(parents=True)
    assert find_root(deep, files.root) == deep
    with tempfile.TemporaryDirectory() as elsewhere:
        assert find_root(Path(elsewhere)) is None


UNKNOWN_KEYS = [
    ("benchmark", {"descripton": "x"}, "descripton", "Did you mean 'description'?"),
    ("benchmark", {"gates": {"hard_flor": 0.2}}, "gates.hard_flor", "Did you mean 'hard_floor'?"),
    ("benchmark", {"dataset": {"revison": "x"}}, "dataset.revison", "Did you mean 'revision'?"),
    (
        "benchmark",
        {"diagnostic": {"dataset": {"locl": "x"}}},
        "diagnostic.dataset.locl",
        "Did you mean 'local'?",
    ),
    ("benchmark", {"zzz": 1}, "zzz", ""),
    ("niche", {"modle": {}}, "modle", "Did you mean 'model'?"),
    ("niche", {"model": {"quantised": "x"}}, "model.quantised", "Did you mean 'quantized'?"),
    (
        "niche",
        {"gates": {"per_benchmark": {"colours": {"hard_flor": 0.2}}}},
        "gates.per_benchmark.colours.hard_flor",
        "Did you mean 'hard_floor'?",
    ),
]


@pytest.mark.parametrize(("kind", "content", "key", "hint"), UNKNOWN_KEYS)
def test_an_unknown_key_is_named_with_the_known_ones(
    files: Files, kind: str, content: dict[str, Any], key: str, hint: str
) -> None:
    problem = files.problem(getattr(files, kind)(**content))
    assert (problem.key, problem.found, problem.hint) == (key, "an unknown key", hint)
    assert problem.hint.removeprefix("Did you mean '").removesuffix("'?") in problem.allowed


@pytest.mark.parametrize("key", ["str", "bool", "dict[x"])
def test_an_unknown_key_may_be_called_like_a_type(files: Files, key: str) -> None:
    problem = files.problem(files.write("benchmarks/colours.yaml", {"name": "colours", "task": "t", key: 1}))
    assert (problem.key, problem.found) == (key, "an unknown key")


WRONG_VALUES = [
    ("benchmark", {"num_fewshot": "5"}, "num_fewshot", "'5'", "integer"),
    ("benchmark", {"num_fewshot": 5.0}, "num_fewshot", "5.0", "integer"),
    ("benchmark", {"num_fewshot": -1}, "num_fewshot", "-1", "greater than or equal to 0"),
    ("benchmark", {"limit": 0}, "limit", "0", "greater than or equal to 1"),
    ("benchmark", {"higher_is_better": "yes"}, "higher_is_better", "'yes'", "boolean"),
    ("benchmark", {"task": 5}, "task", "5", "string, or a valid dictionary"),
    ("benchmark", {"chat_template": 3}, "chat_template", "3", "boolean, or a valid string"),
    ("benchmark", {"subtasks": "anatomy"}, "subtasks", "'anatomy'", "list"),
    ("benchmark", {"subtasks": ["a", 1]}, "subtasks[1]", "1", "string"),
    ("benchmark", {"gates": [0.2]}, "gates", "[0.2]", "dictionary"),
    ("benchmark", {"gates": None}, "gates", "None", "dictionary"),
    ("benchmark", {"gates": {"hard_floor": "0.2"}}, "gates.hard_floor", "'0.2'", "number"),
    ("benchmark", {"gates": {"hard_floor": True}}, "gates.hard_floor", "True", "number"),
    ("benchmark", {"gates": {"hard_floor": -0.1}}, "gates.hard_floor", "-0.1", "greater than or equal to 0"),
    ("benchmark", {"gates": {"hard_floor": math.inf}}, "gates.hard_floor", "inf", "finite"),
    (
        "benchmark",
        {"gates": {"max_relative_drop": 10}},
        "gates.max_relative_drop",
        "10",
        "less than or equal to 1",
    ),
    (
        "benchmark",
        {"gates": {"max_relative_drop_from_baseline": -0.2}},
        "gates.max_relative_drop_from_baseline",
        "-0.2",
        "greater than",
    ),
    ("benchmark", {"gates": {"category_floors": {"a": "x"}}}, "gates.category_floors.a", "'x'", "number"),
    ("benchmark", {"status": "redy"}, "status", "'redy'", "'ready' or 'not_implemented'"),
    ("benchmark", {"name": "a b"}, "name", "'a b'", "pattern"),
    ("niche", {"benchmarks": ["colours"]}, "benchmarks", "['colours']", "dictionary"),
    ("niche", {"benchmarks": {"blocking": "colours"}}, "benchmarks.blocking", "'colours'", "list"),
    ("niche", {"model": "demo:patents"}, "model", "'demo:patents'", "dictionary"),
    ("niche", {"model": {"quantized": ""}}, "model.quantized", "''", "at least 1 character"),
    (
        "niche",
        {"gates": {"max_relative_drop": 1.5}},
        "gates.max_relative_drop",
        "1.5",
        "less than or equal to 1",
    ),
]


@pytest.mark.parametrize(("kind", "content", "key", "found", "allowed"), WRONG_VALUES)
def test_a_wrong_value_is_named_with_its_place_and_what_is_allowed(
    files: Files, kind: str, content: dict[str, Any], key: str, found: str, allowed: str
) -> None:
    problem = files.problem(getattr(files, kind)(**content))
    assert (problem.key, problem.found) == (key, found)
    assert allowed in problem.allowed


def test_a_wrong_choice_gets_the_nearest_right_one(files: Files) -> None:
    files.write("config/pipeline.yaml", {"source": "locale"})
    problem = files.problem()
    assert (problem.where, problem.key, problem.found) == ("config/pipeline.yaml", "source", "'locale'")
    assert problem.hint == "Did you mean 'local'?"


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1])
def test_a_category_floor_is_a_finite_number_from_0_up(files: Files, value: float) -> None:
    problem = files.problem(files.benchmark(gates={"category_floors": {"anatomy": value}}))
    assert problem.key == "gates.category_floors.anatomy"


@pytest.mark.parametrize("metric", ["acc", "acc_norm", "exact_match", "rouge1", "acc,none", None])
def test_a_floor_given_as_a_percentage_is_refused(files: Files, metric: str | None) -> None:
    problem = files.problem(files.benchmark(metric=metric, gates={"hard_floor": 25}))
    assert "gates.hard_floor" in str(problem)
    assert "25" in str(problem)
    assert "between 0 and 1" in str(problem)


def test_a_floor_above_1_is_right_for_a_metric_without_bounds(files: Files) -> None:
    files.benchmark(metric="word_perplexity", higher_is_better=False, gates={"hard_floor": 25.0})
    assert files.load().benchmarks["colours"].gates.hard_floor == 25.0


def test_a_category_floor_given_as_a_percentage_is_refused(files: Files) -> None:
    problem = files.problem(files.benchmark(gates={"category_floors": {"anatomy": 25}}))
    assert "gates.category_floors" in str(problem)


@pytest.mark.parametrize("gates", [{"hard_floor": 25}, {"per_benchmark": {"colours": {"hard_floor": 25}}}])
def test_a_floor_given_as_a_percentage_is_refused_in_a_niche(files: Files, gates: dict[str, Any]) -> None:
    problem = files.problem(files.niche(gates=gates))
    assert "hard_floor" in str(problem)


def test_a_floor_given_as_a_percentage_is_refused_in_the_pipeline(files: Files) -> None:
    problem = files.problem(files.write("config/pipeline.yaml", {"gates": {"hard_floor": 25}}))
    assert "hard_floor" in str(problem)


@pytest.mark.parametrize(
    ("path", "content", "key"),
    [
        ("benchmarks/colours.yaml", {"task": "t"}, "name"),
        ("config/specialists/toy.yaml", {"benchmarks": {}}, "niche"),
        ("config/specialists/toy.yaml", {"niche": "toy"}, "benchmarks"),
    ],
)
def test_a_missing_key_is_named(files: Files, path: str, content: dict[str, Any], key: str) -> None:
    problem = files.problem(files.write(path, content))
    assert (problem.key, problem.found, problem.allowed) == (key, "nothing", "this key is required")


def test_a_benchmark_that_is_ready_needs_a_task(files: Files) -> None:
    problem = files.problem(files.benchmark(task=None))
    assert "`task` is missing" in str(problem)


@pytest.mark.parametrize("content", [{}, {"reason": None}])
def test_a_benchmark_that_is_not_implemented_needs_a_reason(files: Files, content: dict[str, Any]) -> None:
    problem = files.problem(files.benchmark(task=None, status="not_implemented", **content))
    assert "not_implemented needs a `reason`" in str(problem)


def test_a_benchmark_that_is_not_implemented_needs_no_task(files: Files) -> None:
    files.benchmark(task=None, status="not_implemented", reason="later")
    assert files.load().benchmarks["colours"].reason == "later"


@pytest.mark.parametrize("kind", ["blocking", "diagnostic"])
def test_a_benchmark_without_a_file_is_named_with_those_that_have_one(files: Files, kind: str) -> None:
    files.benchmark("shapes")
    files.niche(benchmarks={kind: ["shapes", "colour"]})
    problem = files.problem()
    assert (problem.where, problem.key) == ("config/specialists/toy.yaml", f"benchmarks.{kind}[1]")
    assert (problem.found, problem.allowed) == ("'colour', which has no file", "colours, shapes")
    assert problem.hint == "Did you mean 'colours'?"


def test_a_benchmark_far_from_every_file_says_which_to_write(files: Files) -> None:
    files.niche(benchmarks={"blocking": ["zzz"]})
    assert files.problem().hint == "Write benchmarks/zzz.yaml."


def test_a_benchmark_whose_file_is_broken_is_not_called_missing_too(files: Files) -> None:
    files.benchmark(zzz=1)
    assert [(p.where, p.key) for p in files.problems()] == [("benchmarks/colours.yaml", "zzz")]


@pytest.mark.parametrize(
    ("benchmarks", "key"),
    [
        ({"blocking": ["colours", "colours"]}, "benchmarks.blocking[1]"),
        ({"blocking": ["colours"], "diagnostic": ["colours"]}, "benchmarks.diagnostic[0]"),
    ],
)
def test_a_benchmark_stands_once_in_a_niche(files: Files, benchmarks: dict[str, Any], key: str) -> None:
    files.niche(benchmarks=benchmarks)
    problem = files.problem()
    assert (problem.key, problem.found) == (key, "duplicate name 'colours'")


def test_thresholds_for_a_benchmark_of_another_niche_are_refused(files: Files) -> None:
    files.benchmark("shapes")
    files.niche(gates={"per_benchmark": {"colour": {"hard_floor": 0.1}}})
    problem = files.problem()
    assert problem.key == "gates.per_benchmark.colour"
    assert problem.allowed == "a benchmark of this niche: colours"
    assert problem.hint == "Did you mean 'colours'?"


def test_a_name_that_two_files_use_is_named_with_both(files: Files) -> None:
    files.write("benchmarks/colours.yml", {"name": "colours", "task": "t"})
    problem = files.problem()
    assert (problem.where, problem.key) == ("benchmarks/colours.yml", "name")
    assert problem.found == "duplicate name 'colours'"
    assert "benchmarks/colours.yaml" in problem.allowed


@pytest.mark.parametrize(
    ("path", "content", "key", "name"),
    [
        ("benchmarks/shapes.yaml", {"name": "forms", "task": "t"}, "name", "forms"),
        ("config/specialists/shop.yaml", {"niche": "store", "benchmarks": {}}, "niche", "store"),
    ],
)
def test_a_name_that_is_not_its_files_is_named(
    files: Files, path: str, content: dict[str, Any], key: str, name: str
) -> None:
    files.write(path, content)
    problem = files.problem()
    assert (problem.where, problem.key, problem.found) == (path, key, repr(name))
    assert problem.allowed == repr(Path(path).stem)


@pytest.mark.parametrize("stem", ["toy.yml", "shop.yaml"])
def test_a_niches_problem_names_the_file_that_it_stands_in(files: Files, stem: str) -> None:
    (files.root / "config" / "specialists" / "toy.yaml").unlink()
    files.write(f"config/specialists/{stem}", {"niche": "toy", "benchmarks": {"blocking": ["zzz"]}})
    assert {problem.where for problem in files.problems()} == {f"config/specialists/{stem}"}


@pytest.mark.parametrize("key", ["quantized", "reference", "baseline"])
@pytest.mark.parametrize("name", ["mxl:models/toy", "torch:org/name", "mlx:"])
def test_a_model_of_an_unknown_provider_is_refused_in_a_niche(files: Files, key: str, name: str) -> None:
    files.niche(model={key: name})
    problem = files.problem()
    assert (problem.where, problem.key) == ("config/specialists/toy.yaml", f"model.{key}")
    assert name in problem.found
    assert "mlx" in problem.allowed


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("name: colours\ntask: [t\nmetric: acc\n", 3, ""),
        ("name: colours\n\ttask: t\n", 2, ""),
        ("name: colours\ntask: t\nname: colours\n", 3, "the key 'name' stands twice"),
        (
            "name: colours\ntask: t\ngates:\n  hard_floor: 0.1\n  hard_floor: 0.2\n",
            5,
            "'hard_floor' stands twice",
        ),
        (
            "name: colours\ntask: !!python/object/apply:os.system [true]\n",
            2,
            "could not determine a constructor",
        ),
    ],
)
def test_broken_yaml_is_named_by_its_line(files: Files, text: str, line: int, said: str) -> None:
    problem = files.problem(files.write("benchmarks/colours.yaml", text))
    assert f"(line {line}, column " in problem.found
    assert said in problem.found


@pytest.mark.parametrize("content", ["", "- a\n- b\n", "text", "5", "null"])
def test_a_file_that_is_no_mapping_is_named(files: Files, content: str) -> None:
    problem = files.problem(files.write("benchmarks/colours.yaml", content))
    assert (problem.found, problem.allowed) == (repr(yaml.safe_load(content)), "a YAML mapping")


def test_a_file_that_is_a_folder_is_named(files: Files) -> None:
    (files.root / "benchmarks" / "shapes.yaml").mkdir()
    assert files.problem().where == "benchmarks/shapes.yaml"


def test_every_problem_of_every_file_is_said_at_once(files: Files) -> None:
    files.benchmark(zzz=1, num_fewshot="5")
    files.write("benchmarks/shapes.yaml", "name: [\n")
    files.benchmark("sizes")
    files.niche(modle={}, benchmarks={"blocking": ["colours"]})
    files.niche("shop", benchmarks={"blocking": ["nothing"], "diagnostic": ["sizes", "sizes"]})
    files.write("config/pipeline.yaml", {"source": "api"})
    with pytest.raises(ConfigError) as raised:
        files.load()
    found = {(problem.where, problem.key) for problem in raised.value.problems}
    assert found == {
        ("config/pipeline.yaml", "source"),
        ("benchmarks/colours.yaml", "num_fewshot"),
        ("benchmarks/colours.yaml", "zzz"),
        ("benchmarks/shapes.yaml", ""),
        ("config/specialists/toy.yaml", "modle"),
        ("config/specialists/shop.yaml", "benchmarks.blocking[0]"),
        ("config/specialists/shop.yaml", "benchmarks.diagnostic[1]"),
    }
    lines = str(raised.value).splitlines()
    assert lines[0] == "pytest-gnus: 7 problems in the configuration"
    assert len(lines) == 8


def test_a_function_of_lm_evals_is_kept_and_not_imported(files: Files) -> None:
    files.write("benchmarks/helper_of_this_test.py", "raise SystemExit('imported')")
    files.write(
        "benchmarks/colours.yaml",
        "name: colours\ntask:\n  task: colours\n  process_docs: !function helper_of_this_test.clean\n",
    )
    task = files.load().benchmarks["colours"].task
    assert isinstance(task, Mapping)
    assert task["process_docs"] == FunctionReference("helper_of_this_test.clean", files.root / "benchmarks")
    assert "helper_of_this_test" not in sys.modules


def test_merged_keys_of_an_anchor_are_no_duplicates(files: Files) -> None:
    files.write(
        "benchmarks/colours.yaml",
        "name: colours\ntask:\n  base: &base {a: 1, b: 2}\n  more:\n    <<: *base\n    b: 3\n",
    )
    task = files.load().benchmarks["colours"].task
    assert isinstance(task, Mapping)
    assert task["more"] == {"a": 1, "b": 3}


NASTY = [
    "? [a, b]\n: 1",
    "{{a: 1}: 2}",
    "a: 2026-13-45",
    "a: 2000-02-30",
    "a: 2001-01-01T00:00:00+99:99",
    "a: !!int x",
    "a: !!float x",
    "a: !!bool x",
    "a: !!timestamp x",
    "a: !!int ''",
    "a: 0x_",
    "a: 0b_",
    "a: " + "9" * 5000,
    "a: " + "[" * 400 + "]" * 400,
    "a: " + "[" * 100_000,
    "a: &a [*a]",
    "a: *b",
    "!function {a: b}",
    "<<: 1",
    "\x00",
    "\ufeff",
    "1: 2",
    "null: 2",
    ".nan: 2",
    "2020-01-01: 2",
    "!!set {a, b}",
    "!!binary '*'",
    "--- a\n--- b",
    "%YAML 9.9\n---\na: 1",
    "a: 1\n---\nb: 2",
]


@pytest.mark.parametrize("text", NASTY, ids=lambda text: ascii(text[:24]))
def test_nasty_yaml_is_a_configuration_error_that_names_its_file(files: Files, text: str) -> None:
    files.write("benchmarks/colours.yaml", text)
    assert "benchmarks/colours.yaml" in {problem.where for problem in files.problems()}


@pytest.mark.parametrize("path", ["config/specialists/toy.yaml", "config/pipeline.yaml"])
@pytest.mark.parametrize("content", [b"a: [", b"\x00", b"\xff", b"- a", b"a: 1", b"!function x.y"])
def test_every_kind_of_file_is_read_with_the_same_care(files: Files, path: str, content: bytes) -> None:
    files.write(path, content)
    assert {problem.where for problem in files.problems()} == {path}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Files:
    workspace = Files(tmp_path_factory.mktemp("shared"))
    workspace.niche()
    return workspace


def loads_or_names_its_file(files: Files, content: bytes | str | Mapping[str, Any]) -> None:
    path = "benchmarks/colours.yaml"
    files.write(path, content)
    named = set()
    try:
        assert list(files.load().benchmarks) == ["colours"]
    except ConfigError as error:
        named = {problem.where for problem in error.problems} or {"nothing"}
    assert not named or path in named


@given(st.binary(max_size=60))
@settings(deadline=None)
def test_bytes_are_a_workspace_or_a_configuration_error(shared: Files, content: bytes) -> None:
    loads_or_names_its_file(shared, content)


words = "name task colours : [ ] { } , ' \" &a *a !function !!str | > # --- << 0.1 ~ é % @".split()
yaml_pieces = st.sampled_from([*words, " ", "\n", "  ", "- ", "? ", "\t"])


@given(st.lists(yaml_pieces, max_size=25).map("".join))
@settings(deadline=None)
def test_pieces_of_yaml_are_a_workspace_or_a_configuration_error(shared: Files, text: str) -> None:
    loads_or_names_its_file(shared, text)


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("ab{'\n", max_size=8) | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3) | st.integers(), inner)
    ),
    max_leaves=5,
)
benchmark_keys = st.sampled_from([*sorted(set(Benchmark.model_fields) - {"name"}), "other"])


@given(st.dictionaries(benchmark_keys, values, max_size=4))
@settings(deadline=None, max_examples=50)
def test_any_values_are_a_workspace_or_a_configuration_error(shared: Files, content: dict[str, Any]) -> None:
    loads_or_names_its_file(shared, {"name": "colours", "task": "t", **content})


LEVELS = ("niche_one", "niche_all", "benchmark", "pipeline")


def thresholds_with(files: Files, given_at: Mapping[str, Any]) -> Thresholds:
    """What holds for colours in toy, the thresholds of each level being given."""
    files.benchmark(gates=given_at.get("benchmark", {}))
    files.write("config/pipeline.yaml", {"gates": given_at.get("pipeline", {})})
    per_benchmark = {"colours": given_at["niche_one"]} if "niche_one" in given_at else {}
    files.niche(gates={**given_at.get("niche_all", {}), "per_benchmark": per_benchmark})
    workspace = files.load()
    return workspace.thresholds(workspace.niches["toy"], workspace.benchmarks["colours"])


@pytest.mark.parametrize(
    "key",
    [
        "hard_floor",
        "max_relative_drop",
        "max_relative_drop_from_previous",
        "max_relative_drop_from_baseline",
        "truncated_max_share",
    ],
)
@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_a_threshold_is_taken_from_the_nearest_level(files: Files, key: str, first: int) -> None:
    """Niche for one benchmark, over niche, over benchmark, over pipeline."""
    given_at = {level: {key: 0.5 + number / 10} for number, level in enumerate(LEVELS) if number >= first}
    assert getattr(thresholds_with(files, given_at), key) == 0.5 + first / 10


def test_without_any_threshold_those_built_in_hold(files: Files) -> None:
    assert thresholds_with(files, {}) == Thresholds(
        max_relative_drop=0.10,
        max_relative_drop_from_previous=0.10,
        max_relative_drop_from_baseline=0.20,
        truncated_max_share=0.0,
    )
    assert BUILT_IN_THRESHOLDS.hard_floor is None


def test_a_threshold_of_zero_is_set(files: Files) -> None:
    found = thresholds_with(
        files,
        {"niche_one": {"max_relative_drop": 0.0, "hard_floor": 0.0}, "benchmark": {"hard_floor": 0.4}},
    )
    assert (found.max_relative_drop, found.hard_floor) == (0.0, 0.0)


def test_levels_set_different_thresholds_together(files: Files) -> None:
    found = thresholds_with(
        files,
        {
            "niche_one": {"hard_floor": 0.1},
            "niche_all": {"hard_floor": 0.2, "max_relative_drop_from_baseline": 0.3},
            "pipeline": {"max_relative_drop": 0.05},
        },
    )
    assert (found.hard_floor, found.max_relative_drop_from_baseline, found.max_relative_drop) == (
        0.1,
        0.3,
        0.05,
    )


def test_category_floors_of_all_levels_come_together_and_the_nearest_wins(files: Files) -> None:
    found = thresholds_with(
        files,
        {
            "niche_one": {"category_floors": {"a": 0.1}},
            "niche_all": {"category_floors": {"a": 0.2, "b": 0.2}},
            "benchmark": {"category_floors": {"a": 0.3, "b": 0.3, "c": 0.3}},
            "pipeline": {"category_floors": {"d": 0.4}},
        },
    )
    assert found.category_floors == {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}


def test_a_niches_threshold_for_one_benchmark_leaves_its_others_alone(files: Files) -> None:
    files.benchmark("shapes", gates={"hard_floor": 0.3})
    files.niche(
        benchmarks={"blocking": ["colours", "shapes"]},
        gates={"per_benchmark": {"colours": {"hard_floor": 0.9}}},
    )
    workspace = files.load()
    assert workspace.thresholds(workspace.niches["toy"], workspace.benchmarks["shapes"]).hard_floor == 0.3


@pytest.fixture(scope="module")
def shipped() -> Workspace:
    return load_workspace(REPOSITORY)


BLOCKING = {
    "code": ["humaneval", "livecodebench"],
    "medical": ["medmcqa", "pubmedqa", "medhelm_subset", "safety_refusal"],
    "qa_technical": ["gpqa"],
    "encyclopedic": ["rag_pipeline_eval"],
    "patents": ["bigpatent", "uspto_classification"],
}


def test_the_shipped_workspace_has_the_five_niches_with_their_benchmarks(shipped: Workspace) -> None:
    assert {name: niche.benchmarks.blocking for name, niche in shipped.niches.items()} == BLOCKING


def test_every_shipped_niche_runs_mmlu_as_its_diagnostic(shipped: Workspace) -> None:
    assert [niche.benchmarks.diagnostic for niche in shipped.niches.values()] == [["mmlu"]] * 5


def test_the_shipped_floors_are_those_of_the_seeds(shipped: Workspace) -> None:
    seeds = {
        "mmlu": 0.25,
        "humaneval": 0.30,
        "medmcqa": 0.30,
        "pubmedqa": 0.35,
        "gpqa": 0.25,
        "bigpatent": 0.20,
    }
    assert {name: shipped.benchmarks[name].gates.hard_floor for name in seeds} == seeds


def test_the_shipped_shot_counts_are_the_established_ones(shipped: Workspace) -> None:
    shots = {"mmlu": 5, "humaneval": 0, "medmcqa": 5, "pubmedqa": 0, "gpqa": 0, "bigpatent": 0}
    assert {name: shipped.benchmarks[name].num_fewshot for name in shots} == shots


def test_the_shipped_limits_of_regression_and_deviation_hold_everywhere(shipped: Workspace) -> None:
    found = {
        (thresholds.max_relative_drop, thresholds.max_relative_drop_from_baseline)
        for niche in shipped.niches.values()
        for name in niche.benchmarks.blocking
        for thresholds in [shipped.thresholds(niche, shipped.benchmarks[name])]
    }
    assert found == {(0.10, 0.20)}


def test_every_shipped_blocking_benchmark_that_is_ready_has_a_floor(shipped: Workspace) -> None:
    ready = {name for name, benchmark in shipped.benchmarks.items() if benchmark.status == "ready"}
    assert {name for name in ready if not shipped.benchmarks[name].gates.hard_floor} == set()
    assert {"bigpatent", "uspto_classification", "medmcqa", "pubmedqa", "gpqa", "mmlu"} <= ready
