"""Finds and loads a workspace: `benchmarks/`, `config/specialists/`, `config/pipeline.yaml`."""

from __future__ import annotations

import re
import typing
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pytest_gnus.errors import ConfigError, Problem, did_you_mean, listed
from pytest_gnus.files import file_fault
from pytest_gnus.models.provider import Provider, Providers
from pytest_gnus.models.registry import BUILT_IN
from pytest_gnus.models.spec import parse_problem
from pytest_gnus.renaming import RenamedContent, RenamedKeyWarning, with_new_names
from pytest_gnus.schema import BUILT_IN_THRESHOLDS, NAME, Benchmark, Niche, Pipeline, Thresholds

ModelT = TypeVar("ModelT", bound=BaseModel)

_YamlLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

#: What a file may hold, with everything that its aliases repeat: far above any that a person wrote.
_MOST_VALUES = 100_000
_DEEPEST = 100


@dataclass(frozen=True)
class FunctionReference:
    """lm-eval's ``!function module.name``, not imported until its item runs.

    `directory` is the folder of the YAML file; the module must lie in it.
    """

    name: str
    directory: Path


@dataclass(frozen=True)
class Workspace:
    """A project's benchmarks and niches, validated; `providers` are those that its models are named by.

    `deprecations` has a sentence for each file that uses a key by an old name.
    """

    root: Path
    pipeline: Pipeline = field(default_factory=Pipeline)
    benchmarks: Mapping[str, Benchmark] = field(default_factory=dict)
    benchmark_files: Mapping[str, Path] = field(default_factory=dict)
    niches: Mapping[str, Niche] = field(default_factory=dict)
    niche_files: Mapping[str, Path] = field(default_factory=dict)
    providers: Providers = BUILT_IN
    deprecations: tuple[str, ...] = ()

    @property
    def benchmarks_directory(self) -> Path:
        return self.root / "benchmarks"

    @property
    def data_directory(self) -> Path:
        return self.root / "data" / "benchmarks"

    def thresholds(self, niche: Niche, benchmark: Benchmark) -> Thresholds:
        """What gates a benchmark in a niche: niche over benchmark over pipeline over built in."""
        own = benchmark.gates.over(self.pipeline.gates).over(BUILT_IN_THRESHOLDS)
        return niche.gates.for_benchmark(benchmark.name).over(own)

    def failures_to_block(self, niche: Niche) -> int:
        """On how many builds in a row a trend gate must not hold to block a niche: niche over pipeline."""
        return niche.consecutive_failures_to_block or self.pipeline.consecutive_failures_to_block


def find_root(*starts: Path) -> Path | None:
    """The nearest folder, from each start upwards, that holds `config/specialists/`."""
    for start in starts:
        for folder in (start, *start.parents):
            if (folder / "config" / "specialists").is_dir():
                return folder
    return None


def open_workspace(
    project_root: Path | str | None, asked_by: str, providers: Iterable[Provider] = ()
) -> Workspace:
    """The workspace of a program: the one it names, or the nearest upwards from where it runs.

    Args:
        asked_by: whose `providers` these are, beside the built-in ones.

    Raises:
        ConfigError: there is no workspace, or something in it is wrong.
    """
    root = Path(project_root) if project_root is not None else find_root(Path.cwd())
    if root is None:
        allowed = "a folder with config/specialists/, or one above it"
        raise ConfigError([Problem(str(Path.cwd()), "", "no workspace", allowed)])
    known = BUILT_IN.extended((asked_by, provider) for provider in providers)
    workspace = load_workspace(root.resolve(), known)
    for text in workspace.deprecations:
        warnings.warn(text, RenamedKeyWarning, stacklevel=3)
    return workspace


def load_workspace(root: Path, providers: Providers = BUILT_IN) -> Workspace:
    """Load and validate everything below `root`.

    Raises:
        ConfigError: with every problem of every file.
    """
    problems: list[Problem] = []
    reader = _Reader(root, problems)
    pipeline = reader.read(root / "config" / "pipeline.yaml", Pipeline, optional=True) or Pipeline()
    benchmarks, files = reader.read_named(root / "benchmarks", Benchmark, "name")
    niches, niche_files = reader.read_named(root / "config" / "specialists", Niche, "niche")
    problems.extend(_pipeline_problems(pipeline, benchmarks.values()))
    for name, niche in niches.items():
        where = reader.relative(niche_files[name])
        problems.extend(_niche_problems(niche, where, benchmarks, root))
        problems.extend(_model_problems(niche, where, providers))
    if problems:
        raise ConfigError(problems)
    return Workspace(
        root, pipeline, benchmarks, files, niches, niche_files, providers, tuple(reader.deprecations)
    )


