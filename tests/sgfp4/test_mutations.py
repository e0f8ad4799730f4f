"""Hundreds of thousands of damaged containers: each decodes or is refused, and nothing else happens."""

from __future__ import annotations

import random

import numpy as np

from pytest_gnus.sgfp4 import SGFP4Error, decode
from tests.sgfp4.slow_format import (
    MIXED,
    UNIFORM,
    container_v1,
    container_v2,
    decode_slowly,
    random_leaf,
    random_record,
)

MUTATIONS = 200_000
# Every so many of those that decode are compared with the slow reader.
COMPARED = 1000
WORDS = [0, 1, 2, 3, 4, 5, 7, 8, 16, 0x410, 0x810, 0x7C00, 0xFFF0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]
TELLING_WORDS = [word.to_bytes(4, "little") for word in WORDS]
LENGTHS = [1, 4, 16, 1040]
CHANGES = [1, 1, 1, 1, 1, 2, 2, 3]
# The header, the tables, the first superblock header and some leaf headers of the smallest containers.
FIRST_BYTES = 40

Base = tuple[bytes, tuple[int, int]]


def bases(source: random.Random) -> list[Base]:
    """Small valid containers of every kind, and their shapes."""
    found: list[Base] = []
    for layout in (*UNIFORM, MIXED):
        found.append((container_v2([random_record(source, layout).to_bytes()]), (64, 64)))
        two = [random_record(source, each).to_bytes() for each in (layout, 0)]
        found.append((container_v2(two, padded=layout % 2 == 0), (33, 100)))
    found.append((container_v1([random_leaf(source, 64)]), (64, 64)))
    found.append((container_v1([random_leaf(source, 64), random_leaf(source, 64)]), (128, 50)))
    return found


def mutated(source: random.Random, base: bytes) -> bytes:
    """One to three changes, most of them among the first bytes, where there are no codes."""
    data = bytearray(base)
    for _ in range(CHANGES[source.getrandbits(3)]):
        # One draw, cut into pieces: drawing would cost more than decoding.
        kind, choice, number = source.getrandbits(4), source.getrandbits(3), source.getrandbits(32)
        place = number % (len(data) if kind == 0 or len(data) < FIRST_BYTES else FIRST_BYTES)
        if kind < 7:
            data[place] ^= 1 << choice
        elif kind < 10:
            data[place] = number >> 24
        elif kind < 14:
            data[place & ~3 : (place & ~3) + 4] = TELLING_WORDS[number >> 28]
        elif choice & 1:
            cut = number % len(data)
            del data[cut : min(cut + LENGTHS[choice >> 1], len(data) - 1)]
        else:
            data[place:place] = bytes(LENGTHS[choice >> 1])
    return bytes(data)


def test_every_damaged_container_decodes_or_is_refused() -> None:
    source = random.Random(20240607)
    choices = bases(source)
    for base, shape in choices:
        assert decode(base, shape).tobytes() == decode_slowly(base, shape).tobytes()
    decoded = refused = compared = 0
    for _ in range(MUTATIONS):
        base, shape = source.choice(choices)
        data = mutated(source, base)
        try:
            weights = decode(data, shape)
        except SGFP4Error:
            refused += 1
            continue
        decoded += 1
        assert weights.shape == shape
        if decoded % COMPARED == 0:
            compared += 1
            assert np.isfinite(weights).all()
            assert weights.tobytes() == decode_slowly(data, shape).tobytes()
    assert decoded + refused == MUTATIONS
    # Neither side may be a small corner of what was tried.
    assert decoded > MUTATIONS // 20
    assert refused > MUTATIONS // 2
    assert compared > 5
