"""The typed, validated form of `benchmarks/` and `config/`.

Every model refuses unknown keys and does no conversion between types: `"0.2"` is not a number here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from pytest_gnus.errors import did_you_mean

Source = Literal["huggingface", "local"]
Mode = Literal["canonical", "diagnostic"]
Variant = Literal["baseline", "reference", "quantized"]
RegressionPolicy = Literal["threshold", "significant", "both", "either"]

#: Preferred primary metrics, in order, where a benchmark names none.
METRIC_ORDER = ("acc_norm", "acc", "pass@1", "f1", "exact_match", "rouge1", "rougeL", "rouge")
#: Metrics whose values lie in [0, 1]; a floor above 1 for one of these is a percentage by mistake.
UNIT_METRICS = frozenset(METRIC_ORDER) | {"acc_bytes", "rouge2", "rougeLsum", "mcc", "brier_score"}

#: The largest number of documents or examples that can be asked for; what counts them takes no larger one.
MOST = 2**31 - 1

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"


class _Strict(BaseModel):
    """`RENAMED` has the keys that a file may still write by an old name, each with its new one."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, protected_namespaces=(), defer_build=True
    )
    RENAMED: ClassVar[Mapping[str, str]] = {}


_Limit = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
_Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Thresholds(_Strict):
    """Limits of the gates. `None` means: not set at this level, look at the next one.

    Where a lower score is better the limit of a score is a ceiling. A floor is then taken for one where no
    ceiling is set, as it was before there were ceilings.
    """

    RENAMED: ClassVar[Mapping[str, str]] = {
        "regression_max_pct": "max_relative_drop",
        "previous_run_max_pct": "max_relative_drop_from_previous",
        "deviation_max_pct": "max_relative_drop_from_baseline",
    }

    hard_floor: _Limit | None = None
    hard_ceiling: _Limit | None = None
    max_relative_drop: _Share | None = None
    max_relative_drop_from_previous: _Share | None = None
    max_relative_drop_from_baseline: _Share | None = None
    truncated_max_share: _Share | None = None
    category_floors: dict[str, _Limit] = Field(default_factory=dict)
    category_ceilings: dict[str, _Limit] = Field(default_factory=dict)

    @property
    def ceilings(self) -> list[str]:
        """The keys of ceilings that are set."""
        return [key for key in ("hard_ceiling", "category_ceilings") if getattr(self, key) not in (None, {})]

    def hard_limit(self, *, higher_is_better: bool) -> float | None:
        """The floor of a score, or its ceiling where a lower one is better."""
        if higher_is_better or self.hard_ceiling is None:
            return self.hard_floor
        return self.hard_ceiling

    def category_limits(self, *, higher_is_better: bool) -> dict[str, float]:
        """The floors of categories, or their ceilings where a lower score is better."""
        if higher_is_better:
            return dict(self.category_floors)
        return {**self.category_floors, **self.category_ceilings}

    def limits_above_one(self) -> list[tuple[str, float]]:
        """Floors and ceilings, by key, that mean nothing for a score between 0 and 1."""
        named = {"hard_floor": self.hard_floor, "hard_ceiling": self.hard_ceiling} | {
            f"{key}.{name}": limit
            for key in ("category_floors", "category_ceilings")
            for name, limit in getattr(self, key).items()
        }
        return [(key, value) for key, value in named.items() if value is not None and value > 1.0]

    def over(self, base: Thresholds) -> Thresholds:
        """These thresholds, with `base` filling what is not set here."""
        merged: dict[str, Any] = {}
        for name in Thresholds.model_fields:
            mine, theirs = getattr(self, name), getattr(base, name)
            merged[name] = {**theirs, **mine} if isinstance(mine, dict) else theirs if mine is None else mine
        return Thresholds(**merged)


#: D-08's defaults, as in the seeds. No prompt may be truncated unless a file allows it.
BUILT_IN_THRESHOLDS = Thresholds(
    max_relative_drop=0.10,
    max_relative_drop_from_previous=0.10,
    max_relative_drop_from_baseline=0.20,
    truncated_max_share=0.0,
)


