"""From a `ModelSpec` to a model in memory, by its provider."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pytest_gnus.errors import ModelError, did_you_mean, listed
from pytest_gnus.models.compute import DEFAULT_OPTIONS, ComputeOptions
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.models.spec import ModelSpec

#: `demo:` names of the embedded specialist and the variant each stands for.
_EMBEDDED = {
    "patents": "quantized",
    "patents-reference": "reference",
    "patents-baseline": "baseline",
}
_SENTINELS = ("random", "constant")


def load(spec: ModelSpec, options: ComputeOptions = DEFAULT_OPTIONS) -> LoadedModel:
    """Load a model.

    Raises:
        ModelError: saying which model and why.
    """
    started = time.perf_counter()
    model = _PROVIDERS[spec.provider](spec, options)
    return replace(model, load_seconds=time.perf_counter() - started)


def local_directory(spec: ModelSpec) -> Path | None:
    """Where the weights of a spec lie on this machine; None for those of the hub, and for what has none."""
    if spec.provider == "demo" and spec.name in _EMBEDDED:
        from pytest_gnus.demo import model_directory

        return model_directory(_EMBEDDED[spec.name])
    return spec.directory


def _load_mlx(spec: ModelSpec, options: ComputeOptions) -> LoadedModel:
    from pytest_gnus.models import loading

    return loading.load(spec, options)


def _load_demo(spec: ModelSpec, options: ComputeOptions) -> LoadedModel:
    if spec.name in _SENTINELS:
        from pytest_gnus.models.demo_models import SENTINELS

        return LoadedModel(
            spec=spec, lm=SENTINELS[spec.name](), version=f"demo:{spec.name}", identity=f"demo:{spec.name}"
        )
    if spec.name not in _EMBEDDED:
        known = [*_EMBEDDED, *_SENTINELS]
        hint = did_you_mean(spec.name, known)
        raise ModelError(
            f"there is no demo:{spec.name}; there are {listed(known)}. {hint}".rstrip(". ") + "."
        )
    from pytest_gnus.demo import model_directory
    from pytest_gnus.models import loading

    model = loading.load_directory(spec, model_directory(_EMBEDDED[spec.name]), options)
    return replace(model, version="embedded demonstration", demonstration=True)


_PROVIDERS: dict[str, Callable[[ModelSpec, ComputeOptions], LoadedModel]] = {
    "mlx": _load_mlx,
    "demo": _load_demo,
}
