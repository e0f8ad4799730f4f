"""What a run is to measure: one `BenchmarkItem` per benchmark, niche and variant."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast

from pytest_gnus.errors import Problem, listed
from pytest_gnus.harness import SEEDS
from pytest_gnus.models import spec as model_names
from pytest_gnus.models.provider import Providers
from pytest_gnus.models.registry import local_directory
from pytest_gnus.models.spec import SGFP4_MANIFEST, ModelSpec, is_hub_id
from pytest_gnus.schema import (
    Benchmark,
    Dataset,
    DiagnosticOverrides,
    Mode,
    ModelEntry,
    Niche,
    RegressionPolicy,
    Source,
    Thresholds,
    Variant,
)
from pytest_gnus.settings import Settings
from pytest_gnus.tasks.local_data import LocalData
from pytest_gnus.workspace import Workspace

#: lm-eval's own default; canonical runs are frozen to it.
FEWSHOT_SEED = 1234
#: Canonical decoding (D-03).
CANONICAL_DECODING: Mapping[str, Any] = {"do_sample": False, "temperature": 0.0}
#: The order within a niche: each variant before those that are compared with it.
VARIANT_ORDER: tuple[Variant, ...] = ("baseline", "reference", "quantized")


@dataclass(frozen=True)
class Request:
    """How an item is measured, once all levels of configuration have been resolved.

    `documents_seed` is what a task's own random choices draw from while its documents are made; None for
    the few-shot seed.
    """

    task: str | Mapping[str, Any]
    mode: Mode
    source: Source
    num_fewshot: int | None
    fewshot_seed: int
    chat_template: bool | str
    system_instruction: str | None
    generation_kwargs: Mapping[str, Any]
    task_overrides: Mapping[str, Any]
    revision: str | None
    force_download: bool
    local: LocalData | None
    subtasks: tuple[str, ...]
    limit: int | None
    sampling_seed: int = SEEDS["torch_random_seed"]
    documents_seed: int | None = None

    @property
    def output_type(self) -> str | None:
        """lm-eval's output type, where the benchmark's file says it: its task is a mapping."""
        if isinstance(self.task, str) or not self.task:
            return None
        return str({"output_type": "generate_until", **self.task, **self.task_overrides}["output_type"])


@dataclass(frozen=True)
class Weights:
    """The model of a variant, and the file that stands for its manifest, if there is one."""

    model: ModelSpec
    manifest: Path | None = None


@dataclass(frozen=True)
class BenchmarkItem:
    """One benchmark of one niche on one variant of its model.

    `counterparts` are the weights of the niche's variants that an item may be compared with.
    """

    niche: str
    benchmark: Benchmark
    variant: Variant
    blocking: bool
    model: ModelSpec
    thresholds: Thresholds
    request: Request
    run_limit: int | None = None
    model_version: str | None = None
    model_manifest: Path | None = None
    sgfp4_manifest: Path | None = None
    regression_policy: RegressionPolicy = "threshold"
    minimum_pairs: int = 30
    failures_to_block: int = 3
    counterparts: Mapping[Variant, Weights] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.benchmark.name}[{self.niche}-{self.variant}]"

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.niche, self.benchmark.name, self.variant)

    @property
    def is_gated(self) -> bool:
        """Whether gates that do not hold fail this item: blocking, canonical, and over all documents."""
        return self.blocking and self.not_gated_because is None

    @property
    def not_gated_because(self) -> str | None:
        """Why the whole run gates nothing, if it does not."""
        return not_gated_because(self.request.mode, self.run_limit)


def not_gated_because(mode: Mode, run_limit: int | None) -> str | None:
    """Why a run with this mode and limit gates nothing, if it does not."""
    if mode == "diagnostic":
        return "a diagnostic run is never gated (D-03)"
    if run_limit is not None:
        return f"limited to {run_limit} documents by --gnus-limit: never gated as canonical"
    return None


@dataclass(frozen=True)
class ArtifactItem:
    """The gates of a niche's SGFP4 artifact itself, before anything is run on it.

    `limits` are by the name of the gate; None where it is turned off.
    """

    niche: str
    model: ModelSpec
    reference: ModelSpec | None
    limits: Mapping[str, float | None]
    not_gated_because: str | None = None

    variant: ClassVar[Variant] = "quantized"
    benchmark: ClassVar[str] = "sgfp4"

    @property
    def is_gated(self) -> bool:
        """Whether gates that do not hold fail this item."""
        return self.not_gated_because is None

    @property
    def name(self) -> str:
        return f"{self.benchmark}[{self.niche}-{self.variant}]"


@dataclass(frozen=True)
class Planner:
    """Makes items from a workspace and a run's settings. `invocation_directory` anchors `--gnus-model`."""

    workspace: Workspace
    settings: Settings
    invocation_directory: Path

    def items(self) -> list[BenchmarkItem]:
        """Every item of the selected niches, in the order of niches and variants."""
        return [
            self._item(niche, name, variant, blocking)
            for niche in self.niches()
            for variant in self._variants(niche)
            for kind, blocking in (("blocking", True), ("diagnostic", False))
            for name in getattr(niche.benchmarks, kind)
        ]

    def artifacts(self) -> list[ArtifactItem]:
        """One item for each niche whose quantized weights are in SGFP4, or, on the hub, may be."""
        found = (self._artifact(niche) for niche in self.niches() if "quantized" in self._variants(niche))
        return [artifact for artifact in found if artifact is not None]

    def _artifact(self, niche: Niche) -> ArtifactItem | None:
        models = self._models(niche)
        if "quantized" not in models or not _may_be_sgfp4(models["quantized"]):
            return None
        return ArtifactItem(
            niche.niche,
            models["quantized"],
            models.get("reference"),
            niche.sgfp4.over(self.workspace.pipeline.sgfp4),
            not_gated_because(self.settings.mode, self.settings.limit),
        )

    def required(self, niche: Niche) -> list[ArtifactItem | BenchmarkItem]:
        """What a niche must pass to be promoted, whether or not this run was asked for all of it.

        That is its artifact, and its blocking benchmarks on the reference and on the quantized weights.
        """
        artifact = self._artifact(niche)
        return [
            *([artifact] if artifact is not None else []),
            *(
                self._item(niche, name, variant, blocking=True)
                for variant in VARIANT_ORDER
                if variant != "baseline" and variant in self._models(niche)
                for name in niche.benchmarks.blocking
            ),
        ]

    def without_artifact(self) -> list[str]:
        """Niches whose quantized weights are measured but are not in SGFP4."""
        planned = {artifact.niche for artifact in self.artifacts()}
        return [
            niche.niche
            for niche in self.niches()
            if "quantized" in self._variants(niche) and niche.niche not in planned
        ]

    def niches(self) -> list[Niche]:
        return [self.workspace.niches[name] for name in self.settings.niches]

    def problems(self) -> list[Problem]:
        """Variants without a model, and benchmarks whose model cannot give what they need."""
        return self._missing_variants() or list(ability_problems(self.items(), self.workspace.providers))

    def _missing_variants(self) -> list[Problem]:
        """Variants that were asked for by name and that a selected niche has no model for."""
        if self.settings.variants is None or self.settings.variant == "all":
            return []
        return [
            Problem(
                f"--gnus-variant={self.settings.variant}",
                "",
                f"no model.{variant} in config/specialists/{niche.niche}.yaml",
                listed(self._models(niche)),
                f"Name the {variant} weights of {niche.niche} there.",
            )
            for niche in self.niches()
            for variant in self.settings.variants
            if variant not in self._models(niche)
        ]

    def _variants(self, niche: Niche) -> list[Variant]:
        models = self._models(niche)
        asked = self.settings.variants
        if asked is None:
            asked = tuple(v for v in VARIANT_ORDER if v != "baseline" and v in models) or tuple(models)
        return [variant for variant in VARIANT_ORDER if variant in asked and variant in models]

    def _models(self, niche: Niche) -> dict[Variant, ModelSpec]:
        """The weights of each variant that a niche has."""
        root = self.workspace.root
        entry = niche.model or ModelEntry()
        if not (entry.quantized or entry.reference or entry.baseline):
            entry = entry.model_copy(update={"quantized": f"models/specialists_mlx/{niche.niche}"})
        models: dict[Variant, ModelSpec] = {}
        for variant in VARIANT_ORDER:
            text = getattr(entry, variant)
            if text is not None:
                # The adapter is what makes the specialist; the baseline is the backbone without it.
                adapter = entry.adapter if variant != "baseline" else None
                models[variant] = model_names.parse(text, root, adapter, self.workspace.providers)
        if self.settings.model is not None:
            models["quantized"] = model_names.parse(
                self.settings.model, self.invocation_directory, providers=self.workspace.providers
            )
        return models

    def _item(self, niche: Niche, name: str, variant: Variant, blocking: bool) -> BenchmarkItem:
        benchmark = self.workspace.benchmarks[name]
        entry = niche.model or ModelEntry()
        replaced = variant == "quantized" and self.settings.model is not None
        specialist = variant != "baseline" and not replaced
        models = self._models(niche)
        manifest = self._path(entry.model_manifest)
        return BenchmarkItem(
            niche=niche.niche,
            benchmark=benchmark,
            variant=variant,
            blocking=blocking,
            model=models[variant],
            thresholds=self.workspace.thresholds(niche, benchmark),
            request=self._request(benchmark),
            run_limit=self.settings.limit,
            model_version=entry.version if specialist else None,
            model_manifest=manifest if specialist else None,
            sgfp4_manifest=self._path(entry.sgfp4_manifest)
            if specialist and variant == "quantized"
            else None,
            regression_policy=niche.regression_policy or self.workspace.pipeline.regression_policy,
            minimum_pairs=niche.minimum_pairs or self.workspace.pipeline.minimum_pairs,
            failures_to_block=self.workspace.failures_to_block(niche),
            counterparts={
                other: Weights(model, manifest if other == "reference" else None)
                for other, model in models.items()
                if other != "quantized"
            },
        )

    def _path(self, text: str | None) -> Path | None:
        return self.workspace.root / Path(text).expanduser() if text else None

    def _request(self, benchmark: Benchmark) -> Request:
        diagnostic = self.settings.mode == "diagnostic"
        return self.request(benchmark, self.settings.mode, benchmark.diagnostic if diagnostic else None)

    def request(self, benchmark: Benchmark, mode: Mode, changes: DiagnosticOverrides | None) -> Request:
        """How a benchmark is measured with these changes to its canonical settings."""
        settings = self.settings
        source = settings.source or self.workspace.pipeline.source
        changed = (changes and changes.dataset) or Dataset()
        dataset = Dataset(
            revision=_first(changed.revision, benchmark.dataset.revision),
            local=_first(changed.local, benchmark.dataset.local),
        )
        chat_template = changes.chat_template if changes else None
        return Request(
            task=cast("str | Mapping[str, Any]", benchmark.task or ""),
            mode=mode,
            source=source,
            num_fewshot=_first(changes and changes.num_fewshot, benchmark.num_fewshot),
            fewshot_seed=cast("int", _first(changes and changes.fewshot_seed, FEWSHOT_SEED)),
            chat_template=benchmark.chat_template if chat_template is None else chat_template,
            system_instruction=changes.system_instruction if changes else None,
            generation_kwargs=changes.generation_kwargs if changes else {},
            task_overrides=changes.task if changes else {},
            revision=dataset.revision,
            force_download=settings.force_download,
            local=self._local(benchmark, dataset) if source == "local" else None,
            subtasks=tuple(benchmark.subtasks),
            limit=_first(settings.limit, changes and changes.limit, benchmark.limit),
        )

    def _local(self, benchmark: Benchmark, dataset: Dataset) -> LocalData:
        root = self.workspace.data_directory
        return LocalData(root / (dataset.local or benchmark.name), root)


