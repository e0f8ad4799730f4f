"""lm-eval's torch model, which counts what it does and takes no setting from the model's own files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from pytest_gnus.models.chat_prompts import ChatPrompts, note_open_blocks
from pytest_gnus.models.end_tokens import end_tokens
from pytest_gnus.models.token_model import (
    GenerationSettings,
    check_token_ids,
    continuation_too_long,
    room_for_prompt,
    with_continuation,
)
from pytest_gnus.models.usage import Usage
from pytest_gnus.models.weight_files import tensor_names

#: The parts of transformers' report that must be empty.
_REPORTED = ("missing_keys", "unexpected_keys", "mismatched_keys")


class TorchLanguageModel(ChatPrompts, HFLM):
    """lm-eval's `hf` model with `usage`.

    `report` is what transformers and PEFT say of tensors that were missing or had no place; `embedding_rows`
    how many token ids the weights on disk have rows for.
    """

    def __init__(self, **arguments: Any) -> None:
        self.usage = Usage()
        self.report: dict[str, list[str]] = {}
        self.embedding_rows: int | None = None
        self.end_tokens: tuple[int, ...] = ()
        super().__init__(**arguments)

    def _create_model(self, *arguments: Any, **keywords: Any) -> None:
        reporting = _Reporting(self.AUTO_MODEL_CLASS)  # type: ignore[has-type]
        self.AUTO_MODEL_CLASS = reporting
        try:
            super()._create_model(*arguments, **keywords)
        finally:
            self.AUTO_MODEL_CLASS = reporting.model_class
        self.report = reporting.report
        self.embedding_rows = reporting.embedding_rows
        if keywords.get("peft"):
            if _brings_embeddings(Path(keywords["peft"])):
                self.embedding_rows = int(self._model.get_input_embeddings().weight.shape[0])
            # Loading the same adapter again is the way to PEFT's whole report.
            found = self._model.load_adapter(keywords["peft"], adapter_name="default")
            for kind in ("missing_keys", "unexpected_keys"):
                self.report[kind] = [*self.report[kind], *sorted(getattr(found, kind))]

    def decode_plainly(self, declared: tuple[int, ...] | None) -> None:
        """Drop the decoding that a model's `generation_config.json` recommends (D-03).

        transformers applies its repetition penalty to greedy decoding too. Which tokens end a text stays:
        those `declared` and the tokenizer's own.
        """
        from transformers import GenerationConfig

        self.end_tokens = end_tokens(declared, self.tokenizer)
        stored = getattr(self.model, "generation_config", None)
        if stored is not None:
            self.model.generation_config = GenerationConfig(
                bos_token_id=stored.bos_token_id,
                eos_token_id=list(self.end_tokens) or None,
                pad_token_id=stored.pad_token_id,
                decoder_start_token_id=stored.decoder_start_token_id,
            )

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        return with_continuation(self, super()._encode_pair(context, continuation), context, continuation)

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **keywords: Any
    ) -> list[tuple[float, bool]]:
        for _, context, continuation in requests:
            if len(continuation) > self.max_length:
                raise continuation_too_long(len(continuation), self.max_length)
            length = len(context) + len(continuation)
            self.usage.count_prompts([min(length, self.max_length + 1)])
            self.usage.truncated_prompts += length > self.max_length + 1
            check_token_ids([context, continuation], self.embedding_rows)
        scored = [index for index, request in enumerate(requests) if request[2]]
        # An empty continuation is certain: the empty product.
        results = [(0.0, True)] * len(requests)
        found = super()._loglikelihood_tokens([requests[index] for index in scored], **keywords)
        for index, answer in zip(scored, found, strict=True):
            results[index] = answer
        return results

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        note_open_blocks(requests, self.usage)
        scores: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm=True)
        return scores

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = True) -> list[str]:
        for request in requests:
            room_for_prompt(self.max_length, GenerationSettings.of(request.args[1]).max_tokens)
        texts: list[str] = super().generate_until(requests, disable_tqdm=True)
        return texts

    def tok_batch_encode(
        self,
        strings: list[str],
        padding_side: str = "left",
        left_truncate_len: int | None = None,
        truncation: bool = False,
    ) -> tuple[Any, Any]:
        tokens, mask = super().tok_batch_encode(strings, padding_side, None, truncation)
        lengths = mask.sum(dim=1)
        if left_truncate_len:
            self.usage.truncated_prompts += int((lengths > left_truncate_len).sum())
            tokens, mask = tokens[:, -left_truncate_len:], mask[:, -left_truncate_len:]
        check_token_ids([[int(tokens[mask.bool()].max())]], self.embedding_rows)
        self.usage.count_prompts(int(length) for length in mask.sum(dim=1))
        return tokens, mask

    def _model_generate(self, context: Any, max_length: int, stop: list[str], **keywords: Any) -> Any:
        tokens = super()._model_generate(context, max_length, stop, **keywords)
        room = max_length - context.shape[1]
        end_text = self.tok_decode([self.eot_token_id], skip_special_tokens=False)
        stops = [text for text in stop if text and text != end_text]
        for number, row in enumerate(tokens[:, context.shape[1] :].tolist()):
            ends = (index for index, token in enumerate(row) if token in self.end_tokens)
            length = next(ends, len(row))
            # An end token that is not a special one would stay in the text.
            tokens[number, context.shape[1] + length :] = self.eot_token_id
            self.usage.generated_tokens += length
            text = self.tok_decode(row[:length])
            if any(part in text for part in stops):
                self.usage.stopped_by_string += 1
            elif length == len(row) >= room:
                self.usage.stopped_by_limit += 1
        return tokens


def _brings_embeddings(adapter: Path) -> bool:
    """Whether an adapter may hold the rows of tokens that were added with it."""
    files = list(adapter.glob("adapter_model*.safetensors"))
    names = [name for file in files for name in tensor_names(file)]
    return not files or any("embed" in name or ".wte." in name for name in names)


class _Reporting:
    """A class of transformers' models that keeps what loading said of missing and unexpected tensors."""

    def __init__(self, model_class: Any) -> None:
        self.model_class = model_class
        self.report: dict[str, list[str]] = {}
        self.embedding_rows: int | None = None

    def from_pretrained(self, *arguments: Any, **keywords: Any) -> Any:
        model, found = self.model_class.from_pretrained(*arguments, output_loading_info=True, **keywords)
        self.report = {kind: sorted(map(str, found[kind])) for kind in _REPORTED}
        self.embedding_rows = int(model.get_input_embeddings().weight.shape[0])
        return model
