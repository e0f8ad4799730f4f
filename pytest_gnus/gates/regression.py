"""How far a score has fallen from another one, and whether that stays within a limit."""

from __future__ import annotations

import math

from pytest_gnus.gates.result import GateResult, not_evaluated


def relative_drop(score: float, reference: float, *, higher_is_better: bool = True) -> float | None:
    """How much worse `score` is, as a share of `reference`; negative where it is better.

    `None` where the reference is zero and the score is not: there is no share of nothing.
    """
    worse_by = reference - score if higher_is_better else score - reference
    if worse_by == 0.0:
        return 0.0
    return worse_by / abs(reference) if reference else None


def regression(
    name: str,
    score: float | None,
    reference: float | None,
    threshold: float,
    *,
    higher_is_better: bool = True,
    missing: str = "no reference",
) -> GateResult:
    """Whether the relative drop from the reference stays within `threshold` (a share), equality included.

    `missing` says why there is no reference and how to get one; the gate is then not evaluated.
    """
    if reference is None or not math.isfinite(reference):
        return not_evaluated(
            name, missing if reference is None else f"the reference is {reference}", threshold
        )
    if score is None or not math.isfinite(score):
        return not_evaluated(name, "not measured" if score is None else f"the score is {score}", threshold)
    drop = relative_drop(score, reference, higher_is_better=higher_is_better)
    if drop is None:
        return not_evaluated(name, f"the reference scored {reference}: no relative drop exists", threshold)
    # Scores are sums of floats: a drop of exactly the limit must not fail by its last bit.
    passed = drop <= threshold + 1e-12
    return GateResult(
        name,
        passed,
        value=drop,
        threshold=threshold,
        reference=reference,
        detail=f"drop {drop:+.2%} from {reference:.4f}, limit {threshold:.2%}",
    )
