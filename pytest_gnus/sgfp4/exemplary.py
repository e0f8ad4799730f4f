"""The published rules: fixed thresholds of the error, a preference for ternary codes."""

from __future__ import annotations

import numpy as np

from pytest_gnus.sgfp4.arrays import BoolArray, Doubles, Floats, WordArray
from pytest_gnus.sgfp4.fitting import (
    Batch,
    Rounding,
    exemplary_fp4,
    exemplary_ternary,
    numbers_of,
)
from pytest_gnus.sgfp4.options import EncodeOptions
from pytest_gnus.sgfp4.partition import (
    Partition,
    children,
    everywhere,
    layouts_of,
    leaves_of_splits,
    sum_of_children,
)
from pytest_gnus.sgfp4.quadtree import LEAF_SIZES


def choose(macroblocks: Floats, options: EncodeOptions) -> Partition:
    """Leaves, modes, scales and biases of some macroblocks (macroblocks, 64, 64), padded with zeros."""
    sizes = options.leaf_sizes
    present = everywhere(len(macroblocks), sizes[0])
    errors: dict[int, Doubles] = {}
    ternary: dict[int, BoolArray] = {}
    numbers: dict[int, WordArray] = {}
    open_nodes: dict[int, BoolArray] = {}
    for size in sizes:
        errors[size] = np.zeros(present.shape)
        ternary[size] = np.zeros(present.shape, np.bool_)
        numbers[size] = np.zeros(present.shape, np.uint32)
        chosen = np.flatnonzero(present)
        if len(chosen):
            batch = Batch.of(macroblocks, size, None).take(chosen)
            error, is_ternary, number = _fit(batch, options)
            errors[size].ravel()[chosen] = error
            ternary[size].ravel()[chosen] = is_ternary
            numbers[size].ravel()[chosen] = number
        threshold = options.thresholds[LEAF_SIZES.index(size)]
        open_nodes[size] = present & (errors[size] / (size * size) > threshold)
        if size != sizes[-1]:
            present = children(open_nodes[size])
    leaf = leaves_of_splits(_splits(errors, open_nodes, options), sizes, len(macroblocks))
    return Partition(layouts_of(leaf), leaf, ternary, numbers)


def _fit(batch: Batch, options: EncodeOptions) -> tuple[Doubles, BoolArray, WordArray]:
    """Error, mode and numbers of each leaf; (leaves,)."""
    rounding = Rounding(options.version)
    fit = exemplary_fp4(batch, rounding)
    ternary = np.zeros(fit.error.shape, np.bool_)
    if options.allow_ternary:
        other, outlier = exemplary_ternary(batch, rounding)
        limit = np.float32(1 + options.ternary_preference) * fit.error
        ternary = (other.error <= limit) & ~outlier
        fit = fit.replaced(ternary, other)
    return fit.error.ravel().astype(np.float64), ternary.ravel(), numbers_of(fit)


def _splits(
    errors: dict[int, Doubles], open_nodes: dict[int, BoolArray], options: EncodeOptions
) -> dict[int, BoolArray]:
    """Which nodes are split: those above the threshold whose children together save enough."""
    splits: dict[int, BoolArray] = {}
    sizes = options.leaf_sizes
    lowest = errors[sizes[-1]]
    for size in reversed(sizes[:-1]):
        together = sum_of_children(lowest)
        splits[size] = open_nodes[size] & (together <= (1 - options.split_gain) * errors[size])
        lowest = np.where(splits[size], together, errors[size])
    return splits
