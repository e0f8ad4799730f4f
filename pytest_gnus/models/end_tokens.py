"""Which tokens end a text, by what a model directory says: the same for whatever loads it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_gnus.errors import ModelError

GENERATION_FILE = "generation_config.json"
_KEY = "eos_token_id"


def read_generation_config(directory: Path) -> dict[str, Any]:
    """What a model's maker recommends for decoding; empty where there is no such file.

    Raises:
        ModelError: there is no JSON object in it.
    """
    path = directory / GENERATION_FILE
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds no JSON object")
    return content


def declared_end_tokens(
    generation_config: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[int, ...] | None:
    """The end tokens that `generation_config.json` names, else those of `config.json`; None for neither.

    Raises:
        ModelError: what stands there is no token id and no list of them.
    """
    text_config = config.get("text_config")
    nested = text_config if isinstance(text_config, Mapping) else {}
    for name, settings in (
        (GENERATION_FILE, generation_config),
        ("config.json", config),
        ("config.json: text_config", nested),
    ):
        value = settings.get(_KEY)
        if value is not None and value != []:
            return _ids(value, name)
    return None


def _ids(value: Any, name: str) -> tuple[int, ...]:
    ids = value if isinstance(value, list) else [value]
    if all(isinstance(entry, int) and not isinstance(entry, bool) and entry >= 0 for entry in ids):
        return tuple(sorted(set(ids)))
    raise ModelError(f"{name}: {_KEY}: found {value!r}; allowed: a token id or a list of token ids")


def end_tokens(declared: Iterable[int] | None, tokenizer: Any) -> tuple[int, ...]:
    """All tokens that end a text: those declared, and the tokenizer's own."""
    own = tokenizer.eos_token_id
    return tuple(sorted({*(declared or ()), *(() if own is None else (int(own),))}))
