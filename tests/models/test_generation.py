"""Generated text against one-at-a-time greedy decoding, and what ends it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import mlx.core as mx
import pytest
from lm_eval.api.instance import Instance

from pytest_gnus.errors import EvaluationError
from pytest_gnus.models.generation import GenerationRequest, Generator, cut_at_stop
from pytest_gnus.models.memory import TokenBudget
from pytest_gnus.models.scoring import ScoringEngine
from tests.models.architectures import (
    ARCHITECTURES,
    END,
    VOCABULARY,
    build,
    naive_generation,
    random_tokens,
    watch,
)

PROMPTS = [
    "Description: The present invention relates to a pump",
    "Abstract: A loom",
    "Abstract: A valve for water\nCPC section:",
    "Description: A compressor with a rotor and a housing is described. The rotor",
]


def greedy(model: Any, tokenizer: Any, prompt: str, count: int) -> list[int]:
    """Greedy tokens with a whole forward pass for each of them."""
    tokens = tokenizer.encode(prompt)
    made: list[int] = []
    while len(made) < count:
        token = int(mx.argmax(model(mx.array([tokens + made]))[0, -1]).item())
        if token in tokenizer.eos_token_ids:
            break
        made.append(token)
    return made


def parts(embedded: Any) -> tuple[Any, Any, Generator]:
    generator = embedded.lm._generator
    return generator._model, embedded.lm.tokenizer, generator


def test_text_equals_one_at_a_time_greedy_decoding(embedded: Any) -> None:
    model, tokenizer, generator = parts(embedded)
    requests = [
        GenerationRequest(tuple(tokenizer.encode(prompt)), 12 + 3 * i) for i, prompt in enumerate(PROMPTS)
    ]
    results = generator.generate(requests).generations
    for prompt, request, result in zip(PROMPTS, requests, results, strict=True):
        expected = greedy(model, tokenizer, prompt, request.max_tokens)
        assert result.text == tokenizer.decode(expected, skip_special_tokens=True)
        assert result.tokens == len(expected)
        assert result.finish == ("length" if len(expected) == request.max_tokens else "end")


def test_a_request_stops_at_the_token_in_which_its_stop_string_completes(embedded: Any) -> None:
    model, tokenizer, generator = parts(embedded)
    prompt = PROMPTS[0]
    tokens = greedy(model, tokenizer, prompt, 30)
    text = tokenizer.decode(tokens)
    stop = text[11:16]  # begins and ends anywhere, across the borders of tokens
    needed = next(n for n in range(1, 31) if stop in tokenizer.decode(tokens[:n]))
    assert needed < 30
    (result,) = generator.generate(
        [GenerationRequest(tuple(tokenizer.encode(prompt)), 30, (stop,))]
    ).generations
    assert result.finish == "stop"
    assert result.tokens == needed
    assert result.text == text[: text.index(stop)]


def test_stopping_one_request_leaves_the_others_alone(embedded: Any) -> None:
    model, tokenizer, generator = parts(embedded)
    requests = [
        GenerationRequest(tuple(tokenizer.encode(prompt)), 15, ("e",) if index % 2 else ())
        for index, prompt in enumerate(PROMPTS)
    ]
    results = generator.generate(requests).generations
    for index, (prompt, result) in enumerate(zip(PROMPTS, results, strict=True)):
        whole = tokenizer.decode(greedy(model, tokenizer, prompt, 15), skip_special_tokens=True)
        assert result.text == (whole.split("e")[0] if index % 2 else whole)


def test_a_string_stop_is_one_sequence_and_not_its_characters(embedded: Any) -> None:
    lm = embedded.lm
    settings = {"max_gen_toks": 20, "do_sample": False}
    as_string, as_list = lm.generate_until(
        [
            Instance("generate_until", {}, (PROMPTS[0], {**settings, "until": "\n\n"}), 0),
            Instance("generate_until", {}, (PROMPTS[0], {**settings, "until": ["\n\n"]}), 1),
        ]
    )
    assert as_string == as_list
    assert len(as_string) > 10


def test_what_ended_each_output_is_counted(embedded: Any) -> None:
    lm = embedded.lm
    lm.usage.reset()
    lm.generate_until(
        [
            Instance("generate_until", {}, (PROMPTS[0], {"until": ["e"], "max_gen_toks": 30}), 0),
            Instance("generate_until", {}, (PROMPTS[0], {"until": ["@@"], "max_gen_toks": 3}), 1),
        ]
    )
    assert (lm.usage.stopped_by_string, lm.usage.stopped_by_limit) == (1, 1)
    assert lm.usage.generated_tokens > 3


def test_long_prompts_keep_their_end_and_leave_room_for_the_answer(embedded: Any) -> None:
    model, tokenizer, _ = parts(embedded)
    lm = embedded.lm
    lm.usage.reset()
    prompt = "The valve opens. " * 300 + PROMPTS[1]
    (text,) = lm.generate_until(
        [Instance("generate_until", {}, (prompt, {"until": ["@@"], "max_gen_toks": 12}), 0)]
    )
    assert lm.usage.truncated_prompts == 1
    kept = tokenizer.encode(prompt)[-(lm.max_length - 12) :]
    made: list[int] = []
    for _ in range(12):
        token = int(mx.argmax(model(mx.array([kept + made]))[0, -1]).item())
        if token in tokenizer.eos_token_ids:
            break
        made.append(token)
    assert text == tokenizer.decode(made, skip_special_tokens=True)


def test_sampling_is_seeded_by_mlx_and_differs_from_greedy(embedded: Any) -> None:
    _, tokenizer, generator = parts(embedded)
    prompt = tuple(tokenizer.encode(PROMPTS[0]))
    hot = GenerationRequest(prompt, 20, temperature=5.0)
    mx.random.seed(1)
    first = generator.generate([hot, GenerationRequest(prompt, 20)]).generations
    mx.random.seed(1)
    second = generator.generate([hot, GenerationRequest(prompt, 20)]).generations
    assert first == second
    assert first[0].text != first[1].text


class _Scripted:
    """A tokenizer whose tokens are pieces of text, for what a model would have to be taught to say."""

    think_start, think_end, has_thinking = "<think>", "</think>", True

    def __init__(self, pieces: list[str]) -> None:
        self._pieces = pieces
        self.eos_token_ids = {99}

    def decode(self, tokens: list[int], skip_special_tokens: bool = False) -> str:
        return "".join(self._pieces[token] for token in tokens)


def scripted(pieces: list[str], stop: tuple[str, ...]) -> tuple[str, str]:
    """Feed pieces as tokens until the generator says that it is done; (text, finish)."""
    from pytest_gnus.models.generation import _Stream

    generator = Generator.__new__(Generator)
    generator._tokenizer = _Scripted(pieces)
    generator._end_tokens = frozenset({99})
    stream = _Stream(GenerationRequest((0,), 50, stop))
    for token in range(len(pieces)):
        generator._take(stream, token, "length" if token == len(pieces) - 1 else None)
        if stream.finish:
            break
    result = generator._result(stream)
    return result.text, result.finish


def test_reasoning_is_dropped_before_stop_strings_are_looked_for() -> None:
    pieces = ["", "<think>", "a\n\nb", "</think>", "\n\n", "The answer is 42", "\n\nmore", "never"]
    assert scripted(pieces, ("\n\n",)) == ("The answer is 42", "stop")


def test_a_stop_string_in_plain_text_of_a_reasoning_model_stops() -> None:
    assert scripted(["", "The answer", "\n\n", "more"], ("\n\n",)) == ("The answer", "stop")


@pytest.mark.parametrize(
    ("text", "stops", "expected"),
    [
        ("The Question: x", ["Question:"], "The "),
        ("abc", [], "abc"),
        ("abc", [""], "abc"),
        ("a\nb\n\nc", ["\n\n", "\n"], "a"),
        ("abc", ["abc"], ""),
    ],
)
def test_cut_at_stop(text: str, stops: list[str], expected: str) -> None:
    assert cut_at_stop(text, stops) == expected


class _Numbers:
    """A tokenizer whose text is the numbers of its tokens."""

    eos_token_ids, has_thinking = {END}, False

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = False) -> str:
        return " ".join(map(str, tokens))


@cache
def small(name: str) -> tuple[Any, ScoringEngine]:
    model = build(name)
    return model, ScoringEngine(model, VOCABULARY, TokenBudget(64))


def sharing_requests(seed: int) -> list[GenerationRequest]:
    """Prompts behind a common stem, one that is another's beginning, the same one twice, and short ones."""
    draw = random.Random(seed)
    stem = random_tokens(draw, 70)
    prompts = [stem + random_tokens(draw, count) for count in (9, 1, 4)]
    prompts += [prompts[0][:74], prompts[2], [3], [5, 6, 7]]
    return [GenerationRequest(tuple(prompt), 3 + number) for number, prompt in enumerate(prompts)]


