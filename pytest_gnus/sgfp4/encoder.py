"""Weights into containers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gnus.sgfp4 import exemplary, partition, rate_distortion
from pytest_gnus.sgfp4.arrays import Floats
from pytest_gnus.sgfp4.container import V2_HEADER_BYTES, aligned, macroblock_grid
from pytest_gnus.sgfp4.decoder import decode
from pytest_gnus.sgfp4.errors import SGFP4Error
from pytest_gnus.sgfp4.fitting import LARGEST_WEIGHT
from pytest_gnus.sgfp4.options import EncodeOptions
from pytest_gnus.sgfp4.partition import Partition, chunks
from pytest_gnus.sgfp4.quadtree import MACROBLOCK, WEIGHTS_PER_MACROBLOCK
from pytest_gnus.sgfp4.statistics import EncodeReport, describe, squared_error, squared_sum
from pytest_gnus.sgfp4.writer import write_v1, write_v2

# Some arrays of this many weights are in use at once: about half a megabyte each.
MACROBLOCKS_AT_ONCE = 32
# How often the numbers of the leaves that were chosen are improved once more.
REFINE_ROUNDS = 4


def encode(
    weights: npt.NDArray[np.floating[Any]], options: EncodeOptions | None = None, *, tensor: str = ""
) -> tuple[bytes, EncodeReport]:
    """The container of a matrix, and what was lost; the same bytes for the same weights and options.

    Args:
        weights: (rows, columns), finite, of any float type; not changed.
        options: how to encode; by default rate–distortion at 4.25 bits per weight.
        tensor: the weight's name, for errors.

    Raises:
        SGFP4Error: the weights are no matrix of finite numbers with at least one row and one column.
    """
    options = options or EncodeOptions()
    try:
        matrix = _Matrix(_checked(weights))
        data = _written(matrix, options)
        shape = matrix.shape
        report = EncodeReport(
            container=describe(data, shape),
            squared_error=squared_error(matrix.weights, decode(data, shape)),
            squared_weights=squared_sum(matrix.weights),
            target_bpw=options.target_bpw if options.policy == "rate-distortion" else None,
        )
    except SGFP4Error as error:
        raise error.named("", tensor) from None
    return data, report


def _checked(weights: npt.NDArray[np.floating[Any]]) -> Floats:
    if weights.ndim != 2 or 0 in weights.shape:
        raise SGFP4Error(f"weights are a matrix with at least one row and one column, not {weights.shape}")
    if weights.dtype.kind != "f":
        raise SGFP4Error(f"weights are floating-point numbers, not {weights.dtype}")
    with np.errstate(over="ignore"):
        matrix = np.asarray(weights, np.float32)
    if not np.isfinite(matrix).all():
        raise SGFP4Error("weights are finite")
    return matrix


class _Matrix:
    """A matrix that is read as macroblocks."""

    def __init__(self, weights: Floats) -> None:
        self.weights = weights
        self.shape = (weights.shape[0], weights.shape[1])
        down, self._across = macroblock_grid(self.shape)
        self.blocks = down * self._across

    def padded(self, part: slice) -> Floats:
        """Some macroblocks (macroblocks, 64, 64), padded with zeros; no weight is larger than can be kept."""
        return self.with_padding(part)[0]

    def with_padding(self, part: slice) -> tuple[Floats, Floats | None]:
        """The same, and 1 where there is a weight, 0 where there is padding; None without padding."""
        macroblocks = np.zeros((part.stop - part.start, MACROBLOCK, MACROBLOCK), np.float32)
        real = None
        for index, block in enumerate(range(part.start, part.stop)):
            row, column = divmod(block, self._across)
            tile = self.weights[row * MACROBLOCK :, column * MACROBLOCK :][:MACROBLOCK, :MACROBLOCK]
            height, width = tile.shape
            macroblocks[index, :height, :width] = tile
            if height * width < WEIGHTS_PER_MACROBLOCK:
                if real is None:
                    real = np.ones_like(macroblocks)
                real[index, height:] = 0
                real[index, :, width:] = 0
        np.clip(macroblocks, -LARGEST_WEIGHT, LARGEST_WEIGHT, out=macroblocks)
        return macroblocks, real


def _written(matrix: _Matrix, options: EncodeOptions) -> bytes:
    write = write_v1 if options.version == 1 else write_v2
    parts = list(chunks(matrix.blocks, MACROBLOCKS_AT_ONCE))
    if options.policy == "exemplary":
        chosen = partition.join([exemplary.choose(matrix.padded(part), options) for part in parts])
        return write(chosen, lambda part: (matrix.padded(part), None), 0)
    found = [rate_distortion.candidates(*matrix.with_padding(part), options) for part in parts]
    chosen = _within_budget(rate_distortion.join(found), matrix, options)
    return write(chosen, matrix.with_padding, REFINE_ROUNDS)


def _within_budget(found: rate_distortion.Candidates, matrix: _Matrix, options: EncodeOptions) -> Partition:
    if options.version == 1:
        # All records have one length; nothing is to be saved.
        return rate_distortion.choose(found, None)
    budget = math.floor(options.target_bpw * matrix.shape[0] * matrix.shape[1] / 8)
    return rate_distortion.choose(found, budget - aligned(V2_HEADER_BYTES + 4 * matrix.blocks))
