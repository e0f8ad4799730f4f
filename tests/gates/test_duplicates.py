"""A document that is written several times counts once: in errors, intervals, p-values, counts of pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pytest_gnus.gates import intervals
from pytest_gnus.gates.categories import category_drops
from pytest_gnus.gates.comparison import Comparison, NotCompared, compare
from pytest_gnus.gates.pairing import Outcome, Side, joined_labels, pair, side_of
from pytest_gnus.gates.policy import regression_gate


def written(
    scores: Sequence[float],
    times: int | Sequence[int] = 1,
    clusters: Sequence[str] | None = None,
    with_ids: bool = False,
) -> list[Outcome]:
    """Documents with these scores, each written so often; with an id, its copies differ in their hash."""
    counts = [times] * len(scores) if isinstance(times, int) else times
    found: list[Outcome] = []
    for place, (score, count) in enumerate(zip(scores, counts, strict=True)):
        for copy in range(count):
            outcome = Outcome("task", len(found), f"document {place:03}", score)
            if with_ids:
                outcome = replace(
                    outcome, doc_hash=f"document {place:03}, id {copy}", question=f"question {place}"
                )
            found.append(replace(outcome, cluster=clusters[place] if clusters else None))
    return found


TWO_OF_TWELVE = [1.0, 1.0, *[0.0] * 10]


@pytest.mark.parametrize("with_ids", [False, True])
def test_twelve_documents_written_three_times_are_twelve(with_ids: bool) -> None:
    side = side_of(written(TWO_OF_TWELVE, 3, with_ids=with_ids))
    assert (side.distinct, side.duplicates, side.clustered, side.named_clusters) == (12, 24, True, False)
    # The standard error of a mean of twelve, sqrt(p (1 - p) / 11), and not that of 36.
    assert intervals.mean_error(side) == pytest.approx(math.sqrt(1 / 6 * 5 / 6 / 11))
    assert intervals.mean_error(side) == pytest.approx(0.112, abs=5e-4)
    assert intervals.mean_error(Side(side.scores, side.clusters)) == pytest.approx(0.063, abs=5e-4)
    expected = stats.binomtest(2, 12).proportion_ci(method="wilson")
    interval, method = intervals.mean_interval(side)
    assert interval == pytest.approx((expected.low, expected.high))
    assert method == "Wilson over distinct documents"


@pytest.mark.parametrize(("hits", "n"), [(0, 1), (0, 30), (3, 30), (15, 30), (160, 160), (1, 1), (7, 11)])
def test_wilson_is_scipys(hits: int, n: int) -> None:
    expected = stats.binomtest(hits, n).proportion_ci(method="wilson")
    assert intervals.wilson_interval(hits / n, n) == pytest.approx((expected.low, expected.high), abs=1e-12)
    side = Side((1.0,) * hits + (0.0,) * (n - hits), (None,) * n)
    assert intervals.mean_interval(side)[0] == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize("score", [0.0, 1.0])
@pytest.mark.parametrize("clusters", [None, [f"passage {place % 6}" for place in range(12)]])
def test_all_right_or_all_wrong_has_an_interval(score: float, clusters: list[str] | None) -> None:
    """Of 12 documents, or of the 6 clusters that they come in."""
    n = 12 if clusters is None else 6
    expected = stats.binomtest(round(score * n), n).proportion_ci(method="wilson")
    interval, _ = intervals.mean_interval(side_of(written([score] * 12, 3, clusters)))
    assert interval == pytest.approx((expected.low, expected.high))


def test_documents_written_unequally_often_by_hand() -> None:
    """Hits: one document three times, one once; misses: one once. Mean 4 / 5."""
    side = side_of(written([1.0, 1.0, 0.0], [3, 1, 1]))
    # Residual sums 0.6, 0.2 and -0.8; residuals four times 0.2 and once -0.8.
    effect = (0.36 + 0.04 + 0.64) / (4 * 0.04 + 0.64)
    assert intervals.effective_documents(side) == pytest.approx(5 / effect)
    assert intervals.mean_error(side) == pytest.approx(math.sqrt(3 / 2 * 1.04) / 5)
    low, high = intervals.mean_interval(side)[0] or (0.0, 0.0)
    n, z = 5 / effect, stats.norm.ppf(0.975)
    for end in (low, high):  # the ends are where the score test just rejects
        assert (0.8 - end) ** 2 == pytest.approx(z**2 * end * (1 - end) / n)


def test_copies_with_different_outcomes_are_never_more_than_documents() -> None:
    """Each of ten documents once right and once wrong: they do not vary between each other at all."""
    outcomes = written([1.0, 0.0] * 10, 1)
    copies = [replace(outcome, doc_hash=f"document {place // 2}") for place, outcome in enumerate(outcomes)]
    assert intervals.effective_documents(side_of(copies)) == 20.0


def test_other_scores_have_the_t_interval_of_the_different_documents() -> None:
    scores = [0.1, 0.4, 0.45, 0.9]
    alone, _ = intervals.mean_interval(side_of(written(scores)))
    thrice, method = intervals.mean_interval(side_of(written(scores, 3)))
    assert thrice == pytest.approx(alone)
    assert method == "cluster-robust t"


def test_pairs_are_counted_once() -> None:
    before, after = [1.0] * 12, [1.0] * 6 + [0.0] * 6
    found = compare(written(before, 3), written(after, 3), minimum_pairs=30)
    assert found == NotCompared("insufficient data: 12 pairs of different documents, 30 are needed", 12)
    apart = compare(written(before, 3), written(after, 3)[:-1], minimum_pairs=30)
    assert apart == NotCompared("insufficient data: 12 different documents, 30 are needed", 12)
    lone = compare(written(before), written(after), minimum_pairs=30)
    assert lone == NotCompared("insufficient data: 12 pairs of documents, 30 are needed", 12)


def test_a_policy_that_asks_for_significance_does_not_pass_on_copies() -> None:
    before, after = [1.0] * 12, [1.0] * 6 + [0.0] * 6
    compared = compare(written(before, 3), written(after, 3), minimum_pairs=30)
    gate = regression_gate("gate", compared, 0.5, 1.0, 0.9, "significant").gate
    assert (gate.passed, gate.p_value, gate.significant) == (None, None, None)


@pytest.mark.parametrize("with_ids", [False, True])
@pytest.mark.parametrize("binary", [True, False])
def test_copies_add_nothing_to_a_comparison(binary: bool, with_ids: bool) -> None:
    generator = np.random.default_rng(11)
    before = generator.random(40)
    after = before - 0.04 - 0.1 * generator.random(40)
    if binary:
        before, after = np.where(before > 0.3, 1.0, 0.0), np.where(after > 0.45, 1.0, 0.0)
    sides = [scores.tolist() for scores in (before, after)]
    alone = compare(*(written(side) for side in sides))
    thrice = compare(*(written(side, 3, with_ids=with_ids) for side in sides))
    assert isinstance(thrice, Comparison)
    assert isinstance(alone, Comparison)
    assert (thrice.n, thrice.duplicates, thrice.n_clusters) == (40, 80, None)
    # Against the t interval by hand of the 40 differences.
    differences = before - after
    half = stats.t.ppf(0.975, 39) * differences.std(ddof=1) / math.sqrt(40)
    assert thrice.t_interval == pytest.approx((differences.mean() - half, differences.mean() + half))
    if binary:
        # Not below that of a sign-flip test: all documents that differ are worse.
        sign_flip = 2.0 ** (1 - np.count_nonzero(differences))
        assert thrice.p_value == max(sign_flip, stats.ttest_1samp(differences, 0.0).pvalue)
    else:
        assert thrice.p_value == pytest.approx(alone.p_value)
        assert thrice.ci95 == pytest.approx(alone.ci95)
    assert "40 pairs with 80 duplicates" in thrice.summary()
    assert thrice.to_record()["duplicates"] == 80
    assert thrice.to_record()["significant"] is thrice.significant


def test_the_number_of_documents_needed_is_of_different_ones() -> None:
    before, after = [1.0] * 40, [0.0] * 10 + [1.0] * 30
    thrice = compare(written(before, 3), written(after, 3))
    assert isinstance(thrice, Comparison)
    needed = thrice.sensitivity.documents_needed(0.05)
    assert needed is not None
    assert thrice.documents_needed(0.05) == math.ceil(needed / 3)


def test_few_copies_among_many_documents_are_still_noticed() -> None:
    before, after = [1.0] * 100, [0.0] * 8 + [1.0] * 92
    found = compare(written(before, [2, *[1] * 99]), written(after, [2, *[1] * 99]))
    assert isinstance(found, Comparison)
    assert (found.n, found.duplicates, found.method) == (100, 1, "cluster-robust t test (CR1)")


def test_measurements_of_different_documents_count_copies_once() -> None:
    first, second = written([1.0, 0.0] * 20, 2), written([1.0, 1.0, 0.0, 0.0] * 10, 2)
    second = [replace(outcome, doc_hash=f"other {outcome.doc_hash}") for outcome in second]
    found = compare(first, second)
    assert isinstance(found, Comparison)
    assert (found.paired, found.n, found.duplicates) == (False, 40, 40)
    assert found.method == "unpaired: cluster-robust Welch t test"
    error = math.sqrt(2 * 0.25 / 39)
    half = stats.t.ppf(0.975, 78) * error
    assert found.ci95 == pytest.approx((-half, half))


def test_categories_need_pairs_of_different_documents() -> None:
    drops = category_drops(written([1.0] * 12, 3), written([0.0] * 12, 3), minimum_pairs=30)
    assert isinstance(drops[0].result, NotCompared)
    assert not drops[0].flagged


def test_a_document_in_two_tasks_is_one_cluster() -> None:
    outcomes = written([1.0, 0.0, 1.0])
    both = [*outcomes, *(replace(outcome, task="other") for outcome in outcomes)]
    assert (side_of(both).distinct, side_of(both).labels) == (3, [0, 1, 2, 0, 1, 2])


def test_clusters_and_copies_are_joined() -> None:
    # 0 and 1 share a cluster, 1 and 2 are copies, 3 stands alone, 4 and 5 are copies.
    assert joined_labels(["p", "p", None, None, None, "q"], list("abbcdd")) == [0, 0, 0, 1, 2, 2]
    assert joined_labels([None, "p", "q", "p"], list("abca")) == [0, 0, 1, 0]
    assert joined_labels([], []) == []


def test_the_candidates_questions_hold_for_both_sides_of_a_pair() -> None:
    """A record of before they were noted has none."""
    now = written([1.0, 0.0], 2, with_ids=True)
    before = [replace(outcome, question=None) for outcome in now]
    for pairing in (pair(before, now), pair(now, before)):
        assert (pairing.reference.distinct, pairing.candidate.distinct) == (2, 2)
        assert pairing.reference.labels == pairing.candidate.labels


#: The bootstrap's interval ends at zero, while both tests give p = 0.049.
AT_THE_LIMIT = [0.5] * 12 + [0.0] * 5 + [-0.75] * 2


def test_a_p_value_is_that_of_its_tests_and_the_interval_decides() -> None:
    mean = intervals._clustered_mean(np.array(AT_THE_LIMIT), None)
    found = intervals.paired_scores(AT_THE_LIMIT, None, spread=1.0)
    assert found.p_value == max(intervals._bca(mean)[1], mean.p_value)
    assert found.p_value == pytest.approx(0.0489, abs=1e-4)
    assert (found.ci95[0], found.significant) == (0.0, False)
    before = [0.75 + max(drop, 0.0) - 0.75 * (drop < 0) for drop in AT_THE_LIMIT]
    after = [score - drop for score, drop in zip(before, AT_THE_LIMIT, strict=True)]
    compared = compare(written(before), written(after), minimum_pairs=10)
    assert isinstance(compared, Comparison)
    assert (compared.significant, compared.significant_drop) == (False, False)
    assert "p = 0.049, not significant, 19 pairs" in compared.summary()
    means = compared.candidate_mean, compared.reference_mean
    gate = regression_gate("gate", compared, *means, 0.9, "significant").gate
    assert (gate.passed, gate.significant, gate.p_value) == (True, False, compared.p_value)
    (drop,) = category_drops(written(before), written(after), minimum_pairs=10)
    assert (drop.adjusted_p, drop.flagged) == (compared.p_value, False)


def test_a_significant_rise_is_not_flagged() -> None:
    drops = category_drops(written([1.0] * 40), written([0.0] * 10 + [1.0] * 30))
    assert drops[0].flagged
    assert isinstance(drops[0].result, Comparison)
    assert drops[0].result.significant
    rises = category_drops(written([0.0] * 10 + [1.0] * 30), written([1.0] * 40))
    assert isinstance(rises[0].result, Comparison)
    assert (rises[0].flagged, rises[0].result.significant, rises[0].result.significant_drop) == (
        False,
        True,
        False,
    )
