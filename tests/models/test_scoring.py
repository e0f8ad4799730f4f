"""Log-likelihoods against a naive forward pass, one request at a time."""

from __future__ import annotations

import inspect
import random
import sys
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import RotatingKVCache

from pytest_gnus.errors import EvaluationError
from pytest_gnus.models.batches import PASS_COST
from pytest_gnus.models.memory import TokenBudget
from pytest_gnus.models.path_cache import Paths
from pytest_gnus.models.prefix_tree import TokenSequence
from pytest_gnus.models.readout import gathered
from pytest_gnus.models.scoring import STRATEGIES, Score, ScoringEngine, Strategy, _plain_logprob, _probes
from tests.models.architectures import (
    ARCHITECTURES,
    VOCABULARY,
    build,
    naive,
    out_of_memory,
    ragged_sequences,
    random_tokens,
    watch,
)

#: Whose masks or recurrent states do not take the fastest way in mlx-lm; all others do.
SLOWER = {
    "gemma2": 1,
    "mamba": 1,
    "rwkv7": 1,
    "recurrent_gemma": 1,
    "recurrent_gemma wide": 1,
    "jamba": 1,
    "llama dynamic rope": 4,
}


@cache
def planned(name: str) -> tuple[Any, ScoringEngine]:
    """A model, and an engine that has found out how to run it."""
    model = build(name)
    engine = ScoringEngine(model, VOCABULARY, TokenBudget(4096), minimum_saving=1)
    assert engine.strategy in STRATEGIES
    return model, engine


def engine_of(name: str, batch_tokens: int, strategy: Strategy | None = None) -> ScoringEngine:
    """An engine that shares all that can be shared, in a way of its own choice or in a given one."""
    model, known = planned(name)
    engine = ScoringEngine(model, VOCABULARY, TokenBudget(batch_tokens), minimum_saving=1)
    engine._plan = (known.readout, strategy or known.strategy)
    return engine


@cache
def expected(name: str, sequence: TokenSequence) -> tuple[float, bool]:
    return naive(planned(name)[0], sequence)


def assert_exact(name: str, engine: ScoringEngine, sequences: Sequence[TokenSequence]) -> None:
    found = engine.score(sequences).scores
    assert len(found) == len(sequences)
    assert [score.logprob for score in found] == pytest.approx(
        [expected(name, sequence)[0] for sequence in sequences], abs=1e-4
    )
    assert [score.is_greedy for score in found] == [expected(name, sequence)[1] for sequence in sequences]


def greedily_continued(name: str, sequences: Sequence[TokenSequence]) -> list[TokenSequence]:
    """What the model would say itself after each sequence, and that with another last token."""
    model, _ = planned(name)
    continued = []
    for sequence in sequences:
        tokens = list(sequence.tokens)
        for _ in range(2):
            tokens.append(int(mx.argmax(model(mx.array([tokens]))[0, -1]).item()))
        continued.append(TokenSequence(tuple(tokens), 2))
        continued.append(TokenSequence((*tokens[:-1], (tokens[-1] + 1) % VOCABULARY), 2))
    return continued


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_model_of_these_tests_does_not_forget_what_it_reads(name: str) -> None:
    """Otherwise it would score right whatever became of masks, positions and states."""
    tokens = random_tokens(random.Random(3), 30)
    whole = expected(name, TokenSequence(tuple(tokens), 2))[0]
    for left_out in (25, 27):
        without = tokens[:left_out] + tokens[left_out + 1 :]
        assert abs(expected(name, TokenSequence(tuple(without), 2))[0] - whole) > 5e-3


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_each_architecture_is_run_in_the_fastest_way_that_holds(name: str) -> None:
    assert planned(name)[1].strategy == STRATEGIES[SLOWER.get(name, 0)]


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("batch_tokens", [4096, 60, 7])
def test_scores_equal_a_naive_forward_pass(name: str, batch_tokens: int) -> None:
    sequences = ragged_sequences(seed=1, count=9)
    sequences += greedily_continued(name, sequences[:2])
    assert len({expected(name, sequence)[1] for sequence in sequences}) == 2
    assert_exact(name, engine_of(name, batch_tokens), sequences)


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("count", [1, 2])
def test_few_requests_equal_a_naive_forward_pass(name: str, count: int) -> None:
    assert_exact(name, engine_of(name, 60), ragged_sequences(seed=2, count=2)[-count:])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_way_of_running_that_holds_is_exact(name: str) -> None:
    """The check of a few short sequences that lets a way of running pass is enough."""
    sequences = ragged_sequences(seed=4, count=4)
    for strategy in STRATEGIES[STRATEGIES.index(planned(name)[1].strategy) + 1 :]:
        if holds(name, strategy):
            assert_exact(name, engine_of(name, 60, strategy), sequences)


