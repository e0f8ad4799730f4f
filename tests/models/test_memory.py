"""How many tokens a pass may have, and which errors say that there is no memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from pytest_gnus.models import main_memory, memory
from pytest_gnus.models.memory import TokenBudget, default_batch_tokens, free_memory, is_out_of_memory

GIB = 1024**3


def with_free(monkeypatch: pytest.MonkeyPatch, free: int | None, *, cpu: bool = True) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: free)
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.cpu if cpu else mx.gpu))


@pytest.mark.parametrize(
    ("free", "cpu", "config", "expected"),
    [
        # A fifth of free memory, at 48 numbers of 4 bytes for each of the model's width.
        (GIB, True, {"hidden_size": 4096}, 273),
        (GIB, True, {"n_embd": 4096}, 273),
        (GIB, True, {"text_config": {"hidden_size": 2048}}, 546),
        (GIB, True, {}, 273),
        (64 * GIB, True, {"hidden_size": 4096}, 1024),
        (64 * GIB, False, {"hidden_size": 4096}, 16384),
        (8 * GIB, False, {"hidden_size": 4096}, 2184),
        (0, True, {"hidden_size": 4096}, 64),
        (0, False, {"hidden_size": 4096}, 64),
        (None, True, {"hidden_size": 4096}, 1024),
        (None, False, {"hidden_size": 4096}, 1024),
    ],
)
def test_tokens_of_a_pass_follow_from_free_memory_within_bounds(
    monkeypatch: pytest.MonkeyPatch, free: int | None, cpu: bool, config: dict[str, Any], expected: int
) -> None:
    with_free(monkeypatch, free, cpu=cpu)
    assert default_batch_tokens(config) == expected


def test_free_memory_is_that_of_this_machine() -> None:
    free = free_memory()
    assert free is None or 0 < free < 1024 * 1024 * GIB


def test_free_main_memory_is_what_the_kernel_calls_available(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "meminfo"
    file.write_text("MemTotal:       16000 kB\nMemFree:          100 kB\nMemAvailable:    3000 kB\n")
    monkeypatch.setattr(main_memory, "Path", lambda _name: file)
    assert main_memory.free_main_memory() == 3000 * 1024


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("[malloc_or_wait] Unable to allocate 123 bytes."), True),
        (RuntimeError("[METAL] Command buffer execution failed: Insufficient Memory (00000008)"), True),
        (RuntimeError("cudaMallocAsync failed: out of memory"), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("[matmul] Last dimension of first input must match"), False),
        (ValueError("Unable to allocate 123 bytes"), False),
        (RecursionError("maximum recursion depth exceeded"), False),
    ],
)
def test_what_says_that_there_is_no_memory(error: BaseException, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_a_budget_shrinks_below_half_of_what_failed_and_never_to_nothing() -> None:
    budget = TokenBudget(1000)
    budget.shrink(600)
    assert budget.tokens == 300
    budget.shrink(700)
    assert budget.tokens == 300
    budget.halve()
    assert budget.tokens == 150
    for _ in range(10):
        budget.halve()
    assert budget.tokens == 1
    budget.shrink(1)
    assert budget.tokens == 1
