"""lm-eval's torch model, which counts what it does and takes no setting from the model's own files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from pytest_gnus.models.token_model import (
    GenerationSettings,
    continuation_too_long,
    room_for_prompt,
    with_continuation,
)
from pytest_gnus.models.usage import Usage


class TorchLanguageModel(HFLM):
    """lm-eval's `hf` model with `usage`."""

    def __init__(self, **arguments: Any) -> None:
        self.usage = Usage()
        super().__init__(**arguments)
        self._decode_plainly()

    def _decode_plainly(self) -> None:
        """Drop the decoding that a model's `generation_config.json` recommends (D-03).

        transformers applies its repetition penalty to greedy decoding too. Which tokens end a text stays.
        """
        from transformers import GenerationConfig

        stored = getattr(self.model, "generation_config", None)
        if stored is not None:
            self.model.generation_config = GenerationConfig(
                bos_token_id=stored.bos_token_id,
                eos_token_id=stored.eos_token_id,
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
        scored = [index for index, request in enumerate(requests) if request[2]]
        # An empty continuation is certain: the empty product.
        results = [(0.0, True)] * len(requests)
        found = super()._loglikelihood_tokens([requests[index] for index in scored], **keywords)
        for index, answer in zip(scored, found, strict=True):
            results[index] = answer
        return results

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
        self.usage.count_prompts(int(length) for length in mask.sum(dim=1))
        return tokens, mask

    def _model_generate(self, context: Any, max_length: int, stop: list[str], **keywords: Any) -> Any:
        tokens = super()._model_generate(context, max_length, stop, **keywords)
        room = max_length - context.shape[1]
        ends = self._end_tokens()
        end_text = self.tok_decode([self.eot_token_id], skip_special_tokens=False)
        stops = [text for text in stop if text and text != end_text]
        for row in tokens[:, context.shape[1] :].tolist():
            length = next((index for index, token in enumerate(row) if token in ends), len(row))
            self.usage.generated_tokens += length
            text = self.tok_decode(row[:length])
            if any(part in text for part in stops):
                self.usage.stopped_by_string += 1
            elif length == len(row) >= room:
                self.usage.stopped_by_limit += 1
        return tokens

    def _end_tokens(self) -> frozenset[int]:
        configured = self.model.generation_config.eos_token_id
        listed = configured if isinstance(configured, list) else [configured]
        return frozenset(token for token in (*listed, self.eot_token_id) if token is not None)
