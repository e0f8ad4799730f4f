"""Writing containers: what is reported is what a reader gets, and the rules are kept."""

from __future__ import annotations

import dataclasses
import random
import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gnus.sgfp4 import EncodeOptions, EncodeReport, SGFP4Error, decode, encode
from tests.sgfp4.slow_format import MIXED, PlacedLeaf, decode_slowly, layouts_of, leaves_of

Matrix = npt.NDArray[np.float32]
seeds = st.integers(0, 2**32 - 1)
all_options = st.builds(
    EncodeOptions,
    policy=st.sampled_from(["rate-distortion", "exemplary"]),
    target_bpw=st.sampled_from([1.0, 3.0, 4.1, 4.25, 5.0, 12.0]),
    layout=st.sampled_from([None, None, 64, 32, 16, 8, 4]),
    minimum_block=st.sampled_from([4, 8, 16, 64]),
    allow_ternary=st.booleans(),
    thresholds=st.sampled_from([(0.01, 0.005, 0.002, 0.001, 0.0005), (1e-5,) * 5, (0.0,) * 5]),
)
version_1 = st.builds(
    EncodeOptions,
    version=st.just(1),
    policy=st.sampled_from(["rate-distortion", "exemplary"]),
    allow_ternary=st.booleans(),
)


def blocks_of(weights: Matrix) -> int:
    rows, columns = weights.shape
    return int(-(-rows // 64) * -(-columns // 64))


def uneven(seed: int, rows: int, columns: int, size: float = 0.05) -> Matrix:
    """Weights whose spread differs from place to place at several scales, with some outliers."""
    source = np.random.default_rng(seed)
    weights = source.normal(0, size, (rows, columns))
    for step in (64, 16, 4):
        spread = np.exp(source.normal(0, 0.7, (-(-rows // step), -(-columns // step))))
        weights *= np.repeat(np.repeat(spread, step, 0), step, 1)[:rows, :columns]
    weights[source.random((rows, columns)) < 0.002] *= 20
    return weights.astype(np.float32)


def three_levels(seed: int, rows: int, columns: int) -> Matrix:
    """Weights that ternary codes hold exactly."""
    source = np.random.default_rng(seed)
    return (source.integers(-1, 2, (rows, columns)) * 0.25).astype(np.float32)


def two_levels(seed: int, rows: int, columns: int) -> Matrix:
    """Weights that the exemplary rules make ternary: all are equally far from their mean, or nearly."""
    source = np.random.default_rng(seed)
    return (source.choice([-0.25, 0.25], (rows, columns))).astype(np.float32)


def leaves(data: bytes, weights: Matrix) -> list[PlacedLeaf]:
    return list(leaves_of(data, blocks_of(weights)))


def block_of(weights: Matrix, leaf: PlacedLeaf) -> npt.NDArray[np.float64]:
    """The weights that a leaf stands for, without padding, in double precision."""
    across = -(-weights.shape[1] // 64)
    top, left = leaf.block // across * 64 + leaf.top, leaf.block % across * 64 + leaf.left
    return weights[top : top + leaf.size, left : left + leaf.size].astype(np.float64)


@given(
    seed=seeds,
    shape=st.tuples(st.integers(1, 140), st.integers(1, 140)),
    size=st.sampled_from([1e-9, 1e-6, 0.02, 1.0, 300.0, 1e6, 1e37]),
    shift=st.sampled_from([0.0, 0.0, 1.0, -30.0]),
    options=st.one_of(all_options, version_1),
)
@settings(max_examples=60, deadline=None)
def test_what_is_reported_is_what_a_reader_gets(
    seed: int, shape: tuple[int, int], size: float, shift: float, options: EncodeOptions
) -> None:
    source = np.random.default_rng(seed)
    weights = (np.clip(source.standard_t(3, shape), -30, 30) * size + shift).astype(np.float32)
    data, report = encode(weights, options)
    decoded = decode(data, shape)
    assert decoded.tobytes() == decode_slowly(data, shape).tobytes()
    difference = weights.astype(np.float64) - decoded
    assert report.squared_error == float((difference * difference).sum())
    assert report.squared_weights == float(np.square(weights.astype(np.float64)).sum())
    assert report.mse == report.squared_error / weights.size
    check_counts(report, data, weights)
    assert encode(weights, options)[0] == data


def check_counts(report: EncodeReport, data: bytes, weights: Matrix) -> None:
    """The report against the slow reader's leaves."""
    info, found = report.container, leaves(data, weights)
    assert (info.shape, info.total_bytes, info.macroblocks) == (weights.shape, len(data), blocks_of(weights))
    assert info.leaves == len(found)
    assert info.ternary_leaves == sum(leaf.ternary for leaf in found)
    assert report.ternary_share == sum(leaf.ternary for leaf in found) / len(found)
    sizes = [leaf.size for leaf in found]
    assert dict(info.leaf_counts) == {size: sizes.count(size) for size in sorted(set(sizes), reverse=True)}
    assert report.bits_per_weight == 8 * len(data) / weights.size
    assert sum(info.layout_shares.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("policy", ["rate-distortion", "exemplary"])
@pytest.mark.parametrize("version", [1, 2])
def test_every_code_is_the_nearest(policy: Any, version: int) -> None:
    weights = np.concatenate([uneven(1, 128, 64), two_levels(2, 64, 64)])
    data, _ = encode(weights, EncodeOptions(policy=policy, version=version, thresholds=(1e-4,) * 5))
    decoded = decode(data, weights.shape)
    modes = set()
    for leaf in leaves(data, weights):
        modes.add(leaf.ternary)
        codes = np.arange(-1, 2) if leaf.ternary else np.arange(-8, 8)
        values = leaf.scale * codes + leaf.bias
        block = block_of(weights, leaf)
        best = np.abs(block[..., None] - values).min(axis=-1)
        got = np.abs(block - block_of(decoded, leaf))
        assert np.all(got <= best + 1e-6 * abs(leaf.scale))
    assert modes == {False, True}


@pytest.mark.parametrize("policy", ["rate-distortion", "exemplary"])
def test_the_bytes_depend_on_nothing_but_the_weights(policy: Any) -> None:
    weights = uneven(5, 130, 150)
    options = EncodeOptions(policy=policy)
    data, _ = encode(weights, options)
    wide = np.zeros((260, 300), np.float32)
    wide[::2, ::2] = weights
    before = weights.copy()
    for other in (np.asfortranarray(weights), wide[::2, ::2], weights.astype(np.float64)):
        assert encode(other, options)[0] == data
    assert weights.tobytes() == before.tobytes()


# The exemplary rules.


def representable_biases() -> npt.NDArray[np.float64]:
    """All numbers that version 2 keeps as a bias."""
    bits = np.arange(0, 1 << 16, 16, dtype=np.uint16)
    numbers = bits.view(np.float16).astype(np.float64)
    return np.unique(numbers[np.isfinite(numbers)])


def nearest(numbers: npt.NDArray[np.float64], wanted: float) -> float:
    return float(numbers[np.argmin(np.abs(numbers - wanted))])


@dataclasses.dataclass(frozen=True)
class SlowFit:
    scale: float
    bias: float
    error: float


BIASES = representable_biases()


def slow_error(block: npt.NDArray[np.float64], scale: float, bias: float, codes: range) -> float:
    values = scale * np.array(codes) + bias
    return float(np.square(np.abs(block[..., None] - values).min(axis=-1)).sum())


def slow_fp4(block: npt.NDArray[np.float64]) -> SlowFit:
    bias = nearest(BIASES, block.mean())
    fits = []
    for index in range(16):
        factor = 0.5 * 3 ** (index / 15)
        scale = float(np.float16(factor * np.abs(block).max() / 7))
        fits.append(SlowFit(scale, bias, slow_error(block, scale, bias, range(-8, 8))))
    return min(fits, key=lambda fit: fit.error)


def slow_ternary(block: npt.NDArray[np.float64]) -> SlowFit:
    bias = nearest(BIASES, block.mean())
    scale = float(np.float16(np.abs(block - bias).mean()))
    return SlowFit(scale, bias, slow_error(block, scale, bias, range(-1, 2)))


@dataclasses.dataclass(frozen=True)
class SlowNode:
    error: float
    leaves: tuple[tuple[int, int, int, bool, SlowFit], ...]


def slow_leaf(block: npt.NDArray[np.float64], top: int, left: int, options: EncodeOptions) -> SlowNode:
    fit, ternary = slow_fp4(block), False
    distance = np.abs(block - block.mean())
    if options.allow_ternary and not distance.max() > 3 * distance.mean():
        other = slow_ternary(block)
        if other.error <= (1 + options.ternary_preference) * fit.error:
            fit, ternary = other, True
    return SlowNode(fit.error, ((len(block), top, left, ternary, fit),))


def slow_tree(block: npt.NDArray[np.float64], top: int, left: int, options: EncodeOptions) -> SlowNode:
    size = len(block)
    node = slow_leaf(block, top, left, options)
    threshold = dict(zip((64, 32, 16, 8, 4), options.thresholds, strict=True))[size]
    if node.error / size**2 <= threshold or size <= options.minimum_block:
        return node
    half = size // 2
    corners = [(0, 0), (0, half), (half, 0), (half, half)]
    parts = [
        slow_tree(block[down : down + half, right : right + half], top + down, left + right, options)
        for down, right in corners
    ]
    together = sum(part.error for part in parts)
    if together <= (1 - options.split_gain) * node.error:
        return SlowNode(together, tuple(leaf for part in parts for leaf in part.leaves))
    return node


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"minimum_block": 16},
        {"allow_ternary": False},
        {"ternary_preference": 30.0},
        {"split_gain": 0.5},
        {"split_gain": 0.3, "thresholds": (1e-5, 1e-5, 1e-5, 1e-5, 1e-5)},
        {"thresholds": (1e-5, 1e-5, 1e-5, 1e-5, 1e-5)},
    ],
)
def test_the_exemplary_quadtree_is_the_one_of_the_published_rules(seed: int, changes: dict[str, Any]) -> None:
    options = EncodeOptions(policy="exemplary", **changes)
    weights = uneven(seed, 64, 64)
    weights *= np.float32(0.7) / weights.std()
    weights[:32, :32] = two_levels(seed, 32, 32)
    weights[32:40, 48:] = 0
    data, report = encode(weights, options)
    expected = slow_tree(weights.astype(np.float64), 0, 0, options)
    found = leaves(data, weights)
    assert len({leaf.size for leaf in found}) > 1
    assert sorted((leaf.size, leaf.top, leaf.left, leaf.ternary) for leaf in found) == sorted(
        (size, top, left, ternary) for size, top, left, ternary, _ in expected.leaves
    )
    assert report.squared_error == pytest.approx(expected.error, rel=1e-5, abs=1e-12)
    fits = {(top, left): fit for _, top, left, _, fit in expected.leaves}
    for leaf in found:
        fit = fits[leaf.top, leaf.left]
        assert leaf.bias == fit.bias
        # Two of the sixteen scales may be as good as each other.
        block = block_of(weights, leaf)
        codes = range(-1, 2) if leaf.ternary else range(-8, 8)
        assert slow_error(block, leaf.scale, leaf.bias, codes) == pytest.approx(
            fit.error, rel=1e-5, abs=1e-12
        )


def test_nothing_splits_at_the_scale_of_language_models() -> None:
    weights = np.random.default_rng(1).normal(0, 0.03, (128, 192)).astype(np.float32)
    data, report = encode(weights, EncodeOptions(policy="exemplary"))
    assert layouts_of(data, 6) == [0] * 6
    assert report.bits_per_weight == 8 * (16 + 32 + 6 * 2064) / weights.size
    assert report.target_bpw is None
    assert report.within_target


@pytest.mark.parametrize(("size", "layout"), [(64, 0), (32, 1), (16, 2), (8, 3), (4, 5)])
@pytest.mark.parametrize("policy", ["rate-distortion", "exemplary"])
def test_a_fixed_layout_is_kept(size: int, layout: int, policy: Any) -> None:
    weights = uneven(3, 100, 100)
    data, _ = encode(weights, EncodeOptions(policy=policy, layout=size, target_bpw=12.0))
    assert layouts_of(data, 4) == [layout] * 4


@pytest.mark.parametrize(("size", "layout"), [(64, 0), (32, 1), (16, 2), (8, 3), (4, 5)])
def test_a_uniform_result_is_written_as_the_uniform_layout(size: int, layout: int) -> None:
    """The four parts of every square down to `size` differ in spread; the thresholds are out of reach."""
    spread = np.ones((1, 1))
    while len(spread) < 64 // size:
        spread = np.kron(spread, np.array([[1.0, 3.0], [9.0, 27.0]]))
    weights = (
        0.001 * np.random.default_rng(size).normal(0, 1, (64, 64)) * np.kron(spread, np.ones((size, size)))
    )
    options = EncodeOptions(policy="exemplary", minimum_block=size, thresholds=(0.0,) * 5)
    data, _ = encode(weights.astype(np.float32), options)
    assert layouts_of(data, 1) == [layout]


def test_padding_counts_for_the_exemplary_rules_as_zeros() -> None:
    weights = np.full((64, 32), 0.5, np.float32)
    data, _ = encode(weights, EncodeOptions(policy="exemplary", layout=64))
    (leaf,) = leaves(data, weights)
    assert leaf.bias == 0.25


# Rate–distortion.


@given(seed=seeds, shape=st.tuples(st.integers(1, 200), st.integers(1, 200)), target=st.floats(0.5, 12.0))
@settings(max_examples=40, deadline=None)
def test_the_budget_is_kept_or_nothing_shorter_is_possible(
    seed: int, shape: tuple[int, int], target: float
) -> None:
    weights = uneven(seed, *shape)
    data, report = encode(weights, EncodeOptions(target_bpw=target))
    assert report.target_bpw == target
    assert report.within_target == (8 * len(data) <= target * weights.size)
    blocks = blocks_of(weights)
    shortest = 16 + -(-4 * blocks // 16) * 16 + blocks * 1040
    if 8 * shortest <= target * weights.size:
        assert report.within_target
    else:
        assert len(data) == shortest


def test_the_budget_is_used() -> None:
    """The next better choice for any macroblock would not have fitted: less than one step is left over."""
    weights = uneven(11, 640, 640)
    for target in (3.0, 4.1, 4.25, 4.6, 6.0):
        _, report = encode(weights, EncodeOptions(target_bpw=target))
        assert target - 0.005 < report.bits_per_weight <= target


def test_more_bits_never_make_the_error_larger() -> None:
    weights = uneven(12, 320, 256)
    targets = [2.0, 2.05, 2.5, 3.0, 3.5, 4.0, 4.04, 4.1, 4.17, 4.25, 4.5, 5.0, 6.0, 8.0, 10.1, 12.0]
    errors = [encode(weights, EncodeOptions(target_bpw=target))[1].squared_error for target in targets]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0] / 100


@pytest.mark.parametrize("size", [64, 32, 16, 8])
@pytest.mark.parametrize("spread", ["even", "uneven"])
@pytest.mark.parametrize("shape", [(256, 320), (64, 64), (192, 192)])
def test_at_equal_bits_the_error_is_lower_than_by_the_exemplary_rules(
    size: int, spread: str, shape: tuple[int, int]
) -> None:
    weights = uneven(21, *shape)
    if spread == "even":
        weights = np.random.default_rng(21).normal(0, 0.03, shape).astype(np.float32)
    _, published = encode(weights, EncodeOptions(policy="exemplary", layout=size))
    _, report = encode(weights, EncodeOptions(target_bpw=published.bits_per_weight))
    assert report.bits_per_weight <= published.bits_per_weight
    assert report.squared_error < (0.99 if spread == "even" else 0.9) * published.squared_error


@pytest.mark.parametrize("seed", range(6))
def test_a_budget_for_plain_64_leaves_is_used_at_least_as_well(seed: int) -> None:
    """Few macroblocks, each of one kind: mixtures may leave bytes unused between the steps of their sizes."""
    source = np.random.default_rng(seed)
    spread = np.kron(np.exp(source.normal(0, 0.2, (3, 9))), np.ones((64, 64)))
    weights = (source.normal(0, 0.03, (192, 576)) * spread).astype(np.float32)
    _, plain = encode(weights, EncodeOptions(layout=64))
    _, report = encode(weights, EncodeOptions(target_bpw=plain.bits_per_weight))
    assert report.bits_per_weight <= plain.bits_per_weight
    assert report.squared_error <= 1.0001 * plain.squared_error


def test_bits_go_where_the_error_is() -> None:
    """One wild macroblock among quiet ones gets the small leaves."""
    weights = np.random.default_rng(2).normal(0, 0.001, (64, 64 * 8)).astype(np.float32)
    weights[:, 64:128] = uneven(2, 64, 64, size=1.0)
    data, report = encode(weights, EncodeOptions(target_bpw=4.1))
    counts = [sum(leaf.block == block for leaf in leaves(data, weights)) for block in range(8)]
    assert counts[1] > 3 * max(count for block, count in enumerate(counts) if block != 1)
    assert report.within_target


def test_ternary_codes_are_used_where_they_cost_nothing() -> None:
    weights = np.concatenate([three_levels(1, 64, 64), uneven(1, 64, 64)])
    data, report = encode(weights, EncodeOptions(target_bpw=4.0))
    found = leaves(data, weights)
    assert all(leaf.ternary for leaf in found if leaf.block == 0)
    assert report.ternary_share > 0
    assert np.array_equal(decode(data, weights.shape)[:64], weights[:64])
    assert report.within_target
    _, without = encode(weights, EncodeOptions(target_bpw=4.0, allow_ternary=False))
    assert (without.ternary_share, without.within_target) == (0.0, False)
    assert without.bits_per_weight == 8 * (32 + 2 * 2064) / weights.size


def test_below_every_budget_the_shortest_container_is_written_and_said_so() -> None:
    weights = uneven(3, 128, 128)
    data, report = encode(weights, EncodeOptions(target_bpw=0.1))
    assert [(leaf.size, leaf.ternary) for leaf in leaves(data, weights)] == [(64, True)] * 4
    assert not report.within_target


def test_padding_is_not_paid_for() -> None:
    """The error of padding does not count: a single column is kept almost exactly, whatever is beside it."""
    weights = np.linspace(3.0, 4.0, 64, dtype=np.float32)[:, None]
    _, report = encode(weights, EncodeOptions(layout=8, target_bpw=1e6))
    assert report.mse < 1e-5
    _, report = encode(np.full((1, 1), 5.0, np.float32))
    assert report.squared_error == 0.0


def test_weights_far_from_zero_are_kept_though_a_bias_has_seven_bits() -> None:
    weights = (np.random.default_rng(1).normal(0, 1e-4, (64, 64)) + 0.3).astype(np.float32)
    _, report = encode(weights)
    assert report.mse < 2e-8
    _, constant = encode(np.full((64, 64), 0.3, np.float32))
    assert constant.mse < 1e-12


@pytest.mark.parametrize("value", [0.0, 1.0, -0.375, 65024.0])
@pytest.mark.parametrize("policy", ["rate-distortion", "exemplary"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_constant_that_a_bias_holds_is_kept_exactly(value: float, policy: Any, version: int) -> None:
    weights = np.full((64, 128), value, np.float32)
    _, report = encode(weights, EncodeOptions(policy=policy, version=version, target_bpw=8.0))
    assert (report.squared_error, report.relative_mse) == (0.0, 0.0)


def test_weights_out_of_range_become_the_nearest_that_there_are() -> None:
    weights = np.full((64, 64), 3e38, np.float32)
    weights[:, :32] *= -1
    data, report = encode(weights, EncodeOptions(target_bpw=6.0))
    decoded = decode(data, (64, 64))
    assert np.all(np.abs(decoded) > 500_000)
    assert np.array_equal(np.sign(decoded), np.sign(weights))
    assert np.isfinite(report.squared_error)


def test_weights_below_range_become_zero_without_a_warning() -> None:
    weights = np.full((64, 64), 1e-30, np.float32)
    data, report = encode(weights)
    assert not decode(data, (64, 64)).any()
    assert report.relative_mse == pytest.approx(1.0)


# Version 1.


def test_version_1_has_its_fixed_size() -> None:
    weights = uneven(4, 100, 200)
    for policy in ("rate-distortion", "exemplary"):
        data, report = encode(weights, EncodeOptions(version=1, policy=policy))
        assert len(data) == 8 * 2056
        assert report.container.version == 1
        assert dict(report.container.layout_counts) == {"64": 8}


def test_version_1_keeps_all_bits_of_a_bias() -> None:
    weights = np.full((64, 64), 1.0009765625, np.float32)
    assert encode(weights, EncodeOptions(version=1))[1].squared_error == 0.0
    assert encode(weights, EncodeOptions(version=2))[1].squared_error > 0.0


def test_version_1_is_not_taken_for_version_2_by_chance() -> None:
    """Scale and bias whose bits spell the magic of version 2."""
    scale = float(np.array([0x3446], np.uint16).view(np.float16)[0])
    bias = float(np.array([0x4753], np.uint16).view(np.float16)[0])
    codes = np.random.default_rng(1).integers(-8, 8, (64, 64))
    weights = (scale * codes + bias).astype(np.float32)
    data, report = encode(weights, EncodeOptions(version=1))
    assert data[1:4] == b"GF4"
    assert data[:4] != b"SGF4"
    assert report.mse < 1e-4
    assert decode(data, (64, 64)).shape == (64, 64)


# What is refused.


@pytest.mark.parametrize(
    "weights",
    [
        np.zeros((0, 64), np.float32),
        np.zeros((64, 0), np.float32),
        np.zeros(64, np.float32),
        np.zeros((2, 2, 2), np.float32),
        np.zeros((4, 4), np.int8),
        np.array([[1.0, np.nan]], np.float32),
        np.array([[np.inf, 1.0]], np.float32),
        np.array([[1e300, 1.0]]),
    ],
)
def test_what_is_no_matrix_of_finite_numbers_is_refused(weights: Any) -> None:
    with pytest.raises(SGFP4Error, match=r"tensor layer\.weight: weights are") as caught:
        encode(weights, tensor="layer.weight")
    assert caught.value.tensor == "layer.weight"


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"policy": "best"}, "policy"),
        ({"target_bpw": 0.0}, "target_bpw"),
        ({"target_bpw": float("nan")}, "target_bpw"),
        ({"version": 3}, "version"),
        ({"layout": 128}, "layout: 64, 32"),
        ({"layout": 32, "version": 1}, "layout: 64 in version 1"),
        ({"minimum_block": 2}, "minimum_block"),
        ({"thresholds": (0.1,)}, "thresholds"),
        ({"thresholds": (0.1, 0.1, 0.1, 0.1, -1.0)}, "thresholds"),
        ({"ternary_preference": -0.5}, "ternary_preference"),
        ({"split_gain": 1.5}, "split_gain"),
    ],
)
def test_options_out_of_range_are_refused(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(SGFP4Error, match=rule):
        EncodeOptions(**changes)


def test_all_options_out_of_range_are_named_at_once() -> None:
    with pytest.raises(SGFP4Error) as caught:
        EncodeOptions(version=7, minimum_block=3)
    assert "version" in caught.value.rule
    assert "minimum_block" in caught.value.rule


def test_a_large_matrix_is_encoded_in_parts() -> None:
    """More macroblocks than are encoded at once; each part as if it were alone, with a fixed layout."""
    weights = uneven(9, 64 * 3, 64 * 25)
    options = EncodeOptions(layout=16, target_bpw=12.0)
    decoded = decode(encode(weights, options)[0], weights.shape)
    for block in random.Random(1).sample(range(75), 6):
        row, column = divmod(block, 25)
        part = weights[row * 64 : row * 64 + 64, column * 64 : column * 64 + 64]
        alone = decode(encode(part, options)[0], (64, 64))
        whole = decoded[row * 64 : row * 64 + 64, column * 64 : column * 64 + 64]
        assert whole.tobytes() == alone.tobytes()


def test_little_memory_is_used() -> None:
    """Beside the matrix itself: what one part takes, and a few numbers for each leaf."""
    weights = uneven(6, 1024, 1024)
    encode(weights[:64, :64])
    tracemalloc.start()
    try:
        data, _ = encode(weights)
        writing = tracemalloc.get_traced_memory()[1]
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        decode(data, weights.shape)
        reading = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert writing < 4 * weights.nbytes
    assert reading < 2 * weights.nbytes


def test_mixed_records_are_written_where_they_help() -> None:
    data, report = encode(uneven(13, 256, 256), EncodeOptions(target_bpw=4.25))
    assert layouts_of(data, 16).count(MIXED) > 4
    assert report.container.layout_counts["mixed"] == layouts_of(data, 16).count(MIXED)
