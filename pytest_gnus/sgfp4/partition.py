"""How macroblocks are cut into leaves, and what that costs in bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_gnus.sgfp4.arrays import BoolArray, Doubles, IntArray, WordArray
from pytest_gnus.sgfp4.container import (
    ALIGNMENT,
    LAYOUT_OF_SIZE,
    MIXED,
    MIXED_PREFIX_BYTES,
    aligned,
    payload_bytes,
)
from pytest_gnus.sgfp4.quadtree import leaves_across

Grids = Mapping[int, BoolArray]


@dataclass(frozen=True)
class Partition:
    """The leaves of macroblocks, row by row for each size that is used: (macroblocks, across, across).

    `numbers` holds scale and bias as they are stored, where there is a leaf.
    """

    layout: npt.NDArray[np.uint8]
    leaf: Grids
    ternary: Grids
    numbers: Mapping[int, WordArray]

    def part(self, blocks: slice) -> Partition:
        """Some of the macroblocks."""
        return Partition(
            self.layout[blocks],
            {size: grid[blocks] for size, grid in self.leaf.items()},
            {size: grid[blocks] for size, grid in self.ternary.items()},
            {size: grid[blocks] for size, grid in self.numbers.items()},
        )

    def has(self, size: int) -> bool:
        """Whether there is a leaf of a size."""
        return size in self.leaf and bool(self.leaf[size].any())

    def record_bytes(self) -> IntArray:
        """Length of each record of version 2; (macroblocks,)."""
        return record_bytes(self.layout, self.leaf, self.ternary)


def join(parts: Sequence[Partition]) -> Partition:
    """All macroblocks of some partitions with the same sizes, in order."""
    return Partition(
        np.concatenate([part.layout for part in parts]),
        {size: np.concatenate([part.leaf[size] for part in parts]) for size in parts[0].leaf},
        {size: np.concatenate([part.ternary[size] for part in parts]) for size in parts[0].leaf},
        {size: np.concatenate([part.numbers[size] for part in parts]) for size in parts[0].leaf},
    )


def layouts_of(leaf: Grids) -> npt.NDArray[np.uint8]:
    """The layout of each macroblock: uniform, where all leaves have one size."""
    layout = np.full(len(next(iter(leaf.values()))), MIXED, np.uint8)
    for size, grid in leaf.items():
        layout[grid.all(axis=(1, 2))] = LAYOUT_OF_SIZE[size]
    return layout


def record_bytes(layout: npt.NDArray[np.uint8], leaf: Grids, ternary: Grids) -> IntArray:
    """Length of each record of version 2; (macroblocks,)."""
    leaves = np.zeros(len(layout), np.int64)
    payloads = np.zeros(len(layout), np.int64)
    for size, grid in leaf.items():
        fp4, three = leaf_payloads(size)
        count = grid.sum(axis=(1, 2))
        leaves += count
        payloads += count * fp4 - (grid & ternary[size]).sum(axis=(1, 2)) * (fp4 - three)
    return _prefix(layout, leaves) + payloads


def leaf_payloads(size: int) -> tuple[int, int]:
    """Bytes of the payload of a leaf with its padding, in FP4 and in ternary codes."""
    fp4, ternary = payload_bytes()[size.bit_length() - 1].tolist()
    return fp4, ternary


def uniform_prefix(size: int) -> int:
    """Bytes before the payloads of a uniform record."""
    return aligned(4 + 4 * leaves_across(size) ** 2)


def _prefix(layout: npt.NDArray[np.uint8], leaves: IntArray) -> IntArray:
    begin = np.where(layout == MIXED, MIXED_PREFIX_BYTES, 4)
    prefix: IntArray = -(-(begin + 4 * leaves) // ALIGNMENT) * ALIGNMENT
    return prefix


def leaves_of_splits(splits: Grids, sizes: Sequence[int], blocks: int) -> dict[int, BoolArray]:
    """The leaves, from which nodes would be split if they were there; `sizes` from the largest down."""
    present = everywhere(blocks, sizes[0])
    leaf = {}
    for size in sizes[:-1]:
        leaf[size] = present & ~splits[size]
        present = children(present & splits[size])
    leaf[sizes[-1]] = present
    return leaf


def everywhere(blocks: int, size: int) -> BoolArray:
    """Every node of a size."""
    return np.ones((blocks, leaves_across(size), leaves_across(size)), np.bool_)


def children(grid: BoolArray) -> BoolArray:
    """For the children of each node what holds for the node; twice as many down and across."""
    return np.repeat(np.repeat(grid, 2, axis=1), 2, axis=2)


def sum_of_children(grid: Doubles) -> Doubles:
    """For each node the sum of its four children; half as many down and across."""
    blocks, across, _ = grid.shape
    total: Doubles = grid.reshape(blocks, across // 2, 2, across // 2, 2).sum(axis=(2, 4))
    return total


def chunks(blocks: int, length: int) -> Iterator[slice]:
    """Macroblocks, some at a time."""
    for first in range(0, blocks, length):
        yield slice(first, min(first + length, blocks))
