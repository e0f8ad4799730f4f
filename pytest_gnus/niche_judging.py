"""What a niche's records say together: the composite gate, and what fell over its benchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_gnus.gates.categories import holm
from pytest_gnus.gates.names import QUANTIZATION_REGRESSION, is_limit, same_gate
from pytest_gnus.gates.result import GateResult
from pytest_gnus.gates.trends import (
    BASELINE_DEVIATION,
    PREVIOUS_RUN,
    EarlierStanding,
    composite,
    dimension,
    tiered,
)
from pytest_gnus.judging import References
from pytest_gnus.records.earlier import earlier_runs
from pytest_gnus.records.store import UnreadableRecord, build_of, stamp_of

#: The gates that compare a benchmark with another measurement of it.
_COMPARING = (QUANTIZATION_REGRESSION, PREVIOUS_RUN, BASELINE_DEVIATION)


@dataclass(frozen=True)
class NicheJudging:
    """The gates of a niche over the records of its blocking benchmarks on the quantized variant."""

    niche: str
    blocking: Sequence[str]
    references: References
    failures_to_block: int

    def composite(self, records: Mapping[str, Mapping[str, Any]]) -> GateResult:
        """The composite of a run, from its records by benchmark, with its tier."""
        build = _build(records.values())
        return tiered(self._composite(records), build, self._standings(), self.failures_to_block)

    def _composite(self, records: Mapping[str, Mapping[str, Any]]) -> GateResult:
        floors: dict[str, bool | None] = {
            name: _floors(records[name]) if name in records else None for name in self.blocking
        }
        missing = ", ".join(name for name, holds in floors.items() if holds is None)
        floors_hold = None if missing else all(floors.values())
        if False in floors.values():
            floors_hold = False
        dimensions = {
            gate: dimension([_passed(record, gate) for record in records.values()])
            for gate in (PREVIOUS_RUN, BASELINE_DEVIATION)
        }
        return composite(floors_hold, dimensions, f"not evaluated for {missing}" if missing else "")

    def _standings(self) -> Iterator[EarlierStanding]:
        """How the composite stood in earlier runs, made again from their records, the newest first."""
        runs: dict[str, dict[str, Mapping[str, Any]] | None] = {}
        accepted = [self.references.accepted_run(self._key(name)) or "" for name in self.blocking]
        for name in self.blocking:
            for record in earlier_runs(self.references.store, self._key(name), self.references.run_id):
                if isinstance(record, UnreadableRecord):
                    runs[stamp_of(record.name)] = None
                    continue
                run = runs.setdefault(record.run_id, {})
                if run is not None and record.content["limit"] is None:
                    # The newest of a run: an item that was run again after an error has two records.
                    run.setdefault(name, record.content)
        for run_id in sorted(runs, reverse=True):
            if run_id <= max(accepted):
                return
            yield self._standing(runs[run_id])

    def _standing(self, records: Mapping[str, Mapping[str, Any]] | None) -> EarlierStanding:
        """How the composite stood in one run; None where a record of it cannot be read."""
        if records is None:
            return EarlierStanding(None, "failed")
        gate = self._composite(records)
        if not gate.evaluated:
            return EarlierStanding(None, "absent")
        return EarlierStanding(_build(records.values()), "held" if gate.holds else "failed")

    def _key(self, benchmark: str) -> tuple[str, str, str]:
        return (self.niche, benchmark, "quantized")


def _build(records: Iterable[Mapping[str, Any]]) -> str | None:
    """Which weights records measured; None where one does not know."""
    found = list(records)
    if not all(record["fingerprint_valid"] for record in found):
        return None
    return "+".join(sorted({build_of(record["fingerprint"]) for record in found}))


def _floors(record: Mapping[str, Any]) -> bool | None:
    """Whether a record's floors hold; None where one was not evaluated, or there is none."""
    passed = [gate["passed"] for gate in record["gates"] if is_limit(gate["name"])]
    if False in passed:
        return False
    return True if passed and None not in passed else None


def _passed(record: Mapping[str, Any], name: str) -> bool | None:
    return next((gate["passed"] for gate in record["gates"] if same_gate(gate["name"], name)), None)


def fallen_benchmarks(records: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Which benchmarks fell significantly where several were compared, chance over all left out (Holm)."""
    found = []
    for name in _COMPARING:
        gates = {
            benchmark: gate
            for benchmark, record in records.items()
            for gate in record["gates"]
            if same_gate(gate["name"], name) and gate["p_value"] is not None
        }
        if len(gates) < 2:
            continue
        corrected = holm([gate["p_value"] for gate in gates.values()])
        fell = [
            f"{benchmark} (p = {adjusted:.2g})"
            for (benchmark, gate), (adjusted, rejected) in zip(gates.items(), corrected, strict=True)
            if rejected and gate["ci95"] is not None and gate["ci95"][0] > 0.0
        ]
        if fell:
            shown = ", ".join(sorted({gate["name"] for gate in gates.values()}))
            found.append(f"{shown}: fell significantly, Holm over {len(gates)} benchmarks: {', '.join(fell)}")
    return found
