"""LLM benchmarks as pytest tests: a release gate for fine-tuned and quantized specialist models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_gnus.benchmark_runner import BenchmarkRunner
    from pytest_gnus.errors import GnusError

__all__ = ["BenchmarkRunner", "GnusError"]


def __getattr__(name: str) -> Any:
    """Import the public names when they are asked for: an unrelated pytest session pays for none of them."""
    if name == "BenchmarkRunner":
        from pytest_gnus.benchmark_runner import BenchmarkRunner

        return BenchmarkRunner
    if name == "GnusError":
        from pytest_gnus.errors import GnusError

        return GnusError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
