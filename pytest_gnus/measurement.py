"""What one item's evaluation gave: scores, per-category scores, per-document outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_gnus.gates.trust import ChanceLevels


@dataclass(frozen=True)
class DocumentOutcome:
    """One document: its task and place, the digest of its content, its score.

    `score` is None where the metric gives no number for a single document; `value` is then what it gives.
    Documents of one `cluster` are not independent of each other. `question` is the digest of what is asked,
    where documents that differ in another field ask the same.
    """

    task: str
    doc_id: int
    doc_hash: str
    score: float | None
    value: Any = None
    cluster: str | None = None
    question: str | None = None

    def to_record(self) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "task": self.task,
            "doc_id": self.doc_id,
            "doc_hash": self.doc_hash,
            "score": self.score,
        }
        if self.cluster is not None:
            entry["cluster"] = self.cluster
        if self.question is not None:
            entry["question"] = self.question
        return entry if self.score is not None else entry | {"value": self.value}


@dataclass(frozen=True)
class Protocol:
    """How it was measured: the fingerprint's fields, the manifests aside."""

    harness_commit: str | None
    task_name: str
    task_revision: str | None
    dataset_revision: str | None
    prompt_hash: str
    fewshot_seed: int
    chat_template_hash: str
    answer_extraction: Mapping[str, Any]
    generation_params: Mapping[str, Any]


@dataclass(frozen=True)
class Counts:
    """Documents and requests.

    `truncated_prompts` is None where the model does not count them. `duplicates` are documents that repeat
    another one. `examples_of_evaluated_documents` counts, over all prompts, few-shot examples that are
    documents of the evaluated split.
    """

    documents: int
    scored: int
    unscored: int = 0
    failed: int = 0
    requests: int = 0
    truncated_prompts: int | None = None
    stopped_by_string: int = 0
    stopped_by_limit: int = 0
    duplicates: int = 0
    examples_of_evaluated_documents: int = 0


@dataclass(frozen=True)
class Measurement:
    """A finished evaluation. `metric` carries lm-eval's filter, as in `acc,none`.

    `context_tokens` is how many tokens the model reads at most, where it counts prompts that are longer.
    `chance` is what guessing reaches, `category_chance` the same for each task of a group.
    `notes` are a reason to look twice; `adjustments` say what was done so that there is none.
    """

    metric: str
    score: float
    stderr: float | None
    ci95: tuple[float, float] | None
    n: int
    higher_is_better: bool
    num_fewshot: int
    protocol: Protocol
    counts: Counts
    per_category: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    outcomes: tuple[DocumentOutcome, ...] = ()
    chance: ChanceLevels | None = None
    category_chance: Mapping[str, ChanceLevels] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    subtasks: tuple[str, ...] | None = None
    evaluate_seconds: float = 0.0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    tokens_reused: int = 0
    notes: tuple[str, ...] = ()
    context_tokens: int | None = None
    adjustments: tuple[str, ...] = ()
