"""The choice of leaves and modes against one that tries them all."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gnus.sgfp4.partition import Partition
from pytest_gnus.sgfp4.rate_distortion import Candidates, choose

PAYLOADS = {64: (2048, 1024), 32: (512, 256), 16: (128, 64)}


def to_16(length: int) -> int:
    return -(-length // 16) * 16


def random_candidates(seed: int, blocks: int) -> Candidates:
    """Errors as leaves of 64, 32 and 16 could have them, smaller leaves and more bits being better."""
    source = np.random.default_rng(seed)
    error, numbers = {}, {}
    for size in PAYLOADS:
        across = 64 // size
        shape = (blocks, across, across)
        fp4 = (source.lognormal(0, 1, shape) * size * size * (0.3 + size / 64)).astype(np.float32)
        ternary = (fp4 * source.uniform(1, 12, shape)).astype(np.float32)
        error[size] = [fp4, ternary]
        numbers[size] = [np.zeros(shape, np.uint32), np.ones(shape, np.uint32)]
    return Candidates(error, numbers)


def all_partitions() -> list[dict[int, list[int]]]:
    """Every way to cut a macroblock down to 16: the numbers of the leaves row by row, for each size."""
    found = [{64: [0]}]
    for split in itertools.product([False, True], repeat=4):
        leaves: dict[int, list[int]] = {32: [], 16: []}
        for quadrant, is_split in enumerate(split):
            down, right = divmod(quadrant, 2)
            if is_split:
                leaves[16] += [(2 * down + i) * 4 + 2 * right + j for i in (0, 1) for j in (0, 1)]
            else:
                leaves[32].append(quadrant)
        found.append({size: places for size, places in leaves.items() if places})
    return found


PARTITIONS = all_partitions()


def cost(
    found: Candidates, block: int, partition: dict[int, list[int]], modes: dict[int, list[int]]
) -> tuple[int, float]:
    """Bytes and error of a macroblock; one size is a uniform record."""
    count = sum(len(places) for places in partition.values())
    length = to_16((16 if len(partition) > 1 else 4) + 4 * count)
    error = 0.0
    for size, places in partition.items():
        for place, mode in zip(places, modes[size], strict=True):
            length += PAYLOADS[size][mode]
            error += float(found.error[size][mode][block].ravel()[place])
    return length, error


def cheapest(found: Candidates, block: int, price: float) -> float:
    """The lowest error + price × bytes of all partitions and modes."""
    best = np.inf
    for partition in PARTITIONS:
        modes = {}
        for size, places in partition.items():
            errors = [found.error[size][mode][block].ravel()[places] for mode in (0, 1)]
            prefers = errors[1] + price * PAYLOADS[size][1] < errors[0] + price * PAYLOADS[size][0]
            modes[size] = [int(each) for each in prefers]
        length, error = cost(found, block, partition, modes)
        best = min(best, error + price * length)
    return best


def bytes_and_error(found: Candidates, partition: Partition) -> tuple[int, float]:
    """What a choice costs, all macroblocks together."""
    error = 0.0
    for size, (fp4, ternary) in found.error.items():
        chosen = np.where(partition.ternary[size], ternary, fp4)
        error += float(chosen[partition.leaf[size]].astype(np.float64).sum())
        assert np.array_equal(partition.numbers[size], partition.ternary[size])
    return int(partition.record_bytes().sum()), error


def lower_bound(found: Candidates, budget: int, prices: Sequence[float]) -> float:
    """No choice within the budget has a lower error: error + price × bytes is nowhere below its minimum."""
    return max(
        sum(cheapest(found, block, price) for block in range(found.blocks)) - price * budget
        for price in prices
    )


@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0.0, 1.0))
@settings(max_examples=20, deadline=None)
def test_no_other_choice_has_a_lower_error_in_as_many_bytes(seed: int, share: float) -> None:
    """What may be missing is less than the best part of one macroblock, and the padding of mixed headers."""
    blocks = 6
    found = random_candidates(seed, blocks)
    budget = int(blocks * (1040 + share * (2128 - 1040)))
    length, error = bytes_and_error(found, choose(found, budget))
    bound = lower_bound(found, budget, np.geomspace(1e-3, 1e5, 50).tolist())
    assert length <= budget
    assert bound <= error * (1 + 1e-6)
    assert error <= bound + max(float(found.error[64][1].max()), 1.0)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_among_many_macroblocks_next_to_nothing_is_missing(share: float) -> None:
    found = random_candidates(17, 150)
    budget = int(150 * (1040 + share * (2128 - 1040)))
    length, error = bytes_and_error(found, choose(found, budget))
    bound = lower_bound(found, budget, np.geomspace(0.5, 20, 16).tolist())
    assert budget - 100 < length <= budget
    assert bound <= error <= 1.005 * bound


@given(seed=st.integers(0, 2**32 - 1), blocks=st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_a_budget_for_plain_leaves_of_one_size_is_used_at_least_as_well(seed: int, blocks: int) -> None:
    found = random_candidates(seed, blocks)
    for size, (fp4, _) in found.error.items():
        leaves = (64 // size) ** 2
        budget = blocks * (to_16(4 + 4 * leaves) + leaves * PAYLOADS[size][0])
        length, error = bytes_and_error(found, choose(found, budget))
        assert length <= budget
        assert error <= float(fp4.astype(np.float64).sum()) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_leaves_cover_every_weight_once(seed: int) -> None:
    found = random_candidates(seed, 30)
    partition = choose(found, 30 * 1700)
    covered = np.zeros((30, 4, 4), np.int64)
    for size, grid in partition.leaf.items():
        times = size // 16
        covered += np.repeat(np.repeat(grid, times, 1), times, 2)
    assert covered.tolist() == np.ones((30, 4, 4), np.int64).tolist()
    uniform = {0: 64, 1: 32, 2: 16}
    for block, layout in enumerate(partition.layout.tolist()):
        sizes = [size for size, grid in partition.leaf.items() if grid[block].any()]
        assert sizes == [uniform[layout]] if layout in uniform else len(sizes) > 1


def test_without_a_budget_bytes_do_not_count() -> None:
    found = random_candidates(1, 4)
    partition = choose(found, None)
    assert not any(grid.any() for grid in partition.ternary.values())


def test_equal_macroblocks_share_what_there_is() -> None:
    """Where all macroblocks are the same, no price separates them; the budget is used all the same."""
    one = random_candidates(3, 1)
    found = Candidates(
        {size: [np.repeat(grid, 50, axis=0) for grid in grids] for size, grids in one.error.items()},
        {size: [np.repeat(grid, 50, axis=0) for grid in grids] for size, grids in one.numbers.items()},
    )
    for budget in (50 * 1040, 50 * 1300, 50 * 1500 + 7, 50 * 2000):
        length = int(choose(found, budget).record_bytes().sum())
        assert budget - 1200 < length <= budget
