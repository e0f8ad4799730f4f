"""Log-likelihoods of token sequences under an MLX model.

The seam between lm-eval's requests and MLX: `score` gets token ids and gives sums of log-probabilities. How
the forward passes are batched and shared is this module's own business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
import numpy as np

#: Tokens of one forward pass, padding included.
DEFAULT_BATCH_TOKENS = 8192
#: Numbers of one block of logits (positions x vocabulary): 64 Mi of float32 are 256 MiB.
_LOGITS_BLOCK = 64 * 1024 * 1024

_TRUNK_NAMES = ("model", "backbone", "transformer", "gpt_neox")


@dataclass(frozen=True)
class TokenSequence:
    """Token ids, of which the last `scored` are predicted, each from all that stands before it.

    `tokens` holds at least one token more than `scored`: the first scored token needs something before it.
    """

    tokens: tuple[int, ...]
    scored: int


@dataclass(frozen=True)
class Score:
    """The sum of natural-log probabilities of the scored tokens, and whether each was the most likely."""

    logprob: float
    is_greedy: bool


@dataclass(frozen=True)
class _Row:
    """One row of a forward pass, and the sequences (by index) that are read from it."""

    inputs: tuple[int, ...]
    readers: tuple[int, ...]


def _rows(sequences: Sequence[TokenSequence]) -> list[_Row]:
    """The inputs that must be run: one that begins another is read from that other's row.

    So the choices of a question that are one token each cost a single row.
    """
    rows: list[_Row] = []
    order = sorted(range(len(sequences)), key=lambda index: sequences[index].tokens[:-1], reverse=True)
    for index in order:
        inputs = sequences[index].tokens[:-1]
        # In descending order, an input stands right behind those that it begins.
        if rows and rows[-1].inputs[: len(inputs)] == inputs:
            rows[-1] = _Row(rows[-1].inputs, (*rows[-1].readers, index))
        else:
            rows.append(_Row(inputs, (index,)))
    return rows


class ScoringEngine:
    """Scores sequences with one model.

    The output layer runs only at the positions that predict a scored token, where the architecture allows it.
    That is found out once, by comparing both ways on a short input.
    """

    def __init__(self, model: nn.Module, vocabulary_size: int, batch_tokens: int = DEFAULT_BATCH_TOKENS):
        self._model = model
        self._batch_tokens = batch_tokens
        self._parts = _separable(model, vocabulary_size)
        self._head_positions = max(1, _LOGITS_BLOCK // vocabulary_size)

    def score(
        self, sequences: Sequence[TokenSequence], advance: Callable[[int], None] = lambda _: None
    ) -> list[Score]:
        """One `Score` per sequence, in the given order; `advance` hears how many are done."""
        scores: dict[int, Score] = {}
        for batch in self._batches(_rows(sequences)):
            readers = [index for row in batch for index in row.readers]
            scores.update(zip(readers, self._score_batch(batch, sequences), strict=True))
            advance(len(readers))
        return [scores[index] for index in range(len(sequences))]

    def _batches(self, rows: Sequence[_Row]) -> Iterator[list[_Row]]:
        """Rows of similar length, the longest first, so that memory peaks at the start."""
        batch: list[_Row] = []
        for row in sorted(rows, key=lambda row: -len(row.inputs)):
            width = len(batch[0].inputs) if batch else 0
            if batch and width * (len(batch) + 1) > self._batch_tokens:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    def _score_batch(self, batch: Sequence[_Row], sequences: Sequence[TokenSequence]) -> list[Score]:
        """Padding stands on the right: a causal model never sees it from the positions that count."""
        width = max(len(row.inputs) for row in batch)
        inputs = mx.array([[*row.inputs, *[0] * (width - len(row.inputs))] for row in batch])
        rows, columns, targets = [], [], []
        readers = [(place, sequences[index]) for place, row in enumerate(batch) for index in row.readers]
        for place, sequence in readers:
            length = len(sequence.tokens)
            for position in range(length - sequence.scored, length):
                # The distribution over the token at `position` stands at the position before it.
                rows.append(place)
                columns.append(position - 1)
                targets.append(sequence.tokens[position])
        logprobs, greedy = self._at_positions(inputs, rows, columns, targets)
        mx.clear_cache()
        return _summed([sequence for _, sequence in readers], logprobs, greedy)

    def _at_positions(
        self, inputs: mx.array, rows: list[int], columns: list[int], targets: list[int]
    ) -> tuple[list[float], list[bool]]:
        """Log-probability of each target at its (row, column), and whether it is the most likely token."""
        if self._parts is None:
            values = self._model(inputs)[mx.array(rows), mx.array(columns)]
            return _gathered(values, mx.array(targets))
        hidden = self._parts.hidden(inputs)[mx.array(rows), mx.array(columns)]
        mx.eval(hidden)
        logprobs: list[float] = []
        greedy: list[bool] = []
        for start in range(0, len(rows), self._head_positions):
            stop = start + self._head_positions
            values = self._parts.logits(hidden[start:stop])
            block_logprobs, block_greedy = _gathered(values, mx.array(targets[start:stop]))
            logprobs += block_logprobs
            greedy += block_greedy
        return logprobs, greedy


def _gathered(logits: mx.array, targets: mx.array) -> tuple[list[float], list[bool]]:
    """logits (positions, vocabulary), targets (positions,) -> log-probabilities and greedy flags."""
    logits = logits.astype(mx.float32)
    greedy = mx.argmax(logits, axis=-1) == targets
    chosen = mx.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]
    if mx.default_device() == mx.Device(mx.cpu):
        logprobs = (np.array(chosen, dtype=np.float64) - _log_sum_exp(np.array(logits, copy=False))).tolist()
    else:
        logprobs = (chosen - mx.logsumexp(logits, axis=-1)).tolist()
    return cast("list[float]", logprobs), cast("list[bool]", greedy.tolist())


def _log_sum_exp(logits: np.ndarray) -> np.ndarray:
    """(positions, vocabulary) float32 -> (positions,) float64.

    MLX's CPU kernel adds up in float32, one after the other: over a vocabulary of 50,000 that costs 2e-4 per
    token. Its `exp` is five times slower than NumPy's besides.
    """
    highest = logits.max(axis=-1, keepdims=True)
    total = np.exp(logits - highest).sum(axis=-1, dtype=np.float64)
    return np.asarray(np.log(total) + highest[:, 0].astype(np.float64))


def _summed(batch: Sequence[TokenSequence], logprobs: list[float], greedy: list[bool]) -> list[Score]:
    scores = []
    start = 0
    for sequence in batch:
        stop = start + sequence.scored
        scores.append(Score(sum(logprobs[start:stop]), all(greedy[start:stop])))
        start = stop
    return scores


class _InterruptedAtHead(BaseException):
    """Carries the trunk's hidden states out of a model's `__call__` before its output layer runs."""

    def __init__(self, hidden: mx.array) -> None:
        super().__init__()
        self.hidden = hidden


class _TwoParts:
    """Runs a model's trunk and its output layer apart, each as the model itself calls it.

    The trunk's `__call__` is replaced for the time being: by one that stops the model once the hidden states
    are there, or by one that hands given hidden states to what comes after. So whatever an architecture does
    before or after its trunk (other arguments, tied weights, soft caps, scales) is done as it does it.
    """

    def __init__(self, model: nn.Module, trunk: nn.Module) -> None:
        self._model = model
        self._trunk = trunk

    def hidden(self, inputs: mx.array) -> mx.array:
        """inputs (batch, tokens) -> hidden states (batch, tokens, width)."""
        trunk_class = type(self._trunk)

        def interrupt(trunk: nn.Module, *arguments: Any, **keywords: Any) -> mx.array:
            raise _InterruptedAtHead(trunk_class.__call__(trunk, *arguments, **keywords))

        with self._called(interrupt):
            try:
                self._model(inputs)
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


def _separable(model: nn.Module, vocabulary_size: int) -> _TwoParts | None:
    """A model in two parts, if running them apart gives the same logits."""
    count = min(5, vocabulary_size)
    probe = mx.array([[(7 * i + 1) % vocabulary_size for i in range(count)]])
    whole = model(probe)
    for trunk in _candidates(model):
        parts = _TwoParts(model, trunk)
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
