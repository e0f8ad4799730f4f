"""Scale and bias of leaves: what is kept of them, and the search for the best."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gnus.sgfp4.fitting import (
    FP4,
    TERNARY,
    Batch,
    CodeRange,
    Rounding,
    best_fp4,
    best_ternary,
    evaluate,
    exemplary_fp4,
    numbers_of,
    refined,
    scale_and_bias,
)

Floats = npt.NDArray[np.float32]
numbers = st.one_of(st.floats(-1e6, 1e6), st.floats(-1e-3, 1e-3), st.floats(-1e-7, 1e-7)).map(np.float32)


def float16_numbers(step: int) -> npt.NDArray[np.float64]:
    """All finite float16 numbers whose bits are multiples of `step`."""
    values = np.arange(0, 1 << 16, step, dtype=np.uint16).view(np.float16).astype(np.float64)
    return np.unique(values[np.isfinite(values)])


KEPT = {(1, "scale"): 1, (1, "bias"): 1, (2, "scale"): 1, (2, "bias"): 16}
TABLES = {step: float16_numbers(step) for step in (1, 16)}


@pytest.mark.parametrize(("version", "name"), KEPT)
@given(wanted=numbers)
def test_no_number_that_is_kept_is_nearer(version: int, name: str, wanted: np.float32) -> None:
    kept = float(getattr(Rounding(version), name)(np.array([wanted]))[0])
    table = TABLES[KEPT[version, name]]
    assert kept in table
    assert abs(kept - float(wanted)) == np.abs(table - float(wanted)).min()


@pytest.mark.parametrize("version", [1, 2])
def test_what_is_kept_stays_as_it_is(version: int) -> None:
    for name in ("scale", "bias"):
        table = TABLES[KEPT[version, name]].astype(np.float32)
        assert np.array_equal(getattr(Rounding(version), name)(table), table)


def test_numbers_in_one_word() -> None:
    batch = Batch.of(np.ones((1, 64, 64), np.float32), 64, None)
    fit = evaluate(batch, np.full((1, 1), 0.5, np.float32), np.full((1, 1), -2.0, np.float32), FP4)
    assert numbers_of(fit).tolist() == [0x3800C000]
    scale, bias = scale_and_bias(numbers_of(fit))
    assert (scale.tolist(), bias.tolist()) == ([0.5], [-2.0])


def blocks(seed: int, count: int = 2) -> Floats:
    return np.random.default_rng(seed).normal(0.01, 0.1, (count, 64, 64)).astype(np.float32)


def leaf_of(macroblocks: Floats, size: int, index: int) -> npt.NDArray[np.float64]:
    across = 64 // size
    block, place = divmod(index, across * across)
    top, left = place // across * size, place % across * size
    return macroblocks[block, top : top + size, left : left + size].astype(np.float64)


@pytest.mark.parametrize("size", [64, 32, 16, 8, 4])
@pytest.mark.parametrize("codes", [FP4, TERNARY])
@pytest.mark.parametrize("scale", [0.03, -0.03, 0.0])
def test_the_error_is_that_of_the_nearest_codes(size: int, codes: CodeRange, scale: float) -> None:
    macroblocks = blocks(size)
    batch = Batch.of(macroblocks, size, None)
    shape = batch.mean().shape
    fit = evaluate(batch, np.full(shape, scale, np.float32), np.full(shape, 0.02, np.float32), codes)
    errors = fit.error.ravel()
    assert len(errors) == len(batch) == 2 * (64 // size) ** 2
    values = float(np.float32(scale)) * np.arange(codes.low, codes.high + 1) + float(np.float32(0.02))
    for index in range(0, len(batch), max(1, len(batch) // 7)):
        leaf = leaf_of(macroblocks, size, index)
        expected = np.square(np.abs(leaf[..., None] - values).min(axis=-1)).sum()
        assert errors[index] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("size", [64, 32, 16, 8, 4])
@pytest.mark.parametrize("search", [best_fp4, best_ternary])
def test_padding_is_as_if_it_were_not_there(size: int, search: object) -> None:
    """Whatever is in the padding, the fit of the rest is the same."""
    macroblocks, real = blocks(3, 1), np.ones((1, 64, 64), np.float32)
    real[:, 50:] = 0
    real[:, :, 33:] = 0
    padded = macroblocks * real
    assert callable(search)
    fit = search(Batch.of(padded, size, real), Rounding(2))
    other = search(Batch.of(np.where(real == 0, np.float32(0), macroblocks), size, real), Rounding(2))
    assert np.array_equal(fit.error, other.error)
    codes = FP4 if search is best_fp4 else TERNARY
    for index in range((64 // size) ** 2):
        leaf, counted = leaf_of(padded, size, index), leaf_of(real, size, index) == 1
        values = float(fit.scale.ravel()[index]) * np.arange(codes.low, codes.high + 1) + float(
            fit.bias.ravel()[index]
        )
        expected = np.square(np.abs(leaf[..., None] - values).min(axis=-1))[counted].sum()
        assert fit.error.ravel()[index] == pytest.approx(expected, rel=1e-3, abs=1e-9)


@pytest.mark.parametrize(("size", "allowed"), [(64, 1.025), (32, 1.03), (16, 1.04), (8, 1.07), (4, 1.2)])
def test_the_search_comes_close_to_a_thorough_one(size: int, allowed: float) -> None:
    """Against 40 scales around three centres, each refined eight times."""
    batch = Batch.of(blocks(size, 4), size, None)
    rounding = Rounding(2)
    found = float(best_fp4(batch, rounding).error.sum())
    low, high = batch.bounds()
    middle = (low + high) * np.float32(0.5)
    centres = (batch.mean(), middle, (batch.mean() + middle) * np.float32(0.5))
    thorough = None
    for centre in centres:
        for factor in np.geomspace(0.3, 1.1, 40):
            scale = rounding.scale((high - low) * np.float32(factor / 15))
            fit = evaluate(batch, scale, rounding.bias(centre + scale * np.float32(0.5)), FP4)
            fit = refined(batch, fit, FP4, rounding, rounds=8)
            thorough = fit if thorough is None else thorough.better(fit)
    assert thorough is not None
    assert found <= allowed * float(thorough.error.sum())
    # The published rules are further away.
    assert found < float(exemplary_fp4(batch, rounding).error.sum())


def test_refining_never_makes_it_worse() -> None:
    batch = Batch.of(blocks(9, 8), 8, None)
    rounding = Rounding(2)
    fit = exemplary_fp4(batch, rounding)
    errors = [fit.error]
    for rounds in (1, 2, 5):
        errors.append(refined(batch, fit, FP4, rounding, rounds).error)
    for before, after in itertools.pairwise(errors):
        assert np.all(after <= before)
    assert errors[-1].sum() < 0.95 * errors[0].sum()


def test_some_leaves_of_a_batch() -> None:
    for size in (32, 8):
        batch = Batch.of(blocks(2), size, None)
        chosen = np.array([5, 1])
        some = batch.take(chosen)
        assert len(some) == 2
        alone, together = best_fp4(some, Rounding(2)), best_fp4(batch, Rounding(2))
        assert np.array_equal(alone.error.ravel(), together.error.ravel()[chosen])
