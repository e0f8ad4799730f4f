"""Which tensors a model directory's files hold, and whether they are those that its index promises."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_gnus.errors import ModelError

WEIGHT_FILES = "model*.safetensors"
INDEX_FILE = "model.safetensors.index.json"
#: Names that one message lists.
_SHOWN = 5


def check_weight_files(directory: Path) -> None:
    """See that each tensor is in one file, and that of an index is where the index says.

    Who loads them takes any file of the right name, and of a tensor that is there twice whichever comes last.

    Raises:
        ModelError: naming up to five tensors or files.
        ValueError: a file is no safetensors file.
    """
    files = {path.name: tensor_names(path) for path in sorted(directory.glob(WEIGHT_FILES))}
    _check_index(directory, files)
    first: dict[str, str] = {}
    twice = []
    for file, names in files.items():
        twice += [f"{name} ({first[name]} and {file})" for name in names if name in first]
        first |= {name: file for name in names if name not in first}
    if twice:
        raise ModelError(f"{directory} holds tensors in two files, of which one is not wanted: {few(twice)}")


def tensor_names(path: Path) -> list[str]:
    """The names in a safetensors file's header.

    Raises:
        ValueError: it has no such header.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > path.stat().st_size:
            raise ValueError(f"{path.name} is no safetensors file, or part of it is missing")
        try:
            header = json.loads(file.read(length).decode("utf-8"))
        except ValueError:
            header = None
    if not isinstance(header, dict):
        raise ValueError(f"{path.name} is no safetensors file")
    return [name for name in header if name != "__metadata__"]


def _check_index(directory: Path, files: Mapping[str, Iterable[str]]) -> None:
    path = directory / INDEX_FILE
    if not path.is_file():
        return
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from error
    promised = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(promised, dict):
        raise ModelError(f"{path}: found no weight_map; allowed: an object from tensor names to file names")
    absent = sorted(set(map(str, promised.values())) - files.keys())
    if absent:
        raise ModelError(f"{directory} lacks files that {INDEX_FILE} names: {few(absent)}")
    held = {file: set(names) for file, names in files.items()}
    missing = [f"{name} ({file})" for name, file in promised.items() if name not in held[file]]
    if missing:
        raise ModelError(f"{directory} lacks tensors that {INDEX_FILE} promises: {few(missing)}")


def few(names: Iterable[str]) -> str:
    """Up to five names, and how many more there are."""
    known = list(names)
    more = f"; and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return "; ".join(known[:_SHOWN]) + more
