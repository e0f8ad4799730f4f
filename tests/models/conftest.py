"""Small models for the tests of this folder; the fast BLAS must be there before MLX is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_gnus.demo import model_directory
from pytest_gnus.models.cpu import load_fast_blas

load_fast_blas()


@pytest.fixture(scope="session")
def embedded() -> Any:
    """The embedded specialist's reference: (model, tokenizer, language model)."""
    from pytest_gnus.models.registry import load
    from pytest_gnus.models.spec import ModelSpec

    return load(ModelSpec("demo", "patents-reference"))


@pytest.fixture(scope="session")
def reference_directory() -> Path:
    return model_directory("reference")
