"""Hard floors (D-08): a score, and scores of categories, against fixed limits.

Where a lower score is better (perplexity) the limit is a ceiling, and the gate is named so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

from pytest_gnus.gates import names
from pytest_gnus.gates.result import GateResult, not_evaluated

T = TypeVar("T")


def hard_floor(
    score: float | None,
    threshold: float | None,
    *,
    higher_is_better: bool = True,
    ci95: tuple[float, float] | None = None,
) -> GateResult | None:
    """Whether a score reaches its floor, or exceeds no ceiling, equality included; `None` without either."""
    return _floor(
        names.hard_limit(higher_is_better=higher_is_better), score, threshold, higher_is_better, ci95
    )


def category_floors(
    per_category: Mapping[str, float], floors: Mapping[str, float], *, higher_is_better: bool = True
) -> list[GateResult]:
    """One gate per category that has a limit; a category that was not measured is not evaluated."""
    found = []
    for category, limit in floors.items():
        name = names.category_limit(category, higher_is_better=higher_is_better)
        gate = _floor(name, of_category(per_category, category), limit, higher_is_better, None)
        found += [gate] if gate is not None else []
    return found


def of_category(per_category: Mapping[str, T], name: str) -> T | None:
    """A category by its full name, or by the end of it: `anatomy` for `mmlu_anatomy`."""
    if name in per_category:
        return per_category[name]
    matches = [value for full, value in per_category.items() if full.endswith(f"_{name}")]
    return matches[0] if len(matches) == 1 else None


def _floor(
    name: str,
    score: float | None,
    threshold: float | None,
    higher_is_better: bool,
    ci95: tuple[float, float] | None,
) -> GateResult | None:
    if threshold is None:
        return None
    if score is None or not math.isfinite(score):
        return not_evaluated(name, "not measured", threshold)
    passed = score >= threshold if higher_is_better else score <= threshold
    sign = (">=" if passed else "<") if higher_is_better else ("<=" if passed else ">")
    return GateResult(
        name,
        passed,
        value=score,
        threshold=threshold,
        ci95=ci95,
        detail=f"{score:.4f} {sign} {threshold:.4f}",
    )
