"""A fast BLAS for MLX on a Linux CPU.

The CPU wheel of MLX for Linux is linked against the reference BLAS, which does a few GFLOP/s where MKL or
OpenBLAS do hundreds. A library that exports the plain ``cblas_*`` symbols and is loaded with ``RTLD_GLOBAL``
*before* ``mlx.core`` is imported takes their place.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Blas:
    """Which BLAS serves MLX's float32 matrix products, for the header and the record."""

    name: str
    path: str | None


SYSTEM_BLAS = Blas("system", None)  # macOS: Accelerate, or Metal; nothing to do
REFERENCE_BLAS = Blas("reference", None)


#: What MKL, OpenBLAS and OpenMP read when they are loaded.
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_cores(processes: int) -> None:
    """Leave each of so many processes its part of the cores, of which each would else use all.

    To be called before a BLAS is loaded. What the environment says already stays.
    """
    for name in _THREADS:
        os.environ.setdefault(name, str(max(1, cores() // processes)))


def compute_threads() -> int:
    """Threads for the product's own kernels: as many as the BLAS is allowed."""
    asked = os.environ.get(_THREADS[0], "").split(",")[0].strip()
    return int(asked) if asked.isdecimal() and int(asked) else cores()


def load_fast_blas() -> Blas:
    """Load MKL or OpenBLAS ahead of MLX where that helps; returns what is in use.

    Does nothing on macOS. On Linux it must run before the first import of ``mlx.core``; after that import
    the symbols are bound already, and the answer is `REFERENCE_BLAS` unless an earlier call succeeded.
    """
    if sys.platform != "linux":
        return SYSTEM_BLAS
    for candidate in _candidates():
        if "mlx.core" in sys.modules:
            # Too late to change anything; report the library only if it is there from an earlier call.
            if _is_loaded(candidate.path):
                return candidate
            continue
        try:
            ctypes.CDLL(candidate.path, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        return candidate
    return REFERENCE_BLAS


def expected_blas() -> Blas:
    """What `load_fast_blas` will most likely find, without loading anything."""
    if sys.platform != "linux":
        return SYSTEM_BLAS
    return next(_candidates(), REFERENCE_BLAS)


def missing_blas() -> str | None:
    """A sentence for a machine whose CPU would run MLX with its reference BLAS; None where all is well."""
    if expected_blas() != REFERENCE_BLAS:
        return None
    how = (
        "pip install 'pytest-gnus[cpu]'"
        if platform.machine() == "x86_64"
        else "install OpenBLAS (Debian: apt install libopenblas0-pthread)"
    )
    return f"no fast BLAS for MLX on this CPU: {how} makes matrix products some 10 to 50 times faster"


def _candidates() -> Iterator[Blas]:
    """MKL from the `mkl` wheel, OpenBLAS from the environment, then either from the system."""
    for directory in dict.fromkeys((Path(sys.prefix) / "lib", Path(sys.base_prefix) / "lib")):
        for name, pattern in (("mkl", "libmkl_rt.so*"), ("openblas", "libopenblas*.so*")):
            for path in sorted(directory.glob(pattern)):
                yield Blas(name, str(path))
    for name, library in (("mkl", "mkl_rt"), ("openblas", "openblas")):
        found = ctypes.util.find_library(library)
        if found:
            yield Blas(name, found)


def _is_loaded(path: str | None) -> bool:
    maps = Path("/proc/self/maps")
    if path is None or not maps.exists():
        return False
    return Path(path).name in maps.read_text(errors="replace")
