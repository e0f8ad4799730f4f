"""How weights are to be encoded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pytest_gnus.sgfp4.errors import SGFP4Error
from pytest_gnus.sgfp4.quadtree import LEAF_SIZES

Policy = Literal["rate-distortion", "exemplary"]


@dataclass(frozen=True)
class EncodeOptions:
    """How weights are to be encoded; a value out of range is an SGFP4Error.

    `policy` says how leaves, modes and scales are chosen: "rate-distortion" for the smallest squared error
    within `target_bpw` bits per weight, all bytes of the container counted; "exemplary" by the published
    rules, which know no budget. `layout` is a leaf size for uniform macroblocks of that size, or None to
    adapt each macroblock down to leaves of `minimum_block`. Only the exemplary rules use `thresholds` (the
    mean squared error up to which a leaf of 64, 32, 16, 8 and 4 is taken), `split_gain` (the share of the
    error that a split must save) and `ternary_preference` (the additional share of error at which ternary
    codes are still preferred). Version 1 has 64×64 leaves and a fixed size.
    """

    policy: Policy = "rate-distortion"
    target_bpw: float = 4.25
    version: int = 2
    layout: int | None = None
    minimum_block: int = 4
    allow_ternary: bool = True
    ternary_preference: float = 0.10
    thresholds: tuple[float, float, float, float, float] = (0.01, 0.005, 0.002, 0.001, 0.0005)
    split_gain: float = 0.05

    def __post_init__(self) -> None:
        sizes = ", ".join(str(size) for size in LEAF_SIZES)
        checks = {
            "policy: rate-distortion or exemplary": self.policy in ("rate-distortion", "exemplary"),
            "target_bpw: a number above 0": math.isfinite(self.target_bpw) and self.target_bpw > 0,
            "version: 1 or 2": self.version in (1, 2),
            f"layout: {sizes} or none": self.layout is None or self.layout in LEAF_SIZES,
            f"minimum_block: {sizes}": self.minimum_block in LEAF_SIZES,
            "layout: 64 in version 1": self.version == 2 or self.layout in (None, 64),
            "ternary_preference: a number from 0": _is_share(self.ternary_preference),
            "split_gain: a number from 0 to 1": _is_share(self.split_gain) and self.split_gain <= 1,
            "thresholds: five numbers from 0": len(self.thresholds) == len(LEAF_SIZES)
            and all(_is_share(threshold) for threshold in self.thresholds),
        }
        wrong = [rule for rule, holds in checks.items() if not holds]
        if wrong:
            raise SGFP4Error(f"encoding options that are not allowed: {'; '.join(wrong)}; given: {self}")

    @property
    def leaf_sizes(self) -> tuple[int, ...]:
        """The sizes that leaves may have, the largest first."""
        if self.version == 1:
            return (64,)
        if self.layout is not None:
            return (self.layout,)
        return tuple(size for size in LEAF_SIZES if size >= self.minimum_block)


def _is_share(number: float) -> bool:
    return math.isfinite(number) and number >= 0
