"""Tests and intervals against hand-made sums, published examples and other implementations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from pytest_gnus.gates import intervals
from pytest_gnus.gates.intervals import Estimate
from pytest_gnus.gates.pairing import Side
from pytest_gnus.gates.power import MeanSensitivity

Z = 1.959963984540054


def excludes_zero(estimate: Estimate) -> bool:
    return estimate.ci95[0] > 0.0 or estimate.ci95[1] < 0.0


def approx(interval: tuple[float, float], tolerance: float) -> object:
    return pytest.approx(interval, abs=tolerance)


@pytest.mark.parametrize(
    ("ci95", "p_value", "cautious", "significant"),
    [
        ((0.1, 0.3), 0.2, (0.0, 0.3), False),
        ((-0.3, -0.1), 0.2, (-0.3, 0.0), False),
        ((-0.1, 0.3), 0.2, (-0.1, 0.3), False),
        ((0.1, 0.3), 0.05, (0.1, 0.3), True),
        ((-0.3, -0.1), 0.01, (-0.3, -0.1), True),
        ((-0.1, 0.3), 0.04, (-0.1, 0.3), False),
        ((0.0, 0.3), 0.04, (0.0, 0.3), False),
    ],
)
def test_the_interval_is_cautious_and_the_p_value_stays_the_tests_own(
    ci95: tuple[float, float], p_value: float, cautious: tuple[float, float], significant: bool
) -> None:
    found = intervals.cautious(Estimate(ci95, p_value, None, "", MeanSensitivity(30, None)))
    assert (found.ci95, found.p_value, found.significant) == (cautious, p_value, significant)


# --- McNemar and Tango ---


@pytest.mark.parametrize(("worse", "better"), [(6, 0), (9, 1), (7, 2), (25, 15), (3, 3), (0, 0), (80, 120)])
def test_mcnemar_is_twice_the_binomial_tail(worse: int, better: int) -> None:
    m = worse + better
    tail = sum((Fraction(math.comb(m, k), 2**m) for k in range(min(worse, better) + 1)), Fraction(0))
    assert intervals.mcnemar_p(worse, better) == pytest.approx(float(min(Fraction(1), 2 * tail)), rel=1e-12)


def test_mcnemar_by_hand() -> None:
    """9 against 1: 2 * (1 + 10) / 1024."""
    assert intervals.mcnemar_p(9, 1) == pytest.approx(22 / 1024)


def test_tango_as_published() -> None:
    """1 and 7 of 21 (Fagerland, Lydersen and Laake 2014, Statistics in Medicine 33, 2850-2875)."""
    assert intervals.tango_interval(1, 7, 21) == approx((-0.517, -0.026), 5e-4)


def closed_form(b: int, c: int, n: int) -> NDArray[np.float64]:
    """The roots of a quartic (Yang, Sun and Hardin 2013, Statistics in Medicine 32, 1336-1342)."""
    g = Z**2
    d = b - c
    roots = np.roots(
        [
            n**2 * (n / g + 1) ** 2,
            -n * d * (n / g + 1) * (4 * n / g + 1),
            2 * n * d**2 * (3 * n / g + 2) / g - n**2 * ((b + c) / g + 1),
            n * d * (2 * (b + c) / g + 1) - d**3 * (4 * n / g + 1) / g,
            d**2 * (d**2 / g - (b + c)) / g,
        ]
    )
    return np.sort(roots[np.abs(roots.imag) < 1e-6].real)


@pytest.mark.parametrize(
    ("worse", "better", "n"),
    [
        (6, 16, 161),
        (12, 2, 50),
        (40, 20, 160),
        (5, 0, 30),
        (0, 5, 30),
        (0, 0, 30),
        (3, 3, 40),
        (110, 90, 2000),
    ],
)
def test_tango_is_the_closed_form(worse: int, better: int, n: int) -> None:
    roots = closed_form(worse, better, n)
    assert intervals.tango_interval(worse, better, n) == approx((roots[0], roots[-1]), 1e-6)


def test_tango_where_every_pair_falls_or_rises() -> None:
    low, high = intervals.tango_interval(30, 0, 30)
    assert high == 1.0
    assert 0.7 < low < 0.8
    assert intervals.tango_interval(0, 30, 30) == approx((-1.0, -low), 1e-9)


@pytest.mark.parametrize("n", [30, 400])
def test_the_exact_test_and_the_interval_say_the_same(n: int) -> None:
    """For every split of up to 60 pairs that differ."""
    for discordant in range(min(n, 60) + 1):
        for worse in range(discordant + 1):
            found = intervals.paired_binary(worse, discordant - worse, n)
            assert excludes_zero(found) == (intervals.mcnemar_p(worse, discordant - worse) <= 0.05)
            assert found.p_value == intervals.mcnemar_p(worse, discordant - worse)


def test_the_interval_is_tangos_where_the_test_rejects_and_reaches_zero_where_it_does_not() -> None:
    assert intervals.paired_binary(20, 5, 200).ci95 == intervals.tango_interval(20, 5, 200)
    low, high = intervals.tango_interval(5, 0, 100)
    assert low > 0.0
    assert intervals.paired_binary(5, 0, 100).ci95 == (0.0, high)


@pytest.mark.parametrize("discordance", [0.005, 0.02, 0.05, 0.1, 0.3])
@pytest.mark.parametrize("n", [30, 100])
def test_without_a_true_change_at_most_2_5_percent_are_called_a_drop(n: int, discordance: float) -> None:
    """Exactly, by summing over all that can happen; Tango's interval alone goes beyond it."""
    found = tango = 0.0
    for discordant in range(n + 1):
        chance = stats.binom.pmf(discordant, n, discordance)
        if chance < 1e-9:
            continue
        for worse in range(discordant // 2, discordant + 1):
            both = chance * stats.binom.pmf(worse, discordant, 0.5)
            tango += both * (intervals.tango_interval(worse, discordant - worse, n)[0] > 0.0)
            found += both * (intervals.paired_binary(worse, discordant - worse, n).ci95[0] > 0.0)
    assert found <= 0.025
    assert found <= tango


@pytest.mark.parametrize(("drop", "discordance"), [(0.0, 0.1), (0.05, 0.1), (0.1, 0.15), (0.02, 0.02)])
def test_the_interval_holds_the_true_drop_in_95_percent(drop: float, discordance: float) -> None:
    """Exactly, for 60 pairs. A score interval holds its level on average over the truth, not at each."""
    n, covered = 60, 0.0
    share_worse = (1 + drop / discordance) / 2
    for discordant in range(n + 1):
        chance = stats.binom.pmf(discordant, n, discordance)
        if chance < 1e-9:
            continue
        for worse in range(discordant + 1):
            low, high = intervals.paired_binary(worse, discordant - worse, n).ci95
            if low <= drop <= high:
                covered += chance * stats.binom.pmf(worse, discordant, share_worse)
    assert covered >= 0.94


def test_the_t_interval_of_pairs_is_scipys() -> None:
    differences = [1.0] * 12 + [-1.0] * 5 + [0.0] * 83
    expected = stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
    assert intervals.paired_binary(12, 5, 100).t_interval == approx(tuple(expected), 1e-12)
    assert intervals.paired_binary(0, 0, 100).t_interval is None


counts = st.integers(0, 40)


@given(worse=counts, better=counts, agree=st.integers(2, 200))
def test_swapping_the_sides_turns_the_sign(worse: int, better: int, agree: int) -> None:
    n = worse + better + agree
    found, swapped = (
        intervals.paired_binary(worse, better, n),
        intervals.paired_binary(better, worse, n),
    )
    assert found.ci95 == approx((-swapped.ci95[1], -swapped.ci95[0]), 1e-9)
    assert found.p_value == swapped.p_value
    assert found.ci95[0] <= (worse - better) / n <= found.ci95[1]


# --- other outcomes: bootstrap and t ---


def rouge(seed: int = 3, n: int = 60, shift: float = 0.03) -> list[float]:
    """Differences as between two summarizers: skewed, mostly small."""
    generator = np.random.default_rng(seed)
    return [float(value) for value in generator.exponential(0.1, n) - 0.1 + shift]


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_the_bca_interval_is_scipys(seed: int) -> None:
    """Of other resamples: each end may be off by a few hundredths of the width."""
    differences = rouge(seed)
    expected = stats.bootstrap(
        (differences,), np.mean, n_resamples=20_000, method="BCa", random_state=np.random.default_rng(8)
    ).confidence_interval
    found = intervals._bca(intervals._clustered_mean(np.array(differences), None))[0]
    width = expected.high - expected.low
    assert found == approx((expected.low, expected.high), 0.03 * width)


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_the_bca_p_value_is_the_level_at_which_scipys_interval_ends_at_zero(seed: int) -> None:
    differences = rouge(seed)
    p_value = intervals._bca(intervals._clustered_mean(np.array(differences), None))[1]
    expected = stats.bootstrap(
        (differences,),
        np.mean,
        confidence_level=1 - p_value,
        n_resamples=20_000,
        method="BCa",
        random_state=np.random.default_rng(8),
    )
    low, high = expected.confidence_interval
    assert min(abs(low), abs(high)) <= 0.03 * (high - low)


def test_the_t_interval_and_test_beside_it_are_scipys() -> None:
    differences = rouge(n=40)
    expected = stats.ttest_1samp(differences, 0.0)
    found = intervals.paired_scores(differences, None, spread=1.0)
    assert found.t_interval == approx(tuple(expected.confidence_interval(0.95)), 1e-12)
    assert found.p_value >= expected.pvalue * (1 - 1e-9)


def test_a_clear_drop_is_found_and_noise_is_not() -> None:
    drop = intervals.paired_scores(rouge(n=200, shift=0.05), None, spread=1.0)
    assert drop.ci95[0] > 0.0
    assert drop.p_value < 0.001
    noise = intervals.paired_scores([0.1, -0.1] * 50 + [0.02], None, spread=1.0)
    assert noise.ci95[0] < 0.0 < noise.ci95[1]
    assert noise.p_value > 0.5


def test_five_documents_that_fall_are_no_drop_yet() -> None:
    """Chance alone gives five of five with 1/16; t and bootstrap both call it a drop."""
    differences = [0.5, 0.4, 0.5, 0.6, 0.5] + [0.0] * 195
    assert stats.ttest_1samp(differences, 0.0).pvalue < 0.05
    found = intervals.paired_scores(differences, None, spread=1.0)
    assert found.ci95[0] == 0.0
    assert found.p_value == pytest.approx(1 / 16)
    six = intervals.paired_scores([0.5, *differences[:-1]], None, spread=1.0)
    assert six.ci95[0] > 0.0


def test_the_bootstrap_is_not_believed_where_t_finds_nothing() -> None:
    """With few differing documents BCa is too narrow."""
    generator = np.random.default_rng(0)
    disagreements = 0
    for _ in range(60):
        values = np.where(generator.random(60) < 0.2, generator.normal(0.06, 0.15, 60), 0.0)
        mean = intervals._clustered_mean(values, None)
        (low, _), _ = intervals._bca(mean)
        found = intervals.paired_scores(list(values), None, spread=1.0)
        disagreements += low > 0.0 >= found.ci95[0]
        if found.ci95[0] > 0.0:
            assert low > 0.0
            assert mean.p_value <= 0.05
    assert disagreements > 0


def test_no_difference_in_any_document() -> None:
    found = intervals.paired_scores([0.0] * 40, None, spread=1.0)
    assert (found.ci95, found.p_value, found.t_interval) == ((0.0, 0.0), 1.0, None)
    assert found.sensitivity.detectable_drop == pytest.approx(7.7 / 40, rel=0.07)


def test_few_differences_do_not_mean_that_everything_would_be_seen() -> None:
    """The standard error of 3 documents that change by 0.01 promises more than the other 97 can hold."""
    found = intervals.paired_scores([0.01, -0.01, 0.01] + [0.0] * 97, None, spread=0.5)
    assert found.sensitivity.detectable_drop == pytest.approx(0.5 * 0.077, rel=0.01)
    many = intervals.paired_scores([0.01, -0.01] * 3 + [0.0] * 94, None, spread=0.5)
    assert (many.sensitivity.detectable_drop or 1.0) < 0.001


def test_the_same_drop_in_every_document() -> None:
    found = intervals.paired_scores([0.1] * 40, None, spread=1.0)
    assert (found.ci95, found.p_value) == ((0.1, 0.1), 2.0**-39)
    assert "no spread" in found.method


def test_what_a_mean_could_have_seen() -> None:
    """(t(0.975) + t(0.8)) on 39 degrees of freedom times the standard error."""
    differences = rouge(n=40)
    found = intervals.paired_scores(differences, None, spread=1.0).sensitivity.detectable_drop
    error = np.std(differences, ddof=1) / math.sqrt(40)
    assert found == pytest.approx((stats.t.ppf(0.975, 39) + stats.t.ppf(0.8, 39)) * error)


def test_the_resampling_is_the_same_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = intervals.paired_scores(rouge(n=37), None, spread=1.0)
    monkeypatch.setattr(intervals, "_BATCH", 37 * 7)
    assert intervals.paired_scores(rouge(n=37), None, spread=1.0) == whole


differences = st.lists(st.sampled_from([-0.5, -0.25, 0.0, 0.0, 0.25, 0.75]), min_size=8, max_size=40)


@settings(deadline=None, max_examples=40)
@given(values=differences)
def test_the_bootstrap_turns_its_sign_with_the_sides_and_scales_with_the_score(values: list[float]) -> None:
    found = intervals.paired_scores(values, None, spread=1.0)
    swapped = intervals.paired_scores([-value for value in values], None, spread=1.0)
    scaled = intervals.paired_scores([8 * value for value in values], None, spread=8.0)
    assert found.ci95 == approx((-swapped.ci95[1], -swapped.ci95[0]), 1e-9)
    assert found.p_value == pytest.approx(swapped.p_value)
    assert scaled.ci95 == approx((8 * found.ci95[0], 8 * found.ci95[1]), 1e-9)
    assert scaled.p_value == pytest.approx(found.p_value)
    assert found.significant == excludes_zero(found)
    assert found.p_value <= 0.05 or not found.significant
    assert all(map(math.isfinite, (*found.ci95, found.p_value)))


# --- clusters ---


def sandwich(values: NDArray[np.float64], labels: NDArray[np.int64]) -> tuple[float, float]:
    """Mean and CR1 standard error as a regression on a constant, by its matrices."""
    design = np.ones((len(values), 1))
    bread = np.linalg.inv(design.T @ design)
    residuals = values - (design @ (bread @ design.T @ values[:, None]))[:, 0]
    meat = np.zeros((1, 1))
    for cluster in np.unique(labels):
        score = design[labels == cluster].T @ residuals[labels == cluster][:, None]
        meat += score @ score.T
    groups, (n, k) = len(np.unique(labels)), design.shape
    correction = groups / (groups - 1) * (n - 1) / (n - k)
    return float(values.mean()), math.sqrt((correction * bread @ meat @ bread)[0, 0])


def clustered(seed: int, binary: bool = False) -> tuple[list[float], list[int]]:
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(25), generator.integers(1, 8, 25))
    shared = generator.normal(0.05, 0.2, 25)[labels]
    values = shared + generator.normal(0, 0.1, len(labels))
    if binary:
        values = np.where(np.abs(values) > 0.2, np.sign(values), 0.0)
    return [float(value) for value in values], [int(label) for label in labels]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_cluster_robust_errors_are_those_of_the_sandwich(seed: int) -> None:
    values, labels = clustered(seed, binary=True)
    mean, error = sandwich(np.array(values), np.array(labels))
    half = stats.t.ppf(0.975, 24) * error
    found = intervals.paired_binary_clustered(values, labels)
    assert found.t_interval == approx((mean - half, mean + half), 1e-12)
    assert found.p_value == pytest.approx(2 * stats.t.sf(abs(mean) / error, 24))
    assert found.method == "cluster-robust t test (CR1)"
    scores = intervals.paired_scores(*clustered(seed), spread=1.0)
    mean, error = sandwich(np.array(clustered(seed)[0]), np.array(labels))
    half = stats.t.ppf(0.975, 24) * error
    assert scores.t_interval == approx((mean - half, mean + half), 1e-12)