def holds(name: str, strategy: Strategy) -> bool:
    model, engine = planned(name)
    probes = _probes(VOCABULARY)
    plain = [_plain_logprob(model, sequence) for sequence in probes]
    return engine._holds(strategy, engine.readout, probes, plain)


def random_sequences(count: int, seed: int, longest: int = 40) -> list[TokenSequence]:
    """Ragged sequences; some share a context, as the choices of one question do."""
    draw = random.Random(seed)
    sequences = []
    for _ in range(count):
        context = [draw.randrange(VOCABULARY) for _ in range(draw.randint(1, longest))]
        for _ in range(draw.choice([1, 1, 4])):
            continuation = [draw.randrange(VOCABULARY) for _ in range(draw.randint(1, 6))]
            sequences.append(TokenSequence((*context, *continuation), len(continuation)))
    return sequences[:count]


def scored(model: Any, sequences: Sequence[TokenSequence], batch_tokens: int = 4096) -> tuple[Score, ...]:
    return ScoringEngine(model, VOCABULARY, TokenBudget(batch_tokens)).score(sequences).scores


def assert_equal_to_naive(model: Any, sequences: Sequence[TokenSequence], batch_tokens: int) -> None:
    scores = scored(model, sequences, batch_tokens)
    assert len(scores) == len(sequences)
    for sequence, found in zip(sequences, scores, strict=True):
        logprob, greedy = naive(model, sequence)
        assert found.logprob == pytest.approx(logprob, abs=1e-4)
        assert found.is_greedy == greedy


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_output_layer_is_found_in_every_architecture(name: str) -> None:
    assert ScoringEngine(build(name), VOCABULARY, TokenBudget(64)).readout.parts is not None


def test_an_architecture_that_cannot_be_taken_apart_is_scored_over_all_positions() -> None:
    model = build("llama")

    class Opaque(type(model)):  # type: ignore[misc]
        """Changes the hidden states by what the input was: trunk and head alone cannot tell."""

        def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
            return super().__call__(inputs, cache) + inputs.sum() * 1e-2

    model.__class__ = Opaque
    engine = ScoringEngine(model, VOCABULARY, TokenBudget(64))
    assert engine.readout.parts is None
    sequence = TokenSequence((3, 1, 4, 1, 5), 2)
    (found,) = engine.score([sequence]).scores
    assert found.logprob == pytest.approx(naive(model, sequence)[0], abs=1e-4)


def test_a_greedy_continuation_is_said_to_be_one() -> None:
    model = build("llama")
    tokens = [5, 6, 7]
    for _ in range(3):
        tokens.append(int(mx.argmax(model(mx.array([tokens]))[0, -1]).item()))
    greedy, other = TokenSequence(tuple(tokens), 3), TokenSequence((*tokens[:-1], (tokens[-1] + 1) % 97), 3)
    assert [found.is_greedy for found in scored(model, [other, greedy])] == [False, True]


def test_the_first_token_may_be_scored_from_one_before_it() -> None:
    model = build("llama")
    whole = TokenSequence((1, 2, 3, 4), 3)
    assert_equal_to_naive(model, [whole], 4096)


