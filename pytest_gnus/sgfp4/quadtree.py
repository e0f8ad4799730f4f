"""Where the leaves of a 64×64 macroblock lie, and in which order a record stores them.

A slot is a node of the full quadtree in depth-first pre-order, quadrants from top-left over top-right and
bottom-left to bottom-right: 341 of them, from the root (64×64) down to the 256 nodes of 4×4. The leaves of a
mixed record are stored in the order of their slots, those of a uniform record row by row.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from pytest_gnus.sgfp4.arrays import BoolArray, ByteArray, IntArray, frozen

MACROBLOCK = 64
WEIGHTS_PER_MACROBLOCK = MACROBLOCK * MACROBLOCK
LEAF_SIZES = (64, 32, 16, 8, 4)
SLOTS = 341
SPLIT_MAP_BITS = 96
ONE = np.uint8(1)


def leaves_across(size: int) -> int:
    """How many leaves of a size lie side by side in a macroblock."""
    return MACROBLOCK // size


@cache
def slot_geometry() -> tuple[IntArray, IntArray, IntArray]:
    """Size, top and left of each slot; each (341,)."""
    nodes: list[tuple[int, int, int]] = []

    def visit(size: int, top: int, left: int) -> None:
        nodes.append((size, top, left))
        half = size // 2
        if size > LEAF_SIZES[-1]:
            for down, right in ((0, 0), (0, half), (half, 0), (half, half)):
                visit(half, top + down, left + right)

    visit(MACROBLOCK, 0, 0)
    table = np.array(nodes, dtype=np.int64)
    size, top, left = (frozen(np.ascontiguousarray(column)) for column in table.T)
    return size, top, left


@cache
def slots_of_size(size: int) -> IntArray:
    """The slots of one size in depth-first order, which groups the four children of a node; (leaves,)."""
    return frozen(np.flatnonzero(slot_geometry()[0] == size))


@cache
def slot_kinds() -> IntArray:
    """log2 of the size of each slot; (341,)."""
    return frozen(np.log2(slot_geometry()[0]).astype(np.int64))


@cache
def slot_places() -> IntArray:
    """For each slot, its number among the nodes of its size row by row; (341,)."""
    size, top, left = slot_geometry()
    return frozen(top // size * (MACROBLOCK // size) + left // size)


@cache
def depth_first_cells() -> IntArray:
    """For each 4×4 cell of a macroblock row by row, its number in depth-first order; (256,).

    Leaves in depth-first order cover the cells in this order, however large they are.
    """
    _, top, left = slot_geometry()
    slots = slots_of_size(4)
    order = np.empty(len(slots), np.int64)
    order[top[slots] // 4 * leaves_across(4) + left[slots] // 4] = np.arange(len(slots))
    return frozen(order)


def read_split_maps(maps: ByteArray) -> tuple[BoolArray, BoolArray]:
    """The leaves that split maps ask for.

    Args:
        maps: (records, 12) bytes as stored.

    Returns:
        Which slots are leaves (records, 341), and whether all bits after those used are zero (records,).
    """
    records = len(maps)
    bits = np.unpackbits(maps, axis=1, bitorder="little")
    # A node of 16 uses one bit, and four more where it is split: bits k .. k+4 as one number for every k.
    wide = np.zeros((records, SPLIT_MAP_BITS + 4), np.uint8)
    wide[:, :SPLIT_MAP_BITS] = bits
    windows = wide[:, :SPLIT_MAP_BITS].copy()
    for ahead in range(1, 5):
        windows |= wide[:, ahead : ahead + SPLIT_MAP_BITS] << ahead
    flat = windows.ravel()
    cursor = np.arange(0, records * SPLIT_MAP_BITS, SPLIT_MAP_BITS, dtype=np.int64)
    root = flat[cursor] & ONE
    cursor = cursor + 1
    split_32 = np.empty((records, 4), np.uint8)
    window_16 = np.empty((records, 16), np.uint8)
    for quadrant in range(4):
        split = flat[cursor] & root
        cursor = cursor + root
        split_32[:, quadrant] = split
        for child in range(4 * quadrant, 4 * quadrant + 4):
            window = flat[cursor] * split
            cursor = cursor + split + 4 * (window & ONE)
            window_16[:, child] = window
    split_16 = window_16 & ONE
    split_8 = window_16[:, :, None] >> np.arange(1, 5, dtype=np.uint8) & split_16[:, :, None]
    used = cursor - np.arange(0, records * SPLIT_MAP_BITS, SPLIT_MAP_BITS, dtype=np.int64)
    filled = bits.astype(np.bool_) & (np.arange(SPLIT_MAP_BITS) >= used[:, None])
    rest_is_zero: BoolArray = np.logical_not(filled.any(axis=1))
    return leaf_mask(root[:, None], split_32, split_16, split_8.reshape(records, 64)), rest_is_zero


def leaf_mask(split_64: ByteArray, split_32: ByteArray, split_16: ByteArray, split_8: ByteArray) -> BoolArray:
    """Which slots are leaves (records, 341), from which nodes are split, each level in depth-first order."""
    mask = np.empty((len(split_64), SLOTS), np.bool_)
    parents = np.ones_like(split_64)
    for size, splits in zip(LEAF_SIZES, (split_64, split_32, split_16, split_8), strict=False):
        mask[:, slots_of_size(size)] = parents > splits
        parents = np.repeat(splits, 4, axis=1)
    mask[:, slots_of_size(4)] = parents > 0
    return mask


def write_split_maps(leaf: BoolArray) -> ByteArray:
    """Split maps (records, 12) that ask for these slots (records, 341) as leaves."""
    split = np.zeros_like(leaf)
    present = leaf.copy()
    for size in reversed(LEAF_SIZES[:-1]):
        slots, children = slots_of_size(size), slots_of_size(size // 2)
        split[:, slots] = present[:, children[::4]]
        present[:, slots] |= split[:, slots]
    present[:, slots_of_size(LEAF_SIZES[-1])] = False
    record, slot = np.nonzero(present)
    used = present.sum(axis=1)
    bit = np.arange(len(slot)) - np.repeat(np.cumsum(used) - used, used)
    bits = np.zeros((len(leaf), SPLIT_MAP_BITS), np.uint8)
    bits[record, bit] = split[record, slot]
    return np.packbits(bits, axis=1, bitorder="little")
