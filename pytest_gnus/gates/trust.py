"""Whether a score can be believed: the signs of a broken measurement (DESIGN, trap 20)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

#: From this many documents on, none or all of them right is a sign of a fault.
SUSPICIOUS_COUNT = 50


@dataclass(frozen=True)
class ChanceLevels:
    """What answerers that know nothing reach on the same documents, as shares right.

    `random_choice` picks any choice with equal chance, `constant_choice` always the same position.
    """

    random_choice: float
    constant_choice: float


def chance_levels(golds: Sequence[int], choice_counts: Sequence[int]) -> ChanceLevels | None:
    """From each document's right choice (its position) and number of choices; `None` without documents."""
    if not golds:
        return None
    positions = {gold: golds.count(gold) for gold in set(golds)}
    return ChanceLevels(
        random_choice=float(sum(Fraction(1, count) for count in choice_counts) / len(choice_counts)),
        constant_choice=max(positions.values()) / len(golds),
    )


def flags(score: float, n: int, chance: ChanceLevels | None, *, unit_range: bool = True) -> list[str]:
    """Sentences about a score that may mean nothing; empty where there is no doubt."""
    found = []
    if unit_range and n >= SUSPICIOUS_COUNT and score in (0.0, 1.0):
        found.append(f"a score of {score:.0%} on {n} documents: check the benchmark before you trust it")
    if chance is None:
        return found
    if score <= chance.random_choice:
        found.append(f"no better than a random choice ({chance.random_choice:.4f})")
    if score <= chance.constant_choice:
        found.append(f"no better than always the same choice ({chance.constant_choice:.4f})")
    return found
