"""Tests and 95 % intervals for the difference of two measurements. Imports NumPy and SciPy: load it late.

Differences are drops: positive is worse. Every function gives an interval and the two-sided p-value of its
test. The interval reaches zero wherever p > 0.05 (`cautious`). `Estimate.significant` says whether it
excludes zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, gammaln, ndtr, ndtri, stdtr, stdtrit

from pytest_gnus.gates.pairing import Side
from pytest_gnus.gates.power import (
    ALPHA,
    POWER,
    DiscordanceSensitivity,
    MeanSensitivity,
    Sensitivity,
    sparse_drop,
)

Interval = tuple[float, float]
Floats = NDArray[np.float64]

#: Resamples of a bootstrap, and the seed that makes each comparison repeatable.
RESAMPLES = 10_000
SEED = 20_240_229
#: Numbers held in memory at once while resampling. It changes no result that is not in the last bit.
_BATCH = 1_000_000
#: With fewer differing pairs than this, no exact test can reach p <= 0.05: 2^(1 - 5) is 0.0625.
_ENOUGH_DIFFERING = 6
_Z = float(ndtri(1 - ALPHA / 2))


@dataclass(frozen=True)
class Estimate:
    """An interval and its p-value, and the t interval beside it, None where nothing varies."""

    ci95: Interval
    p_value: float
    t_interval: Interval | None
    method: str
    sensitivity: Sensitivity

    @property
    def significant(self) -> bool:
        """Whether the interval excludes zero. Then p <= 0.05 too."""
        low, high = self.ci95
        return low > 0.0 or high < 0.0


def cautious(estimate: Estimate) -> Estimate:
    """The estimate with its interval extended to zero where p > 0.05. The p-value stays that of the test.

    The interval may hold zero although p <= 0.05: within the resolution of a bootstrap, or between two tests
    that differ in their last step. `significant` is False there.
    """
    if estimate.p_value <= ALPHA:
        return estimate
    low, high = estimate.ci95
    return replace(estimate, ci95=(min(low, 0.0), max(high, 0.0)))


# --- pairs of right-or-wrong outcomes ---


def paired_binary(worse: int, better: int, n: int) -> Estimate:
    """Exact McNemar test, and Tango's score interval extended to zero where that test does not reject.

    The exact test holds its level whatever the share of pairs that differ: with no true change a drop is
    called significant in at most 2.5 % of cases. Tango's interval alone inverts the asymptotic test, which
    calls 4 of 4 pairs a drop (p = 0.0455, exactly 0.125).

    Args:
        worse: pairs right on the reference and wrong on the candidate.
        better: pairs the other way round.
        n: all pairs.
    """
    drop, discordant = (worse - better) / n, worse + better
    error = math.sqrt((discordant / n - drop**2) / (n - 1))
    return cautious(
        Estimate(
            ci95=tango_interval(worse, better, n),
            p_value=mcnemar_p(worse, better),
            t_interval=_t_interval(drop, error, n - 1) if error > 0.0 else None,
            method="exact McNemar test, Tango score interval",
            sensitivity=DiscordanceSensitivity(n, discordant),
        )
    )


def mcnemar_p(worse: int, better: int) -> float:
    """Two-sided exact p: twice the tail of the smaller count in `worse + better` tosses of a coin."""
    return min(1.0, 2.0 * float(bdtr(min(worse, better), worse + better, 0.5)))


def tango_interval(worse: int, better: int, n: int) -> Interval:
    """Tango's score interval for the difference (worse - better) / n of paired proportions.

    It holds each difference d that the score test does not reject, |z(d)| <= 1.96, with

        z(d) = (worse - better - n d) / sqrt(n (2 q + d (1 - d)))

    and q the most likely share of `better` pairs under d (Tango 1998, Statistics in Medicine 17, 891-908).
    """
    difference = (worse - better) / n

    def score(d: float) -> float:
        linear = worse + better - (2 * n - worse + better) * d
        q = (linear + math.sqrt(max(linear**2 + 8 * n * better * d * (1 - d), 0.0))) / (4 * n)
        distance = worse - better - n * d
        variance = n * (2 * q + d * (1 - d))
        if distance == 0.0:
            return 0.0
        return distance / math.sqrt(variance) if variance > 0.0 else math.copysign(math.inf, distance)

    low = -1.0 if difference == -1.0 else _crossing(lambda d: score(d) - _Z, -1.0, difference)
    high = 1.0 if difference == 1.0 else _crossing(lambda d: score(d) + _Z, difference, 1.0)
    return low, high


def _crossing(falling: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that falls from `low` to `high` is zero, by bisection.

    `scipy.optimize` has the same, and its import takes longer than many a gate.
    """
    while high - low > 1e-12:
        middle = (low + high) / 2
        if falling(middle) > 0.0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


