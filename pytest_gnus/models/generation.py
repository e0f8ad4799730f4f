"""Greedy or sampled continuations under an MLX model, with stop strings.

mlx-lm's `BatchGenerator` does continuous batching; this module takes a request out of its batch at the token
in which one of its stop strings completes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import mlx.nn as nn
from mlx_lm.generate import BatchGenerator
from mlx_lm.sample_utils import make_sampler

Finish = Literal["stop", "end", "length"]

_COMPLETION_BATCH = 32
_PREFILL_BATCH = 8


@dataclass(frozen=True)
class GenerationRequest:
    """One prompt (token ids, not empty) with its own limits.

    `max_tokens` counts generated tokens. `temperature` 0 is greedy.
    """

    prompt: tuple[int, ...]
    max_tokens: int
    stop: tuple[str, ...] = ()
    temperature: float = 0.0
    top_p: float = 0.0
    top_k: int = 0


@dataclass(frozen=True)
class Generation:
    """The text before the first stop string, how many tokens were made, and what ended it.

    `finish`: "stop" at a stop string, "end" at an end-of-text token, "length" at the token limit.
    """

    text: str
    tokens: int
    finish: Finish


@dataclass
class _Stream:
    """One request while it runs."""

    request: GenerationRequest
    tokens: list[int] = field(default_factory=list)
    answer_start: int = 0
    finish: Finish | None = None


class Generator:
    """Generates with one model; `tokenizer` is mlx-lm's wrapper."""

    def __init__(self, model: nn.Module, tokenizer: Any) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._end_tokens = frozenset(tokenizer.eos_token_ids)

    def generate(
        self, requests: Sequence[GenerationRequest], advance: Callable[[int], None] = lambda _: None
    ) -> list[Generation]:
        """One `Generation` per request, in the given order; `advance` hears how many are done."""
        if not requests:
            return []
        engine = BatchGenerator(
            self._model,
            stop_tokens=[[token] for token in sorted(self._end_tokens)],
            completion_batch_size=_COMPLETION_BATCH,
            prefill_batch_size=_PREFILL_BATCH,
        )
        try:
            # Longest prompts first: batches of similar length, and memory peaks at the start.
            order = sorted(range(len(requests)), key=lambda i: -len(requests[i].prompt))
            streams = [_Stream(requests[i]) for i in order]
            uids = engine.insert(
                [list(s.request.prompt) for s in streams],
                [s.request.max_tokens for s in streams],
                samplers=[_sampler(s.request) for s in streams],
            )
            self._run(engine, dict(zip(uids, streams, strict=True)), advance)
        finally:
            engine.close()
        done = {index: self._result(stream) for index, stream in zip(order, streams, strict=True)}
        return [done[index] for index in range(len(requests))]

    def _run(self, engine: Any, running: dict[int, _Stream], advance: Callable[[int], None]) -> None:
        while running:
            responses = engine.next_generated()
            if not responses:
                break
            stopped = []
            for response in responses:
                stream = running[response.uid]
                self._take(stream, response.token, response.finish_reason)
                if stream.finish is not None:
                    del running[response.uid]
                    advance(1)
                    if response.finish_reason is None:
                        stopped.append(response.uid)
            if stopped:
                engine.remove(stopped)

    def _take(self, stream: _Stream, token: int, finish_reason: str | None) -> None:
        if token in self._end_tokens:
            stream.finish = "end"
            return
        stream.tokens.append(token)
        if self._completes_stop(stream):
            stream.finish = "stop"
        elif finish_reason is not None:
            stream.finish = "length"

    def _completes_stop(self, stream: _Stream) -> bool:
        """Whether a stop string stands in the answer so far; reasoning is no part of the answer."""
        think_end = self._tokenizer.think_end if self._tokenizer.has_thinking else None
        if not stream.request.stop and not think_end:
            return False
        text = self._tokenizer.decode(stream.tokens[stream.answer_start :])
        if think_end:
            if think_end in text:
                stream.answer_start = len(stream.tokens)
                return False
            if stream.answer_start == 0 and self._is_reasoning(stream, text):
                return False
        if stream.answer_start:
            text = text.lstrip()
        return any(stop in text for stop in stream.request.stop)

    def _is_reasoning(self, stream: _Stream, text: str) -> bool:
        think_start = self._tokenizer.think_start
        head = text.lstrip()
        begun = bool(head) and (head.startswith(think_start) or think_start.startswith(head))
        return begun or self._opens_reasoning(stream.request.prompt)

    def _opens_reasoning(self, prompt: Sequence[int]) -> bool:
        """Some chat templates end the prompt with the opening mark."""
        tail: str = self._tokenizer.decode(list(prompt[-8:]))
        return tail.rstrip().endswith(self._tokenizer.think_start)

    def _result(self, stream: _Stream) -> Generation:
        tokens = stream.tokens[stream.answer_start :]
        text = self._tokenizer.decode(tokens, skip_special_tokens=True)
        if stream.answer_start:
            text = text.lstrip()
        return Generation(
            text=cut_at_stop(text, stream.request.stop),
            tokens=len(stream.tokens),
            finish=stream.finish or "length",
        )


def cut_at_stop(text: str, stops: Sequence[str]) -> str:
    """The text before the first of the stop strings; an empty stop string is none."""
    found = [position for stop in stops if stop and (position := text.find(stop)) >= 0]
    return text[: min(found)] if found else text


def _sampler(request: GenerationRequest) -> Any:
    """`None` is the engine's own greedy choice, which it makes for the whole batch at once."""
    if request.temperature == 0.0:
        return None
    return make_sampler(temp=request.temperature, top_p=request.top_p, top_k=request.top_k)
