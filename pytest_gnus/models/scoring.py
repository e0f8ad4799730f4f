"""Log-likelihoods of token sequences under an MLX model.

The seam between lm-eval's requests and MLX: `score` gets token ids and gives sums of log-probabilities. All
sequences of a call form a prefix tree; every node of it is run once, in passes over nodes of similar length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from pytest_gnus.errors import EvaluationError
from pytest_gnus.models.batches import partition
from pytest_gnus.models.memory import TokenBudget, is_out_of_memory
from pytest_gnus.models.path_cache import Paths, empty_paths
from pytest_gnus.models.prefix_tree import Node, TokenSequence, cut, prefix_tree, whole_inputs
from pytest_gnus.models.readout import Question, Readout
from pytest_gnus.models.two_parts import separate

#: A node that spares fewer tokens than this is not worth a pass of its own.
MINIMUM_SAVING = 64
#: A node this short is not cut any further when memory runs out.
_SHORTEST_NODE = 16

#: Rows of one pass.
_MOST_ROWS = 256

#: A batch of nodes, each with its row in the state behind their parents, and that state.
_Work = tuple[list[tuple[int, Node]], Paths | None]

#: Hears how many sequences and how many tokens a pass has finished.
Advance = Callable[[int, int], None]


@dataclass(frozen=True)
class Score:
    """The sum of natural-log probabilities of the scored tokens, and whether each was the most likely."""

    logprob: float
    is_greedy: bool


@dataclass(frozen=True)
class Scores:
    """One score per sequence, in the order given; the tokens that were run, and those that were spared."""

    scores: tuple[Score, ...]
    computed: int
    reused: int


@dataclass(frozen=True)
class Strategy:
    """How much work sequences may have in common.

    `shared`: each node of the tree is run once. `copied`: one row at a time goes on from a copy of its
    parent's cache, whatever kind that is. `padded`: which nodes of different length may stand in one pass; a
    recurrent state may be spoilt by the padding behind it, which harms nobody where nothing goes on.
    """

    shared: bool = True
    copied: bool = False
    padded: Literal["all", "leaves", "none"] = "all"


#: From the fastest to what always holds; the first that gives the model's own log-probabilities is taken.
#: With the last, not even what begins another sequence is read from that one.
STRATEGIES = (
    Strategy(),
    Strategy(padded="leaves"),
    Strategy(copied=True, padded="none"),
    Strategy(shared=False),
    Strategy(shared=False, padded="none"),
)


class ScoringEngine:
    """Scores sequences with one model.

    Args:
        budget: how many tokens a pass may have.
        minimum_saving: a node that spares fewer tokens than this gets no pass of its own.
        kernels: a context in which forward passes are run.
        warn: hears, once, that memory ran out and passes became smaller.
    """

    def __init__(
        self,
        model: nn.Module,
        vocabulary_size: int,
        budget: TokenBudget,
        kernels: Callable[[], AbstractContextManager[None]] = nullcontext,
        warn: Callable[[str], None] = lambda _: None,
        minimum_saving: int = MINIMUM_SAVING,
    ) -> None:
        self._model = model
        self._minimum_saving = minimum_saving
        self._budget = budget
        self._kernels = kernels
        self._warn = warn
        self._vocabulary_size = vocabulary_size
        self._plan: tuple[Readout, Strategy] | None = None

    @property
    def readout(self) -> Readout:
        return self._planned()[0]

    @property
    def strategy(self) -> Strategy:
        return self._planned()[1]

    def score(
        self, sequences: Sequence[TokenSequence], advance: Advance = lambda _requests, _tokens: None
    ) -> Scores:
        """One `Score` per sequence.

        Raises:
            EvaluationError: not even the smallest pass fits into memory.
        """
        readout, strategy = self._planned()
        with self._kernels():
            return self._score(sequences, readout, strategy, advance)

    def _score(
        self, sequences: Sequence[TokenSequence], readout: Readout, strategy: Strategy, advance: Advance
    ) -> Scores:
        scores = self._walked(sequences, self._minimum_saving, readout, strategy, advance)
        mx.clear_cache()
        return scores

    def _walked(
        self,
        sequences: Sequence[TokenSequence],
        minimum_saving: int,
        readout: Readout,
        strategy: Strategy,
        advance: Advance,
    ) -> Scores:
        if strategy == STRATEGIES[-1]:
            tree = whole_inputs(sequences)
        else:
            tree = prefix_tree(sequences, minimum_saving if strategy.shared else math.inf)
        collected = _Collected(sequences, advance)
        start = empty_paths(self._model, copied=strategy.copied) if strategy.shared else None
        _Walk(readout, strategy, self._budget, collected, self._warn).run(tree.root, start)
        return Scores(collected.scores(), tree.tokens, tree.reused)

    def _planned(self) -> tuple[Readout, Strategy]:
        """How this model is run, found out at the first call against plain forward passes."""
        if self._plan is None:
            with self._kernels():
                parts = separate(self._model, self._vocabulary_size)
                readout = Readout(self._model, parts, self._vocabulary_size)
                sequences = _probes(self._vocabulary_size)
                expected = [_plain_logprob(self._model, sequence) for sequence in sequences]
                # A rotary embedding that depends on the length of the whole is right for whole rows alone.
                candidates = STRATEGIES[-1:] if _depends_on_length(self._model) else STRATEGIES
                strategy = next(s for s in candidates if self._holds(s, readout, sequences, expected))
            self._plan = (readout, strategy)
        return self._plan

    def _holds(
        self, strategy: Strategy, readout: Readout, sequences: list[TokenSequence], expected: list[float]
    ) -> bool:
        if strategy == STRATEGIES[-1]:
            return True
        try:
            found = self._walked(sequences, 1, readout, strategy, lambda _requests, _tokens: None)
        except Exception:  # noqa: BLE001 - an architecture refuses a cache or a mask in ways of its own
            return False
        logprobs = [score.logprob for score in found.scores]
        tolerance = 2e-4 if _is_float32(self._model) else 0.25
        return bool(np.allclose(logprobs, expected, rtol=0.0, atol=tolerance, equal_nan=True))


class _Collected:
    """Adds up what passes read, and tells when a sequence has all its tokens."""

    def __init__(self, sequences: Sequence[TokenSequence], advance: Advance) -> None:
        self._logprobs = [0.0] * len(sequences)
        self._greedy = [True] * len(sequences)
        self._missing = [sequence.scored for sequence in sequences]
        self._advance = advance

    def take(self, nodes: Sequence[Node], logprobs: np.ndarray, greedy: np.ndarray) -> None:
        """The answers to all readings of some nodes, in their order."""
        done = 0
        readings = (reading for node in nodes for reading in node.readings)
        for reading, logprob, is_greedy in zip(readings, logprobs.tolist(), greedy.tolist(), strict=True):
            self._logprobs[reading.sequence] += logprob
            self._greedy[reading.sequence] &= is_greedy
            self._missing[reading.sequence] -= 1
            done += self._missing[reading.sequence] == 0
        self._advance(done, sum(len(node.tokens) for node in nodes))

    def scores(self) -> tuple[Score, ...]:
        return tuple(map(Score, self._logprobs, self._greedy))


@dataclass(frozen=True)
class _Walk:
    """Runs a prefix tree from the root down."""

    readout: Readout
    strategy: Strategy
    budget: TokenBudget
    collected: _Collected
    warn: Callable[[str], None]

    def run(self, root: Node, start: Paths | None) -> None:
        """Run all below the root. `start` is the state behind it, None where nothing is shared."""
        levels = [self._below([root], start)]
        while levels:
            batch, paths = next(levels[-1], (None, None))
            if batch is None:
                levels.pop()
            elif (below := self._run(batch, paths)) is not None:
                levels.append(below)

    def _below(self, parents: Sequence[Node], paths: Paths | None) -> Iterator[_Work]:
        """What there is to run directly below some nodes; `paths` is the state behind them."""
        children = [(row, child) for row, parent in enumerate(parents) for child in parent.children]
        if paths is not None:
            for _, child in children:
                if len(child.tokens) > self.budget.tokens:
                    cut(child, self.budget.tokens)
        # What is gone on from keeps memory, so it does not stand together with what is not.
        for inner in (True, False):
            chosen = [entry for entry in children if bool(entry[1].children) is inner]
            chosen.sort(key=lambda entry: -len(entry[1].tokens))
            for family in self._families(chosen):
                for batch in self._batches(family, paths, inner=inner):
                    yield batch, paths

    def _families(self, rows: list[tuple[int, Node]]) -> Iterator[list[tuple[int, Node]]]:
        """The children of each parent that fill passes by themselves, then all others together.

        Behind one parent all paths are equally long: no padding, and no mask but the causal one.
        """
        of_parent: dict[int, list[tuple[int, Node]]] = {}
        for entry in rows:
            of_parent.setdefault(entry[0], []).append(entry)
        others: list[tuple[int, Node]] = []
        for family in of_parent.values():
            if len(of_parent) > 1 and sum(len(node.tokens) for _, node in family) < self.budget.tokens:
                others.extend(family)
            else:
                yield family
        if others:
            others.sort(key=lambda entry: -len(entry[1].tokens))
            yield others

    def _batches(
        self, rows: list[tuple[int, Node]], paths: Paths | None, *, inner: bool
    ) -> Iterator[list[tuple[int, Node]]]:
        alone = paths is not None and paths.rows_alone
        attended = self.budget.attended if paths is None or not paths.copies_paths else 4 * self.budget.tokens
        longest_path = max((node.start for _, node in rows), default=0)
        lengths = [len(node.tokens) for _, node in rows]

        def fits(count: int, longest: int) -> bool:
            return (
                not alone
                and count <= _MOST_ROWS
                and count * longest <= self.budget.tokens
                and count * (longest_path + longest) <= attended
            )

        start = 0
        padded = self.strategy.padded == "all" or (self.strategy.padded == "leaves" and not inner)
        for size in _sizes(lengths, fits, padded=padded):
            yield rows[start : start + size]
            start += size

    def _run(self, batch: list[tuple[int, Node]], paths: Paths | None) -> Iterator[_Work] | None:
        """Run one batch; what is to be run next: all below it, or the batch in smaller pieces."""
        try:
            deeper = self._pass(batch, paths)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            reason = str(error)
        else:
            return None if deeper is None else self._below([n for _, n in batch if n.children], deeper)
        # Not inside `except`: as long as the error is there, so is all that the failed pass has made.
        return iter([(piece, paths) for piece in self._smaller(batch, paths, reason)])

    def _smaller(
        self, batch: list[tuple[int, Node]], paths: Paths | None, reason: str
    ) -> list[list[tuple[int, Node]]]:
        """A batch that memory was too small for, in pieces."""
        mx.clear_cache()
        self.budget.shrink(len(batch) * max(len(node.tokens) for _, node in batch))
        self.warn("memory ran out: smaller passes were made from there on")
        if len(batch) > 1:
            middle = len(batch) // 2
            return [batch[:middle], batch[middle:]]
        (_, node) = batch[0]
        if paths is None or len(node.tokens) < 2 * _SHORTEST_NODE:
            raise EvaluationError(
                f"no memory for a pass of {len(node.tokens)} tokens behind {node.start} others: {reason}"
            )
        cut(node, len(node.tokens) // 2)
        return [batch]

    def _pass(self, batch: list[tuple[int, Node]], paths: Paths | None) -> Paths | None:
        """One forward pass; the state behind those nodes that have children.

        Padding stands on the right: a causal model never sees it from the positions that count.
        """
        nodes = [node for _, node in batch]
        lengths = [len(node.tokens) for node in nodes]
        width = max(lengths)
        inputs = mx.array([[*node.tokens, *[0] * (width - len(node.tokens))] for node in nodes])
        caches: list[Any] | None = None
        if paths is not None:
            caches = paths.open([row for row, _ in batch], lengths)
        questions = [
            Question(row, reading.offset, reading.target)
            for row, node in enumerate(nodes)
            for reading in node.readings
        ]
        logprobs, greedy = self.readout.run(inputs, caches, questions)
        kept = [row for row, node in enumerate(nodes) if node.children]
        deeper = paths.close(caches, kept, lengths) if paths is not None and caches and kept else None
        self.collected.take(nodes, logprobs, greedy)
        return deeper


def _sizes(lengths: Sequence[int], fits: Callable[[int, int], bool], *, padded: bool) -> list[int]:
    if padded:
        return partition(lengths, fits)
    sizes: list[int] = []
    for index, length in enumerate(lengths):
        same = index > 0 and lengths[index - 1] == length
        if same and fits(sizes[-1] + 1, length):
            sizes[-1] += 1
        else:
            sizes.append(1)
    return sizes


def _probes(vocabulary_size: int) -> list[TokenSequence]:
    """A small tree, three levels deep; what has nodes behind it is of different and of equal length."""
    stem = [(7 * i + 3) % vocabulary_size for i in range(5)]

    def tokens(*numbers: int) -> tuple[int, ...]:
        return tuple((11 * number + 5) % vocabulary_size for number in numbers)

    branches = [tokens(1, 2, 3), tokens(4), tokens(5, 6), tokens(13, 7, 14)]
    return [
        TokenSequence((*stem, *branch, *leaf), len(leaf))
        for branch in branches
        for leaf in (tokens(8, 12), tokens(9, 10, 11))
    ]


def _plain_logprob(model: nn.Module, sequence: TokenSequence) -> float:
    logits = np.array(model(mx.array([sequence.tokens]))[0].astype(mx.float32), dtype=np.float64)
    total = 0.0
    for position in range(len(sequence.tokens) - sequence.scored, len(sequence.tokens)):
        row = logits[position - 1]
        total += float(row[sequence.tokens[position]] - row.max() - np.log(np.exp(row - row.max()).sum()))
    return total


def _depends_on_length(model: nn.Module) -> bool:
    return any("DynamicNTKScaling" in type(part).__name__ for part in model.modules())


def _is_float32(model: nn.Module) -> bool:
    from mlx.utils import tree_flatten

    return all(
        value.dtype == mx.float32
        for _, value in tree_flatten(model.parameters())
        if mx.issubdtype(value.dtype, mx.floating)
    )