@cache
def greedy_texts(name: str, seed: int) -> list[str]:
    model, _ = small(name)
    return [
        _Numbers().decode(naive_generation(model, request.prompt, request.max_tokens))
        for request in sharing_requests(seed)
    ]


#: Its rotary embedding depends on the length of the whole: a token at a time, it says something else.
GENERATING = [name for name in ARCHITECTURES if name != "llama dynamic rope"]


@pytest.mark.parametrize("name", GENERATING)
def test_prompts_that_share_a_beginning_give_the_text_of_greedy_decoding(name: str) -> None:
    model, engine = small(name)
    generator = Generator(model, _Numbers(), lambda: engine.strategy, TokenBudget(64))
    found = generator.generate(sharing_requests(seed=1))
    assert [generation.text for generation in found.generations] == greedy_texts(name, 1)
    # Each token of the stem is run once, in two passes of at most 64.
    assert found.reused == (5 - 1) * 70


@pytest.mark.parametrize("name", GENERATING)
def test_one_at_a_time_prompts_that_share_a_beginning_leave_each_other_alone(name: str) -> None:
    model, engine = small(name)
    generator = Generator(model, _Numbers(), lambda: engine.strategy, TokenBudget(64))
    generator._in_batches = False
    found = generator.generate(sharing_requests(seed=1))
    assert [generation.text for generation in found.generations] == greedy_texts(name, 1)


