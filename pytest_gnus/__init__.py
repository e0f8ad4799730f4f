"""LLM benchmarks as pytest tests: a release gate for fine-tuned and quantized specialist models."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_gnus.benchmark_runner import BenchmarkRunner
    from pytest_gnus.errors import GnusError, ModelError
    from pytest_gnus.gates.result import GateResult
    from pytest_gnus.models.loaded import LoadedModel
    from pytest_gnus.models.provider import Abilities, Provider

__all__ = [
    "Abilities",
    "BenchmarkRunner",
    "GateResult",
    "GnusError",
    "LoadedModel",
    "ModelError",
    "Provider",
]

_MODULES = {
    "Abilities": "pytest_gnus.models.provider",
    "BenchmarkRunner": "pytest_gnus.benchmark_runner",
    "GateResult": "pytest_gnus.gates.result",
    "GnusError": "pytest_gnus.errors",
    "LoadedModel": "pytest_gnus.models.loaded",
    "ModelError": "pytest_gnus.errors",
    "Provider": "pytest_gnus.models.provider",
}


def __getattr__(name: str) -> Any:
    """Import the public names when they are asked for: an unrelated pytest session pays for none of them."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
