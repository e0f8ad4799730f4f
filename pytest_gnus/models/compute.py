"""How a model is run, whatever model it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ComputeOptions:
    """What a run asks of every model; None leaves it to the device.

    `dtype` is float32, bfloat16, float16, or "stored" for the weights as they are. `batch_tokens` is the
    number of tokens of one forward pass, padding included.
    """

    dtype: str | None = None
    batch_tokens: int | None = None


DEFAULT_OPTIONS = ComputeOptions()
