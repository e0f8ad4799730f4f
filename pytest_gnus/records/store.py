"""Records on disk: written whole or not at all, found again by what they measured."""

from __future__ import annotations

import gzip
import json
import os
import secrets
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pytest_gnus.errors import RecordError
from pytest_gnus.records import schema
from pytest_gnus.records.fingerprint import canonical_sha256, same_protocol

_SAMPLE_KEYS = {"task", "doc_id", "doc_hash", "score"}
STAMP = "%Y%m%dT%H%M%S.%fZ"


@dataclass(frozen=True)
class StoredRecord:
    path: Path
    content: Mapping[str, Any]


@dataclass(frozen=True)
class RecordStore:
    """The records below an artifacts folder."""

    artifacts: Path

    @property
    def folder(self) -> Path:
        return self.artifacts / "benchmarks"

    def write(self, record: Mapping[str, Any], samples: Sequence[Mapping[str, Any]] = ()) -> Path:
        """Validate and write one record, its per-document outcomes first, each in one step.

        Returns the record's path. The file name carries niche, benchmark, variant and the record's own time.

        Raises:
            RecordError: the record does not fit its schema; nothing is written.
        """
        schema.validate(record)
        stem = self.stem(record)
        content = dict(record)
        if samples:
            content["samples"] = f"{stem}.samples.jsonl.gz"
        schema.validate(content)
        self.folder.mkdir(parents=True, exist_ok=True)
        if samples:
            lines = "".join(json.dumps(sample, sort_keys=True, allow_nan=False) + "\n" for sample in samples)
            write_atomically(self.folder / content["samples"], gzip.compress(lines.encode(), mtime=0))
        path = self.folder / f"{stem}.json"
        write_atomically(path, _json(content))
        return path

    def stem(self, record: Mapping[str, Any]) -> str:
        """`<niche>_<benchmark>_<variant>_<UTC stamp with microseconds>`."""
        try:
            moment = datetime.fromisoformat(record["timestamp_utc"])
        except ValueError as error:
            raise RecordError(f"not a valid record: timestamp_utc: {error}") from error
        return f"{record['niche']}_{record['benchmark']}_{record['variant']}_{moment.strftime(STAMP)}"

    def read_all(self, niche: str, benchmark: str, variant: str) -> Iterator[StoredRecord | RecordError]:
        """Records of one benchmark, the newest first; what cannot be read comes as an error that names it."""
        # The stamp sorts as text, and it is the part of the name that no benchmark's name can hold.
        paths = self.folder.glob(f"{niche}_{benchmark}_{variant}_*Z.json")
        for path in sorted(paths, key=lambda path: path.stem.rsplit("_", 1)[-1], reverse=True):
            try:
                content = read(path)
            except RecordError as error:
                yield error
                continue
            if (content["niche"], content["benchmark"], content["variant"]) == (niche, benchmark, variant):
                yield StoredRecord(path, content)

    def read_samples(self, record: StoredRecord) -> list[dict[str, Any]]:
        """The per-document outcomes beside a record; empty where it has none.

        Raises:
            RecordError: the file is missing or broken.
        """
        name = record.content["samples"]
        if name is None:
            return []
        try:
            lines = gzip.decompress((record.path.parent / name).read_bytes()).decode("utf-8").splitlines()
            samples = [json.loads(line) for line in lines]
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise RecordError(f"{name} cannot be read: {error}") from error
        if not all(isinstance(sample, dict) and sample.keys() >= _SAMPLE_KEYS for sample in samples):
            raise RecordError(f"{name} cannot be read: it does not hold outcomes of documents")
        return samples


def newest_comparable(
    records: Iterator[StoredRecord | RecordError], fingerprint: Mapping[str, Any]
) -> tuple[StoredRecord | None, list[str]]:
    """The first record with a score measured in the same way, and why those before it were passed over."""
    passed_over = []
    for record in records:
        if isinstance(record, RecordError):
            passed_over.append(str(record))
            continue
        problem = _not_comparable(record.content, fingerprint)
        if problem is None:
            return record, passed_over
        passed_over.append(f"{record.path.name}: {problem}")
    return None, passed_over


def _not_comparable(content: Mapping[str, Any], fingerprint: Mapping[str, Any]) -> str | None:
    if score(content) is None:
        return f"has no score (status {content['status']})"
    if content["mode"] != "canonical" or content["limit"] is not None:
        return "is not canonical"
    if not content["fingerprint_valid"]:
        return f"its fingerprint lacks {', '.join(content['fingerprint_missing'])}"
    if canonical_sha256(content["fingerprint"]) != content["fingerprint_hash"]:
        return "its fingerprint does not fit its digest: it was altered"
    changed = same_protocol(content["fingerprint"], fingerprint)
    return f"differs in {', '.join(changed)}" if changed else None


def score(content: Mapping[str, Any]) -> float | None:
    """The score of a record, if it was measured."""
    results = content["results"].get(content["benchmark"]) or {}
    value = results.get("score")
    return float(value) if value is not None else None


def read(path: Path) -> dict[str, Any]:
    """One record.

    Raises:
        RecordError: naming the file and what is wrong with it.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path.name} cannot be read: {error}") from error
    try:
        schema.validate(content)
    except RecordError as error:
        raise RecordError(f"{path.name}: {error}") from error
    return dict(content)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, _json(content))


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary name in the same folder, then rename: a reader sees all of it or none."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