# --- pairs of other outcomes, and clusters ---


def paired_scores(differences: Sequence[float], labels: Sequence[int] | None, *, spread: float) -> Estimate:
    """BCa bootstrap over documents, or over clusters of them, with the t interval beside it.

    `RESAMPLES` resamples of as many documents (clusters) as there are, from a fixed seed. The bootstrap's
    p-value is the level at which its interval ends at zero (Efron and Tibshirani 1993, An Introduction to
    the Bootstrap, section 15.4). The t test must agree before zero is excluded: where few documents differ,
    BCa alone is too narrow (with 20 of 100 differing and no true change it finds a drop in 6 % of cases, t
    in 2 %).

    Args:
        differences: one for each document, positive where the candidate is worse.
        labels: the cluster of each document; None where all are independent.
        spread: the range of the scores, for what can be detected where nearly all pairs agree.
    """
    mean = _clustered_mean(np.asarray(differences, dtype=np.float64), labels)
    one, other = ("", "") if labels is None else ("cluster ", "cluster-robust ")
    method = f"BCa {one}bootstrap with {RESAMPLES} resamples, {other}t test"
    if mean.standard_error == 0.0:
        return _no_spread(mean, method, spread)
    ci95, p_value = _bca(mean)
    sensitivity = _mean_sensitivity(mean, spread)
    return cautious(Estimate(ci95, max(p_value, mean.p_value), mean.t_interval, method, sensitivity))


def paired_binary_clustered(differences: Sequence[float], labels: Sequence[int]) -> Estimate:
    """Cluster-robust t test and interval: McNemar's test takes all documents as independent."""
    values = np.asarray(differences, dtype=np.float64)
    mean, independent = _clustered_mean(values, labels), _clustered_mean(values, None)
    method = "cluster-robust t test (CR1)"
    discordant = int(np.count_nonzero(values))
    if mean.standard_error == 0.0:
        # Nothing shows how far the documents of a cluster agree: each cluster counts as one document.
        effect = mean.n / mean.units
        estimate = _no_spread(mean, method, 1.0)
    else:
        effect = max(1.0, (mean.standard_error / independent.standard_error) ** 2)
        interval = _t_interval(mean.value, mean.standard_error, mean.units - 1)
        estimate = cautious(Estimate(interval, mean.p_value, interval, method, _mean_sensitivity(mean, 1.0)))
    return replace(estimate, sensitivity=DiscordanceSensitivity(mean.n, discordant, effect))


@dataclass(frozen=True)
class _ClusteredMean:
    """The mean of documents in clusters, and its cluster-robust standard error.

    With G clusters, residual sums e_g over each of them and n documents in all, the variance is

        G / (G - 1) * sum(e_g^2) / n^2

    which is the sandwich estimator CR1 of a regression on a constant, with t on G - 1 degrees of freedom
    (Cameron and Miller 2015, Journal of Human Resources 50, 317-372). With one document in each it is the
    usual s^2 / n.
    """

    sums: Floats
    sizes: Floats
    value: float
    standard_error: float

    @property
    def n(self) -> int:
        return int(self.sizes.sum())

    @property
    def units(self) -> int:
        return len(self.sums)

    @property
    def differing(self) -> int:
        """Clusters whose documents do not sum up to no difference."""
        return int(np.count_nonzero(self.sums))

    @property
    def p_value(self) -> float:
        """Of the t test, but not below 2^(1 - m) where m clusters differ.

        That is the smallest p of an exact sign-flip test, reached where all that differ do so in one
        direction: few clusters that all fall look steady to a t test, and are what chance gives.
        """
        smallest = min(1.0, 2.0 ** (1 - self.differing))
        if self.standard_error == 0.0:
            return smallest
        return max(smallest, _t_p_value(self.value, self.standard_error, self.units - 1))

    @property
    def t_interval(self) -> Interval | None:
        error = self.standard_error
        return _t_interval(self.value, error, self.units - 1) if error > 0.0 else None


