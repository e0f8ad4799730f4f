"""From the gates of a benchmark to its outcome, and from the outcomes of a niche to its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_gnus.gates.result import GateResult

#: `skipped` has no record: there was nothing to measure.
Status = Literal["passed", "failed", "warned", "error", "not_implemented", "skipped"]


def status_of(gates: Sequence[GateResult], *, gated: bool) -> Status:
    """Passed where every gate was evaluated and holds. What is not gated warns instead of failing."""
    if all(gate.holds for gate in gates):
        return "passed"
    return "failed" if gated else "warned"


@dataclass(frozen=True)
class ItemOutcome:
    """What became of one item, as far as a niche's verdict cares."""

    benchmark: str
    variant: str
    blocking: bool
    status: Status
    detail: str = ""

    @property
    def name(self) -> str:
        return f"{self.benchmark} ({self.variant})"


@dataclass(frozen=True)
class NicheVerdict:
    """`promote` or `block`, why, and what was not evaluated."""

    niche: str
    verdict: Literal["promote", "block"]
    reasons: tuple[str, ...]
    not_evaluated: tuple[str, ...]
    warnings: tuple[str, ...]


def niche_verdict(
    niche: str, blocking: Sequence[str], outcomes: Sequence[ItemOutcome], *, not_gated: str | None = None
) -> NicheVerdict:
    """`promote` only where each blocking benchmark passed on the quantized variant, and none failed.

    Args:
        blocking: the niche's blocking benchmarks, measured or not.
        not_gated: why this run gates nothing (diagnostic mode, a limit), if it does not.
    """
    reasons: list[str] = []
    missing: list[str] = []
    if not_gated:
        reasons.append(not_gated)
    if not blocking:
        reasons.append("the niche has no blocking benchmark")
    by_variant = {(o.benchmark, o.variant): o for o in outcomes}
    for name in blocking:
        outcome = by_variant.get((name, "quantized"))
        if outcome is None:
            missing.append(f"{name} (quantized): was not run")
        elif outcome.status in ("not_implemented", "skipped", "error"):
            missing.append(f"{outcome.name}: {outcome.status.replace('_', ' ')}{_because(outcome.detail)}")
    for outcome in outcomes:
        if outcome.blocking and outcome.status == "warned" and not not_gated:
            reasons.append(f"{outcome.name} did not pass{_because(outcome.detail)}")
        elif outcome.blocking and outcome.status == "failed":
            reasons.append(f"{outcome.name} failed{_because(outcome.detail)}")
        elif outcome.blocking and outcome.status == "error" and outcome.variant != "quantized":
            missing.append(f"{outcome.name}: error{_because(outcome.detail)}")
    reasons.extend(f"not evaluated: {entry}" for entry in missing)
    aside = [o for o in outcomes if not o.blocking and o.status in ("not_implemented", "skipped", "error")]
    missing.extend(f"{o.name}, diagnostic: {o.status.replace('_', ' ')}{_because(o.detail)}" for o in aside)
    warnings = [f"{o.name}{_because(o.detail)}" for o in outcomes if o.status == "warned"]
    return NicheVerdict(
        niche, "block" if reasons else "promote", tuple(reasons), tuple(missing), tuple(warnings)
    )


def _because(detail: str) -> str:
    return f": {detail}" if detail else ""
