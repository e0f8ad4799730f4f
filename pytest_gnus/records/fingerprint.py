"""The 11-field fingerprint of D-02: two records with equal fingerprints measured the same thing."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIELDS = (
    "harness_commit",
    "task_name",
    "task_revision",
    "dataset_revision",
    "prompt_hash",
    "fewshot_seed",
    "chat_template_hash",
    "answer_extraction",
    "generation_params",
    "model_manifest_sha256",
    "sgfp4_manifest_sha256",
)
#: Fields that say which weights were measured; all others say how.
MANIFEST_FIELDS = ("model_manifest_sha256", "sgfp4_manifest_sha256")
#: What stands for a setting that is not there.
_ABSENT = object()
#: Characters of one setting in a message.
_LONGEST = 100
_MAY_BE_NULL = frozenset({"task_revision", "dataset_revision"})


@dataclass(frozen=True)
class Fingerprint:
    """The fields, their digest, and which of them are missing without excuse."""

    fields: Mapping[str, Any]
    missing: tuple[str, ...]

    @property
    def valid(self) -> bool:
        return not self.missing

    @property
    def digest(self) -> str:
        return canonical_sha256({name: self.fields[name] for name in FIELDS})


def fingerprint(fields: Mapping[str, Any], *, is_sgfp4: bool) -> Fingerprint:
    """Check the 11 fields.

    `task_revision` and `dataset_revision` may be null. `sgfp4_manifest_sha256` may be null exactly where no
    SGFP4 manifest can exist: where the weights are not in SGFP4.

    Raises:
        KeyError: a field is not given at all.
    """
    complete = {name: fields[name] for name in FIELDS}
    excused = _MAY_BE_NULL if is_sgfp4 else _MAY_BE_NULL | {"sgfp4_manifest_sha256"}
    return Fingerprint(complete, tuple(n for n in FIELDS if complete[n] is None and n not in excused))


def same_protocol(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields, manifests aside, in which two fingerprints differ; empty where they can be compared."""
    return tuple(name for name in FIELDS if name not in MANIFEST_FIELDS and one.get(name) != other.get(name))


def told_differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The fields in which two fingerprints differ, with what a person can read of each side.

    Of `generation_params` and `answer_extraction` the settings are named: `end_tokens [0, 5], here [0]`.
    """
    told = []
    for name in same_protocol(one, other):
        mine, others = one.get(name), other.get(name)
        if isinstance(mine, Mapping) and isinstance(others, Mapping):
            told.append(f"{name} ({'; '.join(_settings_apart(mine, others))})")
        else:
            told.append(name)
    return ", ".join(told)


def _settings_apart(one: Mapping[str, Any], other: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for key in sorted(one.keys() | other.keys()):
        mine, others = one.get(key, _ABSENT), other.get(key, _ABSENT)
        if mine == others:
            continue
        if isinstance(mine, Mapping) and isinstance(others, Mapping):
            yield from _settings_apart(mine, others, f"{path}{key}.")
        else:
            yield f"{path}{key} {_shown(mine)}, here {_shown(others)}"


def _shown(value: Any) -> str:
    text = "not known" if value is _ABSENT else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def canonical_sha256(value: Any) -> str:
    """SHA-256 over JSON with sorted keys and no spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def record_digest(record: Mapping[str, Any]) -> str:
    """The SHA-256 that a record carries of itself as `record_sha256`, over all of it but that key."""
    return canonical_sha256({key: value for key, value in record.items() if key != "record_sha256"})


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def directory_sha256(directories: Mapping[str, Path]) -> str:
    """A canonical digest over model directories: each file's label, relative path and SHA-256, sorted.

    Hidden files and Markdown do not count: they change nothing that is measured.
    """
    total = hashlib.sha256()
    for label, directory in sorted(directories.items()):
        for relative, path in sorted(_files(directory)):
            total.update(f"{label}/{relative}\0{file_sha256(path)}\n".encode())
    return total.hexdigest()


def _files(directory: Path) -> Iterator[tuple[str, Path]]:
    """The files that count, by relative path; links are followed, once each."""
    seen: set[Path] = set()
    for folder, folders, names in os.walk(directory, followlinks=True):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if here.resolve() in seen:
            folders.clear()
            continue
        seen.add(here.resolve())
        for name in names:
            path = here / name
            if path.is_file() and not name.startswith(".") and path.suffix != ".md":
                yield path.relative_to(directory).as_posix(), path
