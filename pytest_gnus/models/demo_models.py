"""The product's own models: the embedded specialist, and two answerers that know nothing.

`demo:random` and `demo:constant` are sentinels: a benchmark on which one of them reaches its floor has a
floor that means nothing.
"""

from __future__ import annotations

import abc
import hashlib
import random
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from pytest_gnus.models.progress import NoProgress, Progress
from pytest_gnus.models.usage import Usage

_WORDS = (
    "about after again along began below carry cause clear close cover enough every final first given "
    "green group heard human later learn light might never night often order other paper place plant "
    "point right river round seven short small sound start state still story study their these thing "
    "think three under until water where which while white whole world would write young"
).split()
_ANSWER_WORDS = 24


class _KnowsNothing(LM):
    """A model without weights; both kinds run the whole path of a real one."""

    def __init__(self) -> None:
        super().__init__()
        self.usage = Usage()
        self.progress: Progress = NoProgress()

    def release(self) -> None:
        """There are no weights to let go of."""

    @property
    def tokenizer_name(self) -> str:
        return type(self).__name__

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        return "".join(f"{message['role']}: {message['content']}\n" for message in chat_history)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        return "{role}: {content}\n" if chat_template else None

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        self._count(requests)
        return [(self._logprob(*request.args), False) for request in requests]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        self._count(requests)
        return [self._logprob(request.args[0], "") for request in requests]

    def generate_until(self, requests: list[Instance]) -> list[str]:
        self._count(requests)
        return [self._answer(request.args[0]) for request in requests]

    def _count(self, requests: list[Instance]) -> None:
        self.usage.count_prompts(0 for _ in requests)
        self.usage.truncated_prompts += 0  # there is no context that a prompt could be longer than

    @abc.abstractmethod
    def _logprob(self, context: str, continuation: str) -> float: ...

    @abc.abstractmethod
    def _answer(self, context: str) -> str: ...


class RandomModel(_KnowsNothing):
    """Every choice is as likely to win as any other. The same text always gets the same answer."""

    def _logprob(self, context: str, continuation: str) -> float:
        return -10.0 * _generator(context, continuation).random()

    def _answer(self, context: str) -> str:
        return " ".join(_generator(context).choices(_WORDS, k=_ANSWER_WORDS))


class ConstantModel(_KnowsNothing):
    """The same answer to everything; where all choices are equal, the first wins."""

    def _logprob(self, context: str, continuation: str) -> float:
        return -1.0

    def _answer(self, context: str) -> str:
        return _WORDS[0]


def _generator(*texts: str) -> random.Random:
    return random.Random(hashlib.sha256("\0".join(texts).encode()).digest())


SENTINELS: dict[str, Any] = {"random": RandomModel, "constant": ConstantModel}