class ArtifactThresholds(_Strict):
    """Limits of the gates of an SGFP4 artifact. Null turns a gate off; what is left out is set a level below.

    The defaults fit plain 4-bit leaves, which cost 4.04 bits per weight and have no ternary blocks.
    """

    fp4_mse: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | None = 0.01
    fp4_relative_mse: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | None = 0.03
    fp4_effective_bitrate: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | None = 4.5
    fp4_t158_ratio: Annotated[float, Field(ge=0.0, le=1.0)] | None = None

    def over(self, base: ArtifactThresholds) -> dict[str, float | None]:
        """Every limit, with `base` filling what is not set here."""
        return {
            name: getattr(self if name in self.model_fields_set else base, name)
            for name in type(self).model_fields
        }


class NicheThresholds(Thresholds):
    """A niche's overrides: for all of its benchmarks, and for single ones by name."""

    per_benchmark: dict[str, Thresholds] = Field(default_factory=dict)

    def for_benchmark(self, name: str) -> Thresholds:
        general = Thresholds(**{key: getattr(self, key) for key in Thresholds.model_fields})
        return self.per_benchmark.get(name, Thresholds()).over(general)


class Dataset(_Strict):
    """Where a benchmark's documents come from."""

    revision: str | None = Field(default=None, min_length=1)
    local: str | None = Field(default=None, min_length=1)


_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
#: What generation settings that every model knows may be; others are the model's own.
GENERATION: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "do_sample": ("true or false", lambda value: isinstance(value, bool)),
    "temperature": ("a number from 0 up", lambda value: _is_number(value) and value >= 0),
    "top_p": ("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1),
    "top_k": ("a whole number", lambda value: type(value) is int),
    "until": ("a text or a list of texts", lambda value: _is_texts(value)),
    **dict.fromkeys(_LENGTHS, ("a whole number from 1 up", lambda value: type(value) is int and value >= 1)),
}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_texts(value: Any) -> bool:
    return all(isinstance(entry, str) for entry in (value if isinstance(value, list) else [value]))


def _check_generation(settings: dict[str, Any]) -> dict[str, Any]:
    """Generation settings; a group's may be given task by task.

    Raises:
        ValueError: a value that cannot be meant, or a key that is nearly one that every model knows.
    """
    for key, value in settings.items():
        if isinstance(value, dict):
            _check_generation(value)
        elif key in GENERATION:
            allowed, fits = GENERATION[key]
            if value is not None and not fits(value):
                raise ValueError(f"{key}: {value!r}, where {allowed} is needed")
        elif hint := did_you_mean(key, GENERATION):
            raise ValueError(f"the unknown setting {key!r}. {hint}")
    return settings


Generation = Annotated[dict[str, Any], AfterValidator(_check_generation)]


class DiagnosticOverrides(_Strict):
    """What diagnostic mode changes (D-03). `task` holds keys of the lm-eval task config to replace."""

    task: dict[str, Any] = Field(default_factory=dict)
    num_fewshot: int | None = Field(default=None, ge=0, le=MOST)
    fewshot_seed: int | None = None
    chat_template: bool | str | None = None
    system_instruction: str | None = None
    generation_kwargs: Generation = Field(default_factory=dict)
    dataset: Dataset | None = None
    limit: int | None = Field(default=None, ge=1, le=MOST)


class PromptBundle(_Strict):
    """One file `config/prompts/<name>.yaml`: how models are asked, under one name."""

    RENAMED: ClassVar[Mapping[str, str]] = {
        "system_prompt": "system_instruction",
        "generation": "generation_kwargs",
    }

    name: str = Field(pattern=NAME)
    description: str = ""
    system_instruction: str | None = None
    chat_template: bool | str | None = None
    generation_kwargs: Generation = Field(default_factory=dict)


class Experiment(_Strict):
    """One file `config/experiments/<name>.yaml`: benchmarks x models x rounds."""

    name: str = Field(pattern=NAME)
    description: str = ""
    niche: str | None = Field(default=None, min_length=1)
    benchmarks: list[str] = Field(default_factory=list)
    models: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    default_provider: str | None = Field(default=None, min_length=1)
    repeat: int = 1
    output: str | None = Field(default=None, min_length=1)
    prompt_bundle: str | None = Field(default=None, min_length=1)
    overrides: DiagnosticOverrides = Field(default_factory=DiagnosticOverrides)


