"""SGFP4: containers of weights in four bits, adaptive blocks, read and written.

`decode` and `encode` turn containers into float32 matrices and back, `describe` says what a container holds;
every fault is an `SGFP4Error`. Nothing here needs more than NumPy.
"""

from __future__ import annotations

from pytest_gnus.sgfp4.decoder import decode
from pytest_gnus.sgfp4.encoder import encode
from pytest_gnus.sgfp4.errors import SGFP4Error
from pytest_gnus.sgfp4.options import EncodeOptions
from pytest_gnus.sgfp4.statistics import ContainerInfo, EncodeReport, describe, squared_error, squared_sum

__all__ = [
    "ContainerInfo",
    "EncodeOptions",
    "EncodeReport",
    "SGFP4Error",
    "decode",
    "describe",
    "encode",
    "squared_error",
    "squared_sum",
]
