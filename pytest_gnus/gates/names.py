"""The names of gates, and which of them stand for the same gate.

Records keep the names under which their gates were written. Version 0.1.0 called the regression gate
`sgfp4_regression` for weights of every format, and a ceiling `hard_floor`. Whoever looks for a gate in a
record asks here, so that what was written then still counts.
"""

from __future__ import annotations

HARD_FLOOR = "hard_floor"
HARD_CEILING = "hard_ceiling"
SGFP4_REGRESSION = "sgfp4_regression"
QUANTIZATION_REGRESSION = "quantization_regression"

_HARD_LIMITS = (HARD_FLOOR, HARD_CEILING)
_CATEGORY_LIMITS = ("category_floor", "category_ceiling")
_REGRESSIONS = (SGFP4_REGRESSION, QUANTIZATION_REGRESSION)


def hard_limit(*, higher_is_better: bool) -> str:
    """The gate of a score against a fixed limit."""
    return HARD_FLOOR if higher_is_better else HARD_CEILING


def category_limit(category: str, *, higher_is_better: bool) -> str:
    """The gate of a category's score against a fixed limit."""
    return f"{_CATEGORY_LIMITS[0 if higher_is_better else 1]}[{category}]"


def regression(*, sgfp4: bool) -> str:
    """The gate of the quantized variant against its unquantized reference."""
    return SGFP4_REGRESSION if sgfp4 else QUANTIZATION_REGRESSION


def is_hard_limit(name: str) -> bool:
    """Whether a gate holds a benchmark's score against its floor or its ceiling."""
    return name in _HARD_LIMITS


def is_limit(name: str) -> bool:
    """Whether a gate holds a score, or that of a category, against its floor or its ceiling."""
    return is_hard_limit(name) or name.startswith(tuple(f"{kind}[" for kind in _CATEGORY_LIMITS))


def is_regression(name: str) -> bool:
    """Whether a gate compares the quantized variant with its unquantized reference."""
    return name in _REGRESSIONS


def same_gate(name: str, other: str) -> bool:
    """Whether two names stand for one gate."""
    return _plain(name) == _plain(other)


def _plain(name: str) -> str:
    """One name for all that a gate has had."""
    if is_regression(name):
        return QUANTIZATION_REGRESSION
    if is_hard_limit(name):
        return HARD_FLOOR
    floor, ceiling = _CATEGORY_LIMITS
    return floor + name.removeprefix(ceiling) if name.startswith(f"{ceiling}[") else name
