"""The prefix tree against what can be said of it without a tree: sets of prefixes, sequences one by one."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gnus.models.prefix_tree import Node, PrefixTree, TokenSequence, cut, prefix_tree

SAVINGS = [1, 2, 5, 64, math.inf]


@st.composite
def sequence_sets(draw: st.DrawFn) -> list[TokenSequence]:
    """Over three tokens, so that prefixes collide; with duplicates, prefixes of others, and short ones."""
    bodies = draw(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), max_size=14))
    for body in draw(st.lists(st.sampled_from(bodies), max_size=4)) if bodies else []:
        bodies.append(body[: draw(st.integers(1, len(body)))])
        bodies.append(body + draw(st.lists(st.integers(0, 2), max_size=4)))
    return [TokenSequence(tuple(body), draw(st.integers(0, len(body) - 1))) for body in bodies]


def paths(node: Node, before: tuple[int, ...] = ()) -> Iterator[tuple[Node, tuple[int, ...]]]:
    """Every node with all tokens from the root to its end."""
    here = before + node.tokens
    yield node, here
    for child in node.children:
        yield from paths(child, here)


def readings_of(tree: PrefixTree) -> Counter[tuple[int, tuple[int, ...], int]]:
    """(sequence, all tokens that the distribution has seen, target) of every reading."""
    found: Counter[tuple[int, tuple[int, ...], int]] = Counter()
    for node, here in paths(tree.root):
        for reading in node.readings:
            assert 0 <= reading.offset < len(node.tokens)
            found[reading.sequence, here[: node.start + reading.offset + 1], reading.target] += 1
    return found


def expected_readings(sequences: list[TokenSequence]) -> Counter[tuple[int, tuple[int, ...], int]]:
    return Counter(
        (index, sequence.tokens[:position], sequence.tokens[position])
        for index, sequence in enumerate(sequences)
        for position in range(len(sequence.tokens) - sequence.scored, len(sequence.tokens))
    )


@given(sequence_sets(), st.sampled_from(SAVINGS))
def test_every_scored_token_is_read_once_from_behind_its_own_prefix(
    sequences: list[TokenSequence], saving: float
) -> None:
    assert readings_of(prefix_tree(sequences, saving)) == expected_readings(sequences)


@given(sequence_sets(), st.sampled_from(SAVINGS))
def test_every_path_is_the_beginning_of_an_input_and_every_input_is_on_a_path(
    sequences: list[TokenSequence], saving: float
) -> None:
    tree = prefix_tree(sequences, saving)
    inputs = {sequence.tokens[:-1] for sequence in sequences}
    ended: Counter[int] = Counter()
    for node, here in paths(tree.root):
        assert node.start == len(here) - len(node.tokens)
        assert not here or any(tokens[: len(here)] == here for tokens in inputs)
        for index in node.ends:
            ended[index] += 1
            length = len(sequences[index].tokens) - 1
            assert here[:length] == sequences[index].tokens[:-1]
            assert length > node.start or node is tree.root
    assert ended == Counter(range(len(sequences)))


@given(sequence_sets())
def test_with_full_sharing_every_distinct_prefix_is_run_once(sequences: list[TokenSequence]) -> None:
    inputs = [sequence.tokens[:-1] for sequence in sequences]
    distinct = {tokens[:length] for tokens in inputs for length in range(1, len(tokens) + 1)}
    assert prefix_tree(sequences, 1).tokens == len(distinct)


@given(sequence_sets(), st.sampled_from(SAVINGS))
def test_what_is_run_and_what_is_spared_is_what_was_requested(
    sequences: list[TokenSequence], saving: float
) -> None:
    tree = prefix_tree(sequences, saving)
    assert tree.tokens == sum(len(node.tokens) for node, _ in paths(tree.root))
    assert tree.requested == sum(len(sequence.tokens) - 1 for sequence in sequences)
    assert tree.reused == tree.requested - tree.tokens
    assert tree.reused >= 0


@given(sequence_sets(), st.sampled_from(SAVINGS[:-1]))
def test_a_node_that_is_gone_on_from_saves_what_is_asked(
    sequences: list[TokenSequence], saving: float
) -> None:
    for node, _ in paths(prefix_tree(sequences, saving).root):
        if node.start or node.tokens:
            assert node.tokens
            assert not node.children or len(node.tokens) * (len(node.children) - 1) >= saving


@given(sequence_sets())
def test_without_sharing_every_node_is_a_whole_input_that_begins_no_other(
    sequences: list[TokenSequence],
) -> None:
    tree = prefix_tree(sequences, math.inf)
    inputs = {sequence.tokens[:-1] for sequence in sequences} - {()}
    longest = [
        one for one in inputs if not any(other != one and other[: len(one)] == one for other in inputs)
    ]
    assert all(not node.children for node in tree.root.children)
    assert sorted(node.tokens for node in tree.root.children) == sorted(longest)


@given(sequence_sets(), st.sampled_from(SAVINGS), st.data())
def test_cutting_nodes_keeps_all_readings_and_paths(
    sequences: list[TokenSequence], saving: float, data: st.DataObject
) -> None:
    tree = prefix_tree(sequences, saving)
    before = {here for node, here in paths(tree.root) if not node.children}
    for _ in range(3):
        long = [node for node in tree.root.walk() if len(node.tokens) > 1]
        if not long:
            break
        node = data.draw(st.sampled_from(long))
        kept = data.draw(st.integers(1, len(node.tokens) - 1))
        tokens = node.tokens
        cut(node, kept)
        (rest,) = node.children
        assert (node.tokens, rest.tokens) == (tokens[:kept], tokens[kept:])
        assert rest.start == node.start + kept
    assert readings_of(tree) == expected_readings(sequences)
    assert {here for node, here in paths(tree.root) if not node.children} == before
    assert sorted(index for node in tree.root.walk() for index in node.ends) == list(range(len(sequences)))


def test_choices_of_one_question_are_read_from_it() -> None:
    stem = tuple(range(100))
    tree = prefix_tree(
        [
            TokenSequence((*stem, 7, 8), 2),
            TokenSequence((*stem, 7, 9), 2),
            TokenSequence((*stem, 5), 1),
            TokenSequence((*stem, 6, 5), 2),
        ]
    )
    (question,) = tree.root.children
    assert question.tokens == stem
    assert sorted((r.offset, r.target, r.sequence) for r in question.readings) == [
        (99, 5, 2),
        (99, 6, 3),
        (99, 7, 0),
        (99, 7, 1),
    ]
    # Both answers that begin with 7 are read behind the same 7.
    assert [
        (node.tokens, [(r.offset, r.target, r.sequence) for r in node.readings]) for node in question.children
    ] == [((6,), [(0, 5, 3)]), ((7,), [(0, 8, 0), (0, 9, 1)])]


def test_tokens_beyond_two_bytes_are_told_apart() -> None:
    sequences = [TokenSequence((token, 1, 2), 1) for token in (1, 257, 65_537, 16_777_217)]
    tree = prefix_tree(sequences)
    assert sorted(node.tokens for node in tree.root.children) == [
        (1, 1),
        (257, 1),
        (65_537, 1),
        (16_777_217, 1),
    ]


def test_a_chain_deeper_than_the_recursion_limit_is_no_trouble() -> None:
    """Each sequence is one token longer than the one before, and leaves it by another token at its end."""
    count = sys.getrecursionlimit() + 50
    sequences = [TokenSequence((*([1] * length), 2, 3), 1) for length in range(count)]
    tree = prefix_tree(sequences, 1)
    assert tree.tokens == 2 * count - 1
    assert sum(len(node.readings) for node in tree.root.walk()) == count


@pytest.mark.parametrize("saving", SAVINGS)
def test_nothing_and_single_tokens_make_an_empty_tree(saving: float) -> None:
    assert prefix_tree([], saving).tokens == 0
    tree = prefix_tree([TokenSequence((3,), 0), TokenSequence((4,), 0)], saving)
    assert (tree.tokens, tree.requested, tree.root.children) == (0, 0, [])
    assert tree.root.ends == [0, 1]