def test_scores_do_not_depend_on_the_batch() -> None:
    model = build("llama")
    sequences = random_sequences(30, seed=3)
    small = scored(model, sequences, 45)
    large = scored(model, sequences, 10_000)
    assert [s.logprob for s in small] == pytest.approx([s.logprob for s in large], abs=1e-4)


def test_the_model_is_whole_again_after_scoring() -> None:
    model = build("llama")
    trunk_class = type(model.model)
    before = model(mx.array([[1, 2, 3]]))
    scored(model, random_sequences(3, seed=1))
    assert type(model.model) is trunk_class
    assert mx.array_equal(model(mx.array([[1, 2, 3]])), before).item()


def test_progress_counts_every_sequence() -> None:
    done: list[tuple[int, int]] = []
    engine = ScoringEngine(build("llama"), VOCABULARY, TokenBudget(50))
    scores = engine.score(
        random_sequences(9, seed=2), lambda requests, tokens: done.append((requests, tokens))
    )
    assert sum(requests for requests, _ in done) == 9
    assert sum(tokens for _, tokens in done) == scores.computed
    assert len(done) > 1


def test_a_large_vocabulary_costs_no_precision() -> None:
    """Logits as a real model has them: added up in float32, one after the other, 2e-4 would be lost."""
    logits = (np.random.default_rng(0).normal(size=(2, 49_152)) * 3.2 + 8).astype(np.float32)
    logits[:, 5] = 25.0
    exact = logits.astype(np.float64)
    expected = exact[[0, 1], [5, 700]] - np.log(np.exp(exact).sum(axis=-1))
    logprobs, greedy = gathered(mx.array(logits), np.array([0, 1]), np.array([5, 700]))
    assert logprobs.tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    assert greedy.tolist() == [True, False]


def new_engine(model: Any, batch_tokens: int = 4096, **keywords: Any) -> ScoringEngine:
    """An engine that has found out how to run a model, before anything is counted."""
    engine = ScoringEngine(model, VOCABULARY, TokenBudget(batch_tokens), **keywords)
    assert engine.strategy in STRATEGIES
    return engine


def few_shot(questions: int, block: int = 200, choices: int = 4) -> list[TokenSequence]:
    """Questions of 8 to 20 tokens behind one block, each with choices of one token."""
    draw = random.Random(7)
    shared = random_tokens(draw, block)
    sequences = []
    for number in range(questions):
        question = [number, *random_tokens(draw, draw.randint(7, 19))]
        sequences += [TokenSequence((*shared, *question, choice), 1) for choice in range(choices)]
    return sequences


def test_a_block_of_examples_is_run_once_for_all_questions() -> None:
    model = build("llama")
    engine = new_engine(model)
    watched = watch(model.model)
    sequences = few_shot(12)
    scores = engine.score(sequences)
    own = sum(len(sequence.tokens) - 1 - 200 for sequence in sequences[::4])
    assert scores.computed == 200 + own
    assert scores.computed + scores.reused == sum(len(sequence.tokens) - 1 for sequence in sequences)
    assert watched.shapes[0] == (1, 200)
    # A pass costs as much as 48 tokens: padding is never dearer than a pass for each node.
    assert own <= watched.tokens - 200 <= own + PASS_COST * (12 - len(watched.shapes) + 1)


def test_the_cost_of_more_questions_is_that_of_their_own_tokens() -> None:
    few, many = few_shot(6), few_shot(12)
    assert few == many[:24]
    model = build("llama")
    engine = new_engine(model)
    extra = engine.score(many).computed - engine.score(few).computed
    assert extra == sum(len(sequence.tokens) - 1 - 200 for sequence in many[24::4])


@pytest.mark.parametrize("name", ["llama", "gemma3", "mamba", "llama4"])
def test_the_model_sees_no_more_tokens_than_are_counted_and_padding(name: str) -> None:
    model = build(name)
    engine = new_engine(model, 60, minimum_saving=1)
    watched = watch(model.language_model.model if name == "llama4" else trunk_of(model))
    sequences = ragged_sequences(seed=5, count=8)
    scores = engine.score(sequences)
    distinct = {s.tokens[:length] for s in sequences for length in range(1, len(s.tokens))}
    assert scores.computed == len(distinct)
    assert all(rows * width <= 60 for rows, width in watched.shapes)
    assert len(distinct) <= watched.tokens <= 1.5 * len(distinct)


