"""Log-likelihoods against a naive forward pass, one request at a time."""

from __future__ import annotations

import importlib
import random
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from pytest_gnus.models.memory import TokenBudget
from pytest_gnus.models.prefix_tree import TokenSequence
from pytest_gnus.models.readout import gathered
from pytest_gnus.models.scoring import Score, ScoringEngine

VOCABULARY = 97
COMMON = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "vocab_size": VOCABULARY}
ATTENTION = {"num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5}

#: Small random models: full attention with and without tied weights, sliding windows, recurrence, experts.
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {**COMMON, **ATTENTION, "tie_word_embeddings": False}),
    "llama tied": ("llama", {**COMMON, **ATTENTION, "tie_word_embeddings": True}),
    "qwen3": (
        "qwen3",
        {
            **COMMON,
            **ATTENTION,
            "head_dim": 8,
            "rope_theta": 10000.0,
            "max_position_embeddings": 512,
            "tie_word_embeddings": True,
        },
    ),
    "gemma3": (
        "gemma3_text",
        {**COMMON, **ATTENTION, "head_dim": 8, "sliding_window": 6, "sliding_window_pattern": 2},
    ),
    "cohere": (
        "cohere",
        {
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": VOCABULARY,
            "logit_scale": 0.3,
        },
    ),
    "mamba": (
        "mamba",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "intermediate_size": 64,
            "state_size": 8,
            "num_hidden_layers": 2,
            "conv_kernel": 4,
            "use_bias": False,
            "use_conv_bias": True,
            "time_step_rank": 4,
        },
    ),
    "mixture of experts": (
        "mixtral",
        {**COMMON, **ATTENTION, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
}


def build(name: str) -> Any:
    architecture, arguments = ARCHITECTURES[name]
    module = importlib.import_module(f"mlx_lm.models.{architecture}")
    mx.random.seed(5)
    model = module.Model(module.ModelArgs.from_dict({"model_type": architecture, **arguments}))
    mx.eval(model.parameters())
    return model


def naive(model: Any, sequence: TokenSequence) -> tuple[float, bool]:
    """One forward pass over one sequence; the softmax in NumPy, in double precision."""
    logits = np.array(model(mx.array([sequence.tokens]))[0].astype(mx.float32), dtype=np.float64)
    total, greedy = 0.0, True
    for position in range(len(sequence.tokens) - sequence.scored, len(sequence.tokens)):
        row = logits[position - 1]
        shifted = row - row.max()
        total += shifted[sequence.tokens[position]] - np.log(np.exp(shifted).sum())
        greedy = greedy and int(row.argmax()) == sequence.tokens[position]
    return float(total), greedy


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
@pytest.mark.parametrize(("count", "batch_tokens"), [(1, 4096), (2, 4096), (23, 4096), (23, 60)])
def test_scores_equal_a_naive_forward_pass(name: str, count: int, batch_tokens: int) -> None:
    assert_equal_to_naive(build(name), random_sequences(count, seed=count), batch_tokens)


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
