"""The MLX language model as lm-eval sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import mlx.nn as nn
from lm_eval import utils as lm_eval_utils
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs

from pytest_gnus.errors import EvaluationError
from pytest_gnus.models.generation import GenerationRequest, Generator
from pytest_gnus.models.memory import TokenBudget, default_batch_tokens
from pytest_gnus.models.prefix_tree import TokenSequence
from pytest_gnus.models.progress import NoProgress, Progress
from pytest_gnus.models.scoring import ScoringEngine
from pytest_gnus.models.usage import Usage

_LENGTH_KEYS = ("n_positions", "max_position_embeddings", "n_ctx", "max_seq_len", "model_max_length")
_DEFAULT_LENGTH = 2048
_DEFAULT_GENERATED_TOKENS = 256


@dataclass(frozen=True)
class _Encoded:
    """A log-likelihood request as token ids; `whole` says whether its context survived entire."""

    sequence: TokenSequence
    whole: bool


class MLXLanguageModel(TemplateLM):
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
        super().__init__()
        self.tokenizer = tokenizer
        self.usage = Usage()
        self.max_length = _context_length(config, tokenizer)
        self.progress: Progress = NoProgress()
        budget = TokenBudget(batch_tokens or default_batch_tokens(config))
        vocabulary_size = _vocabulary_size(config, tokenizer)
        self._scoring = ScoringEngine(model, vocabulary_size, budget, kernels, self.usage.note)
        self._generator = Generator(
            model, tokenizer, lambda: self._scoring.strategy, budget, kernels, self.usage.note
        )

    @property
    def eot_token_id(self) -> int:
        return int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int:
        """What stands before an empty context: BOS, else EOS, as in lm-eval's `hf` model."""
        bos = self.tokenizer.bos_token_id
        return int(bos) if bos is not None else self.eot_token_id

    @property
    def tokenizer_name(self) -> str:
        return str(self.tokenizer.name_or_path).replace("/", "__")

    def release(self) -> None:
        """Let go of the weights, even where a traceback still holds this object."""
        del self._scoring, self._generator

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        text: str = self.tokenizer.apply_chat_template(
            chat_history,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )
        return text

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_keywords: Any) -> list[int]:
        """Token ids, with exactly one BOS where the tokenizer adds one or the text brings it."""
        if add_special_tokens is None:
            bos = self.tokenizer.decode([self.prefix_token_id])
            add_special_tokens = not (bos and string.startswith(bos))
        return list(self.tokenizer.encode(string, add_special_tokens=add_special_tokens))

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        scores: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm=True)
        return scores

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """lm-eval's split, and a continuation of at least one token where the border was merged away."""
        context_ids, continuation_ids = super()._encode_pair(context, continuation)
        if continuation_ids or not continuation:
            return context_ids, continuation_ids
        whole = self.tok_encode(context + continuation)
        shared = _common_prefix(whole[:-1], context_ids)
        return whole[:shared], whole[shared:]

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **_keywords: Any
    ) -> list[tuple[float, bool]]:
        encoded = [self._fitted(context, continuation) for _, context, continuation in requests]
        self.usage.count_prompts(len(e.sequence.tokens) for e in encoded)
        self.usage.truncated_prompts += sum(not e.whole for e in encoded)
        scored = [index for index, e in enumerate(encoded) if e.sequence.scored]
        self.progress.begin(len(scored))
        found = self._scoring.score([encoded[index].sequence for index in scored], self.progress.advance)
        self.usage.tokens_reused += found.reused
        # An empty continuation is certain: the empty product.
        results = [(0.0, True)] * len(encoded)
        for index, score in zip(scored, found.scores, strict=True):
            results[index] = (score.logprob, score.is_greedy)
        return results

    def _fitted(self, context: list[int], continuation: list[int]) -> _Encoded:
        """Context and continuation, with the oldest context dropped where both are longer than the window.

        The model reads all tokens but the last, so the window holds one token more than it reads.
        """
        if len(continuation) > self.max_length:
            raise EvaluationError(
                f"a continuation of {len(continuation)} tokens does not fit the model's context of "
                f"{self.max_length} tokens"
            )
        tokens = [*(context or [self.prefix_token_id]), *continuation]
        kept = tokens[-(self.max_length + 1) :]
        return _Encoded(TokenSequence(tuple(kept), len(continuation)), len(kept) == len(tokens))

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = True) -> list[float]:
        """The log-likelihood of whole texts, each token predicted once with as much context as fits."""
        windows = [list(self._windows(request.args[0])) for request in requests]
        flat = [window for document in windows for window in document]
        self.usage.count_prompts(len(window.tokens) for window in flat)
        self.progress.begin(len(flat))
        found = self._scoring.score(flat, self.progress.advance)
        self.usage.tokens_reused += found.reused
        scores = iter(found.scores)
        return [sum(next(scores).logprob for _ in document) for document in windows]

    def _windows(self, text: str) -> Iterator[TokenSequence]:
        for pair in lm_eval_utils.get_rolling_token_windows(
            token_list=self.tok_encode(text),
            prefix_token=self.prefix_token_id,
            max_seq_len=self.max_length,
            context_len=1,
        ):
            context, predicted = lm_eval_utils.make_disjoint_window(pair)
            yield TokenSequence((*context, *predicted), len(predicted))

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = True) -> list[str]:
        """Continuations up to the first stop string, the end of text, or the request's own limit."""
        prepared = [self._generation_request(*request.args) for request in requests]
        self.usage.count_prompts(len(request.prompt) for request in prepared)
        self.progress.begin(len(prepared))
        found = self._generator.generate(prepared, self.progress.advance)
        self.usage.tokens_reused += found.reused
        for generation in found.generations:
            self.usage.generated_tokens += generation.tokens
            self.usage.stopped_by_string += generation.finish == "stop"
            self.usage.stopped_by_limit += generation.finish == "length"
        return [generation.text for generation in found.generations]

    def _generation_request(self, context: str, settings: dict[str, Any]) -> GenerationRequest:
        settings = normalize_gen_kwargs(settings, _DEFAULT_GENERATED_TOKENS)
        limit = int(settings["max_gen_toks"])
        room = self.max_length - limit
        if room < 1:
            raise EvaluationError(
                f"max_gen_toks is {limit}, but the model's context holds {self.max_length} tokens, prompt "
                "included: lower max_gen_toks in the task's generation_kwargs"
            )
        tokens = self.tok_encode(context) or [self.prefix_token_id]
        self.usage.truncated_prompts += len(tokens) > room
        return GenerationRequest(
            prompt=tuple(tokens[-room:]),
            max_tokens=limit,
            stop=tuple(handle_stop_sequences(settings.get("until"), eos=None)),
            temperature=float(settings["temperature"]) if settings["do_sample"] else 0.0,
            top_p=float(settings.get("top_p") or 0.0),
            top_k=int(settings.get("top_k") or 0),
        )


def _common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _context_length(config: dict[str, Any], tokenizer: Any) -> int:
    """The number of tokens that the model reads at most, as lm-eval's `hf` model finds it."""
    for source in (config, config.get("text_config") or {}):
        for key in _LENGTH_KEYS:
            value = source.get(key)
            if isinstance(value, int) and value > 0:
                return value
    length = getattr(tokenizer, "model_max_length", None)
    # transformers gives 1e30 where a tokenizer names no length
    return int(length) if length and length < 10**9 else _DEFAULT_LENGTH


def _vocabulary_size(config: dict[str, Any], tokenizer: Any) -> int:
    text_config = config.get("text_config") or {}
    return int(config.get("vocab_size") or text_config.get("vocab_size") or tokenizer.vocab_size)
