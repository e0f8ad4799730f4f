"""Two measurements of the same benchmark: how much worse one is, and whether that is noise (D-09).

Which method is used, and what `Comparison.method` says:

| documents | outcomes | test | interval |
| --- | --- | --- | --- |
| the same | right or wrong | exact McNemar | Tango's score interval |
| the same, in clusters | right or wrong | cluster-robust t (CR1) | cluster-robust t |
| the same | other | BCa bootstrap | BCa bootstrap, t beside it |
| the same, in clusters | other | BCa cluster bootstrap | BCa, cluster-robust t beside it |
| different | right or wrong | Fisher's exact | Newcombe's hybrid score interval |
| different | other, or in clusters | Welch's t, cluster-robust in clusters | Welch's t |

One criterion decides everywhere: the 95 % interval excludes zero (`significant`). It does so only where
p <= 0.05; the p-value is the test's own. Only a drop is ever held against a build, so that with no true
change about 2.5 % of builds (and not 5 %) are called worse.

Documents of equal content are one document written several times: one cluster, and one of `n`. Rows of the
table that say "in clusters" hold for them too.

Different documents are compared as if they were independent samples. Where most of them are the same, that is
cautious: it finds less than a paired comparison would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_gnus.gates.pairing import CannotPair, Pairing, ScoredDocument, pair
from pytest_gnus.gates.power import Sensitivity
from pytest_gnus.gates.regression import relative_drop

if TYPE_CHECKING:
    from pytest_gnus.gates.intervals import Estimate

#: Below this, "insufficient data".
MINIMUM_PAIRS = 30
#: Cluster-robust errors are too small with fewer clusters (Cameron and Miller 2015: 20 to 50 are "few").
MINIMUM_CLUSTERS = 20
#: By how much a reported score may differ from the mean of its documents and still be that mean.
MEAN_TOLERANCE = 1e-6


@dataclass(frozen=True)
class NotCompared:
    """Why there is no comparison, and over how many documents it would have been."""

    reason: str
    n: int = 0


@dataclass(frozen=True)
class Comparison:
    """The candidate against the reference. Drops are in units of the score, positive where it is worse.

    `n` counts the pairs, or the documents of the smaller side, each different document once; `duplicates`
    those that repeat one of them. `n_clusters` counts clusters that the benchmark names, None without them.
    `relative_drop` is None where the reference is zero. `mean_of_documents` says whether the reported
    scores are the means of the documents compared here, None where the caller gave none: where it is False,
    the interval and the p-value are of another quantity than the reported score, and prove nothing about
    it.
    """

    absolute_drop: float
    relative_drop: float | None
    ci95: tuple[float, float]
    t_interval: tuple[float, float] | None
    p_value: float
    n: int
    n_clusters: int | None
    method: str
    paired: bool
    only_in_reference: int
    only_in_candidate: int
    reference_mean: float
    candidate_mean: float
    mean_of_documents: bool | None
    higher_is_better: bool
    sensitivity: Sensitivity
    duplicates: int = 0

    @property
    def significant(self) -> bool:
        """Whether the interval excludes zero, on either side."""
        return self.ci95[0] > 0.0 or self.ci95[1] < 0.0

    @property
    def significant_drop(self) -> bool:
        return self.ci95[0] > 0.0

    @property
    def detectable_drop(self) -> float | None:
        """The smallest true drop that this n would have found with 80 % power; `None` where unknown."""
        return self.sensitivity.detectable_drop

    def documents_needed(self, drop: float) -> int | None:
        """About how many different documents find an absolute drop with 80 % power; `None` where not known.

        Raises:
            ValueError: `drop` is not above zero.
        """
        needed = self.sensitivity.documents_needed(drop)
        if needed is None or not self.duplicates:
            return needed
        # The sensitivity counts every copy, of which `n` are different.
        return math.ceil(needed * self.n / (self.n + self.duplicates))

    def is_of(self, reference: float, candidate: float) -> bool:
        """Whether these reported scores are the means of the documents compared here."""
        return _are_means((self.reference_mean, self.candidate_mean), (reference, candidate))

    def underpowered(self, drop: float) -> str | None:
        """What to say of a limit (an absolute drop) that is tighter than what could have been found."""
        detectable = self.detectable_drop
        if detectable is None or drop >= detectable:
            return None
        seen = f"underpowered: {self.n} documents show a drop of {detectable:.4f} or more"
        if drop <= 0.0:
            return f"{seen}; no number of documents shows a drop of zero"
        return f"{seen}; a drop of {drop:.4f} needs about {self.documents_needed(drop)} documents"

    def summary(self) -> str:
        """One line: the drop, its interval, p, over what."""
        low, high = self.ci95
        over = f"{self.n} {'pairs' if self.paired else 'documents a side'}"
        clusters = f" in {self.n_clusters} clusters" if self.n_clusters is not None else ""
        copies = f" with {self.duplicates} duplicates" if self.duplicates else ""
        apart = ""
        if not self.paired:
            apart = (
                f"; not the same documents: {self.only_in_reference} only in the reference, "
                f"{self.only_in_candidate} only in the candidate"
            )
        return (
            f"absolute drop {self.absolute_drop:+.4f}, 95% interval {low:+.4f} to {high:+.4f}, "
            f"p = {self.p_value:.2g}, {'' if self.significant else 'not '}significant, "
            f"{over}{copies}{clusters} ({self.method}){apart}"
        )

    def to_record(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "absolute_drop": self.absolute_drop,
            "relative_drop": self.relative_drop,
            "ci95": list(self.ci95),
            "t_interval": list(self.t_interval) if self.t_interval else None,
            "p_value": self.p_value,
            "significant": self.significant,
            "n": self.n,
            "duplicates": self.duplicates,
            "n_clusters": self.n_clusters,
            "method": self.method,
            "paired": self.paired,
            "only_in_reference": self.only_in_reference,
            "only_in_candidate": self.only_in_candidate,
            "reference_mean": self.reference_mean,
            "candidate_mean": self.candidate_mean,
            "mean_of_documents": self.mean_of_documents,
            "higher_is_better": self.higher_is_better,
            "detectable_drop": self.detectable_drop,
        }


def compare(
    reference: Sequence[ScoredDocument],
    candidate: Sequence[ScoredDocument],
    *,
    higher_is_better: bool = True,
    reported: tuple[float, float] | None = None,
    minimum_pairs: int = MINIMUM_PAIRS,
    minimum_clusters: int = MINIMUM_CLUSTERS,
) -> Comparison | NotCompared:
    """Compare two measurements document by document. The same outcomes give the same numbers, in any order.

    Args:
        reported: the scores that the reference and the candidate were reported with.
        minimum_pairs: fewer pairs (documents on a side, where they are unpaired) are insufficient data; a
            document that is written several times counts once.
        minimum_clusters: likewise for clusters, where documents come in them. Neither goes below 2.

    Raises:
        ValueError: a score is not finite.
    """
    try:
        pairing = pair(reference, candidate)
    except CannotPair as error:
        return NotCompared(str(error), min(len(reference), len(candidate)))
    return compare_pairing(
        pairing,
        higher_is_better=higher_is_better,
        reported=reported,
        minimum_pairs=minimum_pairs,
        minimum_clusters=minimum_clusters,
    )


def compare_pairing(
    pairing: Pairing,
    *,
    higher_is_better: bool = True,
    reported: tuple[float, float] | None = None,
    minimum_pairs: int = MINIMUM_PAIRS,
    minimum_clusters: int = MINIMUM_CLUSTERS,
) -> Comparison | NotCompared:
    """`compare`, for documents that are already side by side."""
    if reported is not None and not all(map(math.isfinite, reported)):
        raise ValueError(f"the reported scores are {reported}")
    smaller = min(pairing.reference, pairing.candidate, key=lambda side: side.distinct)
    n = smaller.distinct
    lacking = _lacking(pairing, n, max(minimum_pairs, 2), max(minimum_clusters, 2))
    if lacking is not None:
        return NotCompared(f"insufficient data: {lacking}", n)
    old, new = pairing.reference, pairing.candidate
    sign = 1.0 if higher_is_better else -1.0
    if pairing.paired:
        differences = [sign * (a - b) for a, b in zip(old.scores, new.scores, strict=True)]
        estimate, drop = _paired(pairing, differences), math.fsum(differences) / len(differences)
    else:
        estimate, drop = _unpaired(pairing, higher_is_better), sign * (old.mean - new.mean)
    return Comparison(
        absolute_drop=drop,
        relative_drop=relative_drop(new.mean, old.mean, higher_is_better=higher_is_better),
        ci95=estimate.ci95,
        t_interval=estimate.t_interval,
        p_value=estimate.p_value,
        n=n,
        n_clusters=_clusters(pairing),
        method=estimate.method,
        paired=pairing.paired,
        only_in_reference=pairing.only_in_reference,
        only_in_candidate=pairing.only_in_candidate,
        reference_mean=old.mean,
        candidate_mean=new.mean,
        mean_of_documents=None if reported is None else _are_means((old.mean, new.mean), reported),
        higher_is_better=higher_is_better,
        sensitivity=estimate.sensitivity,
        duplicates=smaller.duplicates,
    )


def _paired(pairing: Pairing, differences: Sequence[float]) -> Estimate:
    # NumPy and SciPy, half a second of imports, are loaded only where numbers are asked for.
    from pytest_gnus.gates import intervals

    old, new = pairing.reference, pairing.candidate
    labels = new.labels if new.clustered else None
    if not (old.binary and new.binary):
        return intervals.paired_scores(differences, labels, spread=_spread(pairing))
    if labels is not None:
        return intervals.paired_binary_clustered(differences, labels)
    return intervals.paired_binary(differences.count(1.0), differences.count(-1.0), len(differences))


def _unpaired(pairing: Pairing, higher_is_better: bool) -> Estimate:
    from pytest_gnus.gates import intervals

    # The drop is the mean of the first less that of the second.
    sides = (pairing.reference, pairing.candidate)
    first, second = sides if higher_is_better else sides[::-1]
    clustered = first.clustered or second.clustered
    if clustered or not (first.binary and second.binary):
        return intervals.unpaired_scores(first, second, clustered=clustered, spread=_spread(pairing))
    hits = [(side.scores.count(1.0), len(side.scores)) for side in (first, second)]
    return intervals.unpaired_binary(hits[0], hits[1])


def _lacking(pairing: Pairing, n: int, minimum_pairs: int, minimum_clusters: int) -> str | None:
    sides = (pairing.reference, pairing.candidate)
    if n < minimum_pairs:
        kind = "different " if any(side.duplicates for side in sides) else ""
        return f"{n} {'pairs of ' if pairing.paired else ''}{kind}documents, {minimum_pairs} are needed"
    for side in sides:
        clusters = len(set(side.labels))
        if side.clustered and clusters < minimum_clusters:
            return f"{n} documents in {clusters} clusters, {minimum_clusters} are needed"
    return None


def _clusters(pairing: Pairing) -> int | None:
    sides = (pairing.reference, pairing.candidate)
    if all(cluster is None for side in sides for cluster in side.clusters):
        return None
    return min(len(set(side.labels)) for side in sides)


def _spread(pairing: Pairing) -> float:
    scores = pairing.reference.scores + pairing.candidate.scores
    return max(scores) - min(scores)


def _are_means(means: tuple[float, float], reported: tuple[float, float]) -> bool:
    """Both sides must fit: a difference alone could agree by chance."""
    return all(
        math.isclose(mean, score, rel_tol=MEAN_TOLERANCE, abs_tol=MEAN_TOLERANCE)
        for mean, score in zip(means, reported, strict=True)
    )
