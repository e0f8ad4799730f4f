"""The smallest squared error within a number of bytes.

For one price of a byte, the best leaves and modes of a macroblock follow from its quadtree from the bottom
up: a node is split where its children cost less, error plus price times bytes. The price is the same
everywhere and is searched for so that the bytes of all macroblocks together just fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_gnus.sgfp4.arrays import BoolArray, Doubles, Element, Floats, IntArray, WordArray
from pytest_gnus.sgfp4.container import (
    ALIGNMENT,
    LAYOUT_OF_SIZE,
    MIXED,
    MIXED_PREFIX_BYTES,
)
from pytest_gnus.sgfp4.fitting import Batch, Rounding, best_fp4, best_ternary, numbers_of
from pytest_gnus.sgfp4.options import EncodeOptions
from pytest_gnus.sgfp4.partition import (
    Grids,
    Partition,
    chunks,
    everywhere,
    leaf_payloads,
    leaves_of_splits,
    sum_of_children,
    uniform_prefix,
)
from pytest_gnus.sgfp4.quadtree import WEIGHTS_PER_MACROBLOCK, leaves_across

MACROBLOCKS_AT_ONCE = 1024
# The price is found to within one part in a few thousand; what is left over is filled one by one, from some
# of the choices that were a little too long.
SEARCH_STEPS = 14
STEP = 4.0
SMALLEST_PRICE = 1e-300
LONGER_CHOICES = 4
# Between the error of a leaf and four times that lies one bit for each weight.
BITS_PER_FACTOR_4 = 2 * np.log(2)


@dataclass(frozen=True)
class Candidates:
    """For each node of each size, row by row (macroblocks, across, across), what a leaf there would be.

    `error` and `numbers` are by size and mode, 0 FP4 and 1 ternary; where ternary codes are not considered
    there is only one.
    """

    error: Mapping[int, Sequence[Floats]]
    numbers: Mapping[int, Sequence[WordArray]]

    def part(self, blocks: slice) -> Candidates:
        return Candidates(
            {size: [grid[blocks] for grid in grids] for size, grids in self.error.items()},
            {size: [grid[blocks] for grid in grids] for size, grids in self.numbers.items()},
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(self.error)

    @property
    def blocks(self) -> int:
        return len(self.error[self.sizes[0]][0])


@dataclass(frozen=True)
class Choice:
    """A choice for each macroblock: how it is cut and what it costs."""

    layout: npt.NDArray[np.uint8]
    leaf: Grids
    ternary: Grids
    bytes: IntArray
    error: Doubles

    def replaced(self, take: BoolArray, other: Choice) -> Choice:
        """The other choice for some of the macroblocks."""
        grid = take[:, None, None]
        return Choice(
            np.where(take, other.layout, self.layout),
            {size: np.where(grid, other.leaf[size], leaf) for size, leaf in self.leaf.items()},
            {size: np.where(grid, other.ternary[size], ternary) for size, ternary in self.ternary.items()},
            np.where(take, other.bytes, self.bytes),
            np.where(take, other.error, self.error),
        )


def candidates(macroblocks: Floats, real: Floats | None, options: EncodeOptions) -> Candidates:
    """Fit every node of some macroblocks (macroblocks, 64, 64); `real` is 0 where there is padding."""
    error: dict[int, list[Floats]] = {}
    numbers: dict[int, list[WordArray]] = {}
    rounding = Rounding(options.version)
    for size in options.leaf_sizes:
        batch = Batch.of(macroblocks, size, real)
        fits = [best_fp4(batch, rounding)]
        # A 4×4 leaf is as long in ternary codes, and its error is never smaller.
        if options.allow_ternary and leaf_payloads(size)[1] < leaf_payloads(size)[0]:
            fits.append(best_ternary(batch, rounding))
        shape = (len(macroblocks), leaves_across(size), leaves_across(size))
        error[size] = [fit.error.reshape(shape) for fit in fits]
        numbers[size] = [numbers_of(fit).reshape(shape) for fit in fits]
    return Candidates(error, numbers)


def join(parts: Sequence[Candidates]) -> Candidates:
    """All macroblocks of some candidates with the same sizes and modes, in order."""
    return Candidates(
        {size: _joined([part.error[size] for part in parts]) for size in parts[0].sizes},
        {size: _joined([part.numbers[size] for part in parts]) for size in parts[0].sizes},
    )


def choose(found: Candidates, budget: int | None) -> Partition:
    """The leaves and modes with the smallest squared error whose records fit into `budget` bytes.

    Where the budget is too small for the shortest records, the shortest; without one, bytes do not count.
    """
    choice = _at_price(found, 0.0) if budget is None else _within(found, budget)
    numbers = {}
    for size in found.sizes:
        modes = found.numbers[size]
        numbers[size] = modes[0] if len(modes) == 1 else np.where(choice.ternary[size], modes[1], modes[0])
    return Partition(choice.layout, choice.leaf, choice.ternary, numbers)


def _within(found: Candidates, budget: int) -> Choice:
    everything = sum(float(grid.sum(dtype=np.float64)) for grids in found.error.values() for grid in grids)
    cheapest = _at_price(found, 1e6 * everything + SMALLEST_PRICE)
    if int(cheapest.bytes.sum()) >= budget:
        return cheapest
    fits, too_long = _search(found, budget, cheapest)
    # Where there are few macroblocks, no price may use the budget well: these start from elsewhere.
    plain = [_uniform(found, size) for size in found.sizes]
    starts = [fits, *(choice for choice in plain if int(choice.bytes.sum()) <= budget)]
    return min((_filled(start, [*too_long, *plain], budget) for start in starts), key=_total_error)


def _search(found: Candidates, budget: int, cheapest: Choice) -> tuple[Choice, list[Choice]]:
    """Close in on the price from both sides: the longest choice that fits, and some that are longer."""
    # Begin where one more bit for each weight is just worth while.
    error = float(found.error[found.sizes[0]][0].sum(dtype=np.float64)) / found.blocks
    price = max(error * BITS_PER_FACTOR_4 * 8 / WEIGHTS_PER_MACROBLOCK, SMALLEST_PRICE)
    fits: Choice | None = None
    too_long: list[Choice] = []
    low = high = price
    for _ in range(SEARCH_STEPS):
        choice = _at_price(found, price)
        if int(choice.bytes.sum()) <= budget:
            fits, high = choice, price
        else:
            too_long, low = [choice, *too_long[: LONGER_CHOICES - 1]], price
        if not too_long:
            price = high / STEP
        elif fits is None:
            price = low * STEP
        else:
            price = float(np.sqrt(low * high))
    return cheapest if fits is None else fits, too_long


def _filled(choice: Choice, better: Sequence[Choice], budget: int) -> Choice:
    """A choice that fits, with macroblocks of others while bytes are left."""
    for other in better:
        take = _worth_taking(choice, other, budget - int(choice.bytes.sum()))
        choice = choice.replaced(take, other)
    return choice


def _worth_taking(choice: Choice, other: Choice, left: int) -> BoolArray:
    """The macroblocks that save the most error per byte and together add at most `left` bytes."""
    longer = other.bytes - choice.bytes
    saved = choice.error - other.error
    free = (longer <= 0) & (saved > 0)
    left -= int(longer[free].sum())
    paid = np.flatnonzero((longer > 0) & (saved > 0))
    paid = paid[np.argsort(-saved[paid] / longer[paid], kind="stable")]
    take = free
    for block, more in zip(paid.tolist(), longer[paid].tolist(), strict=True):
        if more <= left:
            take[block] = True
            left -= more
        elif left < ALIGNMENT:
            break
    return take


def _total_error(choice: Choice) -> float:
    return float(choice.error.sum())


def _uniform(found: Candidates, size: int) -> Choice:
    """Leaves of one size everywhere, each in the mode with the smaller error."""
    nodes = {each: _Nodes.of(each, grids, 0.0) for each, grids in found.error.items()}
    leaf = {each: np.zeros(node.ternary.shape, np.bool_) for each, node in nodes.items()}
    leaf[size] = everywhere(found.blocks, size)
    _, length, error = _cost(nodes, leaf, np.full(found.blocks, uniform_prefix(size), np.int64), 0.0)
    layout = np.full(found.blocks, LAYOUT_OF_SIZE[size], np.uint8)
    return Choice(layout, leaf, {each: node.ternary for each, node in nodes.items()}, length, error)


def _at_price(found: Candidates, price: float) -> Choice:
    parts = [_part_at_price(found.part(part), price) for part in chunks(found.blocks, MACROBLOCKS_AT_ONCE)]
    return Choice(
        np.concatenate([part.layout for part in parts]),
        {size: np.concatenate([part.leaf[size] for part in parts]) for size in found.sizes},
        {size: np.concatenate([part.ternary[size] for part in parts]) for size in found.sizes},
        np.concatenate([part.bytes for part in parts]),
        np.concatenate([part.error for part in parts]),
    )


def _part_at_price(found: Candidates, price: float) -> Choice:
    """The best choice for each macroblock: mixed, or uniform with leaves of one size."""
    nodes = {size: _Nodes.of(size, grids, price) for size, grids in found.error.items()}
    layouts = [np.full(found.blocks, LAYOUT_OF_SIZE[size], np.uint8) for size in nodes]
    leaves: list[Grids] = [{size: everywhere(found.blocks, size)} for size in nodes]
    prefixes = [np.full(found.blocks, uniform_prefix(size), np.int64) for size in nodes]
    costs = [_cost(nodes, leaf, prefix, price) for leaf, prefix in zip(leaves, prefixes, strict=True)]
    if len(nodes) > 1:
        mixed = leaves_of_splits(_splits(nodes), found.sizes, found.blocks)
        count = sum(grid.sum(axis=(1, 2)) for grid in mixed.values())
        prefix = -(-(MIXED_PREFIX_BYTES + 4 * count) // ALIGNMENT) * ALIGNMENT
        costs.append(_cost(nodes, mixed, prefix, price))
        layouts.append(np.full(found.blocks, MIXED, np.uint8))
        leaves.append(mixed)
    return _pick(nodes, layouts, leaves, costs)


@dataclass(frozen=True)
class _Nodes:
    """The better mode of each node at a price, and what it costs there; (macroblocks, across, across)."""

    ternary: BoolArray
    error: Doubles
    payload: IntArray
    cost: Doubles

    @classmethod
    def of(cls, size: int, errors: Sequence[Floats], price: float) -> _Nodes:
        payloads = leaf_payloads(size)
        error = errors[0].astype(np.float64)
        payload = np.full(error.shape, payloads[0], np.int64)
        ternary = np.zeros(error.shape, np.bool_)
        if len(errors) > 1:
            ternary = errors[1] - error < price * (payloads[0] - payloads[1])
            error = np.where(ternary, errors[1], error)
            payload = np.where(ternary, payloads[1], payload)
        return cls(ternary, error, payload, error + price * (payload + 4))


def _splits(nodes: Mapping[int, _Nodes]) -> dict[int, BoolArray]:
    sizes = list(nodes)
    splits: dict[int, BoolArray] = {}
    lowest = nodes[sizes[-1]].cost
    for size in reversed(sizes[:-1]):
        together = sum_of_children(lowest)
        splits[size] = together < nodes[size].cost
        lowest = np.where(splits[size], together, nodes[size].cost)
    return splits


def _cost(
    nodes: Mapping[int, _Nodes], leaf: Grids, prefix: IntArray, price: float
) -> tuple[Doubles, IntArray, Doubles]:
    """Cost, bytes and error of each macroblock with these leaves, but for its offset of four bytes."""
    error = np.zeros(len(prefix))
    length = prefix.copy()
    for size, grid in leaf.items():
        error += (nodes[size].error * grid).sum(axis=(1, 2))
        length += (nodes[size].payload * grid).sum(axis=(1, 2))
    return error + price * length, length, error


def _pick(
    nodes: Mapping[int, _Nodes],
    layouts: Sequence[npt.NDArray[np.uint8]],
    leaves: Sequence[Grids],
    costs: Sequence[tuple[Doubles, IntArray, Doubles]],
) -> Choice:
    """The cheapest option of each macroblock, the first of equals: uniform, and large leaves, first."""
    best = np.argmin(np.stack([cost for cost, _, _ in costs]), axis=0)
    leaf = {}
    for size, node in nodes.items():
        grid = np.zeros(node.ternary.shape, np.bool_)
        for index, option in enumerate(leaves):
            if size in option:
                grid |= option[size] & (best == index)[:, None, None]
        leaf[size] = grid
    return Choice(
        np.choose(best, layouts),
        leaf,
        {size: node.ternary for size, node in nodes.items()},
        np.choose(best, [length for _, length, _ in costs]),
        np.choose(best, [error for _, _, error in costs]),
    )


def _joined(parts: Sequence[Sequence[npt.NDArray[Element]]]) -> list[npt.NDArray[Element]]:
    return [np.concatenate(list(modes)) for modes in zip(*parts, strict=True)]
