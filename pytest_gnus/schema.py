"""The typed, validated form of `benchmarks/` and `config/`.

Every model refuses unknown keys and does no conversion between types: `"0.2"` is not a number here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Source = Literal["huggingface", "local"]
Mode = Literal["canonical", "diagnostic"]
Variant = Literal["baseline", "reference", "quantized"]
RegressionPolicy = Literal["threshold", "significant", "both", "either"]

#: Preferred primary metrics, in order, where a benchmark names none.
METRIC_ORDER = ("acc_norm", "acc", "pass@1", "f1", "exact_match", "rouge1", "rougeL", "rouge")
#: Metrics whose values lie in [0, 1]; a floor above 1 for one of these is a percentage by mistake.
UNIT_METRICS = frozenset(METRIC_ORDER) | {"acc_bytes", "rouge2", "rougeLsum", "mcc", "brier_score"}

_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"


class _Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, protected_namespaces=(), defer_build=True
    )


class Thresholds(_Strict):
    """Limits of the gates. `None` means: not set at this level, look at the next one."""

    hard_floor: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)
    regression_max_pct: float | None = Field(default=None, ge=0.0, le=1.0)
    previous_run_max_pct: float | None = Field(default=None, ge=0.0, le=1.0)
    deviation_max_pct: float | None = Field(default=None, ge=0.0, le=1.0)
    category_floors: dict[str, Annotated[float, Field(ge=0.0, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )

    def floors_above_one(self) -> list[tuple[str, float]]:
        """Floors, by key, that no score between 0 and 1 can reach."""
        named = {"hard_floor": self.hard_floor} | {
            f"category_floors.{name}": floor for name, floor in self.category_floors.items()
        }
        return [(key, value) for key, value in named.items() if value is not None and value > 1.0]

    def over(self, base: Thresholds) -> Thresholds:
        """These thresholds, with `base` filling what is not set here."""
        mine, theirs = (
            {name: getattr(side, name) for name in Thresholds.model_fields} for side in (self, base)
        )
        filled = {name: theirs[name] if value is None else value for name, value in mine.items()}
        return Thresholds(**{**filled, "category_floors": {**base.category_floors, **self.category_floors}})


#: D-08's defaults, as in the seeds.
BUILT_IN_THRESHOLDS = Thresholds(regression_max_pct=0.10, previous_run_max_pct=0.10, deviation_max_pct=0.20)


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


class DiagnosticOverrides(_Strict):
    """What diagnostic mode changes (D-03). `task` holds keys of the lm-eval task config to replace."""

    task: dict[str, Any] = Field(default_factory=dict)
    num_fewshot: int | None = Field(default=None, ge=0)
    fewshot_seed: int | None = None
    chat_template: bool | str | None = None
    system_instruction: str | None = None
    generation_kwargs: dict[str, Any] = Field(default_factory=dict)
    dataset: Dataset | None = None
    limit: int | None = Field(default=None, ge=1)


class Benchmark(_Strict):
    """One file `benchmarks/<name>.yaml`."""

    name: str = Field(pattern=_NAME)
    description: str = ""
    task: str | dict[str, Any] | None = None
    num_fewshot: int | None = Field(default=None, ge=0)
    metric: str | None = Field(default=None, min_length=1)
    higher_is_better: bool | None = None
    gates: Thresholds = Field(default_factory=Thresholds)
    chat_template: bool | str = False
    dataset: Dataset = Field(default_factory=Dataset)
    subtasks: list[str] = Field(default_factory=list)
    cluster: str | None = Field(default=None, min_length=1)
    diagnostic: DiagnosticOverrides = Field(default_factory=DiagnosticOverrides)
    limit: int | None = Field(default=None, ge=1)
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

    @property
    def has_unit_metric(self) -> bool:
        """Whether the primary metric lies between 0 and 1, as far as its name tells."""
        name = (self.metric or "").split(",")[0]
        return not name or name in UNIT_METRICS


def _refuse_above_one(gates: Thresholds, metric: str) -> None:
    for key, value in gates.floors_above_one():
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

    niche: str = Field(pattern=_NAME)
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
        _refuse_above_one(self.gates, "a floor for every benchmark")
        return self
