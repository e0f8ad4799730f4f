"""A server of OpenAI's completions as a model: texts always, log-probabilities where it echoes a prompt's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lm_eval.api.instance import Instance

from pytest_gnus.errors import EvaluationError, GnusError, ModelError
from pytest_gnus.models.arguments import NamedArguments
from pytest_gnus.models.completions_server import CompletionsServer
from pytest_gnus.models.config_file import read_config
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.models.prefix_tree import TokenSequence
from pytest_gnus.models.provider import Abilities
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.models.token_model import (
    GenerationSettings,
    TokenLanguageModel,
    context_length,
    cut_at_stop,
    room_for_prompt,
)

#: OpenAI takes no more stop strings in one request; what is not sent is cut off here.
_STOPS_SENT = 4
#: How far one token's log-probability may differ between a prompt and a generation: kernels differ a little.
_SAME_LOGPROB = 0.1
_PROBE = "The quick brown fox jumps over the lazy"
_SEED = 1234
_NO_TOKENIZER = "its tokenizer is not known; name a directory or a hub id, as in openai:NAME,tokenizer=DIR"

_T = TypeVar("_T")
_R = TypeVar("_R")


def load(spec: ModelSpec) -> LoadedModel:
    """Reach the server that the environment names and see what it gives.

    Nobody can know which weights a server has, so `identity` is None.

    Raises:
        ModelError: no server, no such model on it, no such tokenizer.
    """
    if spec.adapter is not None:
        raise ModelError(f"openai:{spec.name}: an adapter cannot be given to a server; let it load one")
    arguments = NamedArguments.parse(spec.name)
    timeout = int(arguments.values.get("timeout", 300))
    server = CompletionsServer.from_environment(arguments.name, timeout)
    server.complete(prompt="Hello", max_tokens=1, temperature=0)
    name = arguments.values.get("tokenizer")
    tokenizer = _tokenizer(name) if name else None
    model = CompletionsModel(
        server,
        tokenizer,
        _max_length(arguments, tokenizer),
        concurrent=int(arguments.values.get("num_concurrent", 1)),
        think_end=arguments.values.get("think_end_token", ""),
    )
    reason = model.why_no_loglikelihood()
    abilities = Abilities(gives_loglikelihood=reason is None, reason=reason or "")
    return LoadedModel(spec=spec, lm=model, abilities=abilities)


def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name)
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"no tokenizer in {name}: {type(error).__name__}: {reason}") from error


def _max_length(arguments: NamedArguments, tokenizer: Any) -> int | None:
    """Tokens that the model reads at most, as far as that is known."""
    if "max_length" in arguments.values:
        return int(arguments.values["max_length"])
    if tokenizer is None:
        return None
    directory = Path(arguments.values["tokenizer"])
    config = read_config(directory) if (directory / "config.json").is_file() else {}
    return context_length(config, tokenizer)


@dataclass(frozen=True)
class _Prompt:
    """A text to be continued and how."""

    text: str
    settings: GenerationSettings


@dataclass(frozen=True)
class _Echo:
    """What a server says of a prompt's tokens, and of the one that it generated behind them."""

    logprobs: Sequence[float]
    likeliest: Sequence[float]
    tokens: Sequence[str]


