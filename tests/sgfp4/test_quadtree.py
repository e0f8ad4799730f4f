"""Split maps, and the order of leaves."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gnus.sgfp4.quadtree import (
    SLOTS,
    depth_first_cells,
    read_split_maps,
    slot_geometry,
    slot_places,
    slots_of_size,
    write_split_maps,
)
from tests.sgfp4.slow_format import MIXED, mixed_places, random_record


def map_of(bits: tuple[int, ...]) -> bytes:
    return sum(bit << index for index, bit in enumerate(bits)).to_bytes(12, "little")


def test_slots_in_depth_first_order() -> None:
    size, top, left = slot_geometry()
    assert len(size) == SLOTS == 1 + 4 + 16 + 64 + 256
    first = list(zip(size.tolist(), top.tolist(), left.tolist(), strict=True))[:8]
    assert first == [
        (64, 0, 0),
        (32, 0, 0),
        (16, 0, 0),
        (8, 0, 0),
        (4, 0, 0),
        (4, 0, 4),
        (4, 4, 0),
        (4, 4, 4),
    ]
    assert slots_of_size(32).tolist() == [1, 86, 171, 256]
    assert slot_places()[slots_of_size(32)].tolist() == [0, 1, 2, 3]
    assert slot_places()[slots_of_size(16)[4:8]].tolist() == [2, 3, 6, 7]


def test_cells_are_covered_in_depth_first_order() -> None:
    grid = depth_first_cells().reshape(16, 16)
    assert sorted(grid.ravel().tolist()) == list(range(256))
    assert grid[:2, :4].tolist() == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert (grid[0, 8], grid[8, 0], grid[15, 15]) == (64, 128, 255)


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 9))
@settings(deadline=None)
def test_split_maps_are_read_and_written(seed: int, count: int) -> None:
    source = random.Random(seed)
    maps = [map_of(random_record(source, MIXED).split_bits) for _ in range(count)]
    mask, rest_is_zero = read_split_maps(np.frombuffer(b"".join(maps), np.uint8).reshape(-1, 12))
    assert rest_is_zero.all()
    size, top, left = slot_geometry()
    for record, stored in zip(mask, maps, strict=True):
        expected = list(mixed_places(int.from_bytes(stored, "little")))
        found = np.flatnonzero(record)
        assert list(zip(size[found], top[found], left[found], strict=True)) == expected
    assert [row.tobytes() for row in write_split_maps(mask)] == maps


def test_bits_after_the_last_node() -> None:
    full = (1,) * 85
    cases = [((0,), True), ((0, 1), False), (full, True), ((*full, 0, 0, 1), False), ((1, 0, 0, 0, 0), True)]
    cases += [((1, 0, 0, 0, 0, 1), False), ((0,) * 95 + (1,), False)]
    maps = b"".join(map_of(bits) for bits, _ in cases)
    _, rest_is_zero = read_split_maps(np.frombuffer(maps, np.uint8).reshape(-1, 12))
    assert rest_is_zero.tolist() == [expected for _, expected in cases]