def trunk_of(model: Any) -> Any:
    return model.backbone if hasattr(model, "backbone") else model.model


@pytest.mark.parametrize(
    ("name", "head", "method"),
    [
        ("llama", "lm_head", "__call__"),
        ("llama tied", "model.embed_tokens", "as_linear"),
    ],
)
def test_the_output_layer_runs_only_where_a_token_is_scored(name: str, head: str, method: str) -> None:
    model = build(name)
    engine = new_engine(model, minimum_saving=1)
    module = model
    for part in head.split("."):
        module = getattr(module, part)
    watched = watch(module, method)
    sequences = ragged_sequences(seed=6)
    engine.score(sequences)
    places = {
        s.tokens[:position] for s in sequences for position in range(len(s.tokens) - s.scored, len(s.tokens))
    }
    assert watched.tokens == len(places)


def test_a_budget_of_one_token_goes_deeper_than_the_recursion_limit() -> None:
    model = build("llama")
    engine = new_engine(model, 1)
    sequence = TokenSequence(tuple(random_tokens(random.Random(1), 70)), 3)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 80)
    try:
        (found,) = engine.score([sequence]).scores
    finally:
        sys.setrecursionlimit(limit)
    assert found.logprob == pytest.approx(naive(model, sequence)[0], abs=1e-4)


@pytest.mark.parametrize("name", ["llama", "gemma3", "mamba", "llama4"])
def test_where_memory_runs_out_passes_become_smaller_and_scores_stay(name: str) -> None:
    model = build(name)
    heard: list[str] = []
    engine = new_engine(model, warn=heard.append)
    sequences = few_shot(6, block=90) + ragged_sequences(seed=8, count=6)
    plain = [naive(model, sequence)[0] for sequence in sequences]
    watched = watch(model.language_model.model if name == "llama4" else trunk_of(model))
    watched.before = out_of_memory(40)
    found = engine.score(sequences).scores
    assert [score.logprob for score in found] == pytest.approx(plain, abs=1e-4)
    # One row at a time needs no smaller budget than its longest stretch; no other is below half of what fits.
    assert 10 <= engine._budget.tokens <= 40
    assert set(heard) == {"memory ran out: smaller passes were made from there on"}


def test_passes_planned_before_memory_ran_out_do_not_shrink_the_budget_again() -> None:
    """All questions are of one length: each pass is planned with 4 rows, each fails, and half of it fits."""
    model = build("llama")
    engine = new_engine(model, 80)
    watched = watch(model.model)
    watched.before = out_of_memory(60)
    draw = random.Random(9)
    sequences = [TokenSequence((number, *random_tokens(draw, 20)), 1) for number in range(40)]
    found = engine.score(sequences).scores
    assert len(found) == 40
    assert engine._budget.tokens == 40


def test_what_a_failed_pass_has_made_is_gone_before_the_next() -> None:
    """Otherwise the next would find no more memory than the one that failed."""
    model = build("llama")
    engine = new_engine(model)
    watched = watch(model.model)
    alive: list[weakref.ref[Any]] = []

    def check(shape: tuple[int, ...]) -> None:
        assert not [reference for reference in alive if reference() is not None]
        if shape[0] * shape[1] > 40:
            made = mx.zeros(shape)
            alive.append(weakref.ref(made))
            raise RuntimeError("[malloc_or_wait] Unable to allocate 123 bytes.")

    watched.before = check
    engine.score(few_shot(6, block=90))
    assert len(alive) > 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_memory_for_the_smallest_pass_is_an_error(strategy: Strategy) -> None:
    model = build("llama")
    engine = new_engine(model)
    engine._plan = (engine.readout, strategy)
    watch(model.model).before = out_of_memory(10)
    with pytest.raises(EvaluationError, match=r"no memory for a pass of \d+ tokens .*Unable to allocate 123"):
        engine.score(few_shot(2, block=90))


