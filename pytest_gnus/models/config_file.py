"""A model directory's `config.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_gnus.errors import ModelError


def read_config(directory: Path) -> dict[str, Any]:
    """The settings of a model.

    Raises:
        ModelError: there is no such file, or no JSON object in it.
    """
    path = directory / "config.json"
    if not path.is_file():
        raise ModelError(f"{directory} is no model directory: it has no config.json")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds no JSON object")
    return content
