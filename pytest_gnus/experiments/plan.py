"""What an experiment measures: one `ExperimentItem` per round, model and benchmark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from pytest_gnus.errors import ConfigError, Problem, did_you_mean, listed
from pytest_gnus.experiments.labels import model_labels
from pytest_gnus.experiments.request import ExperimentRequest
from pytest_gnus.models import spec as model_names
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.plan import CANONICAL_DECODING, BenchmarkItem, Planner, Request, ability_problems
from pytest_gnus.schema import Benchmark, DiagnosticOverrides, Mode, Niche, PromptBundle
from pytest_gnus.settings import Settings
from pytest_gnus.workspace import Workspace, read_file

PROMPTS = Path("config") / "prompts"
MOST_ROUNDS = 1000
NO_MODEL = "ExperimentRequest requires at least one model identifier."

_PROVIDER = re.compile(r"^[A-Za-z][A-Za-z0-9_]+:")


@dataclass(frozen=True)
class ExperimentItem(BenchmarkItem):
    """One benchmark on one model in one round. It is measured as a benchmark item is, and never gated.

    `blocking` says that the experiment is not whole without it: it was asked for by name, or blocks its
    niche. `niche` is empty where the experiment names benchmarks only. `variant` says nothing here.
    """

    model_identifier: str = ""
    label: str = ""
    round_index: int = 0
    rounds: int = 1

    @property
    def name(self) -> str:
        parts = [*([self.niche] if self.niche else []), self.label, self.round_name]
        return f"{self.benchmark.name}[{'-'.join(parts)}]"

    @property
    def round_name(self) -> str:
        """`round0`; with as many digits as keep `-k round1` from choosing `round10` too."""
        return f"round{self.round_index:0{len(str(self.rounds - 1))}d}"

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.niche, self.benchmark.name, f"{self.label}-{self.round_name}")

    @property
    def not_gated_because(self) -> str | None:
        return "an experiment compares and gates nothing"


@dataclass(frozen=True)
class ExperimentPlan:
    """An experiment with everything resolved. `items` are in the order in which they run.

    `deprecations` has a sentence for each file that uses a key by an old name.
    """

    name: str
    benchmark_file: str
    output_file: Path | None
    rounds: int
    models: tuple[str, ...]
    niches: tuple[str, ...]
    mode: Mode
    items: tuple[ExperimentItem, ...]
    prompt_bundle: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    deprecations: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """How everything is measured, for the report: what is not canonical stands here."""
        return {
            "mode": self.mode,
            "source": self.items[0].request.source if self.items else None,
            "limit": self.items[0].run_limit if self.items else None,
            "prompt_bundle": self.prompt_bundle,
            "changes": dict(self.changes),
        }

    @property
    def benchmarks(self) -> list[str]:
        """Distinct names in first-seen order."""
        return list(dict.fromkeys(item.benchmark.name for item in self.items))

    def first_round(self) -> list[ExperimentItem]:
        """One item for each benchmark and model, all models of a benchmark together."""
        first = [item for item in self.items if item.round_index == 0]
        places: dict[tuple[str, str], int] = {}
        for item in first:
            places.setdefault((item.niche, item.benchmark.name), len(places))
        return sorted(first, key=lambda item: places[item.niche, item.benchmark.name])


def plan(
    workspace: Workspace, request: ExperimentRequest, settings: Settings, directory: Path
) -> ExperimentPlan:
    """Resolve a request. Relative directories of models are relative to `directory`.

    Rounds stand outermost. Within a round each model's items stand together, so that a round loads a model
    once at most, and not at all where the round before has left it in memory.

    Raises:
        ValueError: no model identifier.
        ConfigError: with every problem of the request.
    """
    if not request.model_identifiers:
        raise ValueError(NO_MODEL)
    planning = _Planning(workspace, request, settings, directory)
    made = planning.plan()
    if problems := planning.problems or list(ability_problems(made.items, workspace.providers)):
        raise ConfigError(problems)
    return made


class _Planning:
    """Resolves one request and collects what is wrong with it."""

    def __init__(
        self, workspace: Workspace, request: ExperimentRequest, settings: Settings, directory: Path
    ) -> None:
        self._workspace = workspace
        self._request = request
        self._settings = settings
        self._directory = directory
        self._planner = Planner(workspace, settings, directory)
        self.problems: list[Problem] = []
        self._deprecations = list(workspace.deprecations)

    def plan(self) -> ExperimentPlan:
        niches, names = self._benchmark_file()
        chosen = list(self._benchmarks(niches, names))
        models = self._models()
        changes = self._changes()
        rounds = self._request.rounds
        if rounds > MOST_ROUNDS:
            self._problem("repeat", str(rounds), f"at most {MOST_ROUNDS} rounds")
            rounds = 1  # an item for each of them would fill the memory
        return ExperimentPlan(
            name=self._request.name,
            benchmark_file=self._shown_file(niches),
            output_file=Path(self._request.output_file) if self._request.output_file else None,
            rounds=rounds,
            models=tuple(self._request.model_identifiers),
            niches=tuple(niche.niche for niche in niches),
            mode="diagnostic" if changes is not None else self._settings.mode,
            prompt_bundle=self._request.prompt_bundle_name,
            changes={name: getattr(changes, name) for name in sorted(changes.model_fields_set)}
            if changes is not None
            else {},
            items=tuple(
                self._item(niche, benchmark, required, model, round_index, changes)
                for round_index in range(rounds)
                for model in models
                for niche, benchmark, required in chosen
            ),
            deprecations=tuple(self._deprecations),
        )

    def _problem(self, key: str, found: str, allowed: str, hint: str = "", index: int | None = None) -> None:
        where, shown = self._request.place(key)
        at = f"{shown}[{index}]" if shown and index is not None else shown
        self.problems.append(Problem(where, at, found, allowed, hint))

    # --- which benchmarks ---

    def _benchmark_file(self) -> tuple[list[Niche], Sequence[str]]:
        """The niches, and the benchmarks asked for by name; a file given for them says one or the other."""
        niches, names = list(self._request.niches), list(self._request.benchmark_names)
        if self._request.benchmark_file is not None:
            path = (self._workspace.root / Path(self._request.benchmark_file)).resolve()
            of_niches = {file.resolve(): name for name, file in self._workspace.niche_files.items()}
            of_benchmarks = {file.resolve(): name for name, file in self._workspace.benchmark_files.items()}
            if path in of_niches:
                niches.append(of_niches[path])
            elif path in of_benchmarks:
                names = names or [of_benchmarks[path]]
            else:
                allowed = "a file config/specialists/<niche>.yaml or benchmarks/<name>.yaml"
                self._problem("benchmark_file", str(self._request.benchmark_file), allowed)
        known = self._workspace.niches
        for name in niches:
            if name not in known:
                self._problem("niche", repr(name), listed(sorted(known)), did_you_mean(name, known))
        return [known[name] for name in dict.fromkeys(niches) if name in known], list(dict.fromkeys(names))

    def _benchmarks(
        self, niches: Sequence[Niche], names: Sequence[str]
    ) -> Iterator[tuple[Niche | None, Benchmark, bool]]:
        """Niche, benchmark, and whether the experiment is not whole without it."""
        self._check_names(niches, names)
        if not niches:
            for name in names:
                if name in self._workspace.benchmarks:
                    yield None, self._workspace.benchmarks[name], True
        for niche in niches:
            own = _names_of(niche)
            for name in names or own:
                if name in own:
                    required = name in names or name in niche.benchmarks.blocking
                    yield niche, self._workspace.benchmarks[name], required

    def _check_names(self, niches: Sequence[Niche], names: Sequence[str]) -> None:
        known = sorted(self._workspace.benchmarks)
        of_niches = [name for niche in niches for name in _names_of(niche)]
        if not names and not of_niches and not self.problems:
            hint = "Name benchmarks, or a niche for all of its benchmarks (--niche=NAME)."
            self._problem("benchmarks", "nothing", listed(known), hint)
        allowed = of_niches if niches else known
        for index, name in enumerate(names):
            if name not in allowed:
                hint = did_you_mean(name, allowed)
                if not hint and name in known:
                    hint = f"It is no benchmark of {listed(n.niche for n in niches)}; leave the niche out."
                self._problem("benchmarks", repr(name), listed(allowed), hint, index)

    def _shown_file(self, niches: Sequence[Niche]) -> str:
        """Where the benchmarks come from, relative to the workspace where it lies there."""
        root = self._workspace.root
        file = self._request.experiment_file or self._request.benchmark_file
        if file is not None:
            path = root / Path(file)
            return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
        files = [self._workspace.niche_files[niche.niche].relative_to(root).as_posix() for niche in niches]
        return ", ".join(files) or "benchmarks"

    # --- which models ---

    def _models(self) -> list[tuple[str, str, ModelSpec]]:
        """Each model as it was given, its label, and its spec."""
        specs: dict[ModelSpec, int] = {}
        found: list[tuple[str, str, ModelSpec]] = []
        qualified = [self._qualified(text) for text in self._request.model_identifiers]
        labels = model_labels(qualified)
        for index, text in enumerate(qualified):
            where, key = self._request.place("models")
            place = f"{key}[{index}]" if key else ""
            problem = model_names.parse_problem(text, where, place, self._workspace.providers)
            if problem is not None:
                self.problems.append(problem)
                continue
            spec = model_names.parse(text, self._directory, providers=self._workspace.providers)
            if spec in specs:
                self._problem("models", f"{text!r} a second time", "each model once", index=index)
                continue
            specs[spec] = index
            found.append((self._request.model_identifiers[index], labels[index], spec))
        return found

    def _qualified(self, text: str) -> str:
        return text if _PROVIDER.match(text) else f"{self._request.default_provider}:{text}"

    # --- how they are measured ---

    def _changes(self) -> DiagnosticOverrides | None:
        """What the prompt bundle and, over it, the overrides change; None where they change nothing."""
        bundle = self._bundle()
        overrides = self._overrides()
        changes = {name: getattr(overrides, name) for name in overrides.model_fields_set}
        if bundle is not None:
            asked = {name: getattr(bundle, name) for name in ("system_instruction", "chat_template")}
            changes = {name: value for name, value in asked.items() if value is not None} | changes
            generation = {**bundle.generation_kwargs, **changes.get("generation_kwargs", {})}
            changes |= {"generation_kwargs": generation} if generation else {}
        return DiagnosticOverrides.model_construct(set(changes), **changes) if changes else None

    def _bundle(self) -> PromptBundle | None:
        name = self._request.prompt_bundle_name
        if name is None:
            return None
        folder = self._workspace.root / PROMPTS
        there = {file.stem: file for file in sorted(folder.glob("*.y*ml"))}
        if name not in there:
            hint = did_you_mean(name, there) or f"Write {PROMPTS.as_posix()}/{name}.yaml."
            self._problem("prompt_bundle", repr(name), listed(there), hint)
            return None
        try:
            bundle, deprecations = read_file(self._workspace.root, there[name], PromptBundle)
        except ConfigError as error:
            self.problems.extend(error.problems)
            return None
        self._deprecations += deprecations
        if bundle.name != name:
            where = (PROMPTS / there[name].name).as_posix()
            hint = "The name must be that of the file."
            self.problems.append(Problem(where, "name", repr(bundle.name), repr(name), hint))
        return bundle

    def _overrides(self) -> DiagnosticOverrides:
        given = self._request.overrides
        if isinstance(given, DiagnosticOverrides):
            return given
        try:
            return DiagnosticOverrides.model_validate(dict(given))
        except ValidationError as error:
            known = sorted(DiagnosticOverrides.model_fields)
            for fault in error.errors():
                key = ".".join(str(part) for part in ("overrides", *fault["loc"]))
                unknown = fault["type"] == "extra_forbidden"
                found = "an unknown key" if unknown else repr(fault["input"])
                hint = did_you_mean(str(fault["loc"][-1]), known) if unknown else ""
                allowed = listed(known) if unknown else fault["msg"].removeprefix("Input should be ")
                self._problem(key, found, allowed, hint)
            return DiagnosticOverrides()

    def _item(
        self,
        niche: Niche | None,
        benchmark: Benchmark,
        required: bool,
        model: tuple[str, str, ModelSpec],
        round_index: int,
        changes: DiagnosticOverrides | None,
    ) -> ExperimentItem:
        identifier, label, spec = model
        pipeline = self._workspace.pipeline
        return ExperimentItem(
            niche=niche.niche if niche else "",
            benchmark=benchmark,
            variant="quantized",
            blocking=required,
            model=spec,
            thresholds=benchmark.gates,
            request=in_round(self._measured(benchmark, changes), round_index),
            run_limit=self._settings.limit,
            minimum_pairs=(niche and niche.minimum_pairs) or pipeline.minimum_pairs,
            model_identifier=identifier,
            label=label,
            round_index=round_index,
            rounds=self._request.rounds,
        )

    def _measured(self, benchmark: Benchmark, changes: DiagnosticOverrides | None) -> Request:
        """Canonical settings, or in diagnostic mode the benchmark's own, with the experiment's over them."""
        diagnostic = self._settings.mode == "diagnostic"
        base = benchmark.diagnostic if diagnostic else DiagnosticOverrides()
        if changes is None:
            return self._planner.request(benchmark, self._settings.mode, base if diagnostic else None)
        values: dict[str, Any] = {name: getattr(base, name) for name in base.model_fields_set}
        values |= {name: getattr(changes, name) for name in changes.model_fields_set}
        values["task"] = {**base.task, **changes.task}
        values["generation_kwargs"] = decoding_with(
            changes.generation_kwargs, base.generation_kwargs if diagnostic else CANONICAL_DECODING
        )
        merged = DiagnosticOverrides.model_construct(set(values), **values)
        return self._planner.request(benchmark, "diagnostic", merged)


def _names_of(niche: Niche) -> list[str]:
    return [*niche.benchmarks.blocking, *niche.benchmarks.diagnostic]


def decoding_with(changes: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Decoding with changes over it. A temperature alone samples, as does `do_sample` alone."""
    merged = {**base, **changes}
    if changes.get("do_sample") is None and _above_zero(changes.get("temperature")):
        merged["do_sample"] = True
    if changes.get("do_sample") is True and "temperature" not in changes:
        merged["temperature"] = base.get("temperature") or 1.0
    return merged


def samples(generation: Mapping[str, Any]) -> bool:
    """Whether decoding with these settings draws at random; a group's may be given task by task."""
    if any(samples(value) for value in generation.values() if isinstance(value, Mapping)):
        return True
    chosen = generation.get("do_sample")
    return _above_zero(generation.get("temperature")) and chosen is not False


def in_round(request: Request, round_index: int) -> Request:
    """A request with the seeds of a round; round 0 has the canonical ones.

    The few-shot examples are drawn anew, and so is what is sampled. The documents stay what they are: a task
    that shuffles the choices of its questions must not do so differently in each round.
    """
    return replace(
        request,
        fewshot_seed=request.fewshot_seed + round_index,
        sampling_seed=request.sampling_seed + round_index,
        documents_seed=request.fewshot_seed,
    )


def _above_zero(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and cast("float", value) > 0
