"""Which outcome of one measurement belongs to which of another: the same document, wherever it stands."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class ScoredDocument(Protocol):
    """What a comparison reads of a document's outcome.

    `doc_id` is the document's place in its task, `doc_hash` the digest of its content. Documents with the
    same `cluster` are not independent of each other (questions on one passage); an id means the same
    cluster in every task. `None` stands for a document on its own. `question` is the digest of what is asked,
    where other documents ask the same and differ in another field (an id); else `None`.
    """

    @property
    def task(self) -> str: ...
    @property
    def doc_id(self) -> int: ...
    @property
    def doc_hash(self) -> str: ...
    @property
    def score(self) -> float | None: ...
    @property
    def cluster(self) -> str | None: ...
    @property
    def question(self) -> str | None: ...


@dataclass(frozen=True)
class Outcome:
    """A `ScoredDocument` on its own, as read from a record's samples."""

    task: str
    doc_id: int
    doc_hash: str
    score: float | None
    cluster: str | None = None
    question: str | None = None


@dataclass(frozen=True)
class Side:
    """The documents of one measurement, in an order that depends on nothing but themselves.

    `contents` are digests of the documents, in the same order: documents that share one are the same document
    written several times, and count as one. Empty where all documents are known to differ.
    """

    scores: tuple[float, ...]
    clusters: tuple[str | None, ...]
    contents: tuple[str, ...] = ()

    @property
    def mean(self) -> float:
        return math.fsum(self.scores) / len(self.scores)

    @property
    def binary(self) -> bool:
        return set(self.scores) <= {0.0, 1.0}

    @property
    def named_clusters(self) -> bool:
        """Whether any two documents share a cluster that the benchmark names."""
        named = [cluster for cluster in self.clusters if cluster is not None]
        return len(set(named)) < len(named)

    @property
    def distinct(self) -> int:
        """How many different documents there are."""
        return len(set(self.contents)) if self.contents else len(self.scores)

    @property
    def duplicates(self) -> int:
        """How many documents repeat another one."""
        return len(self.scores) - self.distinct

    @property
    def clustered(self) -> bool:
        """Whether any two documents are not independent: one cluster, or the same document twice."""
        return self.named_clusters or self.duplicates > 0

    @property
    def labels(self) -> list[int]:
        """The number of each document's cluster; a document without one is a cluster of its own.

        The same document in two clusters makes one of them.
        """
        return joined_labels(self.clusters, self.contents or range(len(self.scores)))


def joined_labels(clusters: Sequence[str | None], contents: Sequence[str | int]) -> list[int]:
    """Numbers of the smallest groups in which equal clusters and equal contents stand together."""
    parents = list(range(len(clusters)))

    def root(place: int) -> int:
        while parents[place] != place:
            parents[place] = parents[parents[place]]
            place = parents[place]
        return place

    first: dict[tuple[str, str | int], int] = {}
    for place, (cluster, content) in enumerate(zip(clusters, contents, strict=True)):
        named = [("cluster", cluster)] if cluster is not None else []
        for key in (("content", content), *named):
            one, other = root(first.setdefault(key, place)), root(place)
            parents[max(one, other)] = min(one, other)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(root(place), len(numbers)) for place in range(len(clusters))]


@dataclass(frozen=True)
class Pairing:
    """Two measurements side by side.

    Where `paired`, the k-th document of `reference` is the k-th of `candidate`. Otherwise both sides hold all
    of their documents, and the counts say how many have no counterpart.
    """

    reference: Side
    candidate: Side
    only_in_reference: int
    only_in_candidate: int

    @property
    def paired(self) -> bool:
        return not self.only_in_reference and not self.only_in_candidate


class CannotPair(Exception):
    """The outcomes allow no comparison of documents; the message says why."""


def pair(reference: Sequence[ScoredDocument], candidate: Sequence[ScoredDocument]) -> Pairing:
    """Match two measurements by (task, document hash), in any order.

    A document that occurs several times must occur as often on the other side; its occurrences are matched in
    the order of their places. A pair's cluster is the candidate's, else the reference's. Documents of equal
    content, in any task, are one document (`Side.contents`).

    Raises:
        CannotPair: a document has no score, or one place of a task has two outcomes.
        ValueError: a score is not finite.
    """
    sides = [_sorted(reference, "reference"), _sorted(candidate, "candidate")]
    keys = [Counter((outcome.task, outcome.doc_hash) for outcome in side) for side in sides]
    only = [(keys[0] - keys[1]).total(), (keys[1] - keys[0]).total()]
    clusters = [[outcome.cluster for outcome in side] for side in sides]
    questions = [[outcome.question for outcome in side] for side in sides]
    if not any(only):
        clusters = [_candidates_first(clusters)] * 2
        questions = [_candidates_first(questions)] * 2
    old, new = (_side(*each) for each in zip(sides, clusters, questions, strict=True))
    return Pairing(old, new, *only)


def _candidates_first(values: Sequence[Sequence[str | None]]) -> list[str | None]:
    return [new if new is not None else old for old, new in zip(*values, strict=True)]


def _sorted(outcomes: Sequence[ScoredDocument], name: str) -> list[ScoredDocument]:
    unscored = sum(outcome.score is None for outcome in outcomes)
    if unscored:
        raise CannotPair(f"no per-document scores: {unscored} of the {name}'s {len(outcomes)} have none")
    places = Counter((outcome.task, outcome.doc_id) for outcome in outcomes)
    repeated = sorted(place for place, count in places.items() if count > 1)
    if repeated:
        task, doc_id = repeated[0]
        raise CannotPair(f"the {name} has several outcomes for document {doc_id} of {task}")
    return sorted(outcomes, key=lambda outcome: (outcome.task, outcome.doc_hash, outcome.doc_id))


def _side(
    outcomes: Sequence[ScoredDocument], clusters: Sequence[str | None], questions: Sequence[str | None]
) -> Side:
    scores = tuple(float(outcome.score) for outcome in outcomes if outcome.score is not None)
    for outcome, score in zip(outcomes, scores, strict=True):
        if not math.isfinite(score):
            raise ValueError(f"document {outcome.doc_id} of {outcome.task} has the score {score}")
    contents = tuple(
        outcome.doc_hash if question is None else question
        for outcome, question in zip(outcomes, questions, strict=True)
    )
    return Side(scores, tuple(clusters), contents)


def side_of(outcomes: Sequence[ScoredDocument]) -> Side:
    """The documents of one measurement on their own.

    Raises:
        CannotPair, ValueError: see `pair`.
    """
    return pair(outcomes, outcomes).candidate
