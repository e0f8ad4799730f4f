"""Attention and SwiGLU by NumPy against MLX's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models import activations, llama

from pytest_gnus.models.cpu_kernels import attention, numpy_kernels, swiglu
from pytest_gnus.models.memory import TokenBudget
from pytest_gnus.models.scoring import ScoringEngine
from tests.models.architectures import ARCHITECTURES, VOCABULARY, build, naive, ragged_sequences

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="for MLX's CPU wheel for Linux")

_mlx_attention = mx.fast.scaled_dot_product_attention


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


def normal(*shape: int, seed: int = 0) -> mx.array:
    return mx.array(np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32))


def operands(
    batch: int, key_heads: int, group: int, queries: int, keys: int, width: int = 8, value_width: int = 8
) -> tuple[mx.array, mx.array, mx.array]:
    return (
        normal(batch, key_heads * group, queries, width, seed=1) * 2,
        normal(batch, key_heads, keys, width, seed=2) * 2,
        normal(batch, key_heads, keys, value_width, seed=3),
    )


def assert_as_mlx(operands: tuple[mx.array, ...], pool: ThreadPoolExecutor, **keywords: Any) -> None:
    q, k, v = operands
    expected = np.array(_mlx_attention(q, k, v, scale=0.4, **keywords))
    found = attention(q, k, v, scale=0.4, pool=pool, **keywords)
    assert found.dtype == q.dtype
    assert found.shape == expected.shape
    np.testing.assert_allclose(np.array(found), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("group", [1, 3, 8])
@pytest.mark.parametrize("mask", [None, "causal"])
@pytest.mark.parametrize(
    ("queries", "keys"),
    [(5, 5), (5, 12), (1, 1), (1, 9), (128, 128), (129, 129), (300, 300), (150, 400), (7, 1500)],
)
def test_attention_without_a_mask_and_causal(
    pool: ThreadPoolExecutor, group: int, mask: str | None, queries: int, keys: int
) -> None:
    assert_as_mlx(operands(2, 2, group, queries, keys), pool, mask=mask)


def seen(*shape: int) -> np.ndarray:
    """Who sees whom, at random; everybody sees the first."""
    mask = np.random.default_rng(shape).random(shape) < 0.5
    mask[..., 0] = True
    return mask


@pytest.mark.parametrize("additive", [False, True], ids=["bool", "float"])
@pytest.mark.parametrize(("key_heads", "group"), [(4, 1), (2, 3), (1, 8), (1, 1)])
@pytest.mark.parametrize("kind", ["queries", "rows", "heads", "keys", "one row", "heads only"])
@pytest.mark.parametrize(("queries", "keys"), [(6, 11), (140, 140)])
def test_attention_with_a_mask(
    pool: ThreadPoolExecutor, key_heads: int, group: int, kind: str, additive: bool, queries: int, keys: int
) -> None:
    shape = {
        "queries": (queries, keys),
        "rows": (3, 1, queries, keys),
        "heads": (3, key_heads * group, queries, keys),
        "keys": (3, 1, 1, keys),
        "one row": (1, 1, queries, keys),
        "heads only": (key_heads * group, queries, keys),
    }[kind]
    mask = mx.array(seen(*shape))
    if additive:
        mask = mx.where(mask, normal(*shape), mx.array(-1e9))
    assert_as_mlx(operands(3, key_heads, group, queries, keys), pool, mask=mask)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=str)
def test_a_mask_in_another_format_is_added_all_the_same(pool: ThreadPoolExecutor, dtype: Any) -> None:
    mask = mx.where(mx.array(seen(6, 11)), 0.0, -1e4).astype(dtype)
    assert_as_mlx(operands(2, 2, 2, 6, 11), pool, mask=mask)


@pytest.mark.parametrize("hidden", ["bool", "float"])
def test_a_row_that_sees_nothing_stays_finite_and_harms_no_other(
    pool: ThreadPoolExecutor, hidden: str
) -> None:
    mask = seen(2, 1, 6, 11)
    mask[1, :, 2:4] = False
    lowest = mx.array(np.finfo(np.float32).min)
    given = mx.array(mask) if hidden == "bool" else mx.where(mx.array(mask), 0.0, lowest)
    q, k, v = operands(2, 2, 2, 6, 11)
    found = np.array(attention(q, k, v, scale=0.4, mask=given, pool=pool))
    expected = np.array(_mlx_attention(q, k, v, scale=0.4, mask=given))
    assert np.isfinite(found).all()
    others = np.ones(found.shape, dtype=bool)
    others[1, :, 2:4] = False
    np.testing.assert_allclose(found[others], expected[others], rtol=0, atol=1e-5)


def test_values_may_be_of_another_width_than_keys(pool: ThreadPoolExecutor) -> None:
    for mask in (None, "causal", mx.array(seen(6, 11))):
        assert_as_mlx(operands(2, 2, 3, 6, 11, width=12, value_width=5), pool, mask=mask)


def test_large_scores_do_not_overflow(pool: ThreadPoolExecutor) -> None:
    q, k, v = operands(1, 2, 2, 6, 6)
    assert_as_mlx((q * 300, k * 300, v), pool, mask="causal")


@pytest.mark.parametrize(
    ("batch", "key_heads", "queries", "keys"), [(40, 3, 20, 300), (40, 3, 1, 3000), (3, 5, 130, 2500)]
)
def test_many_rows_heads_and_queries_are_cut_into_tasks_without_a_gap(
    pool: ThreadPoolExecutor, batch: int, key_heads: int, queries: int, keys: int
) -> None:
    """Against the formula in double precision: over so many keys MLX itself is 1e-5 off."""
    q, k, v = operands(batch, key_heads, 2, queries, keys)
    mask = seen(queries, keys)
    found = np.array(attention(q, k, v, scale=0.4, mask=mx.array(mask), pool=pool))
    exact_q, exact_k, exact_v = (np.array(part, dtype=np.float64) for part in (q, k, v))
    scores = exact_q.reshape(batch, key_heads, 2, queries, -1) @ exact_k[:, :, None].swapaxes(-1, -2) * 0.4
    weights = np.where(mask, np.exp(scores - scores.max(axis=-1, keepdims=True)), 0.0)
    expected = weights / weights.sum(axis=-1, keepdims=True) @ exact_v[:, :, None]
    np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=0, atol=1e-5)


def test_views_of_larger_arrays_are_read_rightly(pool: ThreadPoolExecutor) -> None:
    """As models hand them over: heads moved before the tokens, keys cut from a longer buffer."""
    q = normal(2, 7, 4, 8).transpose(0, 2, 1, 3)
    k = normal(2, 9, 2, 8).transpose(0, 2, 1, 3)[:, :, 2:]
    v = mx.broadcast_to(normal(1, 2, 7, 8), (2, 2, 7, 8))
    assert_as_mlx((q, k, v), pool, mask="causal")


def test_what_is_not_computed_here_is_left_to_mlx(pool: ThreadPoolExecutor) -> None:
    q, k, v = operands(2, 2, 2, 6, 11)
    assert_as_mlx((q, k, v), pool, sinks=normal(4))
    halves = tuple(part.astype(mx.float16) for part in (q, k, v))
    assert_as_mlx(halves, pool, mask="causal")
    assert_as_mlx((q, k, v), pool, sinks=None)


@pytest.mark.parametrize("shape", [(3,), (2, 5), (2, 3, 40), (1, 9000, 64)], ids=str)
def test_swiglu(pool: ThreadPoolExecutor, shape: tuple[int, ...]) -> None:
    gate, x = normal(*shape) * 3, normal(*shape, seed=1)
    found = swiglu(gate, x, pool=pool)
    np.testing.assert_allclose(np.array(found), np.array(activations.swiglu(gate, x)), rtol=1e-5, atol=1e-6)


def test_swiglu_of_large_numbers(pool: ThreadPoolExecutor) -> None:
    """Against what the formula says: silu(-1000) is 0, silu(1000) is 1000."""
    gate = mx.array([[-1e30, -1000.0, -90.0, 0.0, 90.0, 1000.0, 1e30]])
    found = swiglu(gate, mx.full(gate.shape, 2.0), pool=pool)
    np.testing.assert_allclose(
        np.array(found), [[0.0, 0.0, 0.0, 0.0, 180.0, 2000.0, 2e30]], rtol=1e-6, atol=1e-30
    )


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=str)
def test_swiglu_in_other_formats_is_left_to_mlx(pool: ThreadPoolExecutor, dtype: Any) -> None:
    gate, x = normal(2, 5).astype(dtype), normal(2, 5, seed=1).astype(dtype)
    found = swiglu(gate, x, pool=pool)
    assert found.dtype == dtype
    assert mx.array_equal(found, activations.swiglu(gate, x)).item()


def test_swiglu_with_a_scalar_partner_is_left_to_mlx(pool: ThreadPoolExecutor) -> None:
    gate, x = normal(2, 5), normal(1, 5)
    assert mx.array_equal(swiglu(gate, x, pool=pool), activations.swiglu(gate, x)).item()


def patched() -> tuple[bool, bool]:
    return mx.fast.scaled_dot_product_attention is not _mlx_attention, llama.swiglu is not activations.swiglu


def test_the_kernels_are_there_in_the_context_and_gone_after_it() -> None:
    model = build("llama")
    assert patched() == (False, False)
    with numpy_kernels(model):
        assert patched() == (True, True)
    assert patched() == (False, False)


def test_the_kernels_are_gone_after_an_error_too() -> None:
    model = build("llama")
    with pytest.raises(ZeroDivisionError), numpy_kernels(model):
        raise ZeroDivisionError
    assert patched() == (False, False)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_models_say_the_same_with_the_kernels(name: str) -> None:
    model = build(name)
    tokens = mx.array([[(7 * i + row) % VOCABULARY for i in range(40)] for row in range(2)])
    plain = np.array(model(tokens))
    with numpy_kernels(model):
        found = np.array(model(tokens))
    np.testing.assert_allclose(found, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "gemma3", "gemma3 wide", "deepseek_v3", "mixture of experts"])
@pytest.mark.parametrize("batch_tokens", [4096, 60])
def test_scores_with_the_kernels_equal_a_naive_forward_pass(name: str, batch_tokens: int) -> None:
    model = build(name)
    engine = ScoringEngine(
        model, VOCABULARY, TokenBudget(batch_tokens), partial(numpy_kernels, model), minimum_saving=1
    )
    sequences = ragged_sequences(seed=12, count=6)
    expected = [naive(model, sequence) for sequence in sequences]
    found = engine.score(sequences).scores
    assert [score.logprob for score in found] == pytest.approx([logprob for logprob, _ in expected], abs=1e-4)
    assert [score.is_greedy for score in found] == [greedy for _, greedy in expected]
    assert patched() == (False, False)
