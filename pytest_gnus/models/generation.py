"""Greedy or sampled continuations under an MLX model, with stop strings.

What prompts have in common is run once. mlx-lm's `BatchGenerator` does continuous batching from there; this
module takes a request out of its batch at the token in which one of its stop strings completes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.generate import BatchGenerator, generate_step
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.sample_utils import make_sampler

from pytest_gnus.errors import EvaluationError
from pytest_gnus.models.memory import TokenBudget, is_out_of_memory
from pytest_gnus.models.path_cache import Paths, empty_paths, single_row_caches
from pytest_gnus.models.prefix_tree import Node, TokenSequence, cut, prefix_tree
from pytest_gnus.models.scoring import MINIMUM_SAVING, STRATEGIES, Advance, Strategy
from pytest_gnus.models.token_model import cut_at_stop

#: Caches behind what was run already, and the tokens still to be run.
_State = tuple[list[Any], tuple[int, ...]]

Finish = Literal["stop", "end", "length"]

#: Outputs that grow at the same time.
_COMPLETION_BATCH = 32


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


@dataclass(frozen=True)
class Generations:
    """One generation per request, in the order given, and how many prompt tokens were not run again."""

    generations: tuple[Generation, ...]
    reused: int


@dataclass
class _Stream:
    """One request while it runs."""

    request: GenerationRequest
    tokens: list[int] = field(default_factory=list)
    answer_start: int = 0
    finish: Finish | None = None

    def restart(self) -> None:
        """Forget what was made before memory ran out."""
        self.tokens.clear()
        self.answer_start = 0


@dataclass(frozen=True)
class _Begun:
    """Per prompt the caches behind what was run already, and its other tokens; how many were spared."""

    states: list[_State]
    reused: int


class Generator:
    """Generates with one model; `tokenizer` is mlx-lm's wrapper.

    Args:
        strategy: how much requests may share with this model; see `ScoringEngine`.
        budget: how many tokens a pass may have.
        kernels: a context in which forward passes are run.
        warn: hears that memory ran out and batches became smaller.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        strategy: Callable[[], Strategy],
        budget: TokenBudget,
        kernels: Callable[[], AbstractContextManager[None]] = nullcontext,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._strategy = strategy
        self._budget = budget
        self._kernels = kernels
        self._warn = warn
        self._rows = _COMPLETION_BATCH
        self._in_batches: bool | None = None
        self._end_tokens = frozenset(tokenizer.eos_token_ids)

    def generate(
        self, requests: Sequence[GenerationRequest], advance: Advance = lambda _requests, _tokens: None
    ) -> Generations:
        """One `Generation` per request.

        Raises:
            EvaluationError: not even one request fits into memory.
        """
        streams = [_Stream(request) for request in requests]
        with self._kernels():
            reused = 0
            while unfinished := [stream for stream in streams if stream.finish is None]:
                try:
                    reused = self._generate(unfinished, advance)
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(error):
                        raise
                    self._shrink(error)
        mx.clear_cache()
        return Generations(tuple(self._result(stream) for stream in streams), reused)

    def _shrink(self, error: BaseException) -> None:
        mx.clear_cache()
        if self._rows == 1:
            raise EvaluationError(f"no memory to generate even one output at a time: {error}") from error
        self._rows //= 2
        self._budget.halve()
        self._warn("memory ran out: fewer outputs were made at the same time from there on")

    def _generate(self, streams: Sequence[_Stream], advance: Advance) -> int:
        """Run streams to their ends; the number of prompt tokens that were not run again."""
        for stream in streams:
            stream.restart()
        begun = self._begun([stream.request.prompt for stream in streams])
        if self._batches():
            self._run_together(streams, begun.states, advance)
        else:
            for stream, (caches, rest) in zip(streams, begun.states, strict=True):
                self._run_alone(stream, caches, rest, advance)
        return begun.reused

    def _run_together(self, streams: Sequence[_Stream], states: Sequence[_State], advance: Advance) -> None:
        longest = max(len(rest) for _, rest in states)
        padded = self._strategy().padded == "all"
        engine = BatchGenerator(
            self._model,
            stop_tokens=[[token] for token in sorted(self._end_tokens)],
            completion_batch_size=self._rows,
            prefill_batch_size=max(1, min(self._rows, self._budget.tokens // longest)) if padded else 1,
            prefill_step_size=self._budget.tokens,
        )
        # Longest prompts first: batches of similar length, and memory peaks at the start.
        order = sorted(range(len(streams)), key=lambda index: -len(states[index][1]))
        try:
            uids = engine.insert(
                [list(states[index][1]) for index in order],
                [streams[index].request.max_tokens for index in order],
                caches=[states[index][0] for index in order],
                samplers=[_sampler(streams[index].request) for index in order],
            )
            self._run(engine, {uid: streams[i] for uid, i in zip(uids, order, strict=True)}, advance)
        finally:
            engine.close()

    def _batches(self) -> bool:
        """Whether mlx-lm's batches give this model's own tokens, tried out where there is any doubt."""
        if self._in_batches is None:
            mergeable = all(hasattr(cache, "merge") for cache in make_prompt_cache(self._model))
            first_choice = self._strategy() == STRATEGIES[0]
            last_resort = self._strategy() == STRATEGIES[-1]
            self._in_batches = mergeable and not last_resort and (first_choice or self._tried_out())
        return self._in_batches

    def _tried_out(self) -> bool:
        """A ragged batch against each prompt alone.

        Of three: a mask that is laid over the key heads instead of the rows fits by chance where a model has
        as many of both, and two or four key heads are common.
        """
        prompts = ((1, 2, 3, 4, 5), (5, 4), (2, 7, 3))
        requests = [GenerationRequest(prompt, 5) for prompt in prompts]
        batch, alone = ([_Stream(request) for request in requests] for _ in range(2))
        states = [(make_prompt_cache(self._model), request.prompt) for request in requests]
        try:
            self._run_together(batch, states, lambda _requests, _tokens: None)
        except (TypeError, ValueError, AttributeError, IndexError, KeyError):
            return False
        for stream in alone:
            caches = make_prompt_cache(self._model)
            self._run_alone(stream, caches, stream.request.prompt, lambda _requests, _tokens: None)
        return [stream.tokens for stream in batch] == [stream.tokens for stream in alone]

    def _begun(self, prompts: Sequence[tuple[int, ...]]) -> _Begun:
        """Run what prompts share; for each the caches behind it and the tokens still to be run."""
        strategy = self._strategy()
        saving = MINIMUM_SAVING if strategy.shared else math.inf
        tree = prefix_tree([TokenSequence(prompt, 0) for prompt in prompts], saving)
        paths = empty_paths(self._model, copied=strategy.copied)
        states: dict[int, _State] = {}
        run = self._begin(tree.root, paths, prompts, states, saving)
        for index, prompt in enumerate(prompts):  # of one token: nothing stands before the last
            states.setdefault(index, (make_prompt_cache(self._model), prompt))
        run += sum(len(rest) for _, rest in states.values())
        return _Begun([states[index] for index in range(len(prompts))], sum(map(len, prompts)) - run)

    def _begin(
        self,
        node: Node,
        paths: Paths,
        prompts: Sequence[tuple[int, ...]],
        states: dict[int, _State],
        saving: float,
    ) -> int:
        """Run what is shared below a node; the number of tokens that were run."""
        run = 0
        for child in node.children:
            # These go on with their last token, which is run for each of them whatever is shared.
            at_end = [i for i in child.ends if len(prompts[i]) - 1 == child.start + len(child.tokens)]
            shared = bool(child.children) or len(child.tokens) * (len(at_end) - 1) >= saving
            if not shared:
                at_end = []
            elif len(child.tokens) > self._budget.tokens:
                cut(child, self._budget.tokens)
                at_end = []
            self._hand_out(paths, [i for i in child.ends if i not in at_end], child.start, prompts, states)
            if shared:
                opened = paths.open([0], [len(child.tokens)])
                self._model(mx.array([child.tokens]), cache=opened)
                behind = paths.close(opened, [0], [len(child.tokens)])
                self._hand_out(behind, at_end, child.start + len(child.tokens), prompts, states)
                run += len(child.tokens) + self._begin(child, behind, prompts, states, saving)
        return run

    def _hand_out(
        self,
        paths: Paths,
        indices: Sequence[int],
        start: int,
        prompts: Sequence[tuple[int, ...]],
        states: dict[int, _State],
    ) -> None:
        """Caches behind a path for prompts that go on from there, each its own: some are written in place."""
        if indices:
            caches = single_row_caches(self._model, paths, 0)
            for index in indices:
                states[index] = (copy.deepcopy(caches), prompts[index][start:])

    def _run_alone(self, stream: _Stream, caches: list[Any], rest: tuple[int, ...], advance: Advance) -> None:
        """One request by itself, for caches that nobody can merge."""
        request = stream.request
        steps = generate_step(
            mx.array(rest),
            self._model,
            max_tokens=request.max_tokens,
            sampler=_sampler(request),
            prompt_cache=caches,
            prefill_step_size=self._budget.tokens,
        )
        for count, (token, _) in enumerate(steps, start=1):
            self._take(stream, int(token), "length" if count == request.max_tokens else None)
            if stream.finish is not None:
                break
        stream.finish = stream.finish or "length"
        advance(1, len(stream.tokens))

    def _run(self, engine: Any, running: dict[int, _Stream], advance: Advance) -> None:
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
                    advance(1, len(stream.request.prompt) + len(stream.tokens))
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


def _sampler(request: GenerationRequest) -> Any:
    """`None` is the engine's own greedy choice, which it makes for the whole batch at once."""
    if request.temperature == 0.0:
        return None
    return make_sampler(temp=request.temperature, top_p=request.top_p, top_k=request.top_k)
