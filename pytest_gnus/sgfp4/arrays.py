"""Types of arrays, and how NumPy is to walk over them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
ByteArray = npt.NDArray[np.uint8]
CodeArray = npt.NDArray[np.int8]
Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
WordArray = npt.NDArray[np.uint32]
Element = TypeVar("Element", bound=np.generic)


def frozen(array: npt.NDArray[Element]) -> npt.NDArray[Element]:
    """An array that nobody can change, since its cache hands it to everybody."""
    array.setflags(write=False)
    return array


@contextmanager
def whole_rows(length: int) -> Iterator[None]:
    """Let NumPy work in pieces of `length` numbers, a multiple of 16, where it would take 8192.

    Where rows are shorter than its pieces, it first copies what is to be spread over several rows, which can
    take longer than the work itself. Leaving the context brings the old length back.
    """
    with np.errstate():
        np.setbufsize(length)
        yield