def _may_be_sgfp4(spec: ModelSpec) -> bool:
    directory = local_directory(spec)
    if directory is not None:
        return (directory / SGFP4_MANIFEST).is_file()
    return spec.provider == "mlx" and is_hub_id(spec.name)


def ability_problems(items: Sequence[BenchmarkItem], providers: Providers) -> Iterator[Problem]:
    """What can be told before anything runs: a model that cannot give what a benchmark's file asks for.

    A benchmark that only names a task of lm-eval's is looked at when its task is built (`Run.prepare`).
    """
    seen: set[tuple[str, ModelSpec]] = set()
    for item in items:
        output_type = item.request.output_type
        if item.benchmark.status != "ready" or output_type is None:
            continue
        if (item.benchmark.name, item.model) in seen:
            continue
        seen.add((item.benchmark.name, item.model))
        lacking = providers.abilities(item.model).lacking(output_type)
        if lacking is not None:
            yield Problem(
                f"benchmarks/{item.benchmark.name}.yaml",
                "task.output_type",
                f"{output_type!r}, for which {item.model} gives no {lacking}",
                "what the model can give",
                f"Measure {item.niche or 'it'} with another model, or take the benchmark out of it.",
            )


def _first(*values: Any) -> Any:
    """The first value that is set."""
    return next((value for value in values if value is not None), None)


