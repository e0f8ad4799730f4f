"""The bytes of a container, checked: which leaf lies where, and where its numbers and codes are.

Nothing is read before the length that it needs is known to be there, and no array is made from a number of
the file that was not compared with the length of the file and with the shape.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from pytest_gnus.sgfp4.arrays import BoolArray, ByteArray, IntArray, WordArray, frozen
from pytest_gnus.sgfp4.errors import SGFP4Error
from pytest_gnus.sgfp4.quadtree import (
    LEAF_SIZES,
    MACROBLOCK,
    leaves_across,
    read_split_maps,
    slot_kinds,
)

MAGIC = b"SGF4"
ALIGNMENT = 16
V2_HEADER_BYTES = 16
V1_PAYLOAD_BYTES = 2048
V1_BLOCK_BYTES = 8 + V1_PAYLOAD_BYTES
MIXED = 4
LAYOUT_SIZES = {0: 64, 1: 32, 2: 16, 3: 8, 5: 4}
LAYOUT_OF_SIZE = {size: layout for layout, size in LAYOUT_SIZES.items()}
MIXED_PREFIX_BYTES = 16
LAYOUT_BITS = 3
LAST_LAYOUT = 5
# One ternary leaf of 64×64: no record is shorter, so a file's length bounds its number of records.
SHORTEST_RECORD = 16 + 1024
SHORTEST_PAYLOAD = 16
TERNARY_FLAG = np.uint32(1)
RESERVED_LEAF_FLAGS = np.uint32(0xE)
V1_RESERVED_FLAGS = np.uint32(0xC)
EXPONENTS = np.uint32(0x7C007C00)
EXPONENT_STEPS = np.uint32(0x04000400)
SIGNS = np.uint32(0x80008000)
NUMBERS = np.uint32(0xFFFFFFF0)
HEADER_PADDING = "the padding after the leaf headers is zero"


@cache
def payload_bytes() -> IntArray:
    """Bytes of a payload with its padding, by size (row: log2 of the size) and mode (0 FP4, 1 ternary)."""
    table = np.zeros((7, 2), np.int64)
    for size in LEAF_SIZES:
        for mode, bits in ((0, 4), (1, 2)):
            table[_log2(size), mode] = aligned(size * size * bits // 8)
    return frozen(table)


def aligned(length: int) -> int:
    """A length rounded up to a multiple of 16."""
    return -(-length // ALIGNMENT) * ALIGNMENT


def macroblock_grid(shape: tuple[int, int]) -> tuple[int, int]:
    """How many macroblocks cover a matrix, (down, across)."""
    return -(-shape[0] // MACROBLOCK), -(-shape[1] // MACROBLOCK)


@dataclass(frozen=True)
class UniformLeaves:
    """Leaves of macroblocks that are all cut into leaves of one size.

    `block` holds the numbers of the macroblocks (macroblocks,); the rest is (macroblocks, leaves), the leaves
    of a macroblock row by row. `numbers` holds the bits of two float16 numbers, the scale in the upper half
    and the bias in the lower; `payload` is a byte offset into the container's region.
    """

    size: int
    block: IntArray
    numbers: WordArray
    ternary: BoolArray
    payload: IntArray


@dataclass(frozen=True)
class MixedLeaves:
    """Leaves of macroblocks with a split map each.

    `block` is (macroblocks,), the rest (leaves,) in the order of macroblocks and slots: `record` says to
    which of the macroblocks a leaf belongs, `slot` and `kind` (log2 of the size) where it lies; the others
    are as in `UniformLeaves`.
    """

    block: IntArray
    record: IntArray
    slot: IntArray
    kind: IntArray
    numbers: WordArray
    ternary: BoolArray
    payload: IntArray


Leaves = UniformLeaves | MixedLeaves


@dataclass(frozen=True)
class Container:
    """A container whose header and tables are checked.

    `region` holds what `start` and the payloads count from, beginning at byte `region_offset` of the file.
    `layout` is the layout of each macroblock (0 in version 1), `start` where its record or payload begins.
    """

    version: int
    total_bytes: int
    region: ByteArray
    region_offset: int
    layout: npt.NDArray[np.uint8]
    start: IntArray
    v1_headers: WordArray
    v1_flags: WordArray

    @property
    def blocks(self) -> int:
        return len(self.start)

    def read(self, ranges: Iterable[range]) -> Iterator[tuple[range, list[Leaves]]]:
        """The leaves of each range of macroblocks; together the ranges are all macroblocks.

        What is wrong with a record is raised when its range is reached; what is wrong with the records as a
        whole (a gap, an overlap, bytes after the last) when all were read.

        Raises:
            SGFP4Error: naming the byte offset and the rule.
        """
        ends = np.empty(self.blocks, np.int64)
        for blocks in ranges:
            if self.version == 1:
                yield blocks, [self._v1_leaves(blocks.start, blocks.stop, ends)]
            else:
                yield blocks, self._v2_leaves(blocks.start, blocks.stop, ends)
        self._require_tiling(ends)

    def _v1_leaves(self, first: int, stop: int, ends: IntArray) -> UniformLeaves:
        headers = self.v1_headers[first:stop]
        not_finite = _not_finite(headers)
        if not_finite.any():
            raise SGFP4Error("scale and bias are finite", offset=4 * (first + int(np.argmax(not_finite))))
        start = self.start[first:stop]
        ends[first:stop] = start + V1_PAYLOAD_BYTES
        return UniformLeaves(
            size=MACROBLOCK,
            block=np.arange(first, stop, dtype=np.int64),
            numbers=headers[:, None],
            ternary=(self.v1_flags[first:stop, None] & TERNARY_FLAG).astype(np.bool_),
            payload=start[:, None],
        )

    def _v2_leaves(self, first: int, stop: int, ends: IntArray) -> list[Leaves]:
        layouts = self.layout[first:stop]
        groups: list[Leaves] = []
        for layout in np.flatnonzero(np.bincount(layouts)).tolist():
            blocks = first + np.flatnonzero(layouts == layout)
            if layout == MIXED:
                groups.append(self._mixed(blocks, ends))
            else:
                groups.append(self._uniform(blocks, LAYOUT_SIZES[layout], ends))
        return groups

    def _uniform(self, blocks: IntArray, size: int, ends: IntArray) -> UniformLeaves:
        leaves = leaves_across(size) ** 2
        prefix = aligned(4 + 4 * leaves)
        start = self.start[blocks]
        self._require_inside(start, start + prefix, "truncated record: leaf headers")
        words = self._words(start, prefix // ALIGNMENT)
        self._require_zero(words[:, 1 + leaves :], start + 4 + 4 * leaves, HEADER_PADDING)
        headers = words[:, 1 : 1 + leaves]
        self._require_valid(headers, start[:, None] + np.arange(4, 4 + 4 * leaves, 4))
        ternary = (headers & TERNARY_FLAG).astype(np.bool_)
        lengths = payload_bytes()[_log2(size)].take(ternary.view(np.uint8))
        after = np.cumsum(lengths, axis=1)
        after += (start + prefix)[:, None]
        self._require_inside(start, after[:, -1], "truncated payload")
        ends[blocks] = after[:, -1]
        payload = after - lengths
        if size == LEAF_SIZES[-1]:
            self._require_zero_payload_padding(payload.ravel(), ternary.ravel())
        return UniformLeaves(size, blocks, headers & NUMBERS, ternary, payload)

    def _mixed(self, blocks: IntArray, ends: IntArray) -> MixedLeaves:
        start = self.start[blocks]
        # Every record offset leaves room for 16 bytes, so the split map is there.
        prefix = np.ascontiguousarray(self._words(start, 1)[:, 1:])
        mask, rest_is_zero = read_split_maps(prefix.view(np.uint8))
        counts = mask.sum(axis=1)
        headers_end = start + MIXED_PREFIX_BYTES + 4 * counts
        payload_start = -(-headers_end // ALIGNMENT) * ALIGNMENT
        self._require_inside(
            start,
            payload_start + SHORTEST_PAYLOAD * counts,
            "truncated payload: split map asks for more leaves than the record holds",
        )
        if not rest_is_zero.all():
            raise self._error(start[np.argmin(rest_is_zero)] + 4, "unused bits of the split map are zero")
        self._require_zero_after(headers_end)
        record, slot = np.nonzero(mask)
        first_leaf = np.cumsum(counts) - counts
        header_offset = np.repeat(start + MIXED_PREFIX_BYTES - 4 * first_leaf, counts)
        header_offset += np.arange(0, 4 * len(slot), 4)
        headers: WordArray = self.region.view("<u4").take(header_offset >> 2)
        self._require_valid(headers, header_offset)
        ternary = (headers & TERNARY_FLAG).astype(np.bool_)
        kind = slot_kinds()[slot]
        lengths = payload_bytes().ravel().take(2 * kind + ternary)
        after = np.cumsum(lengths)
        payload = after - lengths
        payload += np.repeat(payload_start - payload[first_leaf], counts)
        record_end = payload_start + np.add.reduceat(lengths, first_leaf)
        self._require_inside(start, record_end, "truncated payload")
        ends[blocks] = record_end
        smallest = kind == _log2(LEAF_SIZES[-1])
        self._require_zero_payload_padding(payload[smallest], ternary[smallest])
        return MixedLeaves(blocks, record, slot, kind, headers & NUMBERS, ternary, payload)

    def _words(self, offset: IntArray, units: int) -> WordArray:
        """The words of some 16-byte units from each byte offset, a multiple of 16; (offsets, 4 × units)."""
        index = (offset // ALIGNMENT)[:, None] + np.arange(units)
        return self.region.view("V16").take(index).view("<u4")

    def _require_valid(self, headers: WordArray, offset: IntArray) -> None:
        """The rules of leaf headers; `offset` says where each of them lies."""
        reserved = headers & RESERVED_LEAF_FLAGS
        if reserved.any():
            raise self._error(offset[reserved != 0][0], "reserved leaf flag bits are zero")
        not_finite = _not_finite(headers)
        if not_finite.any():
            raise self._error(offset[not_finite != 0][0], "scale and bias are finite")

    def _require_inside(self, start: IntArray, end: IntArray, rule: str) -> None:
        outside = end > len(self.region)
        if outside.any():
            worst = int(np.argmax(outside))
            raise self._error(
                start[worst],
                f"{rule} (the record needs {int(end[worst] - start[worst])} bytes, "
                f"{len(self.region) - int(start[worst])} are left)",
            )

    def _require_zero(self, words: WordArray, offset: IntArray, rule: str) -> None:
        """`words` has a row for each offset."""
        if words.any():
            raise self._error(offset[np.argmax(words.any(axis=1))], rule)

    def _require_zero_after(self, offset: IntArray) -> None:
        """The padding from each offset to the next multiple of 16: three words at most."""
        unit = offset // ALIGNMENT * ALIGNMENT
        inside = np.arange(ALIGNMENT // 4) * 4 >= (offset - unit)[:, None]
        # Where the offset is a multiple of 16 there is no padding, and perhaps no more region.
        padded = offset > unit
        words = self._words(unit[padded], 1) * inside[padded]
        self._require_zero(words, offset[padded], HEADER_PADDING)

    def _require_zero_payload_padding(self, payload: IntArray, ternary: BoolArray) -> None:
        """The payload of a 4×4 leaf, the only one that is no multiple of 16 bytes long."""
        words = self._words(payload, 1)
        filled = words.view("<u8")[:, 1] != 0
        filled |= (words[:, 1] != 0) & ternary
        if filled.any():
            raise self._error(payload[np.argmax(filled)], "the padding of a payload is zero")

    def _require_tiling(self, ends: IntArray) -> None:
        """Records fill the region: no byte is outside all of them, none in two."""
        order = np.argsort(self.start, kind="stable")
        begin, end = self.start[order], ends[order]
        expected = np.concatenate(([0], end[:-1]))
        wrong = begin != expected
        if wrong.any():
            first = int(np.argmax(wrong))
            overlap = begin[first] < expected[first]
            rule = "records do not overlap" if overlap else "no bytes lie between records"
            raise self._error(min(begin[first], expected[first]), rule)
        if int(end[-1]) != len(self.region):
            raise self._error(end[-1], "no bytes follow the last record")

    def _error(self, offset: int | np.integer, rule: str) -> SGFP4Error:
        """`offset` counts from the start of the region."""
        return SGFP4Error(rule, offset=self.region_offset + int(offset))


def open_container(data: bytes, shape: tuple[int, int] | None) -> Container:
    """Check the header and the tables of a container, and that it holds as many macroblocks as the shape.

    The shape is one that `checked_shape` gave; without one, only what the file says of itself is checked.

    Raises:
        SGFP4Error: naming the byte offset and the rule.
    """
    expected = None
    if shape is not None:
        down, across = macroblock_grid(shape)
        expected = down * across
    if not len(data):
        raise SGFP4Error("empty file: a container has at least one macroblock", offset=0)
    if data[:4] == MAGIC:
        return _open_v2(data, expected)
    return _open_v1(data, expected)


def checked_shape(shape: Sequence[int]) -> tuple[int, int]:
    """A shape of two positive whole numbers.

    Raises:
        SGFP4Error: it is something else.
    """
    try:
        rows, columns = (operator.index(length) for length in shape)
    except (TypeError, ValueError) as error:
        raise SGFP4Error(f"a shape is two whole numbers (rows, columns), not {shape!r}") from error
    if rows < 1 or columns < 1:
        raise SGFP4Error(f"a shape has at least one row and one column, not {shape!r}")
    return rows, columns


def _open_v1(data: bytes, expected: int | None) -> Container:
    if expected is None:
        if len(data) % V1_BLOCK_BYTES:
            raise SGFP4Error(
                f"magic: the file begins with neither SGF4 nor is its length a multiple of {V1_BLOCK_BYTES}",
                offset=0,
            )
        expected = len(data) // V1_BLOCK_BYTES
    if len(data) != expected * V1_BLOCK_BYTES:
        raise SGFP4Error(
            f"magic or v1 size: the file does not begin with SGF4, and {expected} macroblocks of version 1 "
            f"have {expected * V1_BLOCK_BYTES} bytes, not {len(data)}",
            offset=min(len(data), expected * V1_BLOCK_BYTES),
        )
    table = np.frombuffer(data, "<u4", count=2 * expected)
    offsets = table[expected:]
    region = np.frombuffer(data, np.uint8, offset=8 * expected)
    start = (offsets & ~np.uint32(ALIGNMENT - 1)).astype(np.int64)
    reserved = offsets & V1_RESERVED_FLAGS
    if reserved.any():
        first = int(np.argmax(reserved != 0))
        raise SGFP4Error("reserved block flag bits are zero", offset=4 * (expected + first))
    _require_each(start, len(region) - V1_PAYLOAD_BYTES, 4 * expected, "payload offset")
    return Container(
        version=1,
        total_bytes=len(data),
        region=region,
        region_offset=8 * expected,
        layout=np.zeros(expected, np.uint8),
        start=start,
        v1_headers=table[:expected],
        v1_flags=offsets,
    )


def _open_v2(data: bytes, expected: int | None) -> Container:
    if len(data) < V2_HEADER_BYTES:
        raise SGFP4Error(f"truncated header: {V2_HEADER_BYTES} bytes", offset=len(data))
    if data[4] != 2:
        raise SGFP4Error(f"version is 2 after the magic, not {data[4]}", offset=4)
    if data[9:V2_HEADER_BYTES] != bytes(V2_HEADER_BYTES - 9):
        raise SGFP4Error("header padding is zero", offset=9)
    blocks = int.from_bytes(data[5:9], "little")
    if blocks == 0 or (expected is not None and blocks != expected):
        wanted = "at least 1" if expected is None else f"{expected}, as the shape needs"
        raise SGFP4Error(f"record count is {wanted}, not {blocks}", offset=5)
    region_offset = _region_offset(data, blocks)
    region = np.frombuffer(data, np.uint8, offset=region_offset)
    if len(region) < blocks * SHORTEST_RECORD:
        raise SGFP4Error(
            f"truncated payload: {blocks} records have at least {blocks * SHORTEST_RECORD} bytes, "
            f"not {len(region)}",
            offset=len(data),
        )
    start = np.frombuffer(data, "<u4", count=blocks, offset=V2_HEADER_BYTES).astype(np.int64)
    last = len(region) - ALIGNMENT
    _require_each(start, last, V2_HEADER_BYTES, "record offset")
    headers: WordArray = region.view("<u4").take(start >> 2)
    return Container(
        version=2,
        total_bytes=len(data),
        region=region,
        region_offset=region_offset,
        layout=_layouts(headers, start + region_offset),
        start=start,
        v1_headers=np.zeros(0, np.uint32),
        v1_flags=np.zeros(0, np.uint32),
    )


def _region_offset(data: bytes, blocks: int) -> int:
    """Where the records begin: after the offset table, with its padding or, in early files, without.

    Every record is a multiple of 16 bytes long, so the length of the file modulo 16 says which it is.
    """
    table_end = V2_HEADER_BYTES + 4 * blocks
    if len(data) < table_end:
        raise SGFP4Error(f"truncated offset table: {blocks} record offsets", offset=len(data))
    if len(data) % ALIGNMENT == 0:
        start = aligned(table_end)
        if any(data[table_end:start]):
            raise SGFP4Error("the padding after the offset table is zero", offset=table_end)
        return start
    if (len(data) - table_end) % ALIGNMENT == 0:
        return table_end
    raise SGFP4Error("truncated payload: every record is a multiple of 16 bytes long", offset=len(data))


def _layouts(headers: WordArray, offsets: IntArray) -> npt.NDArray[np.uint8]:
    if headers.max() > LAST_LAYOUT:
        first = int(np.argmax(headers > LAST_LAYOUT))
        header, offset = int(headers[first]), int(offsets[first])
        if header >> LAYOUT_BITS:
            raise SGFP4Error("reserved superblock bits are zero", offset=offset)
        raise SGFP4Error(f"unknown layout {header}", offset=offset)
    return headers.astype(np.uint8)


def _require_each(start: IntArray, last: int, table_offset: int, name: str) -> None:
    """The rules of the offsets of a table: multiples of 16, none after `last`."""
    if int(np.bitwise_or.reduce(start)) % ALIGNMENT:
        first = int(np.argmax(start % ALIGNMENT != 0))
        raise SGFP4Error(f"{name} alignment: a multiple of {ALIGNMENT}", offset=table_offset + 4 * first)
    if int(start.max()) > last:
        first = int(np.argmax(start > last))
        raise SGFP4Error(f"{name} out of range: at most {last}", offset=table_offset + 4 * first)


def _not_finite(headers: WordArray) -> WordArray:
    """Where scale or bias is infinite or no number: not zero there."""
    # One more in an exponent that is all ones carries into the sign, which was taken away before.
    return (headers & EXPONENTS) + EXPONENT_STEPS & SIGNS


def _log2(size: int) -> int:
    return size.bit_length() - 1
