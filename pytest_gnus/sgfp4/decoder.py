"""Containers into weights.

The codes of all leaves are first brought into the order of the matrix, packed as they are (four bits each, a
ternary code made one of four bits), then unpacked and scaled in strips that stay in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gnus.sgfp4.arrays import (
    BoolArray,
    ByteArray,
    Element,
    Floats,
    IntArray,
    WordArray,
    frozen,
    whole_rows,
)
from pytest_gnus.sgfp4.container import (
    ALIGNMENT,
    Leaves,
    MixedLeaves,
    UniformLeaves,
    aligned,
    checked_shape,
    macroblock_grid,
    open_container,
)
from pytest_gnus.sgfp4.errors import SGFP4Error
from pytest_gnus.sgfp4.quadtree import (
    LEAF_SIZES,
    MACROBLOCK,
    depth_first_cells,
    leaves_across,
    slot_geometry,
)

# Half a million weights, whose packed codes stay in the second level cache; so do the floats of a strip.
MACROBLOCKS_AT_ONCE = 128
WEIGHTS_PER_STRIP = 1 << 17


def decode(data: bytes, shape: tuple[int, int], *, source: str = "", tensor: str = "") -> Floats:
    """The weights of a container, float32 of the shape.

    Args:
        data: the whole container, version 1 or 2.
        shape: (rows, columns) of the matrix, which the container does not carry.
        source: the file's name, for errors.
        tensor: the weight's name, for errors.

    Raises:
        SGFP4Error: the container breaks a rule of the format or does not fit the shape.
    """
    try:
        rows, columns = checked_shape(shape)
        container = open_container(data, (rows, columns))
        # At most 16 times the bytes of the file: `open_container` has compared the two.
        weights = np.empty((rows, columns), np.float32)
        across = macroblock_grid((rows, columns))[1]
        for blocks, leaves in container.read(_ranges(container.blocks, across)):
            row, column = divmod(blocks.start, across)
            planes = _gather(blocks, leaves, container.region).in_rows(min(len(blocks), across))
            _scale(planes, weights[row * MACROBLOCK :, column * MACROBLOCK :])
    except SGFP4Error as error:
        raise error.named(source, tensor) from None
    return weights


def _ranges(blocks: int, across: int) -> Iterator[range]:
    """Macroblocks that form a rectangle: some whole rows of them, or a part of one row."""
    step = MACROBLOCKS_AT_ONCE if across > MACROBLOCKS_AT_ONCE else MACROBLOCKS_AT_ONCE // across * across
    begin = 0
    while begin < blocks:
        end = min(begin + step, blocks)
        if across > MACROBLOCKS_AT_ONCE:
            end = min(end, (begin // across + 1) * across)
        yield range(begin, end)
        begin = end


@dataclass(frozen=True)
class _Planes:
    """The contents of a rectangle of weights.

    `codes` has two weights in each byte (height, width / 2); `numbers` has scale and bias, as they are
    stored, for each cell of `cell` × `cell` weights (height / cell, width / cell).
    """

    cell: int
    codes: ByteArray
    numbers: WordArray


@dataclass(frozen=True)
class _Macroblocks:
    """The same for single macroblocks: (macroblocks, 64, 32) and (macroblocks, 64 / cell, 64 / cell)."""

    cell: int
    codes: ByteArray
    numbers: WordArray

    def in_rows(self, across: int) -> _Planes:
        """Put the macroblocks side by side, `across` in each row."""
        return _Planes(self.cell, _side_by_side(self.codes, across), _side_by_side(self.numbers, across))


def _side_by_side(blocks: npt.NDArray[Element], across: int) -> npt.NDArray[Element]:
    count, height, width = blocks.shape
    rows = blocks.reshape(count // across, across, height, width).transpose(0, 2, 1, 3)
    return rows.reshape(count // across * height, across * width)


def _gather(blocks: range, groups: list[Leaves], region: ByteArray) -> _Macroblocks:
    """Bring the codes and numbers of all leaves to where their weights lie in their macroblocks."""
    cell = min(group.size if isinstance(group, UniformLeaves) else LEAF_SIZES[-1] for group in groups)
    numbers = np.empty((len(blocks), MACROBLOCK // cell, MACROBLOCK // cell), np.uint32)
    codes = np.empty((len(blocks), MACROBLOCK, MACROBLOCK // 2), np.uint8)
    for group in groups:
        # A plain slice, where the macroblocks are all of one kind, saves an array of numbers.
        chosen = slice(None) if len(group.block) == len(blocks) else group.block - blocks.start
        if isinstance(group, UniformLeaves):
            _gather_uniform(group, chosen, region, codes, numbers)
        else:
            _gather_mixed(group, group.block - blocks.start, region, codes)
            cells = np.repeat(group.numbers, (1 << 2 * group.kind) // 16).reshape(len(group.block), -1)
            numbers[chosen] = cells.take(depth_first_cells(), axis=1).reshape(-1, *numbers.shape[1:])
    return _Macroblocks(cell, codes, numbers)


def _gather_uniform(
    group: UniformLeaves,
    chosen: slice | IntArray,
    region: ByteArray,
    codes: ByteArray,
    numbers: WordArray,
) -> None:
    """Write uniform macroblocks to their places, `chosen`."""
    across, count = leaves_across(group.size), len(group.block)
    cells = numbers.shape[1] // across
    numbers.reshape(-1, across, cells, across, cells)[chosen] = group.numbers.reshape(
        count, across, 1, across, 1
    )
    packed = _packed_codes(group, region).view(_piece_type(group.size))
    leaves = packed.reshape(count, across, across, group.size, -1)
    plane = codes.view(packed.dtype).reshape(len(codes), across, group.size, across, -1)
    plane[chosen] = leaves.transpose(0, 1, 3, 2, 4)


def _packed_codes(group: UniformLeaves, region: ByteArray) -> ByteArray:
    """The codes of all leaves, four bits each; (leaves, size × size / 2) bytes."""
    ternary, payload = group.ternary.ravel(), group.payload.ravel()
    modes = list(_by_mode(ternary))
    if len(modes) == 1:
        return np.ascontiguousarray(_payloads(region, payload, group.size, modes[0][0]))
    packed = np.empty((len(payload), group.size * group.size // 2), np.uint8)
    for mode, chosen in modes:
        rows = np.ascontiguousarray(_payloads(region, payload[chosen], group.size, mode))
        # One element a leaf, which is many times faster to move than a row of bytes.
        _as_elements(packed)[chosen] = _as_elements(rows)
    return packed


def _as_elements(rows: ByteArray) -> npt.NDArray[Any]:
    """Each row as one element; (rows,)."""
    length = rows.shape[1]
    return rows.view(np.uint64 if length == 8 else f"V{length}").ravel()


def _gather_mixed(group: MixedLeaves, block: IntArray, region: ByteArray, codes: ByteArray) -> None:
    """Write the codes of mixed macroblocks, `block` their places."""
    _, top, left = slot_geometry()
    for size in LEAF_SIZES:
        of_size = np.flatnonzero(group.kind == size.bit_length() - 1)
        if not len(of_size):
            continue
        plane = codes.view(_piece_type(size))
        slots = group.slot[of_size]
        across = plane.shape[2]
        corner = block[group.record[of_size]] * (MACROBLOCK * across)
        corner += top[slots] * across + left[slots] * across // MACROBLOCK
        offsets = (np.arange(size)[:, None] * across + np.arange(across * size // MACROBLOCK)).ravel()
        for mode, chosen in _by_mode(group.ternary[of_size]):
            packed = _payloads(region, group.payload[of_size][chosen], size, mode)
            rows = np.ascontiguousarray(packed).view(plane.dtype)
            plane.ravel()[corner[chosen][:, None] + offsets] = rows


def _piece_type(size: int) -> np.dtype[Any]:
    """What the rows of a leaf's packed codes are moved in: a whole row, or 16 bytes of a longer one."""
    names = {4: "u2", 8: "u4", 16: "u8"}
    return np.dtype(names.get(size, "V16"))


