"""LLM benchmarks as pytest tests: a release gate for fine-tuned and quantized specialist models."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_gnus.benchmark_runner import BenchmarkRunner
    from pytest_gnus.errors import GnusError
    from pytest_gnus.experiments.report import ExperimentReport
    from pytest_gnus.experiments.request import ExperimentRequest
    from pytest_gnus.experiments.runner import ExperimentRunner

__all__ = ["BenchmarkRunner", "ExperimentReport", "ExperimentRequest", "ExperimentRunner", "GnusError"]

_MODULES = {
    "BenchmarkRunner": "pytest_gnus.benchmark_runner",
    "ExperimentReport": "pytest_gnus.experiments.report",
    "ExperimentRequest": "pytest_gnus.experiments.request",
    "ExperimentRunner": "pytest_gnus.experiments.runner",
    "GnusError": "pytest_gnus.errors",
}


def __getattr__(name: str) -> Any:
    """Import the public names when they are asked for: an unrelated pytest session pays for none of them."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
