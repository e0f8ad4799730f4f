"""Scale and bias of leaves: what a decoder will see, and the squared error it will see with them.

Leaves of one size are handled together as the rows or, where they are short, the columns of a matrix: one
number per leaf is spread over long runs either way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pytest_gnus.sgfp4.arrays import BoolArray, CodeArray, Floats, IntArray, WordArray

LARGEST_FLOAT16 = 65504.0
# The largest whose four low bits are zero: flags take their place in version 2.
LARGEST_SHORT_BIAS = 65024.0
SHORT_BIAS_BITS = 7
# A scale, eight times, and a bias: whatever lies outside is decoded as this.
LARGEST_WEIGHT = 9 * LARGEST_FLOAT16
EXEMPLARY_CANDIDATES = 16
SMALLEST_WITH_TAILS = 32
# Shorter leaves become columns.
SHORTEST_ROW = 256


@dataclass(frozen=True)
class CodeRange:
    low: int
    high: int

    @property
    def centre(self) -> float:
        return (self.low + self.high) / 2

    @property
    def steps(self) -> int:
        return self.high - self.low


FP4 = CodeRange(-8, 7)
TERNARY = CodeRange(-1, 1)


@dataclass(frozen=True)
class Batch:
    """Weights of leaves of one size.

    `values` is (leaves, weights) where `axis` is 1, (weights, leaves) where it is 0. `real` has the same
    shape with 1 for weights and 0 for padding, whose error does not count, or is None where all are weights.
    Numbers per leaf have length 1 along `axis`.
    """

    size: int
    values: Floats
    axis: int
    real: Floats | None = None

    @classmethod
    def of(cls, macroblocks: Floats, size: int, real: Floats | None) -> Batch:
        """All leaves of a size of some macroblocks (macroblocks, 64, 64), row by row in each."""
        axis = 1 if size * size >= SHORTEST_ROW else 0
        padding = None if real is None else _leaves(real, size, axis)
        return cls(size, _leaves(macroblocks, size, axis), axis, padding)

    def __len__(self) -> int:
        return int(self.values.shape[1 - self.axis])

    def take(self, leaves: IntArray) -> Batch:
        """Some of the leaves."""
        if np.array_equal(leaves, np.arange(len(self))):
            return self
        other = 1 - self.axis
        real = None if self.real is None else self.real.take(leaves, axis=other)
        return Batch(self.size, self.values.take(leaves, axis=other), self.axis, real)

    def each(self, numbers: Floats) -> Floats:
        """Numbers of leaves (leaves,) in the shape in which they are spread over the weights."""
        return np.expand_dims(numbers, self.axis)

    def rows(self, codes: CodeArray) -> CodeArray:
        """Codes in the shape of `values` as (leaves, weights)."""
        return np.ascontiguousarray(codes if self.axis == 1 else codes.T)

    def counts(self) -> Floats:
        """How many weights each leaf has, at least 1."""
        if self.real is None:
            return self.each(np.full(len(self), self.size * self.size, np.float32))
        return np.maximum(_sum(self.real, self.axis), np.float32(1))

    def mean(self) -> Floats:
        return _sum(self.values, self.axis) / self.counts()

    def bounds(self) -> tuple[Floats, Floats]:
        """The smallest and the largest weight of each leaf; 0 and 0 of a leaf that is all padding."""
        if self.real is None:
            return self.values.min(axis=self.axis, keepdims=True), self.values.max(
                axis=self.axis, keepdims=True
            )
        padding = self.real == 0
        low = np.where(padding, np.inf, self.values).min(axis=self.axis, keepdims=True)
        high = np.where(padding, -np.inf, self.values).max(axis=self.axis, keepdims=True)
        empty = np.isinf(low)
        return np.where(empty, 0, low), np.where(empty, 0, high)

    def centred(self, bias: Floats) -> Floats:
        """The weights less a bias, padding as 0; a new array."""
        difference: Floats = self.values - bias
        if self.real is not None:
            difference *= self.real
        return difference


@dataclass(frozen=True)
class Fit:
    """Scale and bias of each leaf as a decoder sees them, and the squared error with them."""

    scale: Floats
    bias: Floats
    error: Floats

    def better(self, other: Fit) -> Fit:
        """The one with the smaller error, for each leaf; this one where they are the same."""
        return self.replaced(other.error < self.error, other)

    def replaced(self, where: BoolArray, other: Fit) -> Fit:
        """The other one for some of the leaves."""
        return Fit(
            np.where(where, other.scale, self.scale),
            np.where(where, other.bias, self.bias),
            np.where(where, other.error, self.error),
        )


@dataclass(frozen=True)
class Rounding:
    """What a container of one version keeps of a scale and a bias."""

    version: int

    def scale(self, scale: Floats) -> Floats:
        return np.clip(scale, -LARGEST_FLOAT16, LARGEST_FLOAT16).astype(np.float16).astype(np.float32)

    def bias(self, bias: Floats) -> Floats:
        """The nearest number that is kept."""
        if self.version == 1:
            return self.scale(bias)
        bias = np.clip(bias, -LARGEST_SHORT_BIAS, LARGEST_SHORT_BIAS)
        # Float16 without its four low bits: seven significant bits, fewer below 2 ** -14.
        exponent = np.maximum(np.frexp(bias)[1], -13) - SHORT_BIAS_BITS
        unit = np.ldexp(np.float32(1), exponent)
        rounded: Floats = np.rint(bias / unit) * unit
        return rounded


def numbers_of(fit: Fit) -> WordArray:
    """The bits of both numbers in one word per leaf, the scale in the upper half; (leaves,)."""
    scale = fit.scale.astype(np.float16).view(np.uint16).astype(np.uint32).ravel()
    bias = fit.bias.astype(np.float16).view(np.uint16).astype(np.uint32).ravel()
    return scale << np.uint32(16) | bias


def scale_and_bias(numbers: WordArray) -> tuple[Floats, Floats]:
    """Scale and bias from such words, of the same shape."""
    scale = (numbers >> np.uint32(16)).astype(np.uint16).view(np.float16).astype(np.float32)
    bias = numbers.astype(np.uint16).view(np.float16).astype(np.float32)
    return scale, bias


def evaluate(batch: Batch, scale: Floats, bias: Floats, codes: CodeRange) -> Fit:
    """The squared error of each leaf with the nearest codes."""
    return _evaluate(batch, batch.centred(bias), scale, bias, codes)


def exemplary_fp4(batch: Batch, rounding: Rounding) -> Fit:
    """The published rule: the mean as bias, the best of 16 scales around max|w| / 7."""
    bias = rounding.bias(batch.mean())
    low, high = batch.bounds()
    largest = _times(np.maximum(np.abs(low), np.abs(high)), 1 / FP4.high)
    factors: list[float] = np.geomspace(0.5, 1.5, EXEMPLARY_CANDIDATES).tolist()
    return _best_of(batch, [(rounding.scale(_times(largest, factor)), bias) for factor in factors], FP4)


def exemplary_ternary(batch: Batch, rounding: Rounding) -> tuple[Fit, BoolArray]:
    """The published rule: the mean as bias, the mean distance from it as scale.

    Returns the fit and which leaves have an outlier, for which ternary codes are not chosen.
    """
    mean = batch.mean()
    distance = np.abs(batch.centred(mean))
    outlier = distance.max(axis=batch.axis, keepdims=True) > 3 * _sum(distance, batch.axis) / batch.counts()
    bias = rounding.bias(mean)
    centred = batch.centred(bias)
    scale = rounding.scale(_sum(np.abs(centred), batch.axis) / batch.counts())
    return _evaluate(batch, centred, scale, bias, TERNARY), outlier


def best_fp4(batch: Batch, rounding: Rounding) -> Fit:
    """A small search: some scales around some centres, those beside the best, then refined."""
    low, high = batch.bounds()
    middle, mean = _times(low + high, 0.5), batch.mean()
    between = _times(mean + middle, 0.5)
    starts = [
        (middle, 0.75),
        (middle, 0.85),
        (middle, 0.95),
        (between, 0.75),
        (between, 0.85),
        (between, 0.95),
    ]
    if batch.size >= SMALLEST_WITH_TAILS:
        # Large leaves have tails that are better cut off; of small ones every weight counts.
        starts = [(mean, 0.45), (mean, 0.6), (mean, 0.8), (between, 0.6), (between, 0.76), (between, 0.95)]
        starts += [(middle, 0.8), (middle, 0.95)]
    step = _times(high - low, 1 / FP4.steps)
    candidates = [_around(centre, _times(step, factor), rounding) for centre, factor in starts]
    bias = rounding.bias(middle)
    distance = np.abs(middle - bias)
    if np.any(distance > step):
        # A bias has seven bits: far from zero the codes must reach from it to the weights.
        reach = distance + _times(high - low, 0.5)
        candidates.append((rounding.scale(_times(reach, 1 / FP4.high)), bias))
    best = _best_of(batch, candidates, FP4)
    centre = best.bias + _times(best.scale, FP4.centre)
    beside = [_around(centre, _times(best.scale, factor), rounding) for factor in (0.94, 1.06)]
    return refined(batch, best.better(_best_of(batch, beside, FP4)), FP4, rounding, rounds=2)


def _around(centre: Floats, scale: Floats, rounding: Rounding) -> tuple[Floats, Floats]:
    """Scale and bias whose values lie on both sides of a centre alike."""
    scale = rounding.scale(scale)
    return scale, rounding.bias(centre - _times(scale, FP4.centre))


def best_ternary(batch: Batch, rounding: Rounding) -> Fit:
    """Two scales around the mean, then refined."""
    bias = rounding.bias(batch.mean())
    distance = _sum(np.abs(batch.centred(bias)), batch.axis) / batch.counts()
    candidates = [(rounding.scale(_times(distance, factor)), bias) for factor in (1.2, 1.6)]
    return refined(batch, _best_of(batch, candidates, TERNARY), TERNARY, rounding, rounds=2)


def refined(batch: Batch, fit: Fit, codes: CodeRange, rounding: Rounding, rounds: int) -> Fit:
    """The fit after some rounds of regression on its own codes; never one with a larger error."""
    counts = batch.counts()
    best = fit
    for _ in range(rounds):
        centred = batch.centred(fit.bias)
        chosen = _codes(centred, fit.scale, codes)
        sum_codes, sum_weights = _sum(chosen, batch.axis), _sum(centred, batch.axis)
        spread = counts * _dot(chosen, chosen, batch.axis) - sum_codes * sum_codes
        slope = counts * _dot(chosen, centred, batch.axis) - sum_codes * sum_weights
        # With all codes the same, no slope is better than another.
        flat = spread <= 0
        slope = np.where(flat, fit.scale, slope / np.where(flat, np.float32(1), spread))
        scale = rounding.scale(slope)
        shift: Floats = np.divide(sum_weights - scale * sum_codes, counts)
        bias = rounding.bias(fit.bias + shift)
        fit = evaluate(batch, scale, bias, codes)
        best = best.better(fit)
    return best


def nearest_codes(batch: Batch, scale: Floats, bias: Floats, codes: CodeRange) -> CodeArray:
    """The codes nearest to the weights, as many as `batch.values` has; padding has 0."""
    return _codes(batch.centred(bias), scale, codes).astype(np.int8)


def _leaves(macroblocks: Floats, size: int, axis: int) -> Floats:
    across = macroblocks.shape[1] // size
    cells = macroblocks.reshape(-1, across, size, across, size)
    if axis == 1:
        return cells.transpose(0, 1, 3, 2, 4).reshape(-1, size * size)
    return cells.transpose(2, 4, 0, 1, 3).reshape(size * size, -1)


def _best_of(batch: Batch, candidates: list[tuple[Floats, Floats]], codes: CodeRange) -> Fit:
    best: Fit | None = None
    for scale, bias in candidates:
        fit = evaluate(batch, scale, bias, codes)
        best = fit if best is None else best.better(fit)
    assert best is not None
    return best


def _evaluate(batch: Batch, centred: Floats, scale: Floats, bias: Floats, codes: CodeRange) -> Fit:
    """Overwrites `centred`."""
    zero = scale == 0
    plain = _dot(centred, centred, batch.axis) if zero.any() else None
    centred *= _inverse(scale)
    nearest = np.rint(centred)
    np.clip(nearest, codes.low, codes.high, out=nearest)
    centred -= nearest
    error = _dot(centred, centred, batch.axis) * (scale * scale)
    return Fit(scale, bias, error if plain is None else np.where(zero, plain, error))


def _codes(centred: Floats, scale: Floats, codes: CodeRange) -> Floats:
    chosen = centred * _inverse(scale)
    np.rint(chosen, out=chosen)
    return np.clip(chosen, codes.low, codes.high, out=chosen)


def _inverse(scale: Floats) -> Floats:
    """1 / scale, and 0 for a scale of 0: its codes are all the same."""
    zero = scale == 0
    inverse: Floats = np.where(zero, np.float32(0), np.float32(1) / np.where(zero, np.float32(1), scale))
    return inverse


def _times(values: Floats, factor: float) -> Floats:
    return values * np.float32(factor)


def _sum(values: Floats, axis: int) -> Floats:
    total: Floats = values.sum(axis=axis, keepdims=True)
    return total


def _dot(one: Floats, other: Floats, axis: int) -> Floats:
    """The sum of products of each leaf."""
    if axis == 1:
        return np.asarray(np.einsum("ij,ij->i", one, other)[:, None])
    return np.asarray(np.einsum("ij,ij->j", one, other)[None, :])
