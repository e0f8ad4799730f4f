"""Many categories at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gnus.gates.categories import CategoryDrop, category_drops, holm
from pytest_gnus.gates.comparison import Comparison, NotCompared
from pytest_gnus.gates.pairing import Outcome


def test_holm_by_hand() -> None:
    """Sorted 0.005, 0.01, 0.03, 0.04: times 4, 3, 2, 1, and never below the one before."""
    found = holm([0.01, 0.04, 0.03, 0.005])
    assert [p_value for p_value, _ in found] == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert [rejected for _, rejected in found] == [True, False, False, True]


def test_holm_stops_at_the_first_that_is_not_rejected() -> None:
    """0.04 alone would be rejected, but 0.03 times 2 is not."""
    assert [rejected for _, rejected in holm([0.04, 0.03])] == [False, False]


def test_holm_of_one_and_of_none() -> None:
    assert holm([0.05]) == [(0.05, True)]
    assert holm([0.02], alpha=0.01) == [(0.02, False)]
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [(1.0, False), (1.0, False)]


@pytest.mark.parametrize("bad", [math.nan, -0.1, 1.1])
def test_what_is_no_p_value_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm([0.5, bad])


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12), st.sampled_from([0.01, 0.05, 0.2]))
def test_holm_is_the_step_down_procedure(p_values: list[float], alpha: float) -> None:
    """Another form of it: the sorted p-values against alpha / (m - i + 1), until the first fails."""
    order = np.argsort(p_values, kind="stable")
    expected = [False] * len(p_values)
    for rank, place in enumerate(order):
        if p_values[place] * (len(p_values) - rank) > alpha:
            break
        expected[place] = True
    found = holm(p_values, alpha)
    assert [rejected for _, rejected in found] == expected
    assert all(adjusted >= p for (adjusted, _), p in zip(found, p_values, strict=True))


def category(name: str, worse: int, better: int, n: int) -> tuple[list[Outcome], list[Outcome]]:
    """All are right on the reference but those that get better."""
    reference = [1.0] * (n - better) + [0.0] * better
    candidate = [0.0] * worse + [1.0] * (n - worse)
    return (
        [Outcome(name, place, f"{name}{place}", score) for place, score in enumerate(reference)],
        [Outcome(name, place, f"{name}{place}", score) for place, score in enumerate(candidate)],
    )


def drops(*categories: tuple[list[Outcome], list[Outcome]]) -> dict[str, CategoryDrop]:
    reference = [outcome for old, _ in categories for outcome in old]
    candidate = [outcome for _, new in reversed(categories) for outcome in new]
    return {drop.category: drop for drop in category_drops(reference, candidate)}


def test_only_what_stands_out_among_all_categories_is_flagged() -> None:
    """7 of 7 (p = 1/64) is a significant drop alone, not among eight; 12 of 12 is."""
    quiet = [category(f"quiet{number}", 2, 2, 50) for number in range(6)]
    found = drops(category("law", 7, 0, 50), category("art", 12, 0, 50), *quiet)
    assert list(found) == sorted(found)
    law, art = found["law"], found["art"]
    assert isinstance(law.result, Comparison)
    assert law.result.significant_drop
    assert law.adjusted_p == pytest.approx(7 / 64)
    assert not law.flagged
    assert art.adjusted_p == pytest.approx(8 * 2 / 2**12)
    assert art.flagged
    assert not any(found[f"quiet{number}"].flagged for number in range(6))


def test_a_rise_is_not_flagged() -> None:
    found = drops(category("art", 0, 20, 50), category("law", 1, 1, 50))["art"]
    assert found.adjusted_p is not None
    assert found.adjusted_p < 0.05
    assert not found.flagged


def test_small_and_one_sided_categories_are_insufficient_and_cost_no_correction() -> None:
    old, _ = category("gone", 0, 0, 40)
    found = drops(category("art", 12, 0, 50), category("tiny", 10, 0, 10), (old, []))
    tiny, gone = found["tiny"], found["gone"]
    assert tiny.result == NotCompared("insufficient data: 10 pairs of documents, 30 are needed", 10)
    assert (tiny.adjusted_p, tiny.flagged) == (None, False)
    assert isinstance(gone.result, NotCompared)
    assert found["art"].adjusted_p == pytest.approx(2 / 2**12)


def test_where_lower_is_better_a_rise_is_flagged() -> None:
    reference, candidate = category("art", 0, 20, 50)
    (found,) = category_drops(reference, candidate, higher_is_better=False)
    assert found.flagged


def test_the_minimum_is_the_callers() -> None:
    (found,) = category_drops(*category("tiny", 10, 0, 10), minimum_pairs=10)
    assert isinstance(found.result, Comparison)
    assert found.flagged


def test_no_documents_no_categories() -> None:
    assert category_drops([], []) == []