def _by_mode(ternary: BoolArray) -> Iterator[tuple[bool, IntArray | slice]]:
    """Which leaves are FP4 and which ternary, where there are any."""
    count = int(np.count_nonzero(ternary))
    if count in (0, len(ternary)):
        yield bool(count), slice(None)
        return
    yield False, np.flatnonzero(~ternary)
    yield True, np.flatnonzero(ternary)


def _payloads(region: ByteArray, offset: IntArray, size: int, ternary: bool) -> ByteArray:
    """The codes of leaves of one size and mode, four bits each; (leaves, size × size / 2) bytes."""
    length = size * size // (4 if ternary else 2)
    index = (offset // ALIGNMENT)[:, None] + np.arange(aligned(length) // ALIGNMENT)
    stored = region.view("V16").take(index).view(np.uint8)[:, :length]
    if not ternary:
        return stored
    return _four_bit_codes().take(stored).view(np.uint8)


@cache
def _four_bit_codes() -> npt.NDArray[np.uint16]:
    """For each byte of four ternary symbols, the two bytes with the same codes in four bits each; (256,)."""
    symbols = np.arange(256, dtype=np.uint8)[:, None] >> np.arange(0, 8, 2, dtype=np.uint8) & 3
    codes = np.array([0, 1, 0xF, 0], np.uint8)[symbols]
    pairs: npt.NDArray[np.uint8] = codes[:, 0::2] | codes[:, 1::2] << np.uint8(4)
    return frozen(pairs.view(np.uint16).ravel())


def _scale(planes: _Planes, out: Floats) -> None:
    """`out = scale * code + bias`, the product rounded before the sum; `out` ends where the matrix ends."""
    height, half = planes.codes.shape
    width, cell = 2 * half, planes.cell
    strip = MACROBLOCK
    while strip > LEAF_SIZES[-1] and strip * width > WEIGHTS_PER_STRIP:
        strip //= 2
    tall = min(strip, cell)
    scratch = np.empty((strip // tall, tall, width), np.float32)
    nibbles = np.empty((strip, half), np.dtype("<u2"))
    scale = _float32(planes.numbers >> np.uint32(16))
    bias = _float32(planes.numbers)
    out = out[:height, :width]
    with whole_rows(width):
        for top in range(0, len(out), strip):
            cells = slice(top // cell, top // cell + len(scratch))
            codes = _unpack(planes.codes[top : top + strip], nibbles).reshape(scratch.shape)
            np.multiply(codes, _widen(scale[cells], cell), out=scratch)
            target = out[top : top + strip]
            if target.shape == (strip, width):
                np.add(scratch, _widen(bias[cells], cell), out=target.reshape(scratch.shape))
            else:
                scratch += _widen(bias[cells], cell)
                target[...] = scratch.reshape(strip, width)[: len(target), : target.shape[1]]


def _float32(numbers: WordArray) -> Floats:
    """The float16 numbers in the lower halves."""
    return numbers.astype(np.uint16).view(np.float16).astype(np.float32)


def _widen(numbers: Floats, cell: int) -> Floats:
    """One number per column of weights, to be spread over the rows of its cells; (cells, 1, width)."""
    return np.repeat(numbers, cell, axis=1)[:, None, :]


def _unpack(packed: ByteArray, words: npt.NDArray[np.uint16]) -> npt.NDArray[np.int8]:
    """Codes from −8 to 7 from two in each byte; `words` is the memory to use, a word for each byte."""
    np.copyto(words, packed)
    words |= words << 4
    words &= 0x0F0F
    # Two's complement of four bits: flip the sign bit, then take its weight off.
    codes = words.view(np.int8)
    codes ^= 8
    codes -= 8
    return codes