def test_the_cluster_bootstrap_draws_whole_clusters() -> None:
    """scipy resamples the clusters' numbers; the mean over their documents is taken from those.

    Far from zero, so that it matters how many documents the drawn clusters have.
    """
    values, labels = clustered(2)
    values = [value + 1.0 for value in values]
    sums, sizes = np.bincount(labels, weights=values), np.bincount(labels)

    def mean(drawn: NDArray[np.int64]) -> float:
        return float(sums[drawn].sum() / sizes[drawn].sum())

    expected = stats.bootstrap(
        (np.arange(25),),
        mean,
        vectorized=False,
        n_resamples=20_000,
        method="BCa",
        random_state=np.random.default_rng(4),
    ).confidence_interval
    found = intervals._bca(intervals._clustered_mean(np.array(values), labels))[0]
    assert found == approx((expected.low, expected.high), 0.03 * (expected.high - expected.low))


def test_copies_of_a_document_prove_nothing_more() -> None:
    """Each document four times in a cluster of its own: the interval of the single documents."""
    single = [1.0] * 14 + [-1.0] * 4 + [0.0] * 32
    labels = [label for label in range(50) for _ in range(4)]
    copied = intervals.paired_binary_clustered([value for value in single for _ in range(4)], labels)
    alone = intervals.paired_binary(14, 4, 50)
    assert copied.t_interval == approx(alone.t_interval or (0.0, 0.0), 1e-12)
    assert copied.sensitivity.detectable_drop == pytest.approx(alone.sensitivity.detectable_drop, rel=0.05)
    assert intervals.paired_binary(56, 16, 200).p_value < 1e-5 < copied.p_value


