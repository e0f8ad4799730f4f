"""What a model remembers of the paths of a prefix tree, so that each node is computed once.

A `Paths` holds the state behind a set of paths, one row each. `open` hands the model a cache for a batch of
nodes that go on from some of those paths; `close` keeps what is needed to go on from the nodes themselves.
Nothing is ever cut off again: a path only grows, which is exact for every kind of cache.

Three kinds of layer state:

* full attention (`KVCache`): keys and values of a node are stored once, however many paths share it, and put
  together for one layer at a time;
* whatever mlx-lm can merge (sliding windows, recurrent states, lists of these): its own batch caches;
* all else: a copy of the parent's cache, one row at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models.cache import KVCache, create_attention_mask, make_prompt_cache


class LayerState(Protocol):
    """One layer's state behind a set of paths."""

    def open(self, rows: Sequence[int], lengths: Sequence[int]) -> Any:
        """A cache for a pass in which row i goes on from path `rows[i]` with `lengths[i]` tokens.

        Shorter rows are padded on the right.
        """

    def close(self, cache: Any, keep: Sequence[int], lengths: Sequence[int]) -> LayerState:
        """The state behind rows `keep` of a finished pass."""


@dataclass(frozen=True)
class Paths:
    """The state of all layers behind `count` paths."""

    layers: tuple[LayerState, ...]
    count: int

    @property
    def rows_alone(self) -> bool:
        """Whether only one row may be run at a time."""
        return any(isinstance(layer, CopiedState) for layer in self.layers)

    @property
    def copies_paths(self) -> bool:
        """Whether a pass needs memory for the whole path of each of its rows, in all layers at once."""
        return not all(isinstance(layer, AttentionState) for layer in self.layers)

    def open(self, rows: Sequence[int], lengths: Sequence[int]) -> list[Any]:
        return [layer.open(rows, lengths) for layer in self.layers]

    def close(self, caches: Sequence[Any], keep: Sequence[int], lengths: Sequence[int]) -> Paths:
        closed = [layer.close(cache, keep, lengths) for layer, cache in zip(self.layers, caches, strict=True)]
        return Paths(tuple(closed), len(keep))


def empty_paths(model: nn.Module, *, copied: bool = False) -> Paths:
    """The one path that every other begins with; `copied` for one row at a time, whatever the caches are."""
    return Paths(tuple(_empty_state(cache, copied) for cache in make_prompt_cache(model)), 1)


def _empty_state(cache: Any, copied: bool) -> LayerState:
    if copied or not hasattr(cache, "merge"):
        return CopiedState((cache,))
    if type(cache) is KVCache:
        return AttentionState((), ())
    return MergedState((cache,))


@dataclass(frozen=True)
class Stretch:
    """Keys and values of nodes, (nodes, heads, tokens, width) each; node i has `lengths[i]` real tokens."""

    keys: mx.array
    values: mx.array
    lengths: np.ndarray


@dataclass(frozen=True)
class AttentionState:
    """Full attention: the stretches of a path in order, and for each path its node in each of them."""

    stretches: tuple[Stretch, ...]
    nodes: tuple[np.ndarray, ...]

    def open(self, rows: Sequence[int], lengths: Sequence[int]) -> PathKVCache:
        chosen = [nodes[list(rows)] for nodes in self.nodes]
        return PathKVCache(self.stretches, chosen)

    def close(self, cache: PathKVCache, keep: Sequence[int], lengths: Sequence[int]) -> AttentionState:
        rows = mx.array(list(keep))
        longest = max(lengths[row] for row in keep)
        keys, values = cache.own
        stretch = Stretch(
            keys[rows, :, :longest], values[rows, :, :longest], np.array([lengths[row] for row in keep])
        )
        mx.eval(stretch.keys, stretch.values)
        nodes = tuple(of_stretch[list(keep)] for of_stretch in cache.nodes)
        return AttentionState((*self.stretches, stretch), (*nodes, np.arange(len(keep))))


