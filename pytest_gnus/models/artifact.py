"""Finds the weights of an SGFP4 artifact and of its reference, and measures the one against the other."""

from __future__ import annotations

from pathlib import Path

from pytest_gnus.errors import ModelError
from pytest_gnus.gates.artifact import ArtifactNumbers
from pytest_gnus.models import sgfp4_package
from pytest_gnus.models.registry import local_directory
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.plan import ArtifactItem


def inspect(item: ArtifactItem) -> ArtifactNumbers | None:
    """What an artifact's containers are worth; None where the weights turn out not to be in SGFP4.

    Raises:
        GnusError: see `sgfp4_package.measure`; or the weights are nowhere to be had.
    """
    directory = _directory(item.model)
    if not sgfp4_package.is_package(directory):
        return None
    if item.reference is None:
        return sgfp4_package.measure(directory, None, "the niche names no reference weights")
    try:
        reference = _directory(item.reference)
    except ModelError as error:
        return sgfp4_package.measure(directory, None, f"no reference weights: {error}")
    return sgfp4_package.measure(directory, reference)


def _directory(spec: ModelSpec) -> Path:
    directory = local_directory(spec)
    if directory is None and spec.provider == "mlx":
        from pytest_gnus.models.loading import from_hub

        return from_hub(spec.name)
    if directory is None:
        raise ModelError(f"{spec} has no weights on this machine")
    return directory
