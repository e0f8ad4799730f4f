"""Partitions and weights into the bytes of a container."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pytest_gnus.sgfp4.arrays import BoolArray, ByteArray, CodeArray, Floats, IntArray, WordArray
from pytest_gnus.sgfp4.container import (
    ALIGNMENT,
    LAYOUT_SIZES,
    MAGIC,
    MIXED,
    MIXED_PREFIX_BYTES,
    V1_BLOCK_BYTES,
    V1_PAYLOAD_BYTES,
    V2_HEADER_BYTES,
    aligned,
    payload_bytes,
)
from pytest_gnus.sgfp4.errors import SGFP4Error
from pytest_gnus.sgfp4.fitting import (
    FP4,
    TERNARY,
    Batch,
    Rounding,
    evaluate,
    nearest_codes,
    numbers_of,
    refined,
    scale_and_bias,
)
from pytest_gnus.sgfp4.partition import Partition, chunks, uniform_prefix
from pytest_gnus.sgfp4.quadtree import (
    LEAF_SIZES,
    MACROBLOCK,
    SLOTS,
    leaves_across,
    slot_kinds,
    slot_places,
    slots_of_size,
    write_split_maps,
)

MACROBLOCKS_AT_ONCE = 32
LAST_OFFSET = 0xFFFFFFF0

Macroblocks = Callable[[slice], tuple[Floats, Floats | None]]
"""Gives the weights of some macroblocks, (macroblocks, 64, 64), and 1 where they are no padding, or None."""


def write_v2(partition: Partition, macroblocks: Macroblocks, refine_rounds: int) -> bytes:
    """A container of version 2 with these leaves, whose numbers may still be refined.

    Raises:
        SGFP4Error: the records are too long for offsets of 32 bits.
    """
    lengths = partition.record_bytes()
    blocks = len(lengths)
    start = np.cumsum(lengths) - lengths
    _require_short(start)
    region_offset = aligned(V2_HEADER_BYTES + 4 * blocks)
    data = np.zeros(region_offset + int(lengths.sum()), np.uint8)
    header = MAGIC + b"\x02" + blocks.to_bytes(4, "little") + bytes(7)
    data[:V2_HEADER_BYTES] = np.frombuffer(header, np.uint8)
    data[V2_HEADER_BYTES : V2_HEADER_BYTES + 4 * blocks].view("<u4")[:] = start
    payloads = _Payloads(data[region_offset:], Rounding(2), refine_rounds)
    for part in chunks(blocks, MACROBLOCKS_AT_ONCE):
        _write_records(payloads, partition.part(part), start[part], *macroblocks(part))
    return data.tobytes()


def write_v1(partition: Partition, macroblocks: Macroblocks, refine_rounds: int) -> bytes:
    """A container of version 1 in the same way; all leaves are 64×64."""
    blocks = len(partition.layout)
    start = np.arange(0, blocks * V1_PAYLOAD_BYTES, V1_PAYLOAD_BYTES)
    _require_short(start)
    data = np.zeros(blocks * V1_BLOCK_BYTES, np.uint8)
    table = data[: 8 * blocks].view("<u4")
    ternary = partition.ternary[MACROBLOCK].ravel()
    table[blocks:] = start + ternary
    payloads = _Payloads(data[8 * blocks :], Rounding(1), refine_rounds)
    for part in chunks(blocks, MACROBLOCKS_AT_ONCE):
        weights, real = macroblocks(part)
        numbers = partition.numbers[MACROBLOCK][part].ravel()
        table[:blocks][part] = payloads.write(
            Batch.of(weights, MACROBLOCK, real), ternary[part], numbers, start[part]
        )
    if data[: len(MAGIC)].tobytes() == MAGIC:
        # By chance alone; but a reader would take it for version 2. The next bias does as well.
        table[0] += 1
    return data.tobytes()


def _require_short(start: IntArray) -> None:
    if int(start[-1]) > LAST_OFFSET:
        raise SGFP4Error(f"no record or payload of one tensor begins after byte {LAST_OFFSET}")


@dataclass(frozen=True)
class _Payloads:
    """The region of a container that is being written."""

    region: ByteArray
    rounding: Rounding
    refine_rounds: int

    @property
    def words(self) -> WordArray:
        return self.region.view("<u4")

    def write(self, batch: Batch, ternary: BoolArray, numbers: WordArray, offset: IntArray) -> WordArray:
        """Write the codes of leaves and return their numbers, refined; all (leaves,)."""
        numbers = numbers.copy()
        for mode, codes in ((False, FP4), (True, TERNARY)):
            chosen = np.flatnonzero(ternary == mode)
            if not len(chosen):
                continue
            some = batch.take(chosen)
            scale, bias = (some.each(number) for number in scale_and_bias(numbers[chosen]))
            if self.refine_rounds:
                fit = evaluate(some, scale, bias, codes)
                fit = refined(some, fit, codes, self.rounding, self.refine_rounds)
                scale, bias = fit.scale, fit.bias
                numbers[chosen] = numbers_of(fit)
            packed = _pack(some.rows(nearest_codes(some, scale, bias, codes)), mode)
            self._store(packed, offset[chosen])
        return numbers

    def _store(self, packed: ByteArray, offset: IntArray) -> None:
        length = aligned(packed.shape[1])
        if length > packed.shape[1]:
            packed = np.pad(packed, ((0, 0), (0, length - packed.shape[1])))
        index = (offset // ALIGNMENT)[:, None] + np.arange(length // ALIGNMENT)
        self.region.view("V16")[index] = packed.view("V16")


def _write_records(
    payloads: _Payloads, partition: Partition, start: IntArray, weights: Floats, real: Floats | None
) -> None:
    batches = {size: Batch.of(weights, size, real) for size in LEAF_SIZES if partition.has(size)}
    for layout in np.flatnonzero(np.bincount(partition.layout)).tolist():
        blocks = np.flatnonzero(partition.layout == layout)
        payloads.words[start[blocks] // 4] = layout
        if layout == MIXED:
            _write_mixed(payloads, partition, blocks, start[blocks], batches)
        else:
            size = LAYOUT_SIZES[layout]
            _write_uniform(payloads, partition, blocks, start[blocks], batches[size])


def _write_uniform(
    payloads: _Payloads, partition: Partition, blocks: IntArray, start: IntArray, batch: Batch
) -> None:
    leaves = leaves_across(batch.size) ** 2
    ternary = partition.ternary[batch.size][blocks].reshape(-1, leaves)
    numbers = partition.numbers[batch.size][blocks].reshape(-1, leaves)
    lengths = payload_bytes()[batch.size.bit_length() - 1].take(ternary.view(np.uint8))
    offset = np.cumsum(lengths, axis=1) - lengths
    offset += (start + uniform_prefix(batch.size))[:, None]
    chosen = (blocks[:, None] * leaves + np.arange(leaves)).ravel()
    written = payloads.write(batch.take(chosen), ternary.ravel(), numbers.ravel(), offset.ravel())
    header = start[:, None] // 4 + np.arange(1, 1 + leaves)
    payloads.words[header] = written.reshape(-1, leaves) | ternary


def _write_mixed(
    payloads: _Payloads,
    partition: Partition,
    blocks: IntArray,
    start: IntArray,
    batches: dict[int, Batch],
) -> None:
    mask = np.zeros((len(blocks), SLOTS), np.bool_)
    ternary_slots = np.zeros(mask.shape, np.bool_)
    number_slots = np.zeros(mask.shape, np.uint32)
    for size in batches:
        slots, leaves = slots_of_size(size), leaves_across(size) ** 2
        places = slot_places()[slots]
        mask[:, slots] = partition.leaf[size][blocks].reshape(-1, leaves)[:, places]
        ternary_slots[:, slots] = partition.ternary[size][blocks].reshape(-1, leaves)[:, places]
        number_slots[:, slots] = partition.numbers[size][blocks].reshape(-1, leaves)[:, places]
    maps = write_split_maps(mask).view("<u4")
    payloads.words[start[:, None] // 4 + np.arange(1, 4)] = maps
    counts = mask.sum(axis=1)
    record, slot = np.nonzero(mask)
    first_leaf = np.cumsum(counts) - counts
    header = np.repeat(start // 4 + MIXED_PREFIX_BYTES // 4 - first_leaf, counts) + np.arange(len(slot))
    ternary, kind = ternary_slots[mask], slot_kinds()[slot]
    lengths = payload_bytes().ravel().take(2 * kind + ternary)
    offset = np.cumsum(lengths) - lengths
    payload_start = -(-(start + MIXED_PREFIX_BYTES + 4 * counts) // ALIGNMENT) * ALIGNMENT
    offset += np.repeat(payload_start - offset[first_leaf], counts)
    numbers = number_slots[mask]
    for size, batch in batches.items():
        chosen = np.flatnonzero(kind == size.bit_length() - 1)
        if len(chosen):
            leaf = blocks[record[chosen]] * leaves_across(size) ** 2 + slot_places()[slot[chosen]]
            numbers[chosen] = payloads.write(
                batch.take(leaf), ternary[chosen], numbers[chosen], offset[chosen]
            )
    payloads.words[header] = numbers | ternary


def _pack(codes: CodeArray, ternary: bool) -> ByteArray:
    """Codes (leaves, weights) in four bits each, or two."""
    if not ternary:
        nibbles: ByteArray = codes.view(np.uint8) & np.uint8(0xF)
        return _merged(nibbles, 4)
    # 0, +1 and −1 are 0, 1 and 2.
    return _merged(np.where(codes < 0, 2, codes).astype(np.uint8), 2)


def _merged(symbols: ByteArray, bits: int) -> ByteArray:
    """Symbols of some bits put together in bytes, the first in the lowest bits."""
    each = 8 // bits
    merged = symbols[:, 0::each].copy()
    for index in range(1, each):
        merged |= symbols[:, index::each] << np.uint8(bits * index)
    return merged
