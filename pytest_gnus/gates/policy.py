"""What fails a regression gate: the size of the drop, its significance, or both.

| policy | fails where | insufficient data |
| --- | --- | --- |
| `threshold` | the relative drop exceeds the limit | evaluated all the same; significance is not claimed |
| `significant` | the 95 % interval of the drop excludes zero | not evaluated |
| `both` | both hold | not evaluated |
| `either` | one of them holds | not evaluated |

"Insufficient data" is every case in which nothing can be said of significance: too few documents, no
per-document scores, a score that is not the mean of its documents. What was not evaluated has not passed.

A pass warns where half of a policy's reasons speak against it: a significant drop within the limit, or a
drop beyond the limit that may be noise. A limit tighter than what the documents could show warns always.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from pytest_gnus.gates.comparison import Comparison, NotCompared
from pytest_gnus.gates.regression import regression, relative_drop
from pytest_gnus.gates.result import GateResult

RegressionPolicy = Literal["threshold", "significant", "both", "either"]


@dataclass(frozen=True)
class RegressionVerdict:
    """The gate, and what a reader should know although it decides nothing."""

    gate: GateResult
    warnings: tuple[str, ...] = ()


def regression_gate(
    name: str,
    comparison: Comparison | NotCompared | None,
    score: float | None,
    reference: float | None,
    threshold: float | None,
    policy: RegressionPolicy = "threshold",
    *,
    higher_is_better: bool = True,
    missing: str = "no reference",
    tell_power: bool = True,
) -> RegressionVerdict:
    """Judge a drop from `reference` to `score`, the reported scores, by a policy.

    The gate's `value` is the relative drop; its `ci95` is the interval of the drop as a share of the
    reference too.

    Args:
        comparison: of the documents; None where there are none to compare.
        threshold: the largest relative drop allowed, a share, equality included; `significant` needs none.
        missing: says why there is no reference and how to get one.
        tell_power: warn of a limit tighter than what could have been found even where the interval shows
            that the limit is kept.

    Raises:
        ValueError: `comparison` was made with the other direction of the metric.
    """
    measured = regression(
        name, score, reference, threshold or 0.0, higher_is_better=higher_is_better, missing=missing
    )
    if score is None or reference is None or not (math.isfinite(score) and math.isfinite(reference)):
        return RegressionVerdict(replace(measured, threshold=threshold))
    if isinstance(comparison, Comparison) and comparison.higher_is_better != higher_is_better:
        raise ValueError(f"{name}: the documents were compared the other way round")
    evidence = _evidence(comparison, reference, score)
    exceeds = None if threshold is None or measured.passed is None else not measured.passed
    fails = _fails(policy, exceeds, evidence.significant_drop)
    limit = f", limit {threshold:.2%}" if threshold is not None else ""
    drop = relative_drop(score, reference, higher_is_better=higher_is_better)
    told = f"drop {drop:+.2%} from {reference:.4f}{limit}" if drop is not None else measured.detail
    if threshold is None and policy != "significant":
        told = f"no limit is set; {told}"
    if policy != "threshold":
        told = f"policy {policy}: {told}"
    gate = GateResult(
        name,
        None if fails is None else not fails,
        value=drop,
        threshold=threshold,
        reference=reference,
        ci95=evidence.relative_interval(reference),
        p_value=evidence.p_value,
        significant=evidence.comparison.significant if evidence.comparison else None,
        detail=f"{told}; {evidence.detail}",
    )
    is_shown = threshold is not None and gate.ci95 is not None and gate.ci95[1] <= threshold
    limit_to_tell = None if is_shown and not tell_power else threshold
    return RegressionVerdict(gate, tuple(_warnings(gate, exceeds, evidence, limit_to_tell)))


@dataclass(frozen=True)
class _Evidence:
    """What the documents say; `comparison` is None where they say nothing of the reported scores."""

    comparison: Comparison | None
    detail: str

    @property
    def significant_drop(self) -> bool | None:
        return self.comparison.significant_drop if self.comparison else None

    @property
    def p_value(self) -> float | None:
        return self.comparison.p_value if self.comparison else None

    def relative_interval(self, reference: float) -> tuple[float, float] | None:
        if self.comparison is None or reference == 0.0:
            return None
        low, high = self.comparison.ci95
        return low / abs(reference), high / abs(reference)


def _evidence(comparison: Comparison | NotCompared | None, reference: float, score: float) -> _Evidence:
    if comparison is None:
        return _Evidence(None, "significance not claimed: no documents to compare")
    if isinstance(comparison, NotCompared):
        return _Evidence(None, f"significance not claimed: {comparison.reason}")
    if comparison.mean_of_documents is False or not comparison.is_of(reference, score):
        return _Evidence(None, "significance not claimed: the score is not the mean of its documents")
    return _Evidence(comparison, comparison.summary())


def _fails(policy: RegressionPolicy, exceeds: bool | None, significant: bool | None) -> bool | None:
    """None where something that the policy asks for is not known."""
    if policy == "threshold":
        return exceeds
    if policy == "significant":
        return significant
    if exceeds is None or significant is None:
        return None
    return (exceeds and significant) if policy == "both" else (exceeds or significant)


def _warnings(
    gate: GateResult, exceeds: bool | None, evidence: _Evidence, threshold: float | None
) -> list[str]:
    found = []
    if gate.holds and evidence.significant_drop:
        found.append(f"a significant drop within the limit: {evidence.detail}")
    if gate.holds and exceeds:
        found.append(f"a drop beyond the limit that may be noise: {evidence.detail}")
    if evidence.comparison is not None and threshold is not None and gate.reference is not None:
        underpowered = evidence.comparison.underpowered(threshold * abs(gate.reference))
        found += [underpowered] if underpowered else []
    return found