@pytest.mark.parametrize("error", [RuntimeError("a shape is wrong"), ValueError("Unable to allocate")])
def test_other_errors_pass_through(error: Exception) -> None:
    model = build("llama")
    engine = new_engine(model)

    def fail(_shape: tuple[int, ...]) -> None:
        raise error

    watch(model.model).before = fail
    with pytest.raises(type(error)) as raised:
        engine.score(few_shot(2))
    assert raised.value is error
    assert engine._budget.tokens == 4096


def _refused(_class: Any, caches: Sequence[Any]) -> Any:
    raise NotImplementedError


def _rows_mixed_up(original: Any) -> Any:
    return lambda _class, caches: original(list(caches)[::-1])


@pytest.mark.parametrize("silently", [False, True])
def test_caches_that_cannot_be_merged_rightly_are_not_merged(
    silently: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = _rows_mixed_up(RotatingKVCache.merge) if silently else _refused
    monkeypatch.setattr(RotatingKVCache, "merge", classmethod(broken))
    model = build("gemma3")
    engine = ScoringEngine(model, VOCABULARY, TokenBudget(60), minimum_saving=1)
    sequences = ragged_sequences(seed=10, count=6)
    found = engine.score(sequences)
    assert engine.strategy == STRATEGIES[2]
    assert found.reused > 0
    assert [score.logprob for score in found.scores] == pytest.approx(
        [naive(model, sequence)[0] for sequence in sequences], abs=1e-4
    )


def test_where_nothing_can_be_shared_each_input_is_run_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gnus.models.scoring.empty_paths", lambda *_arguments, **_keywords: 1 / 0)
    model = build("llama")
    engine = ScoringEngine(model, VOCABULARY, TokenBudget(60))
    sequences = ragged_sequences(seed=11, count=6)
    found = engine.score(sequences).scores
    assert engine.strategy == STRATEGIES[3]
    assert [score.logprob for score in found] == pytest.approx(
        [naive(model, sequence)[0] for sequence in sequences], abs=1e-4
    )


def test_a_rotary_base_that_does_not_depend_on_the_length_is_no_reason_to_share_less() -> None:
    """Hunyuan's, for all that its class is called DynamicNTKAlphaRoPE."""
    from mlx_lm.models import hunyuan_v1_dense

    arguments = hunyuan_v1_dense.ModelArgs(
        model_type="hunyuan_v1_dense",
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        intermediate_size=64,
        num_attention_heads=4,
        num_key_value_heads=2,
        rms_norm_eps=1e-5,
        rope_scaling={"type": "dynamic", "alpha": 1000.0, "factor": 1.0},
    )
    assert new_engine(hunyuan_v1_dense.Model(arguments)).strategy == STRATEGIES[0]


def test_questions_behind_different_blocks_are_not_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the subjects of a group: within one block there is no mask but the causal one."""
    draw = random.Random(8)
    blocks = [random_tokens(draw, length) for length in (70, 90)]
    sequences = [
        TokenSequence((*block, *random_tokens(draw, draw.randint(4, 9)), 5), 1)
        for block in blocks
        for _ in range(40)
    ]
    opened: list[set[int]] = []
    original = Paths.open

    def recorded(paths: Paths, rows: Sequence[int], lengths: Sequence[int]) -> list[Any]:
        opened.append(set(rows))
        return original(paths, rows, lengths)

    model = build("llama")
    engine = ScoringEngine(model, VOCABULARY, TokenBudget(200))
    assert engine.strategy == STRATEGIES[0]
    monkeypatch.setattr(Paths, "open", recorded)
    scores = engine.score(sequences).scores
    assert len(opened) > 4
    assert all(len(rows) == 1 for rows in opened)
    for sequence, found in zip(sequences, scores, strict=True):
        assert found.logprob == pytest.approx(naive(model, sequence)[0], abs=1e-4)
