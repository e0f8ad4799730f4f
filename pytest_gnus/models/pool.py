"""Models in memory: one at a time, or as many as there is room for."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import replace

from pytest_gnus.errors import GnusError, ModelError
from pytest_gnus.models import registry
from pytest_gnus.models.device import DeviceShare
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.models.spec import ModelSpec


class ModelPool:
    """Hands out models; frees those it holds before it loads another for which there is no room beside them.

    Args:
        load: from a spec to a model in memory.
        fits: whether there is room for a model beside those that are held; by default there never is.
        share: what this process may hold of the device; with one, other processes are waited for.

    A model that could not be loaded is not tried again: its error is raised each time it is asked for.
    `loads` lists what was loaded, in order.
    """

    def __init__(
        self,
        load: Callable[[ModelSpec], LoadedModel] = registry.load,
        fits: Callable[[ModelSpec], bool] = lambda _spec: False,
        share: DeviceShare | None = None,
    ) -> None:
        self._load = load
        self._fits = fits
        self._share = share
        self._held: dict[ModelSpec, LoadedModel] = {}
        self._failures: dict[ModelSpec, str] = {}
        self.loads: list[ModelSpec] = []

    def get(self, spec: ModelSpec) -> LoadedModel:
        """The model of a spec, in memory.

        Raises:
            GnusError: it cannot be loaded.
        """
        if spec in self._held:
            return self._held[spec]
        if spec in self._failures:
            raise ModelError(self._failures[spec])
        while self._held and not self._fits(spec):
            # The newest first: where models come round again, the older ones are wanted sooner.
            self._free(next(reversed(self._held)))
        try:
            self._held[spec] = self._loaded(spec)
        except GnusError as error:
            self._failures[spec] = str(error)
            raise
        self.loads.append(spec)
        return self._held[spec]

    def _loaded(self, spec: ModelSpec) -> LoadedModel:
        if self._share is None:
            return self._load(spec)
        waited = self._share.take(spec)
        try:
            model = self._load(spec)
        except BaseException:
            self._share.give_back()
            raise
        self._share.loaded()
        return replace(model, wait_seconds=waited) if waited else model

    def refuse(self, spec: ModelSpec, reason: str) -> None:
        """Note that a model cannot be had, so that nobody tries again."""
        self._failures[spec] = reason

    def release(self) -> None:
        """Free the models in memory, if any."""
        for spec in list(self._held):
            self._free(spec)

    def _free(self, spec: ModelSpec) -> None:
        self._held.pop(spec).lm.release()
        gc.collect()
        if "mlx.core" in sys.modules:
            sys.modules["mlx.core"].clear_cache()
        if self._share is not None:
            self._share.give_back()