class PathKVCache(KVCache):  # type: ignore[misc]
    """The cache of one layer for one pass: keys and values of the paths, put together when they are used.

    `offset` is a number where all paths are equally long, else one per row.
    """

    def __init__(self, stretches: Sequence[Stretch], nodes: Sequence[np.ndarray]) -> None:
        super().__init__()
        self._stretches = stretches
        self.nodes = nodes
        self._own: tuple[mx.array, mx.array] | None = None
        self._lengths = [stretch.lengths[chosen] for stretch, chosen in zip(stretches, nodes, strict=True)]
        total = np.sum(self._lengths, axis=0) if self._lengths else np.zeros(1, dtype=int)
        self.offset = int(total[0]) if (total == total[0]).all() else mx.array(total.astype(np.int32))

    @property
    def own(self) -> tuple[mx.array, mx.array]:
        """Keys and values of this pass alone."""
        if self._own is None:
            raise ValueError("the layer has not been run")
        return self._own

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        if self._own is not None:
            keys = mx.concatenate([self._own[0], keys], axis=2)
            values = mx.concatenate([self._own[1], values], axis=2)
        added = keys.shape[2] - (self._own[0].shape[2] if self._own is not None else 0)
        self._own = (keys, values)
        self.offset = self.offset + added
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        keys, values = self.own
        batch = keys.shape[0]
        parts = [
            (_rows(stretch.keys, nodes, batch, width), _rows(stretch.values, nodes, batch, width))
            for stretch, nodes, width in zip(self._stretches, self.nodes, self._widths, strict=True)
        ]
        if not parts:
            return keys, values
        return (
            mx.concatenate([*(part[0] for part in parts), keys], axis=2),
            mx.concatenate([*(part[1] for part in parts), values], axis=2),
        )

    def make_mask(  # the names are mlx-lm's
        self,
        N: int,  # noqa: N803
        return_array: bool = False,
        window_size: int | None = None,
    ) -> Any:
        """mlx-lm's mask where no path is padded, else who may see whom: (rows, 1, N, all tokens)."""
        if isinstance(self.offset, int):
            padded = any((of_stretch != of_stretch[0]).any() for of_stretch in self._lengths)
            if not padded:
                return create_attention_mask(N, self.offset, return_array, window_size)
        return mx.array(self._who_sees_whom(N, window_size))

    @property
    def _widths(self) -> list[int]:
        """The tokens taken of each stretch: the longest that a row of this pass has."""
        return [int(of_stretch.max()) for of_stretch in self._lengths]

    def _who_sees_whom(self, count: int, window_size: int | None) -> np.ndarray:
        rows = len(self._lengths[0])
        positions, present = [], []
        start = np.zeros(rows, dtype=int)
        for lengths, width in zip(self._lengths, self._widths, strict=True):
            places = np.arange(width)
            positions.append(start[:, None] + places)
            present.append(places < lengths[:, None])
            start = start + lengths
        positions.append(start[:, None] + np.arange(count))
        present.append(np.ones((rows, count), dtype=bool))
        keys = np.concatenate(positions, axis=1)[:, None, :]
        queries = positions[-1][:, :, None]
        seen = np.concatenate(present, axis=1)[:, None, :] & (keys <= queries)
        if window_size is not None:
            seen &= queries < keys + window_size
        return np.asarray(seen[:, None])


def _rows(values: mx.array, nodes: np.ndarray, batch: int, width: int) -> mx.array:
    """The rows of `values` that belong to the rows of a pass, without a copy where they are all the same."""
    if (nodes == nodes[0]).all():
        one = values[int(nodes[0]), :, :width][None]
        return mx.broadcast_to(one, (batch, *one.shape[1:]))
    return values[mx.array(nodes), :, :width]


@dataclass(frozen=True)
class MergedState:
    """Caches of one row each, merged for a pass by mlx-lm's own batch caches."""

    caches: tuple[Any, ...]

    def open(self, rows: Sequence[int], lengths: Sequence[int]) -> Any:
        first = self.caches[0]
        cache = first.merge([self.caches[row] for row in rows])
        longest = max(lengths)
        if min(lengths) < longest:
            cache.prepare(lengths=list(lengths), right_padding=[longest - length for length in lengths])
        return cache

    def close(self, cache: Any, keep: Sequence[int], lengths: Sequence[int]) -> MergedState:
        if min(lengths) < max(lengths):
            cache.finalize()
        extracted = [cache.extract(row) for row in keep]
        mx.eval([one.state for one in extracted])
        return MergedState(tuple(extracted))


@dataclass(frozen=True)
class CopiedState:
    """Caches of one row each, of a kind that nobody but the model knows: copied, and run one at a time."""

    caches: tuple[Any, ...]

    def open(self, rows: Sequence[int], lengths: Sequence[int]) -> Any:
        (row,) = rows
        return copy.deepcopy(self.caches[row])

    def close(self, cache: Any, keep: Sequence[int], lengths: Sequence[int]) -> CopiedState:
        mx.eval(cache.state)
        return CopiedState((cache,))


def single_row_caches(model: nn.Module, paths: Paths, row: int) -> list[Any]:
    """mlx-lm's own caches behind one path, for its generator."""
    fresh = make_prompt_cache(model)
    return [_own_cache(layer, cache, row) for layer, cache in zip(paths.layers, fresh, strict=True)]


def _own_cache(layer: LayerState, fresh: Any, row: int) -> Any:
    if isinstance(layer, (MergedState, CopiedState)):
        return copy.deepcopy(layer.caches[row])
    assert isinstance(layer, AttentionState)
    if not layer.stretches:
        return fresh
    pieces = [
        (stretch.keys[node : node + 1, :, :length], stretch.values[node : node + 1, :, :length])
        for stretch, node, length in (
            (stretch, int(nodes[row]), int(stretch.lengths[nodes[row]]))
            for stretch, nodes in zip(layer.stretches, layer.nodes, strict=True)
        )
    ]
    fresh.keys = mx.concatenate([keys for keys, _ in pieces], axis=2)
    fresh.values = mx.concatenate([values for _, values in pieces], axis=2)
    fresh.offset = fresh.keys.shape[2]
    return fresh