class CompletionsModel(TokenLanguageModel):
    """A model behind a completions server.

    Prompts that are continued go out as text; those whose log-probabilities are asked for go out as token
    ids, so that nothing is tokenized twice.

    Args:
        tokenizer: the model's; None where only texts are to be generated.
        max_length: tokens that the model reads; None leaves it to the server to refuse what is too long.
        concurrent: requests under way at the same time.
        think_end: what ends a model's reasoning; stop strings hold behind it only.
    """

    def __init__(
        self,
        server: CompletionsServer,
        tokenizer: Any = None,
        max_length: int | None = None,
        concurrent: int = 1,
        think_end: str = "",
    ) -> None:
        self.sampling_seed = _SEED
        # The server generates one token behind each prompt, for which there must be room.
        length = max_length or 0
        super().__init__(tokenizer, length, sequence_length=length - 1)
        self._server = server
        self._concurrent = concurrent
        self._think_end = think_end

    def release(self) -> None:
        """There are no weights here to let go of."""

    @property
    def tokenizer_name(self) -> str:
        return super().tokenizer_name if self.tokenizer is not None else ""

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        if self.tokenizer is None:
            raise EvaluationError(f"no chat template for a completions server: {_NO_TOKENIZER}")
        return super().apply_chat_template(chat_history, add_generation_prompt)

    def why_no_loglikelihood(self) -> str | None:
        """Why the server's log-probabilities cannot be used; None where they can. Asks it twice.

        A token's log-probability must be the same where the server generated it and where it reads it in a
        prompt: then it stands at its own place, and is the model's.
        """
        if self.tokenizer is None:
            return _NO_TOKENIZER
        ids = self.tok_encode(_PROBE)
        try:
            first = self._echo(ids)
            if len(first.logprobs) == len(ids):
                return None  # it generates nothing behind an echo
            again = self.tokenizer.encode(first.tokens[-1], add_special_tokens=False)
            if len(again) != 1 or self.tokenizer.decode(again) != first.tokens[-1]:
                return None  # a text that is no token by itself
            second = self._echo([*ids, *again])
        except GnusError as error:
            return f"asked for those of a prompt's tokens: {error}"
        generated, read = first.logprobs[-1], second.logprobs[len(ids)]
        if not abs(generated - read) <= _SAME_LOGPROB:
            return (
                f"the server gives a token the log-probability {generated} where it generates it, and {read} "
                "where it reads it"
            )
        return None

    def _echo(self, ids: Sequence[int]) -> _Echo:
        """The log-probability of each token of a prompt, from all that stands before it.

        Raises:
            EvaluationError: the server does not give them.
        """
        answer = self._server.complete(prompt=list(ids), max_tokens=1, temperature=0, logprobs=1, echo=True)
        found = answer.get("logprobs")
        if not isinstance(found, Mapping) or not isinstance(found.get("token_logprobs"), list):
            raise EvaluationError("the server echoes no log-probabilities of a prompt")
        values = found["token_logprobs"]
        tops, tokens = found.get("top_logprobs"), found.get("tokens")
        # A server that ignores `echo` gives those of the generated token alone.
        if len(values) not in (len(ids), len(ids) + 1):
            raise EvaluationError(
                f"the server gives log-probabilities of {len(values)} tokens for a prompt of {len(ids)}: it "
                "echoes no prompt, or has cut it"
            )
        if (
            not isinstance(tops, list)
            or not isinstance(tokens, list)
            or not (len(tops) == len(tokens) == len(values))
        ):
            raise EvaluationError("the server does not say which tokens are the likeliest")
        return _Echo(
            logprobs=[_number(value) for value in values],
            likeliest=[max(map(_number, top.values())) if top else math.nan for top in tops],
            tokens=[str(token) for token in tokens],
        )

    def _score(self, sequences: Sequence[TokenSequence]) -> list[tuple[float, bool]]:
        scores = []
        for sequence, score in zip(sequences, self._each(self._scored, sequences), strict=True):
            scores.append(score)
            self.progress.advance(1, len(sequence.tokens))
        return scores

    def _scored(self, sequence: TokenSequence) -> tuple[float, bool]:
        echo = self._echo(sequence.tokens)
        end = len(sequence.tokens)
        scored = slice(end - sequence.scored, end)
        values, likeliest = echo.logprobs[scored], echo.likeliest[scored]
        return sum(values), all(value >= top for value, top in zip(values, likeliest, strict=True))

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = True) -> list[str]:
        """Continuations up to the first stop string, the end of text, or the request's own limit."""
        prompts = [self._prompt(*request.args) for request in requests]
        self.progress.begin(len(prompts))
        return [self._text(prompt, answer) for prompt, answer in self._answers(prompts)]

    def _answers(self, prompts: Sequence[_Prompt]) -> Iterator[tuple[_Prompt, Mapping[str, Any]]]:
        for prompt, answer in zip(prompts, self._each(self._continued, prompts), strict=True):
            usage = answer.get("usage") or {}
            read, made = (int(usage.get(f"{kind}_tokens") or 0) for kind in ("prompt", "completion"))
            self.usage.count_prompts([read])
            self.usage.generated_tokens += made
            self.progress.advance(1, read + made)
            yield prompt, answer

    def _prompt(self, context: str, settings: Mapping[str, Any]) -> _Prompt:
        asked = GenerationSettings.of(settings)
        asked.tell_unknown(self.usage)
        if self.tokenizer is None or not self.max_length:
            return _Prompt(context, asked)
        room = room_for_prompt(self.max_length, asked.max_tokens)
        text = self._end_of(context, room)
        self.usage.truncated_prompts += len(text) < len(context)
        return _Prompt(text, asked)

    def _end_of(self, text: str, room: int) -> str:
        """The end of a text that is no more than `room` tokens, cut between two of them."""
        ids = self.tok_encode(text, add_special_tokens=False)
        room -= len(self.tok_encode(text)) - len(ids)
        if len(ids) <= room:
            return text
        for start in range(len(ids) - max(room, 0), len(ids)):
            kept: str = self.tokenizer.decode(ids[start:])
            # A character may be made of several tokens: what is cut through has lost its beginning.
            if text.endswith(kept):
                return kept
        return ""

    def _continued(self, prompt: _Prompt) -> Mapping[str, Any]:
        settings = prompt.settings
        stops = [] if self._think_end else [stop for stop in settings.stop if stop][:_STOPS_SENT]
        sampled = {"seed": self.sampling_seed} if settings.temperature else {}
        return self._server.complete(
            prompt=prompt.text,
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            **({"stop": stops} if stops else {}),
            **({"top_p": settings.top_p} if settings.top_p else {}),
            **({"top_k": settings.top_k} if settings.top_k else {}),
            **sampled,
        )

    def _text(self, prompt: _Prompt, answer: Mapping[str, Any]) -> str:
        text = answer["text"]
        if self._think_end:
            text = text.rpartition(self._think_end)[2].lstrip() if self._think_end in text else text
        cut = cut_at_stop(text, prompt.settings.stop)
        finish, reason = answer.get("finish_reason"), answer.get("stop_reason")
        if cut != text or isinstance(reason, str):
            self.usage.stopped_by_string += 1
        elif finish == "length":
            self.usage.stopped_by_limit += 1
        elif prompt.settings.stop and "stop_reason" not in answer:
            self.usage.note(
                "the server does not say whether an output ended at a stop string or by itself: such are not "
                "counted as cut by a stop string"
            )
        return cut

    def _each(self, ask: Callable[[_T], _R], requests: Iterable[_T]) -> Iterator[_R]:
        """The answers in the order of the requests; after an error nothing more is asked."""
        if self._concurrent == 1:
            yield from map(ask, requests)
            return
        pool = ThreadPoolExecutor(self._concurrent)
        try:
            yield from pool.map(ask, requests)
        finally:
            pool.shutdown(cancel_futures=True)


def _number(value: Any) -> float:
    """A log-probability; NaN, which makes the item an error, where there is none."""
    return float(value) if isinstance(value, (int, float)) else math.nan
