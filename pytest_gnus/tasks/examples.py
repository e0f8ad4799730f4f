"""Few-shot examples: a document never stands among its own.

lm-eval takes examples from the evaluated split where a task has no other one, or where `fewshot_split` names
it. It then leaves the document itself out only in some of these cases, and only what is equal in every field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pytest_gnus.errors import DataError
from pytest_gnus.records.fingerprint import canonical_sha256

#: The digests by which a document is known: documents that share one are the same.
Identities = Callable[[Any], frozenset[str]]

#: Stand for the contents of messages where only what a chat template writes around them is wanted.
_MARKS = ("gnususerone", "gnusassistant", "gnususertwo")


def content_of(document: Any) -> str:
    """The whole of a document, as a text that is equal exactly where documents are."""
    return json.dumps(document, sort_keys=True, ensure_ascii=False, default=str)


def question_of(text: Any, choices: Sequence[Any] | None) -> str:
    """The digest of what is asked: the rendered question, and its choices in any order."""
    shown = text.strip() if isinstance(text, str) else text
    return canonical_sha256([shown, sorted(map(str, choices)) if choices is not None else None])


class OtherExamples:
    """Draws few-shot examples as a sampler of lm-eval's does, but never the document that is being asked.

    What lm-eval draws stands, unless the document is in it. Then it draws again, from the same state of its
    generator and without the document. The draws for other documents stay what they were.
    """

    def __init__(self, sampler: Any, task: str, identities: Identities) -> None:
        self._sampler = sampler
        self._task = task
        self._identities = identities
        self._pool: list[Any] = list(sampler.df)
        self._known: dict[int, frozenset[str]] = {}
        #: The document that is being asked.
        self.document: Any = None
        #: All examples given since the generator was seeded.
        self.given: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a copy that is not filled yet has no `_sampler` to ask
            raise AttributeError(name)
        return getattr(self._sampler, name)

    @property
    def available(self) -> int:
        """How many documents examples are drawn from."""
        return len(self._pool)

    def set_rnd(self, rnd: int | None) -> OtherExamples:
        self._sampler.set_rnd(rnd)
        self.given = []
        return self

    def sample(self, n: int, eval_doc: Any = None, **keywords: Any) -> Sequence[Any]:
        """`n` examples for `document`.

        Raises:
            DataError: there are fewer than `n` other documents.
        """
        if n == 0:
            return []
        drawn = self._drawn(n, eval_doc, keywords)
        self.given.extend(drawn)
        return drawn

    def _drawn(self, n: int, eval_doc: Any, keywords: Mapping[str, Any]) -> Sequence[Any]:
        own = self._identities(self.document) if self.document is not None else frozenset()
        # Where lm-eval leaves the document out itself, it draws one more first, and fails without one.
        copies = sum(example == eval_doc for example in self._pool) if eval_doc is not None else 0
        if self.available <= n:
            eval_doc = None
        if self.available - copies < n:
            raise self._too_few(n, own)
        before = self._sampler.rnd.getstate()
        drawn: Sequence[Any] = self._sampler.sample(n=n, eval_doc=eval_doc, **keywords)
        after = self._sampler.rnd.getstate()
        pool = self._pool
        try:
            while found := [example for example in drawn if own & self._identities_of(example)]:
                pool = [example for example in pool if example not in found]
                if len(pool) < n:
                    raise self._too_few(n, own)
                self._sampler.replace_df(pool)
                self._sampler.rnd.setstate(before)
                drawn = self._sampler.sample(n=n, **keywords)
        finally:
            self._sampler.replace_df(self._pool)
            self._sampler.rnd.setstate(after)
        return drawn

    def _identities_of(self, example: Any) -> frozenset[str]:
        """Of an example in the pool, which stays where it is in memory."""
        if id(example) not in self._known:
            self._known[id(example)] = self._identities(example)
        return self._known[id(example)]

    def _too_few(self, n: int, own: frozenset[str]) -> DataError:
        others = sum(not own & self._identities_of(example) for example in self._pool)
        return too_few_examples(self._task, n, self.available, others)


def too_few_examples(task: str, asked: int, available: int, others: int) -> DataError:
    """What to say where examples would have to include the document that is being asked."""
    return DataError(
        f"{task}: num_fewshot asks for {asked} examples for each document, and of the {available} documents "
        f"that they are taken from {others} are other than the document itself; lower num_fewshot, or name "
        "a split with more documents as fewshot_split"
    )


def holds_own_example(
    task: Any, document: Any, prompts: Iterable[str], around: tuple[str, str] | None
) -> bool:
    """Whether a prompt of a document holds it as an example of its task: its question with its answer.

    Args:
        around: what the chat template writes around questions (`around_turns`); None for plain text.
    """
    try:
        turns = _turns(task, document)
    except (DataError, AssertionError, TypeError, ValueError, AttributeError, LookupError):
        return False  # what cannot be written as an example is none
    # The question stands at the end of its prompt once; searched for further is only what has it again.
    doubtful = [prompt for prompt in prompts if prompt.count(turns[0].content.strip()) > 1]
    return bool(doubtful) and any(map(_own_example(turns, around).search, doubtful))


def _own_example(turns: Sequence[Any], around: tuple[str, str] | None) -> re.Pattern[str]:
    written = "".join(turn.to_text() for turn in turns)
    if around is None:
        after_others = written[len(written.rstrip()) :] or "\n"
        return re.compile(rf"(?:\A|\n|{re.escape(after_others)})" + re.escape(written))
    opening, between = (re.escape(part.strip()) for part in around)
    question, *answer = (re.escape(turn.content.strip()) for turn in turns)
    in_turns = r"\s*".join([opening, question, between, *answer])
    in_one_text = rf"(?<!\w){re.escape(written.strip())}(?!\w)"  # as in a system prompt
    return re.compile(f"{in_turns}|{in_one_text}")


def _turns(task: Any, document: Any) -> list[Any]:
    """A document as lm-eval writes it into prompts of others."""
    config = task.fewshot_cfg
    question = task.doc_to_text(document, config.doc_to_text)
    choices = task.doc_to_choice(document, config.doc_to_choice) if config.doc_to_choice else None
    if task.multiple_input:
        question, choices = choices[question], None  # type: ignore[index]
    turns: list[Any] = task.build_qa_turn(
        q=question,
        c=choices,
        a=task.doc_to_target(document, config.doc_to_target),
        gen_prefix=task.resolve_field(document, config.gen_prefix),
        tgt_delim=config.target_delimiter,
        few_delim=config.fewshot_delimiter,
    )
    return turns


def around_turns(chat: Callable[..., Any]) -> tuple[str, str] | None:
    """What a chat template writes before a question, and between it and its answer; None if it hides them."""
    roles = ("user", "assistant", "user")
    turns = [{"role": role, "content": mark} for role, mark in zip(roles, _MARKS, strict=True)]
    written = chat(turns, add_generation_prompt=True)
    if not isinstance(written, str):
        return None
    parts = re.split("|".join(_MARKS), written)
    if len(parts) != len(_MARKS) + 1:
        return None
    first, between, second, _ = parts
    length = 0
    while length < min(len(first), len(second)) and first[-1 - length] == second[-1 - length]:
        length += 1
    return first[len(first) - length :], between