def small_generator(model: Any, batch_tokens: int = 512, **keywords: Any) -> Generator:
    _, engine = small("llama")
    return Generator(model, _Numbers(), lambda: engine.strategy, TokenBudget(batch_tokens), **keywords)


def test_the_same_prompt_many_times_is_run_once() -> None:
    """As for several samples of one answer: all but the last token is common."""
    model = build("llama")
    generator = small_generator(model)
    watched = watch(model)
    prompt = tuple(random_tokens(random.Random(2), 90))
    found = generator.generate([GenerationRequest(prompt, 4)] * 5)
    expected = _Numbers().decode(naive_generation(small("llama")[0], prompt, 4))
    assert [generation.text for generation in found.generations] == [expected] * 5
    assert found.reused == 4 * 89
    assert watched.shapes[0] == (1, 89)
    assert watched.tokens <= 89 + 5 * 5


def test_a_prompt_that_ends_where_others_go_on_is_run_once_too() -> None:
    model = build("llama")
    draw = random.Random(4)
    stem = random_tokens(draw, 80)
    prompts = [stem, stem[:-1] + random_tokens(draw, 3), stem[:-1] + random_tokens(draw, 6)]
    found = small_generator(model).generate([GenerationRequest(tuple(prompt), 4) for prompt in prompts])
    assert found.reused == 2 * 79
    assert [generation.text for generation in found.generations] == [
        _Numbers().decode(naive_generation(small("llama")[0], prompt, 4)) for prompt in prompts
    ]


def test_one_token_may_be_the_limit() -> None:
    model, _ = small("llama")
    requests = [GenerationRequest((1, 2, 3), 1), GenerationRequest((4,), 1), GenerationRequest((4, 9), 2)]
    found = small_generator(model).generate(requests).generations
    assert [(generation.tokens, generation.finish) for generation in found] == [
        (1, "length"),
        (1, "length"),
        (2, "length"),
    ]


def test_progress_counts_every_output_once_even_where_memory_ran_out() -> None:
    model = build("llama")
    done: list[int] = []
    generator = small_generator(model)
    watch(model).before = too_many_rows(2)
    generator.generate(sharing_requests(seed=1), lambda requests, _tokens: done.append(requests))
    assert sum(done) == len(sharing_requests(seed=1))


def too_many_rows(limit: int) -> Callable[[tuple[int, ...]], None]:
    def check(shape: tuple[int, ...]) -> None:
        if shape[0] > limit:
            raise RuntimeError("[malloc_or_wait] Unable to allocate 123 bytes.")

    return check


@pytest.mark.parametrize("name", ["llama", "gemma3", "mamba"])
def test_where_memory_runs_out_fewer_outputs_are_made_at_once_and_texts_stay(name: str) -> None:
    model = build(name)
    heard: list[str] = []
    _, engine = small(name)
    budget = TokenBudget(512)
    generator = Generator(model, _Numbers(), lambda: engine.strategy, budget, warn=heard.append)
    watch(model).before = too_many_rows(3)
    found = generator.generate(sharing_requests(seed=1))
    assert [generation.text for generation in found.generations] == greedy_texts(name, 1)
    assert budget.tokens < 512
    assert set(heard) == {"memory ran out: fewer outputs were made at the same time from there on"}


def test_no_memory_for_one_output_is_an_error() -> None:
    model = build("llama")
    generator = small_generator(model)
    watch(model).before = too_many_rows(0)
    with pytest.raises(
        EvaluationError, match=r"no memory to generate even one output .*Unable to allocate 123"
    ):
        generator.generate(sharing_requests(seed=1))


def test_other_errors_pass_through() -> None:
    model = build("llama")
    generator = small_generator(model)

    def fail(_shape: tuple[int, ...]) -> None:
        raise RuntimeError("a shape is wrong")

    watch(model).before = fail
    with pytest.raises(RuntimeError, match="a shape is wrong"):
        generator.generate(sharing_requests(seed=1))
