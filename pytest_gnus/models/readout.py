"""From hidden states to log-probabilities: the output layer at the positions that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from pytest_gnus.models.two_parts import TwoParts

#: Numbers of one block of logits (positions x vocabulary): 16 Mi of float32 are 64 MiB.
_LOGITS_BLOCK = 16 * 1024 * 1024


@dataclass(frozen=True)
class Question:
    """One token at one place of a pass: how likely is `target` after (`row`, `column`)?"""

    row: int
    column: int
    target: int


@dataclass(frozen=True)
class Readout:
    """Runs passes and reads log-probabilities from them; `parts` is None where a model has no two."""

    model: nn.Module
    parts: TwoParts | None
    vocabulary_size: int

    def run(
        self, inputs: mx.array, caches: list[Any] | None, questions: Sequence[Question]
    ) -> tuple[np.ndarray, np.ndarray]:
        """inputs (rows, tokens) -> each target's log-probability, and whether it is the likeliest.

        Without questions the pass still fills the caches, when they are evaluated.
        """
        keywords = {} if caches is None else {"cache": caches}
        places = sorted({(question.row, question.column) for question in questions})
        source = self.model if self.parts is None else self.parts.hidden
        values = source(inputs, **keywords)
        if not places:
            return np.zeros(0), np.zeros(0, dtype=bool)
        chosen = values[mx.array([row for row, _ in places]), mx.array([column for _, column in places])]
        del values
        mx.eval(chosen)
        index = {place: number for number, place in enumerate(places)}
        numbers = np.array([index[question.row, question.column] for question in questions])
        targets = np.array([question.target for question in questions])
        logprobs = np.zeros(len(questions))
        greedy = np.zeros(len(questions), dtype=bool)
        block = max(1, _LOGITS_BLOCK // self.vocabulary_size)
        for start in range(0, len(places), block):
            logits = chosen[start : start + block]
            if self.parts is not None:
                logits = self.parts.logits(logits)
            here = (numbers >= start) & (numbers < start + block)
            logprobs[here], greedy[here] = gathered(logits, numbers[here] - start, targets[here])
        return logprobs, greedy


def gathered(logits: mx.array, rows: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """logits (positions, vocabulary) -> each (row, target)'s log-probability, and whether it is highest."""
    logits = logits.astype(mx.float32)
    if mx.default_device() == mx.Device(mx.cpu):
        values = np.array(logits, copy=False)
        return values[rows, targets] - _log_sum_exp(values)[rows], values.argmax(axis=-1)[rows] == targets
    chosen = logits[mx.array(rows), mx.array(targets)]
    logprobs = chosen - mx.logsumexp(logits, axis=-1)[mx.array(rows)]
    greedy = mx.argmax(logits, axis=-1)[mx.array(rows)] == mx.array(targets)
    mx.eval(logprobs, greedy)
    return np.array(logprobs, dtype=np.float64), np.array(greedy)


def _log_sum_exp(logits: np.ndarray) -> np.ndarray:
    """(positions, vocabulary) float32 -> (positions,) float64.

    MLX's CPU kernel adds up in float32, one after the other: over a vocabulary of 50,000 that costs 2e-4 per
    token. Its `exp` is five times slower than NumPy's besides.
    """
    highest = logits.max(axis=-1, keepdims=True)
    total = np.exp(logits - highest).sum(axis=-1, dtype=np.float64)
    return np.asarray(np.log(total) + highest[:, 0].astype(np.float64))