def test_five_clusters_that_fall_are_no_drop_yet() -> None:
    values = [1.0] * 20 + [0.0] * 380
    labels = [place // 4 for place in range(400)]
    found = intervals.paired_binary_clustered(values, labels)
    assert found.t_interval is not None
    assert found.t_interval[0] > 0.0
    assert found.ci95[0] == 0.0
    assert found.p_value == pytest.approx(1 / 16)


def test_clusters_without_any_difference() -> None:
    found = intervals.paired_binary_clustered([0.0] * 100, [place // 4 for place in range(100)])
    assert (found.ci95, found.p_value) == ((0.0, 0.0), 1.0)
    # As of 25 documents: nothing shows that those of a cluster are independent.
    assert found.sensitivity.detectable_drop == pytest.approx(0.28, abs=0.02)


# --- different documents ---


@pytest.mark.parametrize(
    ("first", "second", "published"),
    [
        ((56, 70), (48, 80), (0.0524, 0.3339)),
        ((9, 10), (3, 10), (0.1705, 0.8090)),
        ((6, 7), (2, 7), (0.0582, 0.8062)),
        ((5, 56), (0, 29), (-0.0381, 0.1926)),
        ((0, 10), (0, 20), (-0.1611, 0.2775)),
        ((0, 10), (0, 10), (-0.2775, 0.2775)),
    ],
)
def test_newcombe_as_published(
    first: tuple[int, int], second: tuple[int, int], published: tuple[float, float]
) -> None:
    """Newcombe 1998, Statistics in Medicine 17, 873-890, table II, method 10."""
    assert intervals.newcombe_interval(first, second) == approx(published, 6e-5)


@pytest.mark.parametrize(
    ("a", "m", "b", "n"), [(3, 10, 9, 10), (30, 60, 20, 45), (0, 30, 7, 30), (5, 9, 5, 9)]
)
def test_fisher_is_twice_the_smaller_hypergeometric_tail(a: int, m: int, b: int, n: int) -> None:
    def chance(k: int) -> Fraction:
        return Fraction(math.comb(m, k) * math.comb(n, a + b - k), math.comb(m + n, a + b))

    possible = range(max(0, a + b - n), min(m, a + b) + 1)
    below = sum((chance(k) for k in possible if k <= a), Fraction(0))
    above = sum((chance(k) for k in possible if k >= a), Fraction(0))
    expected = float(min(Fraction(1), 2 * min(below, above)))
    assert intervals.fisher_p(a, m, b, n) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("m", "n"), [(30, 30), (30, 45)])
def test_fisher_and_newcombe_say_the_same(m: int, n: int) -> None:
    for a in range(m + 1):
        for b in range(n + 1):
            found = intervals.unpaired_binary((a, m), (b, n))
            assert excludes_zero(found) == (found.p_value <= 0.05)
            assert found.p_value == intervals.fisher_p(a, m, b, n)


def side(values: list[float], labels: list[int] | None = None) -> Side:
    clusters = [str(label) for label in labels] if labels else [None] * len(values)
    return Side(tuple(values), tuple(clusters))


def test_welch_is_scipys() -> None:
    first, second = rouge(1, 40, 0.2), rouge(2, 90, 0.1)
    expected = stats.ttest_ind(first, second, equal_var=False)
    found = intervals.unpaired_scores(side(first), side(second), clustered=False, spread=1.0)
    assert found.ci95 == approx(tuple(expected.confidence_interval(0.95)), 1e-12)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert found.method == "unpaired: Welch t test"


def test_welch_with_clusters_takes_each_sides_sandwich() -> None:
    (first, one), (second, two) = clustered(5), clustered(6)
    (mean1, error1), (mean2, error2) = (
        sandwich(np.array(first), np.array(one)),
        sandwich(np.array(second), np.array(two)),
    )
    error = math.hypot(error1, error2)
    freedom = error**4 / ((error1**4 + error2**4) / 24)
    half = stats.t.ppf(0.975, freedom) * error
    found = intervals.unpaired_scores(side(first, one), side(second, two), clustered=True, spread=1.0)
    assert found.ci95 == approx((mean1 - mean2 - half, mean1 - mean2 + half), 1e-12)
    assert found.method == "unpaired: cluster-robust Welch t test"


def test_welch_without_any_spread() -> None:
    same = intervals.unpaired_scores(side([0.5] * 30), side([0.5] * 30), clustered=False, spread=0.0)
    assert (same.ci95, same.p_value, same.sensitivity.detectable_drop) == ((0.0, 0.0), 1.0, None)
    apart = intervals.unpaired_scores(side([0.75] * 30), side([0.5] * 40), clustered=False, spread=0.25)
    assert (apart.ci95, apart.p_value) == ((0.25, 0.25), 2.0**-29)


# --- one measurement ---


def one_side(*scores: float, clusters: Sequence[str | None] | None = None) -> Side:
    return Side(scores, tuple(clusters) if clusters is not None else (None,) * len(scores))


def test_the_interval_of_a_mean_is_wilsons_for_right_or_wrong() -> None:
    interval, method = intervals.mean_interval(one_side(*[1.0] * 8, 0.0, 0.0))
    # Wilson's interval for 8 of 10 (Newcombe 1998, Statistics in Medicine 17, 857-872, method 3).
    assert interval == pytest.approx((0.490162, 0.943318), abs=1e-6)
    assert method == "Wilson"


def test_the_interval_of_a_mean_is_students_for_other_scores() -> None:
    interval, method = intervals.mean_interval(one_side(0.0, 0.25, 0.5, 1.0))
    half = 3.182446305284263 * math.sqrt(0.546875 / 3 / 4)
    assert interval == pytest.approx((0.4375 - half, 0.4375 + half))
    assert method == "t over documents"


def test_in_clusters_the_interval_of_a_mean_counts_clusters() -> None:
    """Each document twice is no more than each once."""
    scores, clusters = (0.0, 1.0, 1.0, 1.0), ("a", "b", "c", "d")
    interval, method = intervals.mean_interval(one_side(*scores, *scores, clusters=[*clusters, *clusters]))
    half = 3.182446305284263 * math.sqrt(0.75 / 3 / 4)
    assert interval == pytest.approx((0.75 - half, 0.75 + half))
    assert method == "cluster-robust t"


def test_no_interval_where_nothing_varies_or_there_is_one_document() -> None:
    assert intervals.mean_interval(one_side(0.5, 0.5)) == (None, "no spread")
    assert intervals.mean_interval(one_side(0.5)) == (None, "fewer than two documents")
    single_cluster = one_side(0.0, 1.0, clusters=["a", "a"])
    assert intervals.mean_interval(single_cluster) == (None, "fewer than two clusters")