def _clustered_mean(values: Floats, labels: Sequence[int] | None) -> _ClusteredMean:
    n = len(values)
    mean = math.fsum(values) / n
    sums, sizes = values, np.ones(n)
    if labels is not None:
        sums = np.bincount(labels, weights=values).astype(np.float64)
        sizes = np.bincount(labels).astype(np.float64)
    residuals = sums - sizes * mean
    units = len(sums)
    if np.all(values == values[0]):  # the mean of equal numbers may be off by its last bit
        return _ClusteredMean(sums, sizes, float(values[0]), 0.0)
    variance = units / (units - 1) * float(np.sum(residuals**2)) / n**2
    return _ClusteredMean(sums, sizes, mean, math.sqrt(variance))


def _no_spread(mean: _ClusteredMean, method: str, spread: float) -> Estimate:
    """All documents (clusters) differ by the same: the interval is a point, p that of a sign-flip test."""
    return cautious(
        Estimate(
            ci95=(mean.value, mean.value),
            p_value=mean.p_value,
            t_interval=None,
            method=f"{method}; no spread: all differ by the same",
            sensitivity=MeanSensitivity(mean.n, sparse_drop(mean.units, spread)),
        )
    )


def _mean_sensitivity(mean: _ClusteredMean, spread: float) -> Sensitivity:
    """Where too few differ for any claim, their spread is no measure of what a drop would look like."""
    detectable = _detectable(mean.standard_error, mean.units - 1)
    if mean.differing < _ENOUGH_DIFFERING:
        detectable = max(detectable, sparse_drop(mean.units, spread) or 0.0)
    return MeanSensitivity(mean.n, detectable)


def _bca(mean: _ClusteredMean) -> tuple[Interval, float]:
    """The bias-corrected and accelerated interval (Efron 1987, JASA 82, 171-185), and its p-value."""
    means = _resampled_means(mean)
    # Sums of the same floats in another order: what is equal up to rounding is a tie.
    rounding = 1e-12 * float(np.abs(mean.sums).max())
    bias = float(ndtri(_share_below(means, mean.value, rounding)))
    acceleration = _acceleration(mean)
    low, high = (_bca_level(bias, acceleration, z) for z in (-_Z, _Z))
    ci95 = (float(np.quantile(means, low)), float(np.quantile(means, high)))
    # The level whose limit is zero: `_bca_level` solved for its z.
    shifted = float(ndtri(_share_below(means, 0.0, rounding))) - bias
    tail = float(ndtr(shifted / (1.0 + acceleration * shifted) - bias))
    return ci95, min(1.0, 2.0 * min(tail, 1.0 - tail))


def _share_below(means: Floats, value: float, rounding: float) -> float:
    """The share of resamples below a value, ties counted half; kept from 0 and 1, which have no quantile."""
    below = np.count_nonzero(means < value - rounding)
    ties = np.count_nonzero(np.abs(means - value) <= rounding)
    return float(np.clip((below + ties / 2) / RESAMPLES, 0.5 / RESAMPLES, 1.0 - 0.5 / RESAMPLES))


def _bca_level(bias: float, acceleration: float, z: float) -> float:
    return float(ndtr(bias + (bias + z) / (1.0 - acceleration * (bias + z))))


def _acceleration(mean: _ClusteredMean) -> float:
    """From the jackknife: the skewness of the means that leave out one document (cluster) each."""
    left_out = (mean.sums.sum() - mean.sums) / (mean.sizes.sum() - mean.sizes)
    deviations = left_out.mean() - left_out
    squares = float(np.sum(deviations**2))
    return float(np.sum(deviations**3)) / (6.0 * squares**1.5) if squares > 0.0 else 0.0


