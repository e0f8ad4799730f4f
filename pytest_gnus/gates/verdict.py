"""From the gates of a benchmark to its outcome, and from the outcomes of a niche to its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pytest_gnus.gates.result import GateResult

#: `skipped` has no record: there was nothing to measure.
Status = Literal["passed", "failed", "warned", "error", "not_implemented", "skipped"]


_NO_ARTIFACT = "sgfp4 (quantized): the weights are not in SGFP4"


def status_of(gates: Sequence[GateResult], *, gated: bool) -> Status:
    """Passed where every gate was evaluated and holds, notes aside.

    What is not gated warns instead of failing, and so does what only a gate that warns tells against.
    """
    against = [gate for gate in gates if gate.is_against]
    if not against:
        return "passed"
    return "failed" if gated and any(gate.severity == "block" for gate in against) else "warned"


@dataclass(frozen=True)
class ItemOutcome:
    """What became of one item, as far as a niche's verdict cares.

    `notes` are gates that were not evaluated and do not block, `accepted` the decisions that gates rely on.
    `warnings` are what a reader of the verdict should know of it.
    """

    benchmark: str
    variant: str
    blocking: bool
    status: Status
    detail: str = ""
    notes: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.benchmark} ({self.variant})"


@dataclass(frozen=True)
class Missing:
    """A blocking item, by benchmark and variant, that this run has not measured.

    `evidence` names the earlier record by which it counts as passed, and `record` is its content. Without
    one, `problem` says why not.
    """

    key: tuple[str, str]
    evidence: str | None = None
    problem: str = "was not run"
    record: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        return f"{self.key[0]} ({self.key[1]}): {self.evidence or self.problem}"


@dataclass(frozen=True)
class NicheVerdict:
    """`promote` or `block`, why, and what was not evaluated.

    `must_fail` says whether the session must not exit with 0. It may where the niche is blocked only because
    a part of it was asked for, or because nothing was gated. `gates` are the niche's own, beside those of its
    items; `accepted` are the decisions that it relies on, `earlier` the records of earlier runs.
    """

    niche: str
    verdict: Literal["promote", "block"]
    reasons: tuple[str, ...]
    not_evaluated: tuple[str, ...]
    warnings: tuple[str, ...]
    must_fail: bool
    gates: tuple[GateResult, ...] = ()
    accepted: tuple[str, ...] = ()
    earlier: tuple[str, ...] = ()


def niche_verdict(
    niche: str,
    required: Sequence[tuple[str, str]],
    outcomes: Sequence[ItemOutcome],
    *,
    missing: Sequence[Missing] = (),
    part: bool = False,
    problems: Sequence[str] = (),
    not_gated: str | None = None,
    without_artifact: bool = False,
    gates: Sequence[GateResult] = (),
    warnings: Sequence[str] = (),
) -> NicheVerdict:
    """`promote` only where every blocking item passed, in this run or in the earlier ones that it names.

    Args:
        required: the blocking items of the niche by benchmark and variant, measured or not.
        missing: what is known of required items that were not measured.
        part: whether a part of the niche was asked for, so that what is missing is missing on purpose.
        problems: what keeps the whole run from being trusted, such as a record that could not be written.
        not_gated: why this run gates nothing (diagnostic mode, a limit), if it does not.
        without_artifact: the quantized weights are not in SGFP4: the gates of an artifact say nothing.
        gates: the niche's own.
        warnings: what else a person should know.
    """
    measured = {(outcome.benchmark, outcome.variant) for outcome in outcomes}
    known = {entry.key: entry for entry in missing}
    unseen = [known.get(key, Missing(key)) for key in required if key not in measured]
    not_run = [str(entry) for entry in unseen if entry.evidence is None]
    if not outcomes:
        not_run = ["nothing was measured in this run"]
    failed: list[str] = []
    unmeasured: list[str] = []
    aside: list[str] = []
    for outcome in outcomes:
        told = f"{outcome.name}: {outcome.status.replace('_', ' ')}{_because(outcome.detail)}"
        if outcome.status in ("not_implemented", "skipped", "error"):
            (unmeasured if outcome.blocking else aside).append(told)
        elif outcome.blocking and outcome.status == "failed" and not not_gated:
            failed.append(f"{outcome.name} failed{_because(outcome.detail)}")
    failed += [
        f"{gate.name} failed: {gate.detail}" for gate in gates if gate.is_against and gate.severity == "block"
    ]
    if not required:
        failed.append("the niche has no blocking benchmark")
    unevaluated = [f"not evaluated: {entry}" for entry in (*not_run, *unmeasured)]
    reasons = [*([not_gated] if not_gated else []), *problems, *failed, *unevaluated]
    blocks = bool(failed or unmeasured or (not_run and not part))
    return NicheVerdict(
        niche=niche,
        verdict="block" if reasons else "promote",
        reasons=tuple(reasons),
        not_evaluated=(
            *not_run,
            *unmeasured,
            *(f"{entry} (diagnostic)" for entry in aside),
            *(f"{outcome.name} {note}" for outcome in outcomes if outcome.blocking for note in outcome.notes),
            *(f"{gate.name}: {gate.detail}" for gate in gates if not gate.evaluated),
            *([_NO_ARTIFACT] if without_artifact else []),
        ),
        warnings=(
            *(f"{o.name}{_because(o.detail)}" for o in outcomes if o.status == "warned"),
            *(f"{outcome.name}: {text}" for outcome in outcomes for text in outcome.warnings),
            *(f"{gate.name}: {gate.detail}" for gate in gates if gate.is_against and gate.severity == "warn"),
            *warnings,
        ),
        must_fail=bool(problems) or (blocks and not_gated is None),
        gates=tuple(gates),
        accepted=tuple(f"{o.name} {text}" for o in outcomes for text in o.accepted),
        earlier=tuple(str(entry) for entry in unseen if entry.evidence is not None),
    )


def _because(detail: str) -> str:
    return f": {detail}" if detail else ""
