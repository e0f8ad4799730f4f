"""One result of an experiment: a line of its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from pytest_gnus.experiments.plan import ExperimentItem, samples

if TYPE_CHECKING:
    from pytest_gnus.run import ItemState, Skip

ResultStatus = Literal["measured", "error", "skipped", "not_implemented"]


@dataclass(frozen=True)
class ExperimentResult:
    """One benchmark on one model in one round, as plain JSON values.

    `error` is why there is no score. `seed` holds the few-shot seed and, where outputs were sampled, the
    sampling seed. `required` says that the experiment is not whole without it. `samples` is the file with the
    outcome of every document, relative to the folder of the results.
    """

    run_id: str
    experiment: str
    round_index: int
    niche: str | None
    benchmark: str
    model: str
    model_label: str
    status: ResultStatus
    required: bool
    timestamp_utc: str
    mode: str
    source: str
    limit: int | None
    score: float | None = None
    metric: str | None = None
    stderr: float | None = None
    ci95: Sequence[float] | None = None
    n: int | None = None
    higher_is_better: bool | None = None
    num_fewshot: int | None = None
    seed: Mapping[str, int | None] = field(default_factory=dict)
    timing: Mapping[str, Any] | None = None
    counts: Mapping[str, Any] | None = None
    fingerprint: Mapping[str, Any] | None = None
    fingerprint_hash: str | None = None
    fingerprint_valid: bool = False
    error: str | None = None
    warnings: Sequence[str] = ()
    samples: str | None = None

    @property
    def details(self) -> dict[str, Any]:
        return {"round_index": self.round_index}

    @property
    def place(self) -> tuple[str | None, str, str]:
        """What its rounds have in common: niche, benchmark, and the model's label."""
        return (self.niche, self.benchmark, self.model_label)

    @property
    def name(self) -> str:
        niche = f"{self.niche}-" if self.niche else ""
        return f"{self.benchmark}[{niche}{self.model_label}-round{self.round_index}]"

    @property
    def reason(self) -> str:
        """In one line, why it has no score."""
        status, why = self.status.replace("_", " "), " ".join((self.error or "").split())
        return f"{self.name}: {status}: {why.removeprefix(f'{status}: ')}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; `round_index` stands under `details` as well."""
        content = asdict(self)
        content["ci95"] = list(self.ci95) if self.ci95 is not None else None
        content["warnings"] = list(self.warnings)
        return content | {"details": self.details}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ExperimentResult:
        """A result from its line."""
        known = {entry.name for entry in fields(cls)}
        return cls(**{key: value for key, value in content.items() if key in known})


def unmeasured(
    item: ExperimentItem, experiment: str, run_id: str, status: ResultStatus, reason: str
) -> ExperimentResult:
    """The result of an item that has no score."""
    return ExperimentResult(
        run_id=run_id,
        experiment=experiment,
        round_index=item.round_index,
        niche=item.niche or None,
        benchmark=item.benchmark.name,
        model=item.model_identifier,
        model_label=item.label,
        status=status,
        required=item.blocking,
        timestamp_utc=datetime.now(UTC).isoformat(timespec="microseconds"),
        mode=item.request.mode,
        source=item.request.source,
        limit=item.request.limit,
        metric=item.benchmark.metric,
        seed={"fewshot": item.request.fewshot_seed, "sampling": None},
        error=reason,
    )


def skipped(item: ExperimentItem, experiment: str, run_id: str, skip: Skip) -> ExperimentResult:
    """The result of an item that is not measured by plan."""
    absent = skip.status == "not_implemented"
    return unmeasured(item, experiment, run_id, "not_implemented" if absent else "skipped", skip.reason)


def measured(
    state: ItemState, experiment: str, run_id: str
) -> tuple[ExperimentResult, list[Mapping[str, Any]]]:
    """The result of an item that was measured, and the outcome of each of its documents."""
    from pytest_gnus.recording import sample_records, timing

    item, measurement, identity, model = state.item, state.measurement, state.identity, state.model
    if not isinstance(item, ExperimentItem) or measurement is None or identity is None:
        raise ValueError(f"{item.name} has not been measured")
    sampled = samples(measurement.protocol.generation_params)
    result = replace(
        unmeasured(item, experiment, run_id, "measured", ""),
        error=None,
        score=float(measurement.score),
        metric=measurement.metric,
        stderr=measurement.stderr,
        ci95=list(measurement.ci95) if measurement.ci95 else None,
        n=measurement.n,
        higher_is_better=measurement.higher_is_better,
        num_fewshot=measurement.num_fewshot,
        seed={
            "fewshot": item.request.fewshot_seed,
            "sampling": item.request.sampling_seed if sampled else None,
        },
        timing=timing(model, measurement),
        counts=asdict(measurement.counts),
        fingerprint=dict(identity.fields),
        fingerprint_hash=identity.digest,
        fingerprint_valid=identity.valid,
        warnings=state.warnings,
    )
    return result, sample_records(measurement)