def _resampled_means(mean: _ClusteredMean) -> Floats:
    generator = np.random.default_rng(SEED)
    rows = max(1, _BATCH // mean.units)
    even = bool(np.all(mean.sizes == mean.sizes[0]))
    batches: list[Floats] = []
    for start in range(0, RESAMPLES, rows):
        shape = (min(rows, RESAMPLES - start), mean.units)
        drawn = generator.integers(0, mean.units, size=shape, dtype=np.int32)
        total = mean.n if even else mean.sizes[drawn].sum(axis=1)
        batches.append(mean.sums[drawn].sum(axis=1) / total)
    return np.concatenate(batches)


# --- measurements of different documents ---


def unpaired_binary(first: tuple[int, int], second: tuple[int, int]) -> Estimate:
    """Fisher's exact test and Newcombe's hybrid score interval, extended to zero where that does not reject.

    Args:
        first: (hits, documents). The drop is the share of hits in `first` less that in `second`.
        second: the same of the other side.
    """
    (a, m), (b, n) = first, second
    error = math.sqrt(a * (m - a) / m**3 + b * (n - b) / n**3)
    detectable = _detectable(error, min(m, n) - 1) if error > 0.0 else sparse_drop(min(m, n), 1.0)
    return cautious(
        Estimate(
            ci95=newcombe_interval(first, second),
            p_value=fisher_p(a, m, b, n),
            t_interval=None,
            method="unpaired: Fisher exact test, Newcombe hybrid score interval",
            sensitivity=MeanSensitivity(min(m, n), detectable),
        )
    )


def newcombe_interval(first: tuple[int, int], second: tuple[int, int]) -> Interval:
    """Of the difference of two independent proportions, each (hits, documents).

    Wilson's score limits l, u of each are combined as d - sqrt((p1 - l1)^2 + (u2 - p2)^2) and
    d + sqrt((u1 - p1)^2 + (p2 - l2)^2) (Newcombe 1998, Statistics in Medicine 17, 873-890, method 10).
    """
    (p1, n1), (p2, n2) = ((hits / n, n) for hits, n in (first, second))
    (low1, high1), (low2, high2) = wilson_interval(p1, n1), wilson_interval(p2, n2)
    difference = p1 - p2
    return (
        max(-1.0, difference - math.hypot(p1 - low1, high2 - p2)),
        min(1.0, difference + math.hypot(high1 - p1, p2 - low2)),
    )


def wilson_interval(share: float, n: float) -> Interval:
    """Wilson's score interval of a proportion over n documents, which need not be a whole number.

        (p + z^2 / 2n ± z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    (Wilson 1927, Journal of the American Statistical Association 22, 209-212). It has a width at 0 and 1 too.
    """
    centre = (n * share + _Z**2 / 2) / (n + _Z**2)
    half = _Z / (n + _Z**2) * math.sqrt(n * share * (1 - share) + _Z**2 / 4)
    low = 0.0 if share == 0.0 else max(0.0, centre - half)
    high = 1.0 if share == 1.0 else min(1.0, centre + half)
    return low, high


def fisher_p(a: int, m: int, b: int, n: int) -> float:
    """Two-sided p of `a` of `m` against `b` of `n`: twice the smaller hypergeometric tail."""
    hits = a + b
    k = np.arange(max(0, hits - n), min(m, hits) + 1)
    logs = _log_choose(m, k) + _log_choose(n, hits - k) - _log_choose(m + n, np.asarray(hits))
    chances = np.exp(logs)
    tails = (float(chances[k <= a].sum()), float(chances[k >= a].sum()))
    return min(1.0, 2.0 * min(tails))


def _log_choose(n: int, k: NDArray[np.int64]) -> Floats:
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1), dtype=np.float64)


