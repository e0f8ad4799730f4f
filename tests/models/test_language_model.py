"""The model as lm-eval sees it: splitting, windows, BOS, limits; on the embedded specialist."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from lm_eval.api.instance import Instance

from pytest_gnus.errors import EvaluationError
from pytest_gnus.models.language_model import MLXLanguageModel

TEXTS = [
    ("Abstract: A pump for water with a valve and a rotor.\nCPC section:", " F"),
    ("Abstract: A pump for water with a valve and a rotor.\nCPC section:", " A"),
    ("Abstract: A loom with a shuttle.\nCPC section: ", "D"),
    ("Description: The present invention relates to", " a compressor and to a"),
    ("", "A device"),
    ("xyz", "xyz"),
]


def requests(pairs: list[tuple[Any, ...]], kind: str = "loglikelihood") -> list[Instance]:
    return [Instance(kind, {}, pair, index) for index, pair in enumerate(pairs)]


def raw(embedded: Any) -> tuple[Any, Any]:
    """The model and tokenizer inside the language model."""
    return embedded.lm._generator._model, embedded.lm.tokenizer


def logprobs_of(model: Any, tokens: list[int]) -> np.ndarray:
    """(position, vocabulary) log-probabilities in double precision, of one plain forward pass."""
    logits = np.array(model(mx.array([tokens]))[0].astype(mx.float32), dtype=np.float64)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def test_loglikelihoods_equal_a_naive_forward_pass_per_request(embedded: Any) -> None:
    model, tokenizer = raw(embedded)
    scores = embedded.lm.loglikelihood(requests(TEXTS))
    for (context, continuation), (logprob, _) in zip(TEXTS, scores, strict=True):
        if context:
            stripped = context.rstrip()
            moved = context[len(stripped) :] + continuation
            whole = tokenizer.encode(stripped + moved)
            start = len(tokenizer.encode(stripped))
        else:
            whole = [tokenizer.eos_token_id, *tokenizer.encode(continuation)]
            start = 1
        table = logprobs_of(model, whole)
        expected = sum(table[position - 1, whole[position]] for position in range(start, len(whole)))
        assert logprob == pytest.approx(expected, abs=1e-4)


def test_a_continuation_merged_into_its_context_still_has_a_token(embedded: Any) -> None:
    """The tokenizer merges across the border: encoding apart would score other tokens, or none."""
    _, tokenizer = raw(embedded)
    word = next(
        text
        for text in (tokenizer.decode([token]) for token in range(300, 1400))
        if text.strip().isalpha() and len(text.strip()) > 4 and len(tokenizer.encode(text)) == 1
    )
    context, continuation = word[:-1], word[-1]
    assert len(tokenizer.encode(context + continuation)) == 1
    context_ids, continuation_ids = embedded.lm._encode_pair(context, continuation)
    assert context_ids + continuation_ids == tokenizer.encode(word)
    assert len(continuation_ids) == 1
    ((logprob, _),) = embedded.lm.loglikelihood(requests([(context, continuation)]))
    assert np.isfinite(logprob)
    assert logprob < 0


def test_trailing_spaces_move_to_the_continuation(embedded: Any) -> None:
    spaced = embedded.lm.loglikelihood(requests([("CPC section: ", "A")]))
    joined = embedded.lm.loglikelihood(requests([("CPC section:", " A")]))
    assert spaced[0][0] == pytest.approx(joined[0][0], abs=1e-6)


def test_an_empty_continuation_is_certain(embedded: Any) -> None:
    assert embedded.lm.loglikelihood(requests([("Abstract:", "")])) == [(0.0, True)]


def test_long_requests_keep_the_continuation_and_the_end_of_the_context(embedded: Any) -> None:
    model, tokenizer = raw(embedded)
    limit = embedded.lm.max_length
    assert limit == 512
    context = "The valve opens and the rotor turns. " * 200
    embedded.lm.usage.reset()
    pairs = [(context, " F"), (context, " A"), ("short", " A")]
    scores = embedded.lm.loglikelihood(requests(pairs))
    assert embedded.lm.usage.truncated_prompts == 2
    for (text, continuation), (logprob, _) in zip(pairs[:2], scores[:2], strict=True):
        context_ids, continuation_ids = embedded.lm._encode_pair(text, continuation)
        kept = (context_ids + continuation_ids)[-(limit + 1) :]
        table = logprobs_of(model, kept[:-1])
        expected = sum(
            table[len(kept) - 1 - len(continuation_ids) + i, token]
            for i, token in enumerate(continuation_ids)
        )
        assert logprob == pytest.approx(expected, abs=1e-4)
    assert len(tokenizer.encode(context)) > limit
    assert scores[0][0] != scores[1][0]


def test_a_continuation_longer_than_the_context_is_refused(embedded: Any) -> None:
    with pytest.raises(EvaluationError, match=r"a continuation of \d+ tokens does not fit .* 512"):
        embedded.lm.loglikelihood(requests([("a", " valve rotor pump" * 300)]))


def test_rolling_predicts_every_token_once_with_all_the_context_that_fits(embedded: Any) -> None:
    model, tokenizer = raw(embedded)
    short = "A pump with a valve."
    long = "The valve opens and the rotor turns. " * 150
    tokens = tokenizer.encode(long)
    limit = embedded.lm.max_length
    assert len(tokens) > 2 * limit
    totals = embedded.lm.loglikelihood_rolling(requests([(short,), (long,)], "loglikelihood_rolling"))
    short_ids = [tokenizer.eos_token_id, *tokenizer.encode(short)]
    table = logprobs_of(model, short_ids)
    assert totals[0] == pytest.approx(
        sum(table[i - 1, short_ids[i]] for i in range(1, len(short_ids))), abs=1e-4
    )
    # The windows of the docstring of lm-eval's LM.loglikelihood_rolling, worked out here anew.
    expected = 0.0
    predicted = 0
    while predicted < len(tokens):
        count = min(limit, len(tokens) - predicted)
        end = predicted + count
        window = ([tokenizer.eos_token_id, *tokens] if predicted == 0 else tokens)[
            (0 if predicted == 0 else end - limit - 1) : (end if predicted == 0 else end - 1)
        ]
        table = logprobs_of(model, list(window))
        expected += sum(table[len(window) - count + i, tokens[predicted + i]] for i in range(count))
        predicted = end
    assert totals[1] == pytest.approx(expected, abs=1e-5 * len(tokens))


def test_rolling_is_the_same_alone_and_in_a_mixed_batch(embedded: Any) -> None:
    texts = ["A pump.", "A loom with a shuttle and a reed for weaving.", "Valve " * 60]
    together = embedded.lm.loglikelihood_rolling(requests([(t,) for t in texts], "loglikelihood_rolling"))
    alone = [embedded.lm.loglikelihood_rolling(requests([(t,)], "loglikelihood_rolling"))[0] for t in texts]
    assert together == pytest.approx(alone, abs=1e-4)


def test_a_request_for_more_tokens_than_the_context_is_refused(embedded: Any) -> None:
    with pytest.raises(EvaluationError, match="max_gen_toks is 512, but the model's context holds 512"):
        embedded.lm.generate_until(
            requests([("a", {"until": ["\n"], "max_gen_toks": 512})], "generate_until")
        )


def test_chat_template_is_the_tokenizers_own(reference_directory: Path, tmp_path: Path) -> None:
    directory = tmp_path / "chat"
    shutil.copytree(reference_directory, directory)
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    template = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    settings["chat_template"] = template
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    from pytest_gnus.models.loading import load
    from pytest_gnus.models.spec import ModelSpec

    lm: Any = load(ModelSpec("mlx", str(directory))).lm
    history = [{"role": "user", "content": "Hello"}]
    assert lm.apply_chat_template(history) == "[user]Hello[assistant]"
    prefilled = [*history, {"role": "assistant", "content": "Well"}]
    assert lm.apply_chat_template(prefilled, add_generation_prompt=False).endswith("[assistant]Well")
    assert lm.chat_template(True) == template


class _BosTokenizer:
    """Adds BOS (0) where it is asked to; its text is `<s>`."""

    bos_token_id, eos_token_id, vocab_size, model_max_length, name_or_path = 0, 1, 50, 64, "toy/bos"
    eos_token_ids = (1,)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        body = [0] if text.startswith("<s>") else []
        rest = text.removeprefix("<s>")
        return [*([0] if add_special_tokens else []), *body, *(2 + ord(c) % 40 for c in rest)]

    def decode(self, tokens: list[int], skip_special_tokens: bool = False) -> str:
        return "".join("<s>" if token == 0 else chr(64 + token) for token in tokens)


def test_every_prompt_has_exactly_one_bos() -> None:
    lm = MLXLanguageModel.__new__(MLXLanguageModel)
    lm.tokenizer = _BosTokenizer()
    assert lm.tok_encode("ab").count(0) == 1
    assert lm.tok_encode("<s>ab").count(0) == 1
    assert lm.tok_encode("ab", add_special_tokens=False).count(0) == 0
    context, continuation = lm._encode_pair("<s>ab", "cd")
    assert (context + continuation).count(0) == 1
    assert lm.prefix_token_id == 0


def test_usage_counts_requests_and_tokens(embedded: Any) -> None:
    embedded.lm.usage.reset()
    embedded.lm.loglikelihood(requests(TEXTS[:2]))
    assert embedded.lm.usage.requests == 2
    assert embedded.lm.usage.prompt_tokens == sum(
        len(embedded.lm.tok_encode(context + continuation)) for context, continuation in TEXTS[:2]
    )