def by_model(items: Sequence[BenchmarkItem]) -> list[int]:
    """An order of items in which each model's stand together, so that it is loaded once.

    Indices into `items`. As near to the given order as that allows, and each niche's reference before its
    quantized variant. Where two models would each have to come before the other, the given order wins.
    """
    groups: dict[Hashable, list[int]] = {}
    for index, item in enumerate(items):
        groups.setdefault(item.model, []).append(index)
    for indices in groups.values():  # where one model is two variants of a niche
        indices.sort(key=lambda index: VARIANT_ORDER.index(items[index].variant))
    before: dict[Hashable, set[Hashable]] = {model: set() for model in groups}
    for earlier in items:
        for later in items:
            precedes = VARIANT_ORDER.index(earlier.variant) < VARIANT_ORDER.index(later.variant)
            if earlier.niche == later.niche and precedes and earlier.model != later.model:
                before[later.model].add(earlier.model)
    order: list[int] = []
    ready = [(min(indices), model) for model, indices in groups.items() if not before[model]]
    heap = [(first, id(model), model) for first, model in ready]
    heapq.heapify(heap)
    done: set[Hashable] = set()
    while heap:
        _, _, model = heapq.heappop(heap)
        done.add(model)
        order.extend(groups[model])
        for other, needs in before.items():
            if other not in done and model in needs and needs <= done:
                heapq.heappush(heap, (min(groups[other]), id(other), other))
    return order if len(order) == len(items) else list(range(len(items)))
