"""The OpenBLAS of SciPy's wheel, under the names by which MLX asks for a BLAS.

SciPy's wheel brings a whole OpenBLAS, in which each name has a prefix: ``scipy_cblas_sgemm``. MLX asks the
dynamic linker for ``cblas_sgemm``. Between the two stands a shared object of about a thousand bytes that
holds no code, only a table of names with absolute addresses. It is written to memory, so it needs neither a
compiler nor a place on disk, and is the same for every processor.
"""

from __future__ import annotations

import ctypes
import os
import struct
from importlib.util import find_spec
from pathlib import Path

#: What MLX calls, for real and complex numbers of both widths. A name that is missing here is looked for in
#: the next library.
_ROUTINES = tuple(f"cblas_{kind}{routine}" for kind in "sdcz" for routine in ("gemm", "gemv"))
_PREFIX = "scipy_"

# Of the ELF format, for 64 bits and little endian.
_HEADER, _PROGRAM_HEADER, _ENTRY, _SYMBOL = "<16sHHIQQQIHHHHHH", "<IIQQQQQQ", "<qQ", "<IBBHQQ"
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_READ_WRITE = 6
_END, _HASH, _STRINGS, _SYMBOLS, _STRINGS_SIZE, _SYMBOL_SIZE, _SONAME = 0, 4, 5, 6, 10, 11, 14
_GLOBAL_FUNCTION = 0x12
_ABSOLUTE = 0xFFF1
#: The largest page of any Linux that MLX has a wheel for.
_PAGE = 0x10000


def scipy_openblas() -> Path | None:
    """SciPy's OpenBLAS, if its wheel is installed; SciPy itself is not imported.

    Not the one whose integers have 64 bits, as NumPy's wheel has: MLX hands over 32.
    """
    spec = find_spec("scipy")
    if spec is None or spec.origin is None:
        return None
    libraries = sorted((Path(spec.origin).parents[1] / "scipy.libs").glob("libscipy_openblas*.so*"))
    return next((path for path in libraries if "openblas64" not in path.name), None)


def load_scipy_openblas(path: Path) -> None:
    """Load the library, and make its routines known to all libraries that are loaded from now on.

    Raises:
        OSError: it cannot be loaded, or has other names than expected.
    """
    library = ctypes.CDLL(str(path))
    addresses = {
        name: address for name in _ROUTINES if (address := _address(library, _PREFIX + name)) is not None
    }
    if "cblas_sgemm" not in addresses:
        raise OSError(f"{path} has no {_PREFIX}cblas_sgemm")
    with path.open("rb") as file:
        header = file.read(64)
    descriptor = os.memfd_create("gnus-blas")
    try:
        os.write(descriptor, name_table(addresses, header))
        ctypes.CDLL(f"/proc/self/fd/{descriptor}", mode=ctypes.RTLD_GLOBAL)
    finally:
        os.close(descriptor)


def _address(library: ctypes.CDLL, name: str) -> int | None:
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except AttributeError:
        return None


def name_table(addresses: dict[str, int], like: bytes) -> bytes:
    """A shared object that gives each name its address in this process.

    Args:
        like: the first 64 bytes of a library of this machine, which say what machine that is.
    """
    if like[:6] != b"\x7fELF\x02\x01":
        raise OSError("the library is not one of 64 bits, little endian")
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in ("libgnus-blas.so", *addresses))
    at = {name: strings.index(b"\0" + name.encode() + b"\0") + 1 for name in ("libgnus-blas.so", *addresses)}
    symbols = struct.pack(_SYMBOL, 0, 0, 0, 0, 0, 0) + b"".join(
        struct.pack(_SYMBOL, at[name], _GLOBAL_FUNCTION, 0, _ABSOLUTE, address, 0)
        for name, address in addresses.items()
    )
    # A hash table with a single bucket: a chain of all symbols, which needs no hash to be computed.
    count = len(addresses) + 1
    chain = [*range(2, count), 0]
    hashes = struct.pack(f"<{4 + len(chain)}I", 1, count, 1, 0, *chain)

    entries = 7
    dynamic_at = 64 + 3 * struct.calcsize(_PROGRAM_HEADER)
    symbols_at = dynamic_at + entries * struct.calcsize(_ENTRY)
    hashes_at = symbols_at + len(symbols)
    strings_at = hashes_at + len(hashes)
    size = strings_at + len(strings)
    dynamic = b"".join(
        struct.pack(_ENTRY, tag, value)
        for tag, value in (
            (_HASH, hashes_at),
            (_SYMBOLS, symbols_at),
            (_STRINGS, strings_at),
            (_STRINGS_SIZE, len(strings)),
            (_SYMBOL_SIZE, struct.calcsize(_SYMBOL)),
            (_SONAME, at["libgnus-blas.so"]),
            (_END, 0),
        )
    )
    identity, _, machine, version, *_rest = struct.unpack(_HEADER, like)
    flags = _rest[3]
    header = struct.pack(_HEADER, identity, 3, machine, version, 0, 64, 0, flags, 64, 56, 3, 64, 0, 0)
    programs = b"".join(
        struct.pack(_PROGRAM_HEADER, kind, _READ_WRITE, start, start, start, length, length, alignment)
        for kind, start, length, alignment in (
            (_LOAD, 0, size, _PAGE),
            (_DYNAMIC, dynamic_at, len(dynamic), 8),
            (_STACK, 0, 0, 16),
        )
    )
    return header + programs + dynamic + symbols + hashes + strings
