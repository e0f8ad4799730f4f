"""Which packages are installed, and in what versions."""

from __future__ import annotations

from functools import cache
from importlib import metadata

PACKAGES = (
    "pytest-gnus",
    "pytest",
    "lm_eval",
    "mlx",
    "mlx-lm",
    "torch",
    "transformers",
    "datasets",
    "numpy",
)


@cache
def package_versions(names: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    """Versions of installed distributions; one that is not installed is left out."""
    versions: dict[str, str] = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
