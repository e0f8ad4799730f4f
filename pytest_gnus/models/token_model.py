"""What the models have in common that see requests as token ids: how texts become tokens, and what is cut."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval import utils as lm_eval_utils
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs

from pytest_gnus.errors import EvaluationError, ModelError
from pytest_gnus.models.chat_prompts import ChatPrompts, note_open_blocks
from pytest_gnus.models.prefix_tree import TokenSequence
from pytest_gnus.models.progress import NoProgress, Progress
from pytest_gnus.models.usage import Usage

DEFAULT_GENERATED_TOKENS = 256
_LENGTH_KEYS = ("n_positions", "max_position_embeddings", "n_ctx", "max_seq_len", "model_max_length")
_DEFAULT_LENGTH = 2048
_SETTINGS = {"max_gen_toks", "until", "do_sample", "temperature", "top_p", "top_k"}


@dataclass(frozen=True)
class GenerationSettings:
    """What a request says of its output. `temperature` 0 is greedy. `unknown` are settings not known here."""

    max_tokens: int
    stop: tuple[str, ...]
    temperature: float
    top_p: float
    top_k: int
    unknown: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> GenerationSettings:
        """lm-eval's settings of a request, whatever their spelling."""
        plain = normalize_gen_kwargs(dict(settings), DEFAULT_GENERATED_TOKENS)
        return cls(
            max_tokens=int(plain["max_gen_toks"]),
            stop=tuple(handle_stop_sequences(plain.get("until"), eos=None)),
            temperature=float(plain["temperature"]) if plain["do_sample"] else 0.0,
            top_p=float(plain.get("top_p") or 0.0),
            top_k=int(plain.get("top_k") or 0),
            unknown=tuple(sorted(plain.keys() - _SETTINGS)),
        )

    def tell_unknown(self, usage: Usage) -> None:
        """A setting that changes nothing must not look as if it had been obeyed."""
        for name in self.unknown:
            usage.note(f"the generation setting {name!r} is not known to this model and changes nothing")


@dataclass(frozen=True)
class _Encoded:
    """A log-likelihood request as token ids; `whole` says whether its context survived entire."""

    sequence: TokenSequence
    whole: bool


class TokenLanguageModel(ChatPrompts, TemplateLM):
    """An lm-eval model that is asked for the log-probabilities of token sequences.

    Args:
        tokenizer: of transformers, or what behaves as one.
        max_length: tokens that the model reads at most.
        sequence_length: tokens of a sequence with its last scored token; a model that need not read the last
            one takes one more than it reads.
        embedding_rows: how many token ids the model can be given, where that is known.
    """

    def __init__(
        self, tokenizer: Any, max_length: int, sequence_length: int, embedding_rows: int | None = None
    ) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.usage = Usage()
        self.max_length = max_length
        self.progress: Progress = NoProgress()
        self._sequence_length = sequence_length
        self._embedding_rows = embedding_rows

    @abc.abstractmethod
    def _score(self, sequences: Sequence[TokenSequence]) -> Sequence[tuple[float, bool]]:
        """Each sequence's log-probability of its scored tokens, and whether each is the likeliest."""

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

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_keywords: Any) -> list[int]:
        """Token ids, with exactly one BOS where the tokenizer adds one or the text brings it."""
        if add_special_tokens is None:
            bos = self.tokenizer.decode([self.prefix_token_id])
            add_special_tokens = not (bos and string.startswith(bos))
        return list(self.tokenizer.encode(string, add_special_tokens=add_special_tokens))

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        note_open_blocks(requests, self.usage)
        scores: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm=True)
        return scores

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        split: tuple[list[int], list[int]] = super()._encode_pair(context, continuation)
        return with_continuation(self, split, context, continuation)

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **_keywords: Any
    ) -> list[tuple[float, bool]]:
        encoded = [self._fitted(context, continuation) for _, context, continuation in requests]
        self.usage.count_prompts(len(e.sequence.tokens) for e in encoded)
        self.usage.truncated_prompts += sum(not e.whole for e in encoded)
        scored = [index for index, e in enumerate(encoded) if e.sequence.scored]
        self.progress.begin(len(scored))
        sequences = [encoded[index].sequence for index in scored]
        self._check_ids(sequence.tokens for sequence in sequences)
        found = self._score(sequences)
        # An empty continuation is certain: the empty product.
        results = [(0.0, True)] * len(encoded)
        for index, score in zip(scored, found, strict=True):
            results[index] = score
        return results

    def _check_ids(self, sequences: Iterable[Sequence[int]]) -> None:
        check_token_ids(sequences, self._embedding_rows)

    def _fitted(self, context: list[int], continuation: list[int]) -> _Encoded:
        """Context and continuation, with the oldest context dropped where both are too long."""
        if len(continuation) >= self._sequence_length:
            raise continuation_too_long(len(continuation), self.max_length)
        tokens = [*(context or [self.prefix_token_id]), *continuation]
        kept = tokens[-self._sequence_length :]
        return _Encoded(TokenSequence(tuple(kept), len(continuation)), len(kept) == len(tokens))

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = True) -> list[float]:
        """The log-likelihood of whole texts, each token predicted once with as much context as fits."""
        windows = [list(self._windows(request.args[0])) for request in requests]
        flat = [window for document in windows for window in document]
        self.usage.count_prompts(len(window.tokens) for window in flat)
        self.usage.truncated_prompts += 0  # a text that is too long is read in several windows
        self._check_ids(window.tokens for window in flat)
        self.progress.begin(len(flat))
        scores = iter(self._score(flat))
        return [sum(next(scores)[0] for _ in document) for document in windows]

    def _windows(self, text: str) -> Iterator[TokenSequence]:
        for pair in lm_eval_utils.get_rolling_token_windows(
            token_list=self.tok_encode(text),
            prefix_token=self.prefix_token_id,
            max_seq_len=self._sequence_length - 1,
            context_len=1,
        ):
            context, predicted = lm_eval_utils.make_disjoint_window(pair)
            yield TokenSequence((*context, *predicted), len(predicted))


