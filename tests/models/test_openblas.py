"""SciPy's OpenBLAS in the place of MLX's reference BLAS, each time in a process of its own."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_gnus.models import openblas

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only on Linux is a BLAS loaded ahead of MLX"),
]

LOADED = """
from pytest_gnus.models.cpu import loaded_blas, load_fast_blas
from pytest_gnus.models.openblas import load_scipy_openblas, scipy_openblas
path = scipy_openblas()
assert loaded_blas() is None
load_scipy_openblas(path)
"""


def printed(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_library_is_that_of_scipys_wheel_with_integers_of_32_bits() -> None:
    path = openblas.scipy_openblas()
    assert path is not None
    assert path.parent.name == "scipy.libs"
    assert "openblas64" not in path.name


def test_the_dynamic_linker_gives_mlx_its_routines() -> None:
    program = LOADED + (
        "from pathlib import Path\n"
        "assert Path(loaded_blas().path).samefile(path), loaded_blas()\n"
        "assert loaded_blas().name == load_fast_blas().name == 'openblas'\n"
        "import ctypes\n"
        "every, its_own = ctypes.CDLL(None), ctypes.CDLL(str(path))\n"
        "address = lambda function: ctypes.cast(function, ctypes.c_void_p).value\n"
        "for kind in 'sdcz':\n"
        "    plain = address(getattr(every, f'cblas_{kind}gemm'))\n"
        "    print(plain == address(getattr(its_own, f'scipy_cblas_{kind}gemm')))\n"
    )
    assert printed(program) == ["True"] * 4


def test_mlx_computes_the_same_products_faster() -> None:
    """The reference BLAS takes 20 times as long; a machine under load is left a factor of 3."""
    products = (
        "import time\n"
        "import mlx.core as mx, numpy as np\n"
        "mx.set_default_device(mx.cpu)\n"
        "draw = np.random.default_rng(0)\n"
        "one = draw.normal(size=(512, 768)).astype(np.float32)\n"
        "other = draw.normal(size=(768, 640)).astype(np.float32)\n"
        "a, b = mx.array(one), mx.array(other)\n"
        "times = []\n"
        "for _ in range(3):\n"
        "    started = time.perf_counter()\n"
        "    mx.eval(a @ b)\n"
        "    times.append(time.perf_counter() - started)\n"
        "exact = one.astype(np.float64) @ other.astype(np.float64)\n"
        "print(np.abs(np.array(a @ b) - exact).max() < 1e-3, min(times))\n"
    )
    slow_and_right = printed(products)[0].split()
    fast_and_right = printed(LOADED + products)[0].split()
    assert (slow_and_right[0], fast_and_right[0]) == ("True", "True")
    assert float(fast_and_right[1]) < float(slow_and_right[1]) / 3


def test_numpys_own_blas_is_kept_to_one_thread_and_that_of_mlx_is_not() -> None:
    program = LOADED + (
        "import numpy\n"
        "from threadpoolctl import threadpool_info\n"
        "from pytest_gnus.models.cpu_kernels import _blas_of_numpy\n"
        "found = [one['filepath'] for one in _blas_of_numpy().info()]\n"
        "print(len(found), 'numpy.libs' in found[0])\n"
        "with _blas_of_numpy().limit(limits=1):\n"
        "    print(sorted({('numpy' in one['filepath'], one['num_threads']) for one in threadpool_info()\n"
        "        if one['internal_api'] == 'openblas'}))\n"
        "from pytest_gnus.models.cpu import cores\n"
        "print([(False, cores()), (True, 1)])\n"
    )
    counted, limited, expected = printed(program)
    assert counted == "1 True"
    assert limited == expected


def test_an_openblas_that_is_loaded_already_stays() -> None:
    """Whoever preloads a BLAS of their own has it used, and named."""
    program = (
        "import ctypes\n"
        "from pytest_gnus.models.cpu import load_fast_blas, expected_blas\n"
        "from pytest_gnus.models.openblas import load_scipy_openblas, scipy_openblas\n"
        "load_scipy_openblas(scipy_openblas())\n"
        "print(load_fast_blas() == expected_blas(), load_fast_blas().name)\n"
    )
    assert printed(program) == ["True openblas"]


def test_a_table_of_names_is_a_shared_object_of_its_machine() -> None:
    like = Path(sys.executable).resolve().read_bytes()[:64]
    table = openblas.name_table({"cblas_sgemm": 0x1234, "cblas_dgemm": 0x5678}, like)
    kind, machine = struct.unpack_from("<HH", table, 16)
    assert (kind, machine) == (3, struct.unpack_from("<H", like, 18)[0])
    assert b"\0cblas_sgemm\0cblas_dgemm\0" in table
    assert struct.pack("<Q", 0x1234) in table
    assert len(table) < 1500


def test_of_another_format_nothing_is_made() -> None:
    with pytest.raises(OSError, match="64 bits, little endian"):
        openblas.name_table({"cblas_sgemm": 1}, b"\x7fELF\x01\x01" + bytes(58))


def test_a_library_with_other_names_is_refused() -> None:
    import ctypes.util

    with pytest.raises(OSError, match="has no scipy_cblas_sgemm"):
        openblas.load_scipy_openblas(Path(str(ctypes.util.find_library("m"))))
