"""Passes cost as little as any cut of the rows could."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gnus.models.batches import PASS_COST, partition

LENGTHS = st.lists(st.integers(1, 60), max_size=10).map(lambda lengths: sorted(lengths, reverse=True))


def within(budget: int) -> Callable[[int, int], bool]:
    return lambda rows, longest: rows * longest <= budget


def all_cuts(count: int) -> Iterator[list[int]]:
    """Every way to cut `count` rows into runs."""
    if count == 0:
        yield []
    for first in range(1, count + 1):
        for rest in all_cuts(count - first):
            yield [first, *rest]


def runs(lengths: Sequence[int], sizes: Sequence[int]) -> Iterator[Sequence[int]]:
    start = 0
    for size in sizes:
        yield lengths[start : start + size]
        start += size


def cost(lengths: Sequence[int], sizes: Sequence[int], pass_cost: int) -> int:
    return sum(len(run) * run[0] + pass_cost for run in runs(lengths, sizes))


def allowed(lengths: Sequence[int], sizes: Sequence[int], fits: Callable[[int, int], bool]) -> bool:
    return all(len(run) == 1 or fits(len(run), run[0]) for run in runs(lengths, sizes))


@given(LENGTHS, st.integers(1, 400), st.sampled_from([0, 1, 3, 10, PASS_COST, 1000]))
def test_no_other_cut_is_cheaper(lengths: list[int], budget: int, pass_cost: int) -> None:
    fits = within(budget)
    sizes = partition(lengths, fits, pass_cost)
    assert sum(sizes) == len(lengths)
    assert allowed(lengths, sizes, fits)
    cheapest = min(
        cost(lengths, other, pass_cost) for other in all_cuts(len(lengths)) if allowed(lengths, other, fits)
    )
    assert cost(lengths, sizes, pass_cost) == cheapest


def cheapest_of_many(lengths: Sequence[int], fits: Callable[[int, int], bool], pass_cost: int) -> int:
    """The cost of the best cut of many rows, with nothing left out of the search."""
    best = [0] * (len(lengths) + 1)
    for first in range(len(lengths) - 1, -1, -1):
        best[first] = min(
            rows * lengths[first] + pass_cost + best[first + rows]
            for rows in range(1, len(lengths) - first + 1)
            if rows == 1 or fits(rows, lengths[first])
        )
    return best[0]


@given(
    st.one_of(
        st.lists(st.integers(1, 2000), min_size=1, max_size=120),
        # What is the costliest to cut: each row so much shorter that no single cut saves more than another.
        st.builds(
            lambda count, step: [2000 - step // (count - row) for row in range(count)],
            st.integers(2, 120),
            st.integers(1, 1500),
        ),
    ).map(lambda lengths: sorted(lengths, reverse=True)),
    st.sampled_from([10, 300, 4000, 10**9]),
)
def test_leaving_heavily_padded_passes_out_of_the_search_costs_nothing(
    lengths: list[int], budget: int
) -> None:
    """For k rows padded by p there is a cut that saves p / (1 + 1/2 + ... + 1/k), and costs one pass more."""
    fits = within(budget)
    sizes = partition(lengths, fits)
    assert cost(lengths, sizes, PASS_COST) == cheapest_of_many(lengths, fits, PASS_COST)


def test_a_row_that_fits_nowhere_is_run_alone() -> None:
    assert partition([500, 500, 9, 8], within(100)) == [1, 1, 2]


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([], []),
        ([7], [1]),
        ([5, 5, 5], [3]),
        # 47 tokens of padding are worth no pass of their own, 48 are.
        ([60, 13], [2]),
        ([60, 12], [1, 1]),
    ],
)
def test_padding_is_weighed_against_a_pass(lengths: list[int], expected: list[int]) -> None:
    assert partition(lengths, lambda rows, longest: True) == expected
