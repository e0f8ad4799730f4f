"""What containers hold and what encoding them lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from pytest_gnus.sgfp4.container import (
    LAYOUT_SIZES,
    MIXED,
    Container,
    MixedLeaves,
    UniformLeaves,
    checked_shape,
    open_container,
)
from pytest_gnus.sgfp4.errors import SGFP4Error
from pytest_gnus.sgfp4.quadtree import LEAF_SIZES, WEIGHTS_PER_MACROBLOCK

MACROBLOCKS_AT_ONCE = 128
WEIGHTS_AT_ONCE = 1 << 18
LAYOUT_NAMES = MappingProxyType(
    {**{layout: str(size) for layout, size in LAYOUT_SIZES.items()}, MIXED: "mixed"}
)


@dataclass(frozen=True)
class ContainerInfo:
    """What one container holds.

    `shape` is None where it is not known; `weights` are then those of whole macroblocks. `layout_counts` are
    macroblocks by layout ("64", "32", "16", "8", "4", "mixed"; version 1 has only "64"), `leaf_counts` leaves
    by size, both without zeros; `ternary_leaves` of them have ternary codes.
    """

    version: int
    shape: tuple[int, int] | None
    total_bytes: int
    macroblocks: int
    weights: int
    layout_counts: Mapping[str, int]
    leaf_counts: Mapping[int, int]
    ternary_leaves: int

    @property
    def leaves(self) -> int:
        return sum(self.leaf_counts.values())

    @property
    def fp4_leaves(self) -> int:
        return self.leaves - self.ternary_leaves

    @property
    def ternary_share(self) -> float:
        """The share of leaves with ternary codes."""
        return self.ternary_leaves / self.leaves

    @property
    def layout_shares(self) -> dict[str, float]:
        """The share of macroblocks of each layout that occurs."""
        return {name: count / self.macroblocks for name, count in self.layout_counts.items()}

    @property
    def bits_per_weight(self) -> float:
        """All bytes of the container, over the weights of the matrix."""
        return 8 * self.total_bytes / self.weights


@dataclass(frozen=True)
class EncodeReport:
    """What an encoder made of a matrix.

    `squared_error` is the sum over all weights, with the values that a decoder sees, `squared_weights` the
    sum of their squares. `target_bpw` is None where the policy knows none.
    """

    container: ContainerInfo
    squared_error: float
    squared_weights: float
    target_bpw: float | None

    @property
    def mse(self) -> float:
        return self.squared_error / self.container.weights

    @property
    def relative_mse(self) -> float:
        """The squared error over the squared weights; of weights that are all zero 0 or infinite."""
        if self.squared_weights == 0:
            return 0.0 if self.squared_error == 0 else float("inf")
        return self.squared_error / self.squared_weights

    @property
    def bits_per_weight(self) -> float:
        return self.container.bits_per_weight

    @property
    def layout_shares(self) -> dict[str, float]:
        return self.container.layout_shares

    @property
    def ternary_share(self) -> float:
        return self.container.ternary_share

    @property
    def within_target(self) -> bool:
        """False where even the shortest container that the options allow is longer than the target."""
        return self.target_bpw is None or self.bits_per_weight <= self.target_bpw


def describe(
    data: bytes, shape: tuple[int, int] | None = None, *, source: str = "", tensor: str = ""
) -> ContainerInfo:
    """What a container holds; everything but the codes is checked as in `decode`.

    Raises:
        SGFP4Error: the container breaks a rule of the format or does not fit the shape.
    """
    try:
        known = None if shape is None else checked_shape(shape)
        container = open_container(data, known)
        return _count(container, known)
    except SGFP4Error as error:
        raise error.named(source, tensor) from None


def squared_error(weights: npt.NDArray[np.float32], decoded: npt.NDArray[np.float32]) -> float:
    """The sum of squared differences of two matrices of one shape, in double precision."""
    rows = max(1, WEIGHTS_AT_ONCE // weights.shape[1])
    total = 0.0
    for top in range(0, len(weights), rows):
        part = slice(top, top + rows)
        difference = weights[part].astype(np.float64)
        difference -= decoded[part]
        total += float(np.sum(difference * difference))
    return total


def squared_sum(weights: npt.NDArray[np.float32]) -> float:
    """The sum of squares of a matrix, in double precision."""
    return squared_error(weights, np.broadcast_to(np.float32(0), weights.shape))


def _count(container: Container, shape: tuple[int, int] | None) -> ContainerInfo:
    leaves = dict.fromkeys(LEAF_SIZES, 0)
    ternary = 0
    step = MACROBLOCKS_AT_ONCE
    ranges = (range(first, min(first + step, container.blocks)) for first in range(0, container.blocks, step))
    for _, groups in container.read(ranges):
        for group in groups:
            ternary += int(np.count_nonzero(group.ternary))
            if isinstance(group, UniformLeaves):
                leaves[group.size] += group.ternary.size
            elif isinstance(group, MixedLeaves):
                for size in LEAF_SIZES:
                    leaves[size] += int(np.count_nonzero(group.kind == size.bit_length() - 1))
    layouts = np.bincount(container.layout, minlength=6).tolist()
    return ContainerInfo(
        version=container.version,
        shape=shape,
        total_bytes=container.total_bytes,
        macroblocks=container.blocks,
        weights=container.blocks * WEIGHTS_PER_MACROBLOCK if shape is None else shape[0] * shape[1],
        layout_counts=MappingProxyType(
            {LAYOUT_NAMES[layout]: count for layout, count in enumerate(layouts) if count}
        ),
        leaf_counts=MappingProxyType({size: count for size, count in leaves.items() if count}),
        ternary_leaves=ternary,
    )
