"""SGFP4 once more, from its description, one number at a time: the other side of the comparisons.

It shares nothing with the package, not even constants, and checks nothing.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

UNIFORM = {0: 64, 1: 32, 2: 16, 3: 8, 5: 4}
MIXED = 4


@dataclass(frozen=True)
class SlowLeaf:
    size: int
    ternary: bool
    scale: int
    bias: int
    payload: bytes

    @property
    def header(self) -> int:
        return self.scale << 16 | (self.bias & 0xFFF0) | self.ternary


@dataclass(frozen=True)
class SlowRecord:
    """A record of version 2: `split_bits` are those of the split map of a mixed one."""

    layout: int
    split_bits: tuple[int, ...]
    leaves: tuple[SlowLeaf, ...]

    def to_bytes(self) -> bytes:
        data = struct.pack("<I", self.layout)
        if self.layout == MIXED:
            number = sum(bit << index for index, bit in enumerate(self.split_bits))
            data += number.to_bytes(12, "little")
        data += b"".join(struct.pack("<I", leaf.header) for leaf in self.leaves)
        data += zeros_to_16(data)
        for leaf in self.leaves:
            data += leaf.payload + zeros_to_16(leaf.payload)
        return data


def zeros_to_16(data: bytes) -> bytes:
    return bytes(-len(data) % 16)


def payload_length(size: int, ternary: bool) -> int:
    return size * size // 4 if ternary else size * size // 2


def finite_float16(source: random.Random) -> int:
    """The bits of a finite float16 number, of any size and sign."""
    while True:
        bits = source.getrandbits(16)
        if bits & 0x7C00 != 0x7C00:
            return bits


def random_leaf(source: random.Random, size: int) -> SlowLeaf:
    ternary = source.random() < 0.4
    payload = source.randbytes(payload_length(size, ternary))
    return SlowLeaf(size, ternary, finite_float16(source), finite_float16(source), payload)


def random_record(source: random.Random, layout: int) -> SlowRecord:
    if layout != MIXED:
        size = UNIFORM[layout]
        return SlowRecord(layout, (), tuple(random_leaf(source, size) for _ in range((64 // size) ** 2)))
    bits: list[int] = []
    leaves: list[SlowLeaf] = []
    # Of all shapes, from one leaf to 256.
    share = source.random()

    def visit(size: int) -> None:
        split = size > 4 and source.random() < share
        if size > 4:
            bits.append(int(split))
        if split:
            for _ in range(4):
                visit(size // 2)
        else:
            leaves.append(random_leaf(source, size))

    visit(64)
    return SlowRecord(layout, tuple(bits), tuple(leaves))


def container_v2(records: list[bytes], *, padded: bool = True, order: list[int] | None = None) -> bytes:
    """A container; `order` says in which order the records are stored."""
    order = list(range(len(records))) if order is None else order
    offsets, region = {}, b""
    for index in order:
        offsets[index] = len(region)
        region += records[index]
    data = b"SGF4" + bytes([2]) + struct.pack("<I", len(records)) + bytes(7)
    data += b"".join(struct.pack("<I", offsets[index]) for index in range(len(records)))
    return data + (zeros_to_16(data) if padded else b"") + region


def container_v1(leaves: list[SlowLeaf], *, order: list[int] | None = None, hints: int = 0) -> bytes:
    """A container of version 1; `hints` is put into the flag bit that has no meaning to a reader."""
    order = list(range(len(leaves))) if order is None else order
    offsets = {index: position * 2048 for position, index in enumerate(order)}
    data = b"".join(struct.pack("<I", leaf.scale << 16 | leaf.bias) for leaf in leaves)
    data += b"".join(
        struct.pack("<I", offsets[index] | hints << 1 | leaf.ternary) for index, leaf in enumerate(leaves)
    )
    for index in order:
        data += leaves[index].payload + bytes(2048 - len(leaves[index].payload))
    return data


def half(bits: int) -> float:
    number: float = struct.unpack("<e", struct.pack("<H", bits))[0]
    return number


def codes_of(payload: bytes, count: int, ternary: bool) -> Iterator[int]:
    for index in range(count):
        if ternary:
            symbol = payload[index // 4] >> 2 * (index % 4) & 3
            yield {0: 0, 1: 1, 2: -1, 3: 0}[symbol]
        else:
            nibble = payload[index // 2] >> 4 * (index % 2) & 15
            yield nibble - 16 if nibble > 7 else nibble


def leaf_weights(payload: bytes, size: int, header: int, ternary: bool) -> list[list[float]]:
    """The rows of a leaf. Every scale × code + bias is exact in double precision and rounded once."""
    scale, bias = half(header >> 16), half(header & 0xFFFF)
    weights = [scale * code + bias for code in codes_of(payload, size * size, ternary)]
    return [weights[row * size : (row + 1) * size] for row in range(size)]


@dataclass(frozen=True)
class PlacedLeaf:
    """A leaf as it lies in a container; `header` has no flags."""

    block: int
    top: int
    left: int
    size: int
    ternary: bool
    header: int
    payload: bytes

    @property
    def scale(self) -> float:
        return half(self.header >> 16)

    @property
    def bias(self) -> float:
        return half(self.header & 0xFFFF)


def decode_slowly(data: bytes, shape: tuple[int, int]) -> npt.NDArray[np.float32]:
    """What a valid container holds."""
    down, across = math.ceil(shape[0] / 64), math.ceil(shape[1] / 64)
    matrix = [[0.0] * (64 * across) for _ in range(64 * down)]
    for leaf in leaves_of(data, down * across):
        top, left = leaf.block // across * 64 + leaf.top, leaf.block % across * 64 + leaf.left
        for index, row in enumerate(leaf_weights(leaf.payload, leaf.size, leaf.header, leaf.ternary)):
            matrix[top + index][left : left + leaf.size] = row
    whole = np.array(matrix, np.float64).astype(np.float32)
    return whole[: shape[0], : shape[1]]


def leaves_of(data: bytes, blocks: int) -> Iterator[PlacedLeaf]:
    """All leaves of a valid container, in the order of macroblocks and of their headers."""
    return leaves_v2(data, blocks) if data[:4] == b"SGF4" else leaves_v1(data, blocks)


def leaves_v1(data: bytes, blocks: int) -> Iterator[PlacedLeaf]:
    for block in range(blocks):
        header = struct.unpack_from("<I", data, 4 * block)[0]
        offset = struct.unpack_from("<I", data, 4 * (blocks + block))[0]
        begin = 8 * blocks + (offset & ~15)
        yield PlacedLeaf(block, 0, 0, 64, bool(offset & 1), header, data[begin : begin + 2048])


def layouts_of(data: bytes, blocks: int) -> list[int]:
    """The layout of each record of version 2."""
    region = 16 + 4 * blocks
    region += -region % 16 if len(data) % 16 == 0 else 0
    offsets = struct.unpack_from(f"<{blocks}I", data, 16)
    return [data[region + offset] for offset in offsets]


def leaves_v2(data: bytes, blocks: int) -> Iterator[PlacedLeaf]:
    region = 16 + 4 * blocks
    region += -region % 16 if len(data) % 16 == 0 else 0
    for block in range(blocks):
        begin = region + struct.unpack_from("<I", data, 16 + 4 * block)[0]
        layout = struct.unpack_from("<I", data, begin)[0] & 7
        header = begin + 4
        if layout == MIXED:
            places = list(mixed_places(int.from_bytes(data[header : header + 12], "little")))
            header += 12
        else:
            size = UNIFORM[layout]
            places = [(size, top, left) for top in range(0, 64, size) for left in range(0, 64, size)]
        payload = header + 4 * len(places)
        payload += -(payload - begin) % 16
        for size, top, left in places:
            word = struct.unpack_from("<I", data, header)[0]
            ternary = bool(word & 1)
            length = payload_length(size, ternary)
            codes = data[payload : payload + length]
            yield PlacedLeaf(block, top, left, size, ternary, word & 0xFFFFFFF0, codes)
            header += 4
            payload += length + -length % 16


def mixed_places(bits: int) -> Iterator[tuple[int, int, int]]:
    """Size, top and left of the leaves that a split map asks for."""
    used = 0

    def visit(size: int, top: int, left: int) -> Iterator[tuple[int, int, int]]:
        nonlocal used
        split = False
        if size > 4:
            split = bool(bits >> used & 1)
            used += 1
        if not split:
            yield size, top, left
            return
        step = size // 2
        for down, right in ((0, 0), (0, step), (step, 0), (step, step)):
            yield from visit(step, top + down, left + right)

    yield from visit(64, 0, 0)