def unpaired_scores(first: Side, second: Side, *, clustered: bool, spread: float) -> Estimate:
    """Welch's t test for the mean of `first` less that of `second`, cluster-robust on each side if
    `clustered`.

    The degrees of freedom are Welch and Satterthwaite's, from each side's number of documents (clusters)
    less one.
    """
    means = [
        _clustered_mean(np.asarray(side.scores), side.labels if clustered else None)
        for side in (first, second)
    ]
    difference = means[0].value - means[1].value
    variances = [mean.standard_error**2 for mean in means]
    error = math.sqrt(sum(variances))
    units = min(mean.units for mean in means)
    n = min(mean.n for mean in means)
    method = f"unpaired: {'cluster-robust ' if clustered else ''}Welch t test"
    if error == 0.0:
        p_value = 1.0 if difference == 0.0 else 2.0 ** (1 - units)
        sensitivity = MeanSensitivity(n, sparse_drop(units, spread))
        return cautious(Estimate((difference, difference), p_value, None, method, sensitivity))
    freedom = error**4 / sum(v**2 / (mean.units - 1) for v, mean in zip(variances, means, strict=True))
    interval = _t_interval(difference, error, freedom)
    return cautious(
        Estimate(
            ci95=interval,
            p_value=_t_p_value(difference, error, freedom),
            t_interval=interval,
            method=method,
            sensitivity=MeanSensitivity(n, _detectable(error, freedom)),
        )
    )


def _t_interval(value: float, error: float, freedom: float) -> Interval:
    half = float(stdtrit(freedom, 1 - ALPHA / 2)) * error
    return value - half, value + half


def _t_p_value(value: float, error: float, freedom: float) -> float:
    return 2.0 * float(stdtr(freedom, -abs(value) / error))


def _detectable(error: float, freedom: float) -> float:
    return float(stdtrit(freedom, 1 - ALPHA / 2) + stdtrit(freedom, POWER)) * error


# --- one measurement ---


def mean_error(side: Side) -> float | None:
    """The standard error of a mean over documents, cluster-robust (CR1) in clusters; None for a single one.

    Documents that are written several times are one cluster: each of 12 documents three times has the error
    of the 12.
    """
    labels = side.labels if side.clustered else None
    units = len(side.scores) if labels is None else len(set(labels))
    if units < 2:
        return None
    return _clustered_mean(np.asarray(side.scores, dtype=np.float64), labels).standard_error


def mean_interval(side: Side) -> tuple[Interval | None, str]:
    """The 95 % interval of a mean over documents, and its method; None where nothing varies or n < 2.

    | documents | right or wrong | other scores |
    | --- | --- | --- |
    | independent | Wilson's score interval | mean ± t(0.975, n - 1) s / sqrt(n) |
    | some written several times | Wilson's over `effective_documents` | cluster-robust t (CR1) |
    | in named clusters | cluster-robust t (CR1) | cluster-robust t (CR1) |

    s is the standard deviation of the documents' scores; the t of clusters counts clusters in the place of n.
    In named clusters whose documents are all right or all wrong it is Wilson's over the clusters.
    """
    if not side.scores:
        return None, "no documents"
    labels = side.labels if side.clustered else None
    units = len(side.scores) if labels is None else len(set(labels))
    if side.binary and labels is None:
        return wilson_interval(side.mean, units), "Wilson"
    if side.binary and not side.named_clusters:
        return wilson_interval(side.mean, effective_documents(side)), "Wilson over distinct documents"
    if units < 2:
        return None, f"fewer than two {'documents' if labels is None else 'clusters'}"
    interval = _clustered_mean(np.asarray(side.scores, dtype=np.float64), labels).t_interval
    if interval is not None:
        return interval, "t over documents" if labels is None else "cluster-robust t"
    if side.binary:
        return wilson_interval(side.mean, units), "Wilson over clusters"
    return None, "no spread"


def effective_documents(side: Side) -> float:
    """How many independent documents say as much about the mean: n over Kish's design effect.

    The effect is the variance between clusters, sum(e_g^2) / n^2 with e_g the residual sum of a cluster, over
    that of independent documents, sum(e_i^2) / n^2 (Kish 1965, Survey Sampling, section 8.2). Both are
    without small-sample factors, so that 12 documents written three times are 12. Without any spread it is
    the number of clusters; it is never more than the number of documents.
    """
    labels = side.labels
    scores = np.asarray(side.scores, dtype=np.float64)
    residuals = scores - side.mean
    squares = float(np.sum(residuals**2))
    if np.all(scores == scores[0]):
        return float(len(set(labels)))
    between = float(np.sum(np.bincount(labels, weights=residuals) ** 2))
    return len(scores) / max(1.0, between / squares)
