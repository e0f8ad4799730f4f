"""Which gates apply to an item, and what they say of its measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_gnus.gates.floors import category_floors, hard_floor
from pytest_gnus.gates.regression import sgfp4_regression
from pytest_gnus.gates.result import GateResult, not_evaluated
from pytest_gnus.measurement import Measurement
from pytest_gnus.plan import BenchmarkItem
from pytest_gnus.records.fingerprint import same_protocol
from pytest_gnus.records.store import RecordStore, newest_comparable, score


@dataclass(frozen=True)
class ReferenceScore:
    """The other side of a comparison, or why there is none."""

    score: float | None
    missing: str = ""


@dataclass
class References:
    """Scores to compare with: of this run, else of the newest comparable record."""

    store: RecordStore
    _measured: dict[tuple[str, str, str], tuple[float, Mapping[str, Any]]] = field(default_factory=dict)

    def remember(self, item: BenchmarkItem, measurement: Measurement, fields: Mapping[str, Any]) -> None:
        self._measured[item.key] = (measurement.score, fields)

    def reference_of(self, item: BenchmarkItem, fields: Mapping[str, Any]) -> ReferenceScore:
        """The score of an item's unquantized reference, measured in the same way as the item."""
        niche, benchmark, _ = item.key
        command = f"pytest --niche={niche} --gnus-variant=reference -k {benchmark}"
        measured = self._measured.get((niche, benchmark, "reference"))
        if measured is not None:
            changed = same_protocol(measured[1], fields)
            if not changed:
                return ReferenceScore(measured[0])
            return ReferenceScore(
                None,
                f"the reference was measured differently: {', '.join(changed)} differ; check both models",
            )
        if item.not_gated_because:
            return ReferenceScore(None, "no reference in this run; records are for canonical runs")
        found, passed_over = newest_comparable(self.store.read_all(niche, benchmark, "reference"), fields)
        if found is not None:
            return ReferenceScore(score(found.content))
        why = f" ({'; '.join(passed_over[:3])})" if passed_over else ""
        return ReferenceScore(
            None,
            f"no comparable record of the reference{why}; run `{command}`",
        )


def judge(
    item: BenchmarkItem, measurement: Measurement, fields: Mapping[str, Any], references: References
) -> list[GateResult]:
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
    if item.variant == "quantized" and thresholds.regression_max_pct is not None:
        reference = references.reference_of(item, fields)
        gates.append(
            sgfp4_regression(
                measurement.score,
                reference.score,
                thresholds.regression_max_pct,
                higher_is_better=better,
                missing=reference.missing,
            )
        )
    return gates
