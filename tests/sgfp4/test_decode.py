"""Reading containers: bit for bit as a slow reader does, and no broken one."""

from __future__ import annotations

import random
import struct
import subprocess
import sys

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gnus.errors import GnusError
from pytest_gnus.sgfp4 import SGFP4Error, decode
from tests.sgfp4.slow_format import (
    MIXED,
    UNIFORM,
    SlowLeaf,
    SlowRecord,
    container_v1,
    container_v2,
    decode_slowly,
    random_leaf,
    random_record,
    zeros_to_16,
)

LAYOUTS = [*UNIFORM, MIXED]
shapes = st.tuples(st.integers(1, 200), st.integers(1, 200))
seeds = st.integers(0, 2**32 - 1)


def blocks_of(shape: tuple[int, int]) -> int:
    return -(-shape[0] // 64) * -(-shape[1] // 64)


def same_bits(one: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def records_of(*layouts: int, seed: int = 1) -> list[bytes]:
    source = random.Random(seed)
    return [random_record(source, layout).to_bytes() for layout in layouts]


@given(shape=shapes, seed=seeds, padded=st.booleans(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_version_2_is_decoded_as_by_a_slow_reader(
    shape: tuple[int, int], seed: int, padded: bool, data: st.DataObject
) -> None:
    blocks = blocks_of(shape)
    layouts = data.draw(st.lists(st.sampled_from(LAYOUTS), min_size=blocks, max_size=blocks))
    source = random.Random(seed)
    order = list(range(blocks))
    source.shuffle(order)
    records = [random_record(source, layout).to_bytes() for layout in layouts]
    container = container_v2(records, padded=padded, order=order)
    assert same_bits(decode(container, shape), decode_slowly(container, shape))


@given(shape=shapes, seed=seeds, hints=st.integers(0, 1))
@settings(max_examples=20, deadline=None)
def test_version_1_is_decoded_as_by_a_slow_reader(shape: tuple[int, int], seed: int, hints: int) -> None:
    source = random.Random(seed)
    blocks = blocks_of(shape)
    order = list(range(blocks))
    source.shuffle(order)
    container = container_v1([random_leaf(source, 64) for _ in range(blocks)], order=order, hints=hints)
    assert same_bits(decode(container, shape), decode_slowly(container, shape))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(64 * 3, 64 * 130), (64 * 260, 40), (65, 64 * 129 + 1)])
def test_large_matrices_are_decoded_in_parts_that_fit_together(layout: int, shape: tuple[int, int]) -> None:
    """Wider and higher than what is decoded at once; every macroblock is known by its bias."""
    blocks = blocks_of(shape)
    (record,) = records_of(layout, seed=layout)
    leaves = decode(container_v2([record]), (64, 64))
    expected = np.empty((-(-shape[0] // 64) * 64, -(-shape[1] // 64) * 64), np.float32)
    other = records_of(0, seed=99)[0]
    plain = decode(container_v2([other]), (64, 64))
    across = expected.shape[1] // 64
    chosen = [(block * 7919) % 5 < 3 for block in range(blocks)]
    for block, mixed in enumerate(chosen):
        row, column = divmod(block, across)
        expected[row * 64 : row * 64 + 64, column * 64 : column * 64 + 64] = leaves if mixed else plain
    container = container_v2([record if mixed else other for mixed in chosen])
    assert same_bits(decode(container, shape), np.ascontiguousarray(expected[: shape[0], : shape[1]]))


def test_all_codes_of_one_leaf() -> None:
    """Sixteen codes in order, then a ternary leaf with its reserved symbol."""
    scale, bias = 0x3800, 0xBC00  # 0.5 and −1
    fp4 = SlowLeaf(64, False, scale, bias, bytes.fromhex("1032547698badcfe") * 256)
    ternary = SlowLeaf(64, True, scale, bias, bytes([0b11100100]) * 1024)
    records = [SlowRecord(0, (), (leaf,)).to_bytes() for leaf in (fp4, ternary)]
    weights = decode(container_v2(records), (64, 128))
    in_order = [0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1]
    assert weights[:, :64].tolist() == [[0.5 * code - 1 for code in in_order] * 4] * 64
    assert weights[:, 64:].tolist() == [[0.5 * code - 1 for code in (0, 1, -1, 0)] * 16] * 64


def test_a_mixed_record_of_a_single_leaf() -> None:
    leaf = random_leaf(random.Random(4), 64)
    mixed = container_v2([SlowRecord(MIXED, (0,), (leaf,)).to_bytes()])
    uniform = container_v2([SlowRecord(0, (), (leaf,)).to_bytes()])
    assert same_bits(decode(mixed, (64, 64)), decode(uniform, (64, 64)))


def test_the_result_belongs_to_the_caller() -> None:
    weights = decode(container_v2(records_of(0)), (64, 64))
    weights += 1
    assert weights.flags.c_contiguous


def one(layout: int) -> bytearray:
    """A container of one record, which begins at byte 32 with its layout."""
    return bytearray(container_v2(records_of(layout, seed=7)))


def change(data: bytearray, offset: int, value: int) -> bytes:
    struct.pack_into("<I", data, offset, value)
    return bytes(data)


def flip(data: bytearray, offset: int, bits: int) -> bytes:
    (old,) = struct.unpack_from("<I", data, offset)
    return change(data, offset, old ^ bits)


def fp4_leaf(size: int) -> SlowLeaf:
    return SlowLeaf(size, False, 0x3C00, 0, bytes(size * size // 2))


def mixed(bits: tuple[int, ...], sizes: list[int]) -> bytearray:
    leaves = tuple(fp4_leaf(size) for size in sizes)
    return bytearray(container_v2([SlowRecord(MIXED, bits, leaves).to_bytes()]))


def v1() -> bytearray:
    source = random.Random(3)
    return bytearray(container_v1([random_leaf(source, 64) for _ in range(2)]))


SQUARE = (64, 64)
WIDE = (64, 128)
TWO = records_of(0, 0, seed=5)
LAST = len(TWO[0]) + len(TWO[1]) - 16
BROKEN = {
    "empty": (b"", SQUARE, 0, "empty file"),
    "only the magic": (b"SGF4", SQUARE, 4, "truncated header"),
    "wrong magic": (b"XGF4" + one(0)[4:], SQUARE, len(one(0)), "magic"),
    "version": (one(0)[:4] + b"\x03" + one(0)[5:], SQUARE, 4, "version"),
    "header padding": (one(0)[:15] + b"\x01" + one(0)[16:], SQUARE, 9, "header padding"),
    "no records": (b"SGF4\x02" + bytes(11), SQUARE, 5, "record count"),
    "too many records": (change(one(0), 5, 2), SQUARE, 5, "record count"),
    "as many as there can be": (change(one(0), 5, 0xFFFFFF), SQUARE, 5, "record count"),
    "too few records": (bytes(one(0)), WIDE, 5, "record count"),
    "table cut off": (container_v2(TWO)[:20], WIDE, 20, "truncated offset table"),
    "table padding": (flip(one(0), 24, 1), SQUARE, 20, "padding after the offset table"),
    "odd length": (bytes(one(0)) + b"\0", SQUARE, len(one(0)) + 1, "multiple of 16"),
    "too short for its records": (container_v2(TWO)[:-1040], WIDE, None, "truncated payload"),
    "offset not aligned": (change(one(0), 16, 8), SQUARE, 16, "alignment"),
    "offset far away": (change(one(0), 16, 0x40000000), SQUARE, 16, "out of range"),
    "offset at the end": (change(one(0), 16, len(one(0)) - 32), SQUARE, 16, "out of range"),
    "layout 6": (change(one(0), 32, 6), SQUARE, 32, "unknown layout 6"),
    "layout 7": (change(one(0), 32, 7), SQUARE, 32, "unknown layout 7"),
    "reserved superblock bit": (change(one(0), 32, 8), SQUARE, 32, "reserved superblock bits"),
    "highest superblock bit": (change(one(0), 32, 1 << 31), SQUARE, 32, "reserved superblock bits"),
    "reserved leaf bit 1": (flip(one(1), 36, 2), SQUARE, 36, "reserved leaf flag bits"),
    "reserved leaf bit 3": (flip(one(1), 48, 8), SQUARE, 48, "reserved leaf flag bits"),
    "reserved bit, mixed": (flip(mixed((0,), [64]), 48, 4), SQUARE, 48, "reserved leaf flag bits"),
    "infinite scale": (change(one(0), 36, 0x7C000000), SQUARE, 36, "finite"),
    "scale no number": (change(one(3), 40, 0xFE000001), SQUARE, 40, "finite"),
    "infinite bias": (change(one(0), 36, 0x3C00FC00), SQUARE, 36, "finite"),
    "bias no number, mixed": (change(mixed((0,), [64]), 48, 0x3C007FF0), SQUARE, 48, "finite"),
    "padding of headers": (flip(one(0), 44, 1 << 31), SQUARE, 40, "padding after the leaf headers"),
    "padding of headers, mixed": (
        flip(mixed((0,), [64]), 60, 1),
        SQUARE,
        52,
        "padding after the leaf headers",
    ),
    "padding of a payload": (
        container_v2([SlowRecord(5, (), tuple(fp4_leaf(4) for _ in range(256))).to_bytes()[:-1] + b"\1"]),
        SQUARE,
        32 + 1040 + 255 * 16,
        "padding of a payload",
    ),
    "padding of a ternary payload": (
        container_v2(
            [
                SlowRecord(
                    5, (), (SlowLeaf(4, True, 0, 0, b"\1\0\0\0\1\0\0\0"),) + (fp4_leaf(4),) * 255
                ).to_bytes()
            ]
        ),
        SQUARE,
        32 + 1040,
        "padding of a payload",
    ),
    "unused bits of the split map": (flip(mixed((0,), [64]), 36, 2), SQUARE, 36, "unused bits"),
    "last bits of the split map": (flip(mixed((0,), [64]), 44, 1 << 31), SQUARE, 36, "unused bits"),
    "more leaves than bytes": (
        mixed((0,), [64])[:36] + b"\xff" * 10 + b"\x1f" + mixed((0,), [64])[47:],
        SQUARE,
        32,
        "more leaves than the record",
    ),
    "payload cut off": (mixed((0,), [64])[:-16], SQUARE, 32, "truncated payload"),
    "headers cut off": (
        change(bytearray(container_v2([TWO[0], TWO[1][:-16] + struct.pack("<4I", 5, 0, 0, 0)])), 20, LAST),
        WIDE,
        32 + LAST,
        "truncated record",
    ),
    "bytes after the last": (bytes(one(0)) + bytes(16), SQUARE, len(one(0)), "no bytes follow"),
    "bytes between records": (
        container_v2([TWO[0] + bytes(16), TWO[1]]),
        WIDE,
        32 + len(TWO[0]),
        "no bytes lie between",
    ),
    "one record for two blocks": (change(bytearray(container_v2(TWO)), 20, 0), WIDE, 32, "overlap"),
    "v1 one byte short": (bytes(v1()[:-1]), WIDE, len(v1()) - 1, "v1 size"),
    "v1 one byte long": (bytes(v1()) + b"\0", WIDE, len(v1()), "v1 size"),
    "v1 of another shape": (bytes(v1()), SQUARE, 2056, "v1 size"),
    "v1 reserved bit 2": (flip(v1(), 8, 4), WIDE, 8, "reserved block flag bits"),
    "v1 reserved bit 3": (flip(v1(), 12, 8), WIDE, 12, "reserved block flag bits"),
    "v1 offset far away": (change(v1(), 12, 0xFFFFFFF0), WIDE, 12, "out of range"),
    "v1 offset beyond the last payload": (change(v1(), 12, 2064), WIDE, 12, "out of range"),
    "v1 overlapping payloads": (change(v1(), 12, 1024), WIDE, None, "overlap"),
    "v1 one payload for two": (change(v1(), 12, 0), WIDE, None, "overlap"),
    "v1 infinite scale": (change(v1(), 4, 0xFC000000), WIDE, 4, "finite"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_container_is_refused_with_its_byte_and_rule(name: str) -> None:
    data, shape, offset, rule = BROKEN[name]
    with pytest.raises(SGFP4Error) as caught:
        decode(bytes(data), shape, source="layer.sgfp4", tensor="model.layers.0.w")
    error = caught.value
    assert rule in error.rule
    assert (error.source, error.tensor) == ("layer.sgfp4", "model.layers.0.w")
    if offset is not None:
        assert error.offset == offset
    assert str(error) == f"layer.sgfp4, tensor model.layers.0.w, byte {error.offset}: {error.rule}"


def test_a_record_may_be_refused_far_into_the_file() -> None:
    records = records_of(*[0] * 299, 3, seed=8)
    data = bytearray(container_v2(records))
    offset = 16 + 4 * 300 + sum(len(record) for record in records[:-1])
    with pytest.raises(SGFP4Error) as caught:
        decode(flip(data, offset + 4 + 4 * 63, 2), (64, 300 * 64))
    assert caught.value.offset == offset + 4 + 4 * 63


@pytest.mark.parametrize(
    "shape", [(0, 64), (64, 0), (-64, -64), (64,), (64, 64, 1), (64.0, 64), ("64", 64), (None, 1)]
)
def test_a_shape_that_is_none_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(SGFP4Error, match="shape"):
        decode(bytes(one(0)), shape)


def test_a_shape_that_is_far_too_large_allocates_nothing() -> None:
    with pytest.raises(SGFP4Error, match="record count"):
        decode(bytes(one(0)), (2**60, 2**60))
    with pytest.raises(SGFP4Error, match="v1 size"):
        decode(bytes(v1()), (2**60, 2**60))


def test_a_count_that_the_file_cannot_hold_allocates_nothing() -> None:
    blocks = 0xFFFFFFFF
    with pytest.raises(SGFP4Error, match="truncated offset table"):
        decode(b"SGF4\x02" + blocks.to_bytes(4, "little") + bytes(7), (64, 64 * blocks))
    blocks = 1 << 16
    table = bytes(4 * blocks)
    with pytest.raises(SGFP4Error, match="truncated payload"):
        decode(b"SGF4\x02" + blocks.to_bytes(4, "little") + bytes(7) + table + TWO[0], (64, 64 * blocks))


def test_the_error_is_one_of_the_product_and_names_what_is_known() -> None:
    with pytest.raises(GnusError, match=r"^SGFP4 container, byte 0: empty file"):
        decode(b"", SQUARE)


def test_padding_lengths_of_the_offset_table() -> None:
    """One to eight records, padded and not: all eight lengths modulo 16."""
    for blocks in range(1, 9):
        records = records_of(*[0] * blocks, seed=blocks)
        shape = (64, 64 * blocks)
        padded, plain = container_v2(records), container_v2(records, padded=False)
        assert len(padded) - len(plain) == len(zeros_to_16(bytes(4 * blocks)))
        assert same_bits(decode(padded, shape), decode(plain, shape))


def test_numpy_settings_are_left_alone() -> None:
    before = np.getbufsize(), np.geterr()
    decode(bytes(one(4)), SQUARE)
    assert (np.getbufsize(), np.geterr()) == before


def test_the_package_imports_nothing_but_numpy() -> None:
    script = (
        "import sys, pytest_gnus.sgfp4\n"
        "heavy = {'pytest', 'mlx', 'mlx_lm', 'lm_eval', 'transformers', 'torch', 'scipy', 'datasets'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