def read_file(root: Path, path: Path, model: type[ModelT]) -> tuple[ModelT, Sequence[str]]:
    """One YAML file of the workspace in its validated form, and what to say of old names in it.

    Raises:
        ConfigError: with every problem of the file.
    """
    problems: list[Problem] = []
    reader = _Reader(root, problems)
    found = reader.read(path, model)
    if found is None:
        raise ConfigError(problems)
    return found, reader.deprecations


class _Reader:
    """Reads YAML files into models and collects what is wrong with them."""

    def __init__(self, root: Path, problems: list[Problem]) -> None:
        self._root = root
        self._problems = problems
        self.deprecations: list[str] = []

    def relative(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix() if path.is_relative_to(self._root) else str(path)

    def read(self, path: Path, model: type[ModelT], *, optional: bool = False) -> ModelT | None:
        where = self.relative(path)
        if optional and not path.exists() and not path.is_symlink():
            return None
        fault = file_fault(path)
        if fault is not None:
            self._problems.append(Problem(where, "", fault, "a YAML file"))
            return None
        try:
            content = load_yaml(path)
        except Exception as error:  # noqa: BLE001 - PyYAML's constructors raise what a scalar leads to
            self._problems.append(Problem(where, "", _yaml_fault(error), "a YAML mapping"))
            return None
        if content is None and optional:
            return model()
        if not isinstance(content, dict):
            self._problems.append(Problem(where, "", _shown(content), "a YAML mapping"))
            return None
        renamed = with_new_names(where, content, model)
        self._problems.extend(renamed.problems)
        told = renamed.told(where)
        self.deprecations += [told] if told else []
        try:
            return model.model_validate(renamed.content)
        except ValidationError as error:
            self._problems.extend(_merged(_problem(where, model, fault, renamed) for fault in error.errors()))
            return None

    def read_named(
        self, folder: Path, model: type[ModelT], key: str
    ) -> tuple[dict[str, ModelT], dict[str, Path]]:
        """All YAML files of a folder by the name that each gives itself, which must be its file's."""
        found: dict[str, ModelT] = {}
        files: dict[str, Path] = {}
        for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
            entry = self.read(path, model)
            if entry is None:
                continue
            name = getattr(entry, key)
            where = self.relative(path)
            if name in found:
                other = self.relative(files[name])
                self._problems.append(
                    Problem(where, key, f"duplicate name {name!r}", f"a name not used by {other} already")
                )
                continue
            if name != path.stem:
                self._problems.append(
                    Problem(where, key, repr(name), repr(path.stem), "The name must be that of the file.")
                )
            found[name] = entry
            files[name] = path
        return found, files


def load_yaml(path: Path) -> Any:
    """`yaml.safe_load`, with ``!function`` kept as a `FunctionReference` and duplicate keys refused."""

    class Loader(_YamlLoader):  # type: ignore[misc]
        def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
            try:
                return super().construct_object(node, deep=deep)
            except (yaml.YAMLError, RecursionError):
                raise
            except Exception as error:  # what a scalar leads to
                kind = node.tag.rpartition(":")[2]
                found = f"{_shown(node.value)}, which is no {kind}"
                raise _ValueFault(None, None, found, node.start_mark) from error

    def function(loader: Any, node: yaml.ScalarNode) -> FunctionReference:
        return FunctionReference(str(loader.construct_scalar(node)), path.parent)

    def mapping(loader: Any, node: yaml.MappingNode) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue  # a key beside `<<` overrides what is merged; it stands once
            key = loader.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise _ValueFault(None, None, "a list or a mapping as a key", key_node.start_mark)
            if key in seen:
                raise _ValueFault(None, None, f"the key {key!r} stands twice", key_node.start_mark)
            seen.add(key)
        loader.flatten_mapping(node)
        return dict(loader.construct_pairs(node, deep=True))

    Loader.add_constructor("!function", function)
    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    content = yaml.load(path.read_text(encoding="utf-8-sig"), Loader=Loader)
    size = _size(content, {}, 0)
    if size > _MOST_VALUES:
        raise ValueError(f"aliases that repeat each other, {size} values when written out")
    return content


def _size(value: Any, known: dict[int, int], depth: int) -> int:
    """How many values there are, those that aliases repeat counted each time."""
    if not isinstance(value, (dict, list)):
        return 1
    if depth > _DEEPEST:
        raise ValueError(f"values nested more than {_DEEPEST} deep")
    if id(value) not in known:
        inner = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_size(entry, known, depth + 1) for entry in inner)
    return known[id(value)]


