"""A model in two parts: its trunk, and the output layer that need not run at every position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import mlx.nn as nn

_TRUNK_NAMES = ("model", "backbone", "transformer", "gpt_neox")


class _InterruptedAtHead(BaseException):
    """Carries the trunk's hidden states out of a model's `__call__` before its output layer runs."""

    def __init__(self, hidden: mx.array) -> None:
        super().__init__()
        self.hidden = hidden


class TwoParts:
    """Runs a model's trunk and its output layer apart, each as the model itself calls it.

    The trunk's `__call__` is replaced for the time being: by one that stops the model once the hidden states
    are there, or by one that hands given hidden states to what comes after. So whatever an architecture does
    before or after its trunk (other arguments, tied weights, soft caps, scales) is done as it does it.
    """

    def __init__(self, model: nn.Module, trunk: nn.Module) -> None:
        self._model = model
        self._trunk = trunk

    def hidden(self, inputs: mx.array, **keywords: Any) -> mx.array:
        """inputs (batch, tokens) -> hidden states (batch, tokens, width)."""
        trunk_class = type(self._trunk)

        def interrupt(trunk: nn.Module, *arguments: Any, **keywords: Any) -> mx.array:
            raise _InterruptedAtHead(trunk_class.__call__(trunk, *arguments, **keywords))

        with self._called(interrupt):
            try:
                self._model(inputs, **keywords)
            except _InterruptedAtHead as interruption:
                return interruption.hidden
        raise TypeError(f"{type(self._model).__name__} does not call its {trunk_class.__name__}")

    def logits(self, hidden: mx.array) -> mx.array:
        """hidden (positions, width) -> logits (positions, vocabulary)."""

        def hand_back(_trunk: nn.Module, *_arguments: Any, **_keywords: Any) -> mx.array:
            return hidden[None]

        with self._called(hand_back):
            logits: mx.array = self._model(mx.zeros((1, hidden.shape[0]), dtype=mx.int32))
        return logits[0]

    @contextmanager
    def _called(self, instead: Callable[..., mx.array]) -> Iterator[None]:
        original = type(self._trunk)
        self._trunk.__class__ = type(original.__name__, (original,), {"__call__": instead})
        try:
            yield
        finally:
            self._trunk.__class__ = original


def separate(model: nn.Module, vocabulary_size: int) -> TwoParts | None:
    """A model in two parts, if running them apart gives the same logits."""
    count = min(5, vocabulary_size)
    probe = mx.array([[(7 * i + 1) % vocabulary_size for i in range(count)]])
    whole = model(probe)
    for trunk in _candidates(model):
        parts = TwoParts(model, trunk)
        with _declined():
            hidden = parts.hidden(probe)
            if not isinstance(hidden, mx.array) or hidden.ndim != 3 or hidden.shape[:2] != (1, count):
                continue
            apart = parts.logits(hidden[0, 1:])
            if apart.shape == whole[0, 1:].shape and _equal(apart, whole[0, 1:]):
                return parts
    return None


def _equal(one: mx.array, other: mx.array) -> bool:
    tolerance = 1e-4 if one.dtype == mx.float32 else 2e-2
    return bool(mx.allclose(one.astype(mx.float32), other.astype(mx.float32), tolerance, tolerance).item())


@contextmanager
def _declined() -> Iterator[None]:
    """An architecture that cannot be run in two parts says so with one of these."""
    try:
        yield
    except (TypeError, ValueError, AttributeError, IndexError, KeyError):
        return


def _candidates(model: nn.Module) -> Iterator[nn.Module]:
    for owner in (model, getattr(model, "language_model", None)):
        for name in _TRUNK_NAMES:
            trunk = getattr(owner, name, None) if owner is not None else None
            if isinstance(trunk, nn.Module):
                yield trunk
