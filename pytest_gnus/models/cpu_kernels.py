"""Attention and SiLU for MLX on a Linux CPU, with NumPy's vectorized `exp`.

MLX's CPU kernels take one number at a time, some 25 ns for each `exp`; with a fast BLAS that is where much of
a forward pass goes. Inside `numpy_kernels` the same functions are computed by NumPy, in float32, on the same
memory and on all cores. Everything else stays MLX's. Not for Metal or CUDA.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models import activations
from threadpoolctl import ThreadpoolController

from pytest_gnus.models.cpu import compute_threads, loaded_blas

#: Queries of one task: their scores against a thousand keys stay in a core's cache.
_QUERIES = 128
#: Scores of one task where queries are few.
_SCORES = 256 * 1024

#: Finite, as in MLX: a row of padding that sees nothing must not become NaN, and spoil what sees it.
_HIDDEN = np.finfo(np.float32).min

_mlx_attention = mx.fast.scaled_dot_product_attention


@contextmanager
def numpy_kernels(model: nn.Module) -> Iterator[None]:
    """Compute attention and SwiGLU by NumPy in all forward passes of `model` inside this context."""
    with ExitStack() as stack:
        # NumPy's BLAS must wake no threads of its own beside those of MLX's: the tasks are the threads.
        stack.enter_context(_blas_of_numpy().limit(limits=1))
        pool = stack.enter_context(ThreadPoolExecutor(compute_threads()))
        stack.enter_context(
            patch.object(mx.fast, "scaled_dot_product_attention", partial(attention, pool=pool))
        )
        for module in {type(part).__module__ for part in model.modules()}:
            if getattr(sys.modules[module], "swiglu", None) is activations.swiglu:
                stack.enter_context(patch.object(sys.modules[module], "swiglu", partial(swiglu, pool=pool)))
        yield


def _blas_of_numpy() -> ThreadpoolController:
    """Every OpenBLAS in this process but the one that computes MLX's matrix products."""
    controller = ThreadpoolController().select(internal_api="openblas")
    of_mlx = loaded_blas()
    if of_mlx is None or of_mlx.path is None:
        return controller
    ours = Path(of_mlx.path).resolve()
    others = [path for one in controller.info() if Path(path := one["filepath"]).resolve() != ours]
    return controller.select(filepath=others)


