"""Many comparisons at once: which categories fell, without the ones that chance alone would flag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_gnus.gates.comparison import (
    MINIMUM_CLUSTERS,
    MINIMUM_PAIRS,
    Comparison,
    NotCompared,
    compare,
)
from pytest_gnus.gates.pairing import ScoredDocument
from pytest_gnus.gates.power import ALPHA


@dataclass(frozen=True)
class CategoryDrop:
    """One category. `flagged` where it fell significantly and its Holm-adjusted p is at most alpha."""

    category: str
    result: Comparison | NotCompared
    adjusted_p: float | None
    flagged: bool


def holm(p_values: Sequence[float], alpha: float = ALPHA) -> list[tuple[float, bool]]:
    """Holm's step-down correction: (adjusted p, rejected) for each p-value, in the order given.

    The i-th smallest of m is multiplied by m - i + 1, no adjusted value is below that of a smaller p, none
    above 1 (Holm 1979, Scandinavian Journal of Statistics 6, 65-70). The chance of even one false rejection
    stays below alpha, however the tests depend on each other.

    Raises:
        ValueError: a p-value is not between 0 and 1.
    """
    for p_value in p_values:
        if not 0.0 <= p_value <= 1.0:
            raise ValueError(f"a p-value must be between 0 and 1, not {p_value}")
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[place]))
        adjusted[place] = largest
    return [(p_value, p_value <= alpha) for p_value in adjusted]


def category_drops(
    reference: Sequence[ScoredDocument],
    candidate: Sequence[ScoredDocument],
    *,
    higher_is_better: bool = True,
    alpha: float = ALPHA,
    minimum_pairs: int = MINIMUM_PAIRS,
    minimum_clusters: int = MINIMUM_CLUSTERS,
) -> list[CategoryDrop]:
    """Compare each category (task), by name. Only categories that could be compared count in the correction.

    Raises:
        ValueError: a score is not finite.
    """
    sides = [_by_task(reference), _by_task(candidate)]
    results = {
        name: compare(
            sides[0].get(name, []),
            sides[1].get(name, []),
            higher_is_better=higher_is_better,
            minimum_pairs=minimum_pairs,
            minimum_clusters=minimum_clusters,
        )
        for name in sorted({*sides[0], *sides[1]})
    }
    compared = {name: result for name, result in results.items() if isinstance(result, Comparison)}
    corrected = holm([result.p_value for result in compared.values()], alpha)
    adjusted = dict(zip(compared, corrected, strict=True))
    return [_category(name, result, adjusted.get(name)) for name, result in results.items()]


def _by_task(outcomes: Sequence[ScoredDocument]) -> dict[str, list[ScoredDocument]]:
    found: dict[str, list[ScoredDocument]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.task, []).append(outcome)
    return found


def _category(
    name: str, result: Comparison | NotCompared, corrected: tuple[float, bool] | None
) -> CategoryDrop:
    if corrected is None or isinstance(result, NotCompared):
        return CategoryDrop(name, result, None, flagged=False)
    adjusted_p, rejected = corrected
    return CategoryDrop(name, result, adjusted_p, flagged=rejected and result.significant_drop)
