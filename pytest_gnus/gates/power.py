"""How small a drop a comparison could have seen, and how many documents a smaller one would need.

Everywhere: a power of 80 % in a two-sided test at the 5 % level. The numbers are planning figures ("about"):
the spread they start from is itself estimated from the documents.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

ALPHA = 0.05
POWER = 0.80

_Z_ALPHA = NormalDist().inv_cdf(1 - ALPHA / 2)
_Z_POWER = NormalDist().inv_cdf(POWER)


class Sensitivity(Protocol):
    """What a comparison can see. Drops are in units of the score."""

    @property
    def detectable_drop(self) -> float | None:
        """The smallest true drop that would have been found with 80 % power; `None` where it is not known."""

    def documents_needed(self, drop: float) -> int | None:
        """About how many documents (on each side) would find `drop`; `None` where it is not known.

        Raises:
            ValueError: `drop` is not above zero.
        """


@dataclass(frozen=True)
class DiscordanceSensitivity:
    """Of paired right-or-wrong outcomes (McNemar's test).

    The number of pairs n that finds a difference d, where a share psi of the pairs differs, is

        n = (z_a * sqrt(psi) + z_b * sqrt(psi - d^2))^2 / d^2

    (Connor 1987, Biometrics 43, 207-211). psi is the observed share with two added to the pairs that differ
    and four to all (Agresti and Coull's plus four), and never below d: documents that fall must differ.
    This is the floor that keeps a comparison without any difference from claiming to see everything: it
    sees no drop below about 7.8 / n, which is also where the exact test gets the six pairs that it needs at
    least.

    `design_effect` divides n where documents come in clusters.
    """

    n: int
    discordant: int
    design_effect: float = 1.0

    @property
    def detectable_drop(self) -> float:
        # Below 4 documents' worth the formula gives drops above 1, which there are not.
        n = max(self.n / self.design_effect, 4.0)
        # Connor's formula solved for d: d = k * sqrt(psi).
        k = (_Z_ALPHA * math.sqrt(n) + _Z_POWER * math.sqrt(n + _Z_POWER**2 - _Z_ALPHA**2)) / (
            n + _Z_POWER**2
        )
        return k * math.sqrt(max(self._psi, k * k))

    def documents_needed(self, drop: float) -> int:
        psi = max(self._psi, _positive(drop))
        root = _Z_ALPHA * math.sqrt(psi) + _Z_POWER * math.sqrt(max(psi - drop * drop, 0.0))
        return _whole(self.design_effect * (root / drop) ** 2)

    @property
    def _psi(self) -> float:
        return (self.discordant + 2) / (self.n + 4)


@dataclass(frozen=True)
class MeanSensitivity:
    """Of a mean difference with a standard error: d = (t_a + t_b) * standard error, falling with sqrt(n).

    `detectable_drop` is None where no spread was seen and none can be assumed.
    """

    n: int
    detectable_drop: float | None

    def documents_needed(self, drop: float) -> int | None:
        _positive(drop)
        if self.detectable_drop is None:
            return None
        return _whole(self.n * (self.detectable_drop / drop) ** 2)


def sparse_drop(n: float, spread: float) -> float | None:
    """What n pairs can see that (nearly) all agree: the drop of documents that each lose the whole `spread`.

    As for right-or-wrong outcomes without a difference, scaled; `None` where the scores have no spread at
    all.
    """
    return DiscordanceSensitivity(max(int(n), 1), 0).detectable_drop * spread if spread > 0.0 else None


def _positive(drop: float) -> float:
    if not drop > 0.0:
        raise ValueError(f"a drop to be found must be above zero, not {drop}")
    return drop


def _whole(documents: float) -> int:
    """Rounded up, but for what floats add to a whole number."""
    return math.ceil(documents * (1 - 1e-9))