def swiglu(gate: mx.array, x: mx.array, *, pool: ThreadPoolExecutor) -> mx.array:
    """silu(gate) * x, elementwise."""
    if gate.dtype != mx.float32 or x.dtype != mx.float32 or gate.shape != x.shape:
        return cast("mx.array", activations.swiglu(gate, x))
    mx.eval(gate, x)
    gates, factors = (np.array(part, copy=False).reshape(-1, part.shape[-1]) for part in (gate, x))
    result = np.empty_like(gates)
    rows = max(1, _SCORES // gates.shape[1])
    blocks = [slice(first, first + rows) for first in range(0, len(gates), rows)]
    list(pool.map(lambda block: _swiglu(gates[block], factors[block], result[block]), blocks))
    return mx.array(result.reshape(gate.shape))


def _swiglu(gate: np.ndarray, x: np.ndarray, result: np.ndarray) -> None:
    np.negative(gate, out=result)
    with np.errstate(over="ignore"):  # exp of much is inf, and one over that the 0 that is meant
        np.exp(result, out=result)
    result += 1.0
    np.divide(gate, result, out=result)
    result *= x


def attention(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    *,
    scale: float,
    mask: Any = None,
    pool: ThreadPoolExecutor,
    **keywords: Any,
) -> mx.array:
    """`mx.fast.scaled_dot_product_attention`: q (B, heads, N, D), k and v (B, key heads, K, D)."""
    plain = all(value is None for value in keywords.values())
    readable = not isinstance(mask, mx.array) or mask.dtype in (mx.bool_, mx.float32)
    if not plain or not readable or any(part.dtype != mx.float32 for part in (q, k, v)):
        return _mlx_attention(q, k, v, scale=scale, mask=mask, **keywords)
    mx.eval(q, k, v, *([mask] if isinstance(mask, mx.array) else []))
    queries, keys, values = (np.array(part, copy=False) for part in (q, k, v))
    seen = np.array(mask, copy=False) if isinstance(mask, mx.array) else mask
    work = _Attention.of(queries, keys, values, scale, seen)
    list(pool.map(work.run, work.tasks()))
    return mx.array(work.result.reshape(*q.shape[:3], v.shape[3]))


@dataclass(frozen=True)
class _Attention:
    """One attention, in tasks of some rows, some key heads and some queries each.

    q (B, key heads, group, N, D), k and v (B, key heads, K, D), result as q; mask None, "causal", or an
    array over (B, key heads, group, N, K), True where a boolean one hides.
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    scale: np.float32
    mask: Any
    result: np.ndarray

    @classmethod
    def of(cls, q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, mask: Any) -> _Attention:
        batch, heads, count, width = q.shape
        groups = (batch, k.shape[1], heads // k.shape[1], count)
        if isinstance(mask, np.ndarray):
            # Turned round once, and not by each task: what is True is hidden from here on.
            mask = _grouped(~mask if mask.dtype == np.bool_ else mask, groups, k.shape[2])
        result = np.empty((*groups, v.shape[3]), dtype=np.float32)
        return cls(q.reshape(*groups, width), k, v, np.float32(scale), mask, result)

    def tasks(self) -> list[tuple[slice, slice, slice]]:
        batch, key_heads, group, count, _ = self.q.shape
        queries = min(count, _QUERIES)
        each = group * queries * self.k.shape[2]
        heads = max(1, min(key_heads, _SCORES // each))
        rows = max(1, _SCORES // (each * heads)) if heads == key_heads else 1
        return [
            (slice(row, row + rows), slice(head, head + heads), slice(query, min(count, query + queries)))
            for row in range(0, batch, rows)
            for head in range(0, key_heads, heads)
            for query in range(0, count, queries)
        ]

    def run(self, task: tuple[slice, slice, slice]) -> None:
        rows, heads, queries = task
        chosen = (rows, heads, slice(None), queries)
        q = self.q[chosen] * self.scale
        batch, key_heads, group, count, width = q.shape
        total = self.k.shape[2]
        causal = isinstance(self.mask, str)
        # Causal: nobody here sees what comes behind the last of these queries.
        visible = total - self.q.shape[3] + queries.stop if causal else total
        keys = self.k[rows, heads, :visible].swapaxes(-1, -2)
        scores = (q.reshape(batch, key_heads, group * count, width) @ keys).reshape(
            batch, key_heads, group, count, visible
        )
        if causal:
            _hide_future(scores)
        elif self.mask is not None:
            _apply_mask(scores, self.mask[chosen])
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        weights = scores.sum(axis=-1, keepdims=True)
        attended = scores.reshape(batch, key_heads, group * count, visible) @ self.v[rows, heads, :visible]
        np.divide(attended.reshape(*scores.shape[:-1], -1), weights, out=self.result[chosen])


def _grouped(mask: np.ndarray, groups: tuple[int, int, int, int], total: int) -> np.ndarray:
    """A mask over (B, heads, N, K), or what broadcasts to that, by key head and group; a view."""
    _, key_heads, group, _ = groups
    mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    own_heads = mask.shape[1] > 1
    mask = mask.reshape(mask.shape[0], *((key_heads, group) if own_heads else (1, 1)), *mask.shape[2:])
    return np.broadcast_to(mask, (*groups, total))


def _hide_future(scores: np.ndarray) -> None:
    """scores (..., n, visible): the last of n queries sees all, each before it one key less."""
    count, visible = scores.shape[-2:]
    recent = scores[..., visible - count :]
    recent[..., np.triu(np.ones((count, count), dtype=bool), 1)] = _HIDDEN


def _apply_mask(scores: np.ndarray, mask: np.ndarray) -> None:
    """`mask` is added, or, where it is of booleans, says what is hidden."""
    if mask.dtype == np.bool_:
        np.copyto(scores, _HIDDEN, where=mask)
    else:
        scores += mask
