"""How small a drop could have been seen, and how many documents it takes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pytest_gnus.gates.power import DiscordanceSensitivity, MeanSensitivity, sparse_drop


def exact_power(n: int, drop: float, discordance: float) -> float:
    """Of the exact McNemar test at 5 %, by summing over how many pairs differ, and which way."""
    share_worse = (1 + drop / discordance) / 2
    power = 0.0
    for m in range(n + 1):
        chance = stats.binom.pmf(m, n, discordance)
        if chance > 1e-12:
            worse = np.arange(m + 1)
            rejected = 2 * stats.binom.cdf(np.minimum(worse, m - worse), m, 0.5) <= 0.05
            power += chance * stats.binom.pmf(worse[rejected], m, share_worse).sum()
    return float(power)


@pytest.mark.parametrize("n", [30, 100, 500])
@pytest.mark.parametrize("discordance", [0.05, 0.2, 0.4])
def test_the_detectable_drop_is_found_by_the_exact_test_in_about_80_percent(
    n: int, discordance: float
) -> None:
    found = DiscordanceSensitivity(n, round(discordance * n)).detectable_drop
    # Documents that fall differ: a drop beyond the observed discordance raises it.
    assert 0.75 <= exact_power(n, found, max(discordance, found)) <= 0.85


@pytest.mark.parametrize("n", [30, 100, 500, 2000])
def test_no_difference_at_all_does_not_mean_that_everything_would_be_seen(n: int) -> None:
    found = DiscordanceSensitivity(n, 0).detectable_drop
    assert found == pytest.approx(7.7 / n, rel=0.07)
    assert 0.75 <= exact_power(n, found, found) <= 0.85


def test_documents_needed_by_the_formula() -> None:
    """A discordance of (18 + 2) / (196 + 4) = 0.1, and a drop of 0.05."""
    by_hand = (1.959964 * math.sqrt(0.1) + 0.841621 * math.sqrt(0.1 - 0.0025)) ** 2 / 0.0025
    assert DiscordanceSensitivity(196, 18).documents_needed(0.05) == math.ceil(by_hand) == 312


@given(n=st.integers(30, 20_000), share=st.floats(0.0, 1.0))
def test_the_detectable_drop_needs_the_documents_that_there_are(n: int, share: float) -> None:
    sensitivity = DiscordanceSensitivity(n, int(share * n))
    assert abs(sensitivity.documents_needed(sensitivity.detectable_drop) - n) <= 1


@given(n=st.integers(30, 20_000), share=st.floats(0.0, 1.0), drop=st.floats(0.001, 0.5))
def test_a_drop_is_detectable_exactly_where_enough_documents_are_there(
    n: int, share: float, drop: float
) -> None:
    sensitivity = DiscordanceSensitivity(n, int(share * n))
    if drop > sensitivity.detectable_drop * 1.001:
        assert sensitivity.documents_needed(drop) <= n
    if drop < sensitivity.detectable_drop * 0.999:
        assert sensitivity.documents_needed(drop) >= n


def test_clusters_count_as_fewer_documents() -> None:
    alone, clustered = DiscordanceSensitivity(1000, 100), DiscordanceSensitivity(1000, 100, 4.0)
    assert clustered.detectable_drop == pytest.approx(2 * alone.detectable_drop, rel=0.01)
    assert clustered.documents_needed(0.05) == pytest.approx(4 * alone.documents_needed(0.05), rel=0.01)


def test_a_drop_is_never_larger_than_all() -> None:
    assert 0.99 < DiscordanceSensitivity(30, 30, 30.0).detectable_drop < 1.0


def test_a_mean_needs_four_times_the_documents_for_half_the_drop() -> None:
    assert MeanSensitivity(200, 0.04).documents_needed(0.02) == 800
    assert MeanSensitivity(200, 0.04).documents_needed(0.04) == 200


def test_without_any_spread_nothing_can_be_said() -> None:
    assert sparse_drop(100, 0.0) is None
    assert MeanSensitivity(100, None).documents_needed(0.1) is None
    assert sparse_drop(100, 50.0) == pytest.approx(50 * DiscordanceSensitivity(100, 0).detectable_drop)


@pytest.mark.parametrize("drop", [0.0, -0.1, math.nan])
def test_no_number_of_documents_finds_no_drop(drop: float) -> None:
    with pytest.raises(ValueError, match="must be above zero"):
        DiscordanceSensitivity(100, 5).documents_needed(drop)
    with pytest.raises(ValueError, match="must be above zero"):
        MeanSensitivity(100, 0.1).documents_needed(drop)
