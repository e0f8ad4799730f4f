"""Trend gates (D-06, D-08): tiers over consecutive builds, and the composite of a niche.

The drops that `previous_run` and `baseline_deviation` judge are measured by `gates.policy`. Here is what is
made of them: a trend gate that does not hold warns first, and blocks once it has not held on
`consecutive_failures_to_block` builds in a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_gnus.gates.result import GateResult, not_evaluated

PREVIOUS_RUN = "previous_run"
BASELINE_DEVIATION = "baseline_deviation"
COMPOSITE = "composite"
#: Of the three dimensions, floors, previous run and baseline, so many must hold (D-08).
COMPOSITE_NEEDS = 2

#: How a gate stood in an earlier run; `absent` where there was nothing to compare with.
Standing = Literal["held", "failed", "absent"]


@dataclass(frozen=True)
class EarlierStanding:
    """How a trend gate stood on an earlier build. `build` is None where it is not known."""

    build: str | None
    standing: Standing


def tiered(
    gate: GateResult, build: str | None, earlier: Iterable[EarlierStanding], failures_to_block: int
) -> GateResult:
    """A trend gate with its severity and its count.

    Args:
        build: what is measured now; None where it is not known.
        earlier: how the gate stood before, the newest run first. Read only as far as needed.
        failures_to_block: the number of builds in a row, this one included, from which it blocks.
    """
    if not gate.is_against:
        return replace(gate, consecutive_failures=0 if gate.holds else None)
    count = consecutive_failures(build, earlier, failures_to_block)
    blocks = count >= failures_to_block
    many = f"{count} or more builds" if blocks else f"{count} build{'s' if count > 1 else ''}"
    told = f"not held on {many} in a row, blocks from {failures_to_block}"
    return replace(
        gate,
        severity="block" if blocks else "warn",
        consecutive_failures=count,
        detail=f"{gate.detail}; {told}",
    )


def consecutive_failures(build: str | None, earlier: Iterable[EarlierStanding], enough: int) -> int:
    """On how many builds in a row, this one included, a gate has not held; counted no further than `enough`.

    A build that was run again counts once, and where it stood otherwise before, that says nothing of the
    builds before it. A run in which there was nothing to compare with neither counts nor ends the row. A
    failure of a build that is not known may be of the next one that held, which then does not end the row:
    what cannot be read must not help.
    """
    seen = {build}
    unknown = 0
    count = 1
    if count >= enough:
        return count
    for entry in earlier:
        if entry.standing == "absent" or (entry.build is not None and entry.build in seen):
            continue
        if entry.standing == "held":
            if not unknown:
                break
            unknown -= 1
            seen.add(entry.build)
            continue
        seen.add(entry.build)
        unknown += entry.build is None
        count += 1
        if count >= enough:
            break
    return count


def composite(
    floors_hold: bool | None, dimensions: Mapping[str, bool | None], missing: str = ""
) -> GateResult:
    """Two of three: the floors, the drop from the previous run, the drop from the baseline.

    Applies only after every floor of the niche holds. A dimension that was not evaluated counts for nothing;
    with fewer than two evaluated the composite is not.

    Args:
        floors_hold: None where a floor of the niche was not evaluated.
        dimensions: the others, by name; None where one was not evaluated.
        missing: what was not evaluated of the floors.
    """
    if floors_hold is None:
        detail = f"applies after all floors of the niche: {missing or 'not all were evaluated'}"
        return not_evaluated(COMPOSITE, detail, float(COMPOSITE_NEEDS), severity="note")
    if not floors_hold:
        detail = "applies after all floors of the niche, and one does not hold"
        return not_evaluated(COMPOSITE, detail, float(COMPOSITE_NEEDS), severity="note")
    standings = {"floors": True, **dimensions}
    told = ", ".join(f"{name} {_word(holds)}" for name, holds in standings.items())
    evaluated = [holds for holds in standings.values() if holds is not None]
    if len(evaluated) < COMPOSITE_NEEDS:
        detail = f"fewer than {COMPOSITE_NEEDS} of {len(standings)} dimensions evaluated: {told}"
        return not_evaluated(COMPOSITE, detail, float(COMPOSITE_NEEDS), severity="note")
    held = sum(evaluated)
    return GateResult(
        COMPOSITE,
        held >= COMPOSITE_NEEDS,
        value=float(held),
        threshold=float(COMPOSITE_NEEDS),
        detail=f"{held} of {len(standings)} held, {COMPOSITE_NEEDS} are needed: {told}",
    )


def dimension(passed: Sequence[bool | None]) -> bool | None:
    """One dimension over the benchmarks of a niche: None where no gate was evaluated."""
    evaluated = [holds for holds in passed if holds is not None]
    return all(evaluated) if evaluated else None


def _word(holds: bool | None) -> str:
    return {True: "held", False: "not held", None: "not evaluated"}[holds]
