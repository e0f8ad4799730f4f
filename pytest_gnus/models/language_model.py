"""The MLX language model as lm-eval sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import mlx.nn as nn
from lm_eval.api.instance import Instance

from pytest_gnus.errors import ModelError, listed
from pytest_gnus.models.embedding import embedding_rows
from pytest_gnus.models.generation import GenerationRequest, Generator
from pytest_gnus.models.memory import TokenBudget, default_batch_tokens
from pytest_gnus.models.prefix_tree import TokenSequence
from pytest_gnus.models.scoring import ScoringEngine
from pytest_gnus.models.token_model import (
    GenerationSettings,
    TokenLanguageModel,
    context_length,
    room_for_prompt,
)


class MLXLanguageModel(TokenLanguageModel):
    """Log-likelihood, rolling log-likelihood and generation on an mlx-lm model.

    Args:
        model: an mlx-lm model.
        tokenizer: mlx-lm's tokenizer wrapper.
        config: the model's `config.json` as a mapping.
        kernels: a context in which forward passes are run.
        batch_tokens: tokens of one pass; by default what the free memory allows.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        config: dict[str, Any],
        kernels: Callable[[], AbstractContextManager[None]] = nullcontext,
        batch_tokens: int | None = None,
    ) -> None:
        max_length = context_length(config, tokenizer)
        rows = embedding_rows(model)
        # The model reads all tokens but the last.
        super().__init__(tokenizer, max_length, sequence_length=max_length + 1, embedding_rows=rows)
        budget = TokenBudget(batch_tokens or default_batch_tokens(config))
        vocabulary_size = rows or _vocabulary_size(config, tokenizer)
        self._scoring = ScoringEngine(model, vocabulary_size, budget, kernels, self.usage.note)
        self._generator = Generator(
            model, tokenizer, lambda: self._scoring.strategy, budget, kernels, self.usage.note
        )

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """The tokens that end a text."""
        return tuple(sorted(self.tokenizer.eos_token_ids))

    def release(self) -> None:
        """Let go of the weights, even where a traceback still holds this object."""
        del self._scoring, self._generator

    def _score(self, sequences: Sequence[TokenSequence]) -> list[tuple[float, bool]]:
        found = self._scoring.score(sequences, self.progress.advance)
        self.usage.tokens_reused += found.reused
        return [(score.logprob, score.is_greedy) for score in found.scores]

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = True) -> list[str]:
        """Continuations up to the first stop string, the end of text, or the request's own limit."""
        prepared = [self._generation_request(*request.args) for request in requests]
        self._check_ids(request.prompt for request in prepared)
        self._check_end()
        self.usage.count_prompts(len(request.prompt) for request in prepared)
        self.progress.begin(len(prepared))
        found = self._generator.generate(prepared, self.progress.advance)
        self.usage.tokens_reused += found.reused
        for generation in found.generations:
            self.usage.generated_tokens += generation.tokens
            self.usage.stopped_by_string += generation.finish == "stop"
            self.usage.stopped_by_limit += generation.finish == "length"
        return [generation.text for generation in found.generations]

    def _check_end(self) -> None:
        """A model that cannot say its end tokens goes on to the limit with every output."""
        rows = self._embedding_rows
        beyond = [token for token in self.end_tokens if rows is not None and token >= rows]
        if beyond and beyond == list(self.end_tokens):
            raise ModelError(
                f"none of the end tokens {listed(map(str, beyond))} is among the {rows} rows of the model's "
                "embedding: no output would ever end"
            )
        if beyond:
            self.usage.note(f"the end tokens {listed(map(str, beyond))} have no row in the model's embedding")

    def _generation_request(self, context: str, settings: dict[str, Any]) -> GenerationRequest:
        asked = GenerationSettings.of(settings)
        asked.tell_unknown(self.usage)
        room = room_for_prompt(self.max_length, asked.max_tokens)
        tokens = self.tok_encode(context) or [self.prefix_token_id]
        self.usage.truncated_prompts += len(tokens) > room
        return GenerationRequest(
            prompt=tuple(tokens[-room:]),
            max_tokens=asked.max_tokens,
            stop=asked.stop,
            temperature=asked.temperature,
            top_p=asked.top_p,
            top_k=asked.top_k,
        )


def _vocabulary_size(config: dict[str, Any], tokenizer: Any) -> int:
    text_config = config.get("text_config") or {}
    return int(config.get("vocab_size") or text_config.get("vocab_size") or tokenizer.vocab_size)
