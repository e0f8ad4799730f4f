"""What is said of a container, and the sums over weights."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pytest_gnus.sgfp4 import (
    ContainerInfo,
    EncodeReport,
    SGFP4Error,
    describe,
    squared_error,
    squared_sum,
)
from tests.sgfp4.slow_format import MIXED, container_v1, container_v2, leaves_of, random_leaf, random_record


def test_a_container_of_every_layout() -> None:
    source = random.Random(1)
    records = [random_record(source, layout) for layout in (0, 1, 2, 3, 5, MIXED, 0)]
    data = container_v2([record.to_bytes() for record in records])
    info = describe(data, (60, 7 * 64 - 10))
    assert (info.version, info.shape, info.total_bytes) == (2, (60, 438), len(data))
    assert (info.macroblocks, info.weights) == (7, 60 * 438)
    assert dict(info.layout_counts) == {"64": 2, "32": 1, "16": 1, "8": 1, "mixed": 1, "4": 1}
    assert info.layout_shares["64"] == 2 / 7
    leaves = list(leaves_of(data, 7))
    assert {size: sum(leaf.size == size for leaf in leaves) for size in (64, 32, 16, 8, 4)} == {
        size: info.leaf_counts.get(size, 0) for size in (64, 32, 16, 8, 4)
    }
    assert info.leaves == len(leaves)
    assert info.ternary_leaves == sum(leaf.ternary for leaf in leaves)
    assert info.fp4_leaves + info.ternary_leaves == info.leaves
    assert info.ternary_share == info.ternary_leaves / info.leaves
    assert info.bits_per_weight == 8 * len(data) / (60 * 438)


def test_without_a_shape_whole_macroblocks_are_counted() -> None:
    source = random.Random(2)
    two = container_v2([random_record(source, layout).to_bytes() for layout in (0, 3)])
    info = describe(two)
    assert (info.shape, info.macroblocks, info.weights) == (None, 2, 8192)
    assert info.bits_per_weight == 8 * len(two) / 8192
    old = container_v1([random_leaf(source, 64) for _ in range(3)])
    info = describe(old)
    assert (info.version, info.macroblocks, dict(info.layout_counts)) == (1, 3, {"64": 3})
    assert info.bits_per_weight == 8 * 2056 / 4096


def test_a_broken_container_is_refused_by_name() -> None:
    data = bytearray(container_v2([random_record(random.Random(3), 1).to_bytes()]))
    data[36] ^= 2
    with pytest.raises(SGFP4Error, match=r"^old\.bin, tensor w, byte 36: reserved leaf flag bits"):
        describe(bytes(data), source="old.bin", tensor="w")
    with pytest.raises(SGFP4Error, match="neither SGF4 nor"):
        describe(bytes(2055))
    with pytest.raises(SGFP4Error, match="record count is at least 1"):
        describe(b"SGF4\x02" + bytes(11))


def test_what_is_reported_cannot_be_changed() -> None:
    info = describe(container_v2([random_record(random.Random(4), 0).to_bytes()]))
    with pytest.raises(TypeError):
        info.layout_counts["64"] = 5  # type: ignore[index]
    with pytest.raises(AttributeError):
        info.version = 1  # type: ignore[misc]


def test_squared_error_is_counted_in_double_precision() -> None:
    weights = np.full((3000, 100), 1.0, np.float32)
    decoded = weights + np.float32(2**-12)
    assert squared_error(weights, decoded) == 300_000 * 2.0**-24
    assert squared_error(weights, weights) == 0.0
    assert squared_sum(weights) == 300_000.0
    assert squared_error(np.full((1, 2), 3e38, np.float32), np.zeros((1, 2), np.float32)) == pytest.approx(
        2 * 9e76, rel=1e-6
    )


def report(error: float, squares: float, target: float | None) -> EncodeReport:
    info = ContainerInfo(2, (64, 64), 2096, 1, 4096, {"64": 1}, {64: 1}, 0)
    return EncodeReport(info, error, squares, target)


def test_ratios_of_a_report() -> None:
    assert report(4.096, 40.96, None).mse == pytest.approx(0.001)
    assert report(4.096, 40.96, None).relative_mse == pytest.approx(0.1)
    assert report(0.0, 0.0, None).relative_mse == 0.0
    assert report(1.0, 0.0, None).relative_mse == float("inf")
    bits = 8 * 2096 / 4096
    assert report(1.0, 1.0, bits).within_target
    assert not report(1.0, 1.0, bits - 1e-9).within_target
    assert report(1.0, 1.0, None).within_target
