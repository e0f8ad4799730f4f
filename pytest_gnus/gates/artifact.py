"""Gates of a quantized artifact, before any benchmark is run on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_gnus.gates.result import GateResult, not_evaluated

#: The gates in their order; each but the last allows no more than its limit, the last no less.
NAMES = ("fp4_mse", "fp4_relative_mse", "fp4_effective_bitrate", "fp4_t158_ratio")


@dataclass(frozen=True)
class ArtifactNumbers:
    """What was measured from the containers.

    `mse` and `relative_mse` (over the mean square of the weights) are against the reference's weights, all
    elements counting alike; None where there are none, for the reason in `missing`. `ternary_ratio` is the
    share of blocks with ternary codes.
    """

    bits_per_weight: float
    ternary_ratio: float
    mse: float | None = None
    relative_mse: float | None = None
    missing: str = ""
    tensors: int = 0
    weights: int = 0
    manifest_sha256: str | None = None


def artifact_gates(numbers: ArtifactNumbers, limits: Mapping[str, float | None]) -> list[GateResult]:
    """One result per gate that has a limit; a limit of None turns its gate off."""
    values = {
        "fp4_mse": numbers.mse,
        "fp4_relative_mse": numbers.relative_mse,
        "fp4_effective_bitrate": numbers.bits_per_weight,
        "fp4_t158_ratio": numbers.ternary_ratio,
    }
    results = []
    for name in NAMES:
        limit = limits.get(name)
        if limit is not None:
            results.append(_gate(name, values[name], limit, numbers.missing))
    return results


def _gate(name: str, value: float | None, limit: float, missing: str) -> GateResult:
    if value is None or not math.isfinite(value):
        return not_evaluated(name, missing or f"the value is {value}", limit)
    at_least = name == "fp4_t158_ratio"
    passed = value >= limit if at_least else value <= limit
    sign = (">=" if passed else "<") if at_least else ("<=" if passed else ">")
    return GateResult(name, passed, value=value, threshold=limit, detail=f"{value:.4g} {sign} {limit:.4g}")
