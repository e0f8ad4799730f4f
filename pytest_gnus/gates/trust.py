"""Whether a score can be believed: the signs of a broken measurement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

#: From this many documents on, none or all of them right is a sign of a fault.
SUSPICIOUS_COUNT = 50


@dataclass(frozen=True)
class ChanceLevels:
    """What answerers that know nothing reach on the same documents, as shares right.

    `random_choice` picks any choice with equal chance; None where answers are generated. `constant_choice`
    always takes the same position, or gives the same answer, the one that is right most often.
    """

    random_choice: float | None
    constant_choice: float

    @property
    def best(self) -> float:
        """The share right that guessing reaches."""
        return max(self.random_choice or 0.0, self.constant_choice)

    def reached(self, value: float) -> list[str]:
        """Which of these answerers reach a value, in words."""
        kind = "choice" if self.random_choice is not None else "answer"
        found = []
        if self.random_choice is not None and value <= self.random_choice:
            found.append(f"a random choice ({self.random_choice:.4f})")
        if value <= self.constant_choice:
            found.append(f"always the same {kind} ({self.constant_choice:.4f})")
        return found


def chance_levels(golds: Sequence[int], choice_counts: Sequence[int]) -> ChanceLevels | None:
    """From each document's right choice (its position) and number of choices; `None` without documents."""
    if not golds:
        return None
    return ChanceLevels(
        random_choice=float(sum(Fraction(1, count) for count in choice_counts) / len(choice_counts)),
        constant_choice=max(Counter(golds).values()) / len(golds),
    )


def constant_answer_level(answers: Sequence[str]) -> ChanceLevels | None:
    """From each document's right answer, where answers are generated; `None` without documents."""
    if not answers:
        return None
    return ChanceLevels(None, max(Counter(answers).values()) / len(answers))


def flags(score: float, n: int, chance: ChanceLevels | None, *, unit_range: bool = True) -> list[str]:
    """Sentences about a score that may mean nothing; empty where there is no doubt."""
    found = []
    if unit_range and n >= SUSPICIOUS_COUNT and score in (0.0, 1.0):
        found.append(f"a score of {score:.0%} on {n} documents: check the benchmark before you trust it")
    if chance is not None:
        found += [f"no better than {guess}" for guess in chance.reached(score)]
    return found


def guessed_floor(name: str, floor: float, chance: ChanceLevels | None) -> str | None:
    """A sentence about a floor that guessing reaches; `None` for a higher one."""
    reached = chance.reached(floor) if chance is not None else []
    if chance is None or not reached:
        return None
    told = " and ".join(reached)
    return f"{name} {floor:.4f} is reached by guessing, with {told}; set it above {chance.best:.4f}"
