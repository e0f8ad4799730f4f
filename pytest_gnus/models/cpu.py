"""A fast BLAS for MLX on a Linux CPU.

The CPU wheel of MLX for Linux is linked against the reference BLAS, which does a few GFLOP/s where OpenBLAS
or MKL do hundreds. A library that exports the plain ``cblas_*`` symbols and is loaded with ``RTLD_GLOBAL``
*before* ``mlx.core`` is imported takes their place. The OpenBLAS that comes with SciPy will do.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_gnus.models.openblas import load_scipy_openblas, scipy_openblas


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

    Does nothing on macOS, nor where one is loaded already. On Linux it must run before the first import of
    ``mlx.core``: after that import the symbols are bound.
    """
    if sys.platform != "linux":
        return SYSTEM_BLAS
    loaded = loaded_blas()
    if loaded is not None:
        return loaded
    if "mlx.core" not in sys.modules:
        for candidate in blas_candidates():
            with contextlib.suppress(OSError):
                load_blas(candidate)
                return candidate
    return REFERENCE_BLAS


def load_blas(blas: Blas) -> None:
    """Load one of the candidates; the first that is loaded is what MLX will use.

    Raises:
        OSError: it cannot be loaded.
    """
    path = Path(str(blas.path))
    if path == scipy_openblas():
        load_scipy_openblas(path)
    else:
        ctypes.CDLL(str(blas.path), mode=ctypes.RTLD_GLOBAL)


def loaded_blas() -> Blas | None:
    """The BLAS that this process offers to MLX, by the dynamic linker's own word; None without one."""
    try:
        routine = ctypes.CDLL(None).cblas_sgemm
    except AttributeError:
        return None
    found = _LibraryOfAddress()
    if not ctypes.CDLL(None).dladdr(routine, ctypes.byref(found)) or not found.path:
        return None
    path = Path(found.path.decode())
    return Blas(next((name for name in ("mkl", "openblas") if name in path.name), path.name), str(path))


class _LibraryOfAddress(ctypes.Structure):
    """What `dladdr` tells."""

    _fields_ = (
        ("path", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def expected_blas() -> Blas:
    """What `load_fast_blas` will most likely find, without loading anything."""
    if sys.platform != "linux":
        return SYSTEM_BLAS
    return loaded_blas() or next(blas_candidates(), REFERENCE_BLAS)


def missing_blas() -> str | None:
    """A sentence for a machine whose CPU would run MLX with its reference BLAS; None where all is well."""
    if expected_blas() != REFERENCE_BLAS:
        return None
    how = "pip install 'pytest-gnus[mkl]', or " if platform.machine() == "x86_64" else ""
    return (
        f"no fast BLAS for MLX on this CPU: SciPy is not the wheel from PyPI, which brings one; {how}install "
        "OpenBLAS (Debian: apt install libopenblas0-pthread); it makes matrix products 10 to 50 times faster"
    )


def blas_candidates() -> Iterator[Blas]:
    """MKL or OpenBLAS from the environment, OpenBLAS from SciPy's wheel, then either from the system.

    MKL stands first because whoever has its wheel in the environment asked for it.
    """
    for directory in dict.fromkeys((Path(sys.prefix) / "lib", Path(sys.base_prefix) / "lib")):
        for name, pattern in (("mkl", "libmkl_rt.so*"), ("openblas", "libopenblas*.so*")):
            for path in sorted(directory.glob(pattern)):
                yield Blas(name, str(path))
    of_scipy = scipy_openblas()
    if of_scipy is not None:
        yield Blas("openblas", str(of_scipy))
    for name, library in (("mkl", "mkl_rt"), ("openblas", "openblas")):
        found = ctypes.util.find_library(library)
        if found:
            yield Blas(name, found)
