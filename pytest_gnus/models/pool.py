"""One model in memory at a time, each loaded once."""

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
    """Hands out models; frees the one it holds before it loads another.

    A model that could not be loaded is not tried again: its error is raised each time it is asked for.
    `loads` lists what was loaded, in order. With a `share` of the device, other processes are waited for.
    """

    def __init__(
        self,
        load: Callable[[ModelSpec], LoadedModel] = registry.load,
        share: DeviceShare | None = None,
    ) -> None:
        self._load = load
        self._share = share
        self._held: LoadedModel | None = None
        self._failures: dict[ModelSpec, str] = {}
        self.loads: list[ModelSpec] = []

    def get(self, spec: ModelSpec) -> LoadedModel:
        """The model of a spec, in memory.

        Raises:
            GnusError: it cannot be loaded.
        """
        if self._held is not None and self._held.spec == spec:
            return self._held
        if spec in self._failures:
            raise ModelError(self._failures[spec])
        self.release()
        try:
            self._held = self._loaded(spec)
        except GnusError as error:
            self._failures[spec] = str(error)
            raise
        self.loads.append(spec)
        return self._held

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
        """Free the model in memory, if any."""
        if self._held is None:
            return
        self._held.lm.release()
        self._held = None
        gc.collect()
        if "mlx.core" in sys.modules:
            sys.modules["mlx.core"].clear_cache()
        if self._share is not None:
            self._share.give_back()
