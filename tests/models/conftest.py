"""Small models for the tests of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_gnus.demo import model_directory


@pytest.fixture(scope="session")
def embedded() -> Any:
    """The embedded specialist's reference: (model, tokenizer, language model)."""
    from pytest_gnus.models.registry import load
    from pytest_gnus.models.spec import ModelSpec

    return load(ModelSpec("demo", "patents-reference"))


@pytest.fixture(scope="session")
def reference_directory() -> Path:
    return model_directory("reference")
