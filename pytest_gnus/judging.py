"""Which gates apply to an item, and what they say of its measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_gnus.errors import RecordError
from pytest_gnus.gates.categories import category_drops
from pytest_gnus.gates.comparison import Comparison, NotCompared, compare
from pytest_gnus.gates.floors import category_floors, hard_floor
from pytest_gnus.gates.pairing import Outcome, ScoredDocument
from pytest_gnus.gates.policy import regression_gate
from pytest_gnus.gates.regression import NAME as REGRESSION
from pytest_gnus.gates.result import GateResult, not_evaluated
from pytest_gnus.measurement import Measurement
from pytest_gnus.plan import BenchmarkItem
from pytest_gnus.records.fingerprint import same_protocol
from pytest_gnus.records.store import RecordStore, StoredRecord, newest_comparable, score


@dataclass(frozen=True)
class Reference:
    """The other side of a comparison, or why there is none.

    `outcomes` are its documents', or why they cannot be had.
    """

    score: float | None
    missing: str = ""
    outcomes: Sequence[ScoredDocument] | NotCompared = ()


@dataclass(frozen=True)
class Judgement:
    """The gates of an item, and what a person should know although it decides nothing."""

    gates: tuple[GateResult, ...]
    warnings: tuple[str, ...] = ()


@dataclass
class References:
    """Measurements to compare with: of this run, else of the newest comparable record.

    What another process measured in this run is found in its record, by the run's id.
    """

    store: RecordStore
    run_id: str
    _measured: dict[tuple[str, str, str], tuple[Measurement, Mapping[str, Any]]] = field(default_factory=dict)
    _unmeasured: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def remember(self, item: BenchmarkItem, measurement: Measurement, fields: Mapping[str, Any]) -> None:
        self._measured[item.key] = (measurement, fields)

    def note_unmeasured(self, item: BenchmarkItem, status: str) -> None:
        """An item of this run has no score: no other run's is to stand in for it."""
        self._unmeasured[item.key] = status

    def reference_of(self, item: BenchmarkItem, fields: Mapping[str, Any]) -> Reference:
        """An item's unquantized reference, measured in the same way as the item."""
        niche, benchmark, _ = item.key
        command = f"pytest --niche={niche} --gnus-variant=reference -k {benchmark}"
        measured = self._measured.get((niche, benchmark, "reference"))
        if measured is not None:
            changed = same_protocol(measured[1], fields)
            if not changed:
                return Reference(measured[0].score, outcomes=measured[0].outcomes)
            return Reference(
                None,
                f"the reference was measured differently: {', '.join(changed)} differ; check both models",
            )
        of_this_run = self._of_this_run((niche, benchmark, "reference"), fields)
        if of_this_run is not None:
            return of_this_run
        if item.not_gated_because:
            return Reference(None, "no reference in this run; records are for canonical runs")
        found, passed_over = newest_comparable(self.store.read_all(niche, benchmark, "reference"), fields)
        if found is not None:
            return Reference(score(found.content), outcomes=self._outcomes(found))
        why = f" ({'; '.join(passed_over[:3])})" if passed_over else ""
        return Reference(
            None,
            f"no comparable record of the reference{why}; run `{command}`",
        )

    def _of_this_run(self, key: tuple[str, str, str], fields: Mapping[str, Any]) -> Reference | None:
        """What this run has recorded of an item, on another worker; None where it has nothing of it."""
        unmeasured = self._unmeasured.get(key)
        if unmeasured is None:
            record = self._record_of_this_run(key)
            if record is None:
                return None
            value = score(record.content)
            changed = same_protocol(record.content["fingerprint"], fields)
            if value is not None and not changed:
                return Reference(value, outcomes=self._outcomes(record))
            if value is not None:
                return Reference(None, f"the reference was measured differently: {', '.join(changed)} differ")
            unmeasured = record.content["status"]
        return Reference(None, f"the reference has no score in this run: its status is {unmeasured}")

    def _record_of_this_run(self, key: tuple[str, str, str]) -> StoredRecord | None:
        for record in self.store.read_all(*key):
            if isinstance(record, RecordError):
                continue
            if record.content["run_id"] == self.run_id:
                return record
            if _second(record.content["timestamp_utc"]) < _second(self.run_id):
                return None  # made before this run began, as are all that follow
        return None

    def _outcomes(self, record: StoredRecord) -> Sequence[ScoredDocument] | NotCompared:
        try:
            samples = self.store.read_samples(record)
        except RecordError as error:
            return NotCompared(str(error))
        return [
            Outcome(
                str(sample["task"]),
                int(sample["doc_id"]),
                str(sample["doc_hash"]),
                sample["score"],
                sample.get("cluster"),
            )
            for sample in samples
        ]


def _second(text: str) -> str:
    """The digits of a time, down to the second; a run's id begins with the time of its start."""
    return "".join(filter(str.isdigit, text))[:14]


def judge(
    item: BenchmarkItem, measurement: Measurement, fields: Mapping[str, Any], references: References
) -> Judgement:
    """The gates of an item: its floors, and for the quantized variant the regression from the reference."""
    thresholds = item.thresholds
    better = measurement.higher_is_better
    floor = hard_floor(
        measurement.score, thresholds.hard_floor, higher_is_better=better, ci95=measurement.ci95
    )
    if floor is None and item.blocking:
        floor = not_evaluated("hard_floor", "no floor is set: a blocking benchmark needs one (D-08)")
    gates = [floor] if floor is not None else []
    gates += category_floors(measurement.per_category, thresholds.category_floors, higher_is_better=better)
    limit = thresholds.regression_max_pct
    if item.variant != "quantized" or (limit is None and item.regression_policy == "threshold"):
        return Judgement(tuple(gates))
    reference = references.reference_of(item, fields)
    comparison = _compared(item, measurement, reference)
    regression = regression_gate(
        REGRESSION,
        comparison,
        measurement.score,
        reference.score,
        limit,
        item.regression_policy,
        higher_is_better=better,
        missing=reference.missing,
    )
    warnings = [f"{REGRESSION}: {text}" for text in regression.warnings]
    warnings += _fallen_categories(item, measurement, reference)
    return Judgement((*gates, regression.gate), tuple(warnings))


def _compared(
    item: BenchmarkItem, measurement: Measurement, reference: Reference
) -> Comparison | NotCompared | None:
    if reference.score is None:
        return None
    if isinstance(reference.outcomes, NotCompared):
        return reference.outcomes
    return compare(
        reference.outcomes,
        measurement.outcomes,
        higher_is_better=measurement.higher_is_better,
        reported=(reference.score, measurement.score),
        minimum_pairs=item.minimum_pairs,
    )


def _fallen_categories(item: BenchmarkItem, measurement: Measurement, reference: Reference) -> list[str]:
    """The tasks of a group that fell, chance over all of them left out (Holm)."""
    if len(measurement.per_category) < 2 or isinstance(reference.outcomes, NotCompared):
        return []
    drops = category_drops(
        reference.outcomes,
        measurement.outcomes,
        higher_is_better=measurement.higher_is_better,
        minimum_pairs=item.minimum_pairs,
    )
    return [
        f"{drop.category} fell by {drop.result.absolute_drop:.4f} (p = {drop.adjusted_p:.2g}, Holm)"
        for drop in drops
        if drop.flagged and isinstance(drop.result, Comparison)
    ]