def _niche_problems(
    niche: Niche, where: str, benchmarks: Mapping[str, Benchmark], root: Path
) -> Iterator[Problem]:
    """What only the niche's file and the benchmarks together show."""
    seen: set[str] = set()
    for kind in ("blocking", "diagnostic"):
        for index, name in enumerate(getattr(niche.benchmarks, kind)):
            key = f"benchmarks.{kind}[{index}]"
            if name in seen:
                yield Problem(where, key, f"duplicate name {name!r}", "each benchmark once")
            elif not re.match(NAME, name):
                hint = f"Write {stem!r}." if (stem := _stem(name)) in benchmarks else ""
                yield Problem(where, key, repr(name), "the name of a benchmark, which is no path", hint)
            elif name not in benchmarks and not _benchmark_file_exists(root, name):
                hint = did_you_mean(name, benchmarks) or f"Write benchmarks/{name}.yaml."
                yield Problem(where, key, f"{name!r}, which has no file", listed(sorted(benchmarks)), hint)
            seen.add(name)
    for name in niche.gates.per_benchmark:
        if name not in seen:
            key = f"gates.per_benchmark.{name}"
            allowed = f"a benchmark of this niche: {listed(sorted(seen))}"
            yield Problem(where, key, repr(name), allowed, did_you_mean(name, seen))
    known = [benchmarks[name] for name in sorted(seen) if name in benchmarks]
    yield from _floor_problems(niche, where, known)
    yield from _ceiling_problems(niche, where, known)


def _stem(name: str) -> str:
    """The name of a benchmark that was named by a path."""
    return PurePath(name).name.removesuffix(".yaml").removesuffix(".yml")


def _benchmark_file_exists(root: Path, name: str) -> bool:
    """A file that is there but broken has been reported already."""
    return any((root / "benchmarks" / f"{name}{suffix}").exists() for suffix in (".yaml", ".yml"))


def _model_problems(niche: Niche, where: str, providers: Providers) -> Iterator[Problem]:
    for variant in ("quantized", "reference", "baseline"):
        text = getattr(niche.model, variant, None)
        if text is None:
            continue
        problem = parse_problem(text, where, f"model.{variant}", providers)
        if problem is not None:
            yield problem


def _floor_problems(niche: Niche, where: str, benchmarks: typing.Iterable[Benchmark]) -> Iterator[Problem]:
    """Floors and ceilings above 1 for benchmarks whose metric does not go there: percentages by mistake."""
    for benchmark in benchmarks:
        if not benchmark.has_unit_metric:
            continue
        single = niche.gates.per_benchmark.get(benchmark.name, Thresholds())
        for prefix, thresholds in (
            ("gates", niche.gates),
            (f"gates.per_benchmark.{benchmark.name}", single),
        ):
            for key, value in thresholds.limits_above_one():
                allowed = f"0 to 1, as the metric of {benchmark.name}"
                yield Problem(where, f"{prefix}.{key}", str(value), allowed)


def _ceiling_problems(niche: Niche, where: str, benchmarks: typing.Iterable[Benchmark]) -> Iterator[Problem]:
    """Ceilings where a higher score is better, and floors beside a ceiling, which would count for nothing."""
    for benchmark in benchmarks:
        single = niche.gates.per_benchmark.get(benchmark.name, Thresholds())
        prefix = f"gates.per_benchmark.{benchmark.name}"
        for place, thresholds in (("gates", niche.gates), (prefix, single)):
            yield from _ceilings_of(benchmark, thresholds, where, place)
        ceiling = single.hard_ceiling if single.hard_ceiling is not None else benchmark.gates.hard_ceiling
        if single.hard_floor is not None and ceiling is not None:
            told = f"a floor for {benchmark.name}, which has a ceiling"
            yield Problem(where, f"{prefix}.hard_floor", told, "hard_ceiling", "Write hard_ceiling.")


