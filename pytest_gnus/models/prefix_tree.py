"""The prefix tree of a set of token sequences: what they have in common is computed once.

Pure data, no MLX. A node is a stretch of tokens that belongs to the same sequences from its first token to
its last; a sequence is the path from the root to where it ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class TokenSequence:
    """Token ids, of which the last `scored` are predicted, each from all that stands before it.

    `tokens` holds at least one token more than `scored`: the first scored token needs something before it.
    """

    tokens: tuple[int, ...]
    scored: int


@dataclass(frozen=True)
class Reading:
    """One scored token: the distribution at `offset` of a node predicts `target` for a sequence."""

    offset: int
    target: int
    sequence: int


@dataclass
class Node:
    """A stretch of tokens behind `start` others on its path, with what is read from it.

    `ends` are the sequences (by index) whose last input lies in this stretch.
    """

    tokens: tuple[int, ...]
    start: int
    children: list[Node] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def walk(self) -> Iterator[Node]:
        """This node and all below it, parents first."""
        pending = [self]
        while pending:
            node = pending.pop()
            yield node
            pending.extend(reversed(node.children))


@dataclass(frozen=True)
class PrefixTree:
    """All sequences of one call. `root` has no tokens of its own; `tokens` counts those of all nodes.

    `requested` is what the sequences would cost one by one.
    """

    root: Node
    tokens: int
    requested: int

    @property
    def reused(self) -> int:
        return self.requested - self.tokens


def prefix_tree(sequences: Sequence[TokenSequence], minimum_saving: float = 1) -> PrefixTree:
    """The tree over what must be run: all tokens of each sequence but its last, which is only predicted.

    Args:
        minimum_saving: a node that saves fewer tokens than this is written into each of its children instead:
            a pass of its own would cost more than it spares. With infinity nothing is shared, but what begins
            another sequence is still read from that one.
    """
    inputs = [np.array(sequence.tokens[:-1], dtype=">u4") for sequence in sequences]
    keys = [tokens.tobytes() for tokens in inputs]  # big-endian: bytes sort as the tokens do
    root = Node((), 0)
    path = [root]
    previous: int | None = None
    for index in sorted(range(len(sequences)), key=keys.__getitem__):
        shared = 0 if previous is None else _common_prefix(inputs[previous], inputs[index])
        _climb(path, shared)
        tokens = sequences[index].tokens[shared:-1]
        if tokens:
            path[-1].children.append(Node(tokens, shared))
            path.append(path[-1].children[-1])
        path[-1].ends.append(index)
        previous = index
    _dissolve(root, minimum_saving)
    _read(root, sequences)
    return PrefixTree(root, sum(len(node.tokens) for node in root.walk()), sum(map(len, inputs)))


def whole_inputs(sequences: Sequence[TokenSequence]) -> PrefixTree:
    """A flat tree in which equal inputs are one, and no other two have anything in common."""
    nodes: dict[tuple[int, ...], Node] = {}
    root = Node((), 0)
    for index, sequence in enumerate(sequences):
        tokens = sequence.tokens[:-1]
        node = nodes.setdefault(tokens, Node(tokens, 0)) if tokens else root
        node.ends.append(index)
    root.children = list(nodes.values())
    _read(root, sequences)
    return PrefixTree(root, sum(map(len, nodes)), sum(len(sequence.tokens) - 1 for sequence in sequences))


def _common_prefix(one: np.ndarray, other: np.ndarray) -> int:
    length = min(len(one), len(other))
    different = np.flatnonzero(one[:length] != other[:length])
    return int(different[0]) if len(different) else length


def _climb(path: list[Node], depth: int) -> None:
    """Shorten a path to `depth` tokens, cutting in two the node that reaches across."""
    while len(path) > 1 and path[-1].start >= depth:
        path.pop()
    node = path[-1]
    kept = depth - node.start
    if kept < len(node.tokens):
        cut(node, kept)


def _dissolve(root: Node, minimum_saving: float) -> None:
    """Write nodes that save too little into their children, the lowest first."""
    for node in reversed(list(root.walk())):
        children: list[Node] = []
        for child in node.children:
            saving = len(child.tokens) * (len(child.children) - 1)
            if not child.children or saving >= minimum_saving:
                children.append(child)
                continue
            for below in child.children:
                below.tokens, below.start = child.tokens + below.tokens, child.start
            child.children[0].ends.extend(child.ends)
            children.extend(child.children)
        node.children = children


def _read(root: Node, sequences: Sequence[TokenSequence]) -> None:
    """Note at each node what is read from it: the scored tokens of a sequence may lie in several."""
    pending = [(root, [root])]
    while pending:
        node, path = pending.pop()
        for index in node.ends:
            _read_sequence(path, index, sequences[index])
        pending.extend((child, [*path, child]) for child in node.children)


def _read_sequence(path: Sequence[Node], index: int, sequence: TokenSequence) -> None:
    for position in range(len(sequence.tokens) - sequence.scored, len(sequence.tokens)):
        # The distribution over the token at `position` stands at the input before it.
        node = next(node for node in reversed(path) if node.start <= position - 1)
        node.readings.append(Reading(position - 1 - node.start, sequence.tokens[position], index))


def cut(node: Node, kept: int) -> None:
    """Cut a node in two: it keeps `kept` tokens, the rest becomes its only child."""
    rest = Node(node.tokens[kept:], node.start + kept, node.children, ends=node.ends)
    rest.readings = [
        Reading(reading.offset - kept, reading.target, reading.sequence)
        for reading in node.readings
        if reading.offset >= kept
    ]
    node.readings = [reading for reading in node.readings if reading.offset < kept]
    node.tokens, node.children, node.ends = node.tokens[:kept], [rest], []