def with_continuation(
    model: TemplateLM, split: tuple[list[int], list[int]], context: str, continuation: str
) -> tuple[list[int], list[int]]:
    """lm-eval's split, and a continuation of at least one token where the border was merged away."""
    if split[1] or not continuation:
        return split
    whole = model.tok_encode(context + continuation)
    shared = _common_prefix(whole[:-1], split[0])
    return whole[:shared], whole[shared:]


def check_token_ids(sequences: Iterable[Sequence[int]], rows: int | None) -> None:
    """See that a model's embedding has a row for each token.

    Raises:
        ModelError: naming the largest id and the rows.
    """
    largest = max((max(tokens) for tokens in sequences if tokens), default=-1)
    if rows is not None and largest >= rows:
        raise ModelError(
            f"the tokenizer gives the token id {largest}, but the model's embedding has {rows} rows, for ids "
            f"up to {rows - 1}: it is not this model's, or tokens were added to it that the model lacks"
        )


def continuation_too_long(tokens: int, max_length: int) -> EvaluationError:
    return EvaluationError(
        f"a continuation of {tokens} tokens does not fit the model's context of {max_length} tokens"
    )


def room_for_prompt(max_length: int, max_tokens: int) -> int:
    """The tokens that a prompt may have where so many are to be generated.

    Raises:
        EvaluationError: none.
    """
    room = max_length - max_tokens
    if room < 1:
        raise EvaluationError(
            f"max_gen_toks is {max_tokens}, but the model's context holds {max_length} tokens, prompt "
            "included: lower max_gen_toks in the task's generation_kwargs"
        )
    return room


def cut_at_stop(text: str, stops: Sequence[str]) -> str:
    """The text before the first of the stop strings; an empty stop string is none."""
    found = [position for stop in stops if stop and (position := text.find(stop)) >= 0]
    return text[: min(found)] if found else text


def context_length(config: Mapping[str, Any], tokenizer: Any) -> int:
    """The number of tokens that a model reads at most, as lm-eval's `hf` model finds it."""
    for source in (config, config.get("text_config") or {}):
        for key in _LENGTH_KEYS:
            value = source.get(key)
            if isinstance(value, int) and value > 0:
                return value
    length = getattr(tokenizer, "model_max_length", None)
    # transformers gives 1e30 where a tokenizer names no length
    return int(length) if length and length < 10**9 else _DEFAULT_LENGTH


def _common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