def _ceilings_of(benchmark: Benchmark, thresholds: Thresholds, where: str, place: str) -> Iterator[Problem]:
    """The ceilings that a benchmark cannot have."""
    for key in thresholds.ceilings if benchmark.knows_higher_is_better else ():
        floor = key.replace("ceiling", "floor")
        told = f"a ceiling for {benchmark.name}, of which a higher score is better"
        yield Problem(where, f"{place}.{key}", told, floor, f"Write {floor}.")


def _pipeline_problems(pipeline: Pipeline, benchmarks: Iterable[Benchmark]) -> Iterator[Problem]:
    """What only `config/pipeline.yaml` and the benchmarks together show: the first of its kind."""
    for benchmark in benchmarks:
        found = list(_ceilings_of(benchmark, pipeline.gates, "config/pipeline.yaml", "gates"))
        if found:
            yield from found
            return


def _merged(problems: typing.Iterable[Problem]) -> list[Problem]:
    """One problem per key: a union of types reports each type it tried."""
    by_key: dict[tuple[str, str], Problem] = {}
    for problem in problems:
        earlier = by_key.get((problem.key, problem.found))
        by_key[problem.key, problem.found] = (
            replace(problem, allowed=f"{earlier.allowed}, or {problem.allowed}") if earlier else problem
        )
    return list(by_key.values())


def _problem(where: str, model: type[BaseModel], fault: ErrorDetails, renamed: RenamedContent) -> Problem:
    """One fault of pydantic's as a sentence in the terms of the file."""
    location = list(fault["loc"])
    if fault["type"] != "extra_forbidden" and len(location) > 1 and _is_union_tag(location[-1]):
        location.pop()
    key = _key_path(renamed.as_written(location))
    if fault["type"] == "extra_forbidden":
        known = _fields_at(model, location[:-1])
        return Problem(where, key, "an unknown key", listed(known), did_you_mean(str(location[-1]), known))
    if fault["type"] == "missing":
        return Problem(where, key, "nothing", "this key is required")
    if fault["type"] == "value_error":
        return Problem(where, key, str(fault["ctx"]["error"]), "see the README, section Configuration")
    hint = ""
    context = fault.get("ctx", {})
    if fault["type"] == "literal_error":
        choices = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        hint = did_you_mean(str(fault["input"]), choices)
    return Problem(where, key, _shown(fault["input"]), _allowed(fault), hint)


def _is_union_tag(part: str | int) -> bool:
    """Pydantic adds the tried type of a union to a location (`task.str`); a file has no such key."""
    return isinstance(part, str) and (part in {"str", "bool"} or part.startswith("dict["))


def _allowed(fault: ErrorDetails) -> str:
    message = fault["msg"].removeprefix("Input should be ")
    return message[:1].lower() + message[1:]


def _fields_at(model: type[BaseModel], location: list[str | int]) -> list[str]:
    """The keys that a model allows at a location inside it."""
    current: type[BaseModel] | None = model
    for part in location:
        if current is None:
            return []
        info = current.model_fields.get(str(part))
        current = _model_in(info.annotation) if info is not None else current
    return sorted(current.model_fields) if current is not None else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in typing.get_args(annotation):
        found = _model_in(argument)
        if found is not None:
            return found
    return None


def _key_path(location: list[str | int]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _yaml_fault(error: Exception) -> str:
    """What is wrong with a YAML file, to stand after the word "found"."""
    if isinstance(error, UnicodeDecodeError):
        return f"bytes that are not UTF-8, from byte {error.start} on"
    if isinstance(error, RecursionError):
        return f"values nested more than {_DEEPEST} deep"
    if isinstance(error, yaml.reader.ReaderError):
        return f"a character that YAML does not allow, at position {error.position}"
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", None) or error).removeprefix("found ")
    place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
    known = isinstance(error, _ValueFault) or not isinstance(error, yaml.YAMLError)
    return f"{problem}{place}" if known else f"broken YAML: {problem}{place}"


class _ValueFault(yaml.constructor.ConstructorError):
    """A key that stands twice or can be none, or a scalar that is not what it is said to be."""
