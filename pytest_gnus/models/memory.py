"""How much is run at once: a budget of tokens, from the device's free memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from pytest_gnus.models.main_memory import free_main_memory

#: On a CPU larger passes gain nothing, and smaller ones are padded less.
_CPU_TOKENS = 1024
_GPU_TOKENS = 16384
_SMALLEST = 64
#: The share of free memory that one pass may take.
_SHARE = 0.2
#: Activations of one token that exist at the same time, in multiples of the model's width.
_ACTIVATION_WIDTHS = 48


@dataclass
class TokenBudget:
    """Tokens of one pass, padding included. Shrinks when memory runs out."""

    tokens: int

    @property
    def attended(self) -> int:
        """Tokens that all rows of a pass may look back on together, in one layer."""
        return 32 * self.tokens

    def shrink(self, failed: int) -> None:
        """A pass of `failed` tokens was too large; that others of its size are too is no news."""
        self.tokens = max(1, min(self.tokens, failed // 2))

    def halve(self) -> None:
        self.tokens = max(1, self.tokens // 2)


def default_batch_tokens(config: dict[str, Any]) -> int:
    """Tokens of one pass for a model with this `config.json` in the memory that is free now."""
    text_config = {**config, **(config.get("text_config") or {})}
    width = int(text_config.get("hidden_size") or text_config.get("n_embd") or 4096)
    on_cpu = mx.default_device() == mx.Device(mx.cpu)
    per_token = _ACTIVATION_WIDTHS * width * 4
    free = free_memory()
    affordable = int(free * _SHARE / per_token) if free is not None else _CPU_TOKENS
    return max(_SMALLEST, min(affordable, _CPU_TOKENS if on_cpu else _GPU_TOKENS))


def free_memory() -> int | None:
    """Bytes that the device can still give, or None where nobody says."""
    if mx.default_device() == mx.Device(mx.cpu):
        return free_main_memory()
    information = mx.device_info()
    total = information.get("max_recommended_working_set_size") or information.get("memory_size")
    return max(0, int(total) - mx.get_active_memory()) if total else None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether MLX (or Python) says that there is no memory left."""
    if isinstance(error, MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(
        sign in text for sign in ("unable to allocate", "out of memory", "insufficient memory", "bad_alloc")
    )