class Benchmark(_Strict):
    """One file `benchmarks/<name>.yaml`."""

    name: str = Field(pattern=NAME)
    description: str = ""
    task: str | dict[str, Any] | None = None
    num_fewshot: int | None = Field(default=None, ge=0, le=MOST)
    metric: str | None = Field(default=None, min_length=1)
    higher_is_better: bool | None = None
    gates: Thresholds = Field(default_factory=Thresholds)
    chat_template: bool | str = False
    dataset: Dataset = Field(default_factory=Dataset)
    subtasks: list[str] = Field(default_factory=list)
    cluster: str | None = Field(default=None, min_length=1)
    diagnostic: DiagnosticOverrides = Field(default_factory=DiagnosticOverrides)
    limit: int | None = Field(default=None, ge=1, le=MOST)
    status: Literal["ready", "not_implemented"] = "ready"
    reason: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _status_and_task(self) -> Benchmark:
        if self.status == "not_implemented" and not self.reason:
            raise ValueError("status: not_implemented needs a `reason`")
        if self.status == "ready" and not self.task:
            raise ValueError("`task` is missing: the name of an lm-eval task, or a task config as a mapping")
        return self

    @model_validator(mode="after")
    def _floors_in_range(self) -> Benchmark:
        if self.has_unit_metric:
            _refuse_above_one(self.gates, self.metric or "the metric")
        return self

    @model_validator(mode="after")
    def _ceilings_of_lower_is_better(self) -> Benchmark:
        ceilings = self.gates.ceilings
        if ceilings and self.knows_higher_is_better:
            floor = ceilings[0].replace("ceiling", "floor")
            raise ValueError(
                f"gates.{ceilings[0]}, but for {self.metric or 'the metric'} higher is better: write {floor}"
            )
        if self.gates.hard_floor is not None and self.gates.hard_ceiling is not None:
            raise ValueError("both gates.hard_floor and gates.hard_ceiling: a score has one of them")
        return self

    @property
    def knows_higher_is_better(self) -> bool:
        """Whether the file alone shows that a higher score is better; what it does not say lm-eval does."""
        if self.higher_is_better is not None:
            return self.higher_is_better
        return self.metric is None or self.metric.split(",")[0] in METRIC_ORDER

    @property
    def has_unit_metric(self) -> bool:
        """Whether the primary metric lies between 0 and 1, as far as its name tells."""
        name = (self.metric or "").split(",")[0]
        return not name or name in UNIT_METRICS


def _refuse_above_one(gates: Thresholds, metric: str) -> None:
    for key, value in gates.limits_above_one():
        raise ValueError(f"gates.{key} is {value}, but {metric} lies between 0 and 1")


class ModelEntry(_Strict):
    """A specialist's weights; each of the three is `provider:name`, a directory, or a hub id."""

    quantized: str | None = Field(default=None, min_length=1)
    reference: str | None = Field(default=None, min_length=1)
    baseline: str | None = Field(default=None, min_length=1)
    adapter: str | None = Field(default=None, min_length=1)
    model_manifest: str | None = Field(default=None, min_length=1)
    sgfp4_manifest: str | None = Field(default=None, min_length=1)
    version: str | None = Field(default=None, min_length=1)


class NicheBenchmarks(_Strict):
    blocking: list[str] = Field(default_factory=list)
    diagnostic: list[str] = Field(default_factory=list)


class Niche(_Strict):
    """One file `config/specialists/<niche>.yaml`."""

    niche: str = Field(pattern=NAME)
    description: str = ""
    model: ModelEntry | None = None
    benchmarks: NicheBenchmarks
    gates: NicheThresholds = Field(default_factory=NicheThresholds)
    sgfp4: ArtifactThresholds = Field(default_factory=ArtifactThresholds)
    regression_policy: RegressionPolicy | None = None
    minimum_pairs: int | None = Field(default=None, ge=2)
    consecutive_failures_to_block: int | None = Field(default=None, ge=1)


class Pipeline(_Strict):
    """The file `config/pipeline.yaml`."""

    source: Source = "huggingface"
    gates: Thresholds = Field(default_factory=Thresholds)
    sgfp4: ArtifactThresholds = Field(default_factory=ArtifactThresholds)
    regression_policy: RegressionPolicy = "threshold"
    minimum_pairs: int = Field(default=30, ge=2)
    consecutive_failures_to_block: int = Field(default=3, ge=1)

    @model_validator(mode="after")
    def _floors_in_range(self) -> Pipeline:
        # A ceiling may be above 1: it is for benchmarks of which a lower score is better.
        floors = self.gates.model_copy(update={"hard_ceiling": None, "category_ceilings": {}})
        _refuse_above_one(floors, "a floor for every benchmark")
        return self
