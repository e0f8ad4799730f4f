"""Records on disk: written whole or not at all, never changed, found again by what they measured.

A record carries its own SHA-256 and that of its per-document outcomes: one that was altered is told from one
that was not. With a remote history, what lies there is fetched when it is asked for, and checked likewise.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import secrets
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_gnus.errors import RecordError
from pytest_gnus.records import schema
from pytest_gnus.records.fingerprint import (
    MANIFEST_FIELDS,
    canonical_sha256,
    file_sha256,
    record_digest,
    told_differences,
)

if TYPE_CHECKING:
    from pytest_gnus.records.remote import RemoteHistory

_SAMPLE_KEYS = {"task", "doc_id", "doc_hash", "score"}
_ALTERED = "it was altered, its digest is another"
STAMP = "%Y%m%dT%H%M%S.%fZ"


#: A coarse clock of a file system; within it, two changes may carry one time.
_CLOCK_GRAIN_NS = 2_000_000_000
_RELIST_SECONDS = 0.5


@dataclass(frozen=True)
class StoredRecord:
    path: Path
    content: Mapping[str, Any]

    @property
    def run_id(self) -> str:
        return str(self.content["run_id"])

    @property
    def key(self) -> tuple[str, str, str]:
        """Niche, benchmark and variant."""
        return (self.content["niche"], self.content["benchmark"], self.content["variant"])

    @property
    def stamp(self) -> str:
        """When it was made, as in the name of its file."""
        return datetime.fromisoformat(self.content["timestamp_utc"]).strftime(STAMP)

    @property
    def build(self) -> str:
        """Which weights were measured: the digest over the manifests of the fingerprint."""
        return build_of(self.content["fingerprint"])

    @property
    def tokenizer(self) -> Mapping[str, Any] | None:
        """The identity of the model's tokenizer; records of earlier versions do not have it."""
        found: Mapping[str, Any] | None = self.content["model"].get("tokenizer")
        return found


@dataclass(frozen=True)
class UnreadableRecord:
    """A file in the place of a record that is none, or none any more. `problem` names it and says why."""

    name: str
    problem: str

    def __str__(self) -> str:
        return self.problem


def build_of(fingerprint: Mapping[str, Any]) -> str:
    """The digest over the manifests: equal where two records measured the same weights."""
    return canonical_sha256([fingerprint[name] for name in MANIFEST_FIELDS])


@dataclass(frozen=True)
class RecordStore:
    """The records below an artifacts folder, and those of a remote history behind it."""

    artifacts: Path
    remote: RemoteHistory | None = None
    _listing: _Listing = field(default_factory=lambda: _Listing(), repr=False, compare=False)
    _read: dict[tuple[str, int, int], dict[str, Any]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def folder(self) -> Path:
        return self.artifacts / "benchmarks"

    @property
    def fetched(self) -> Path:
        """Copies of what was fetched from the remote history; the folder can be thrown away."""
        return self.artifacts / "history"

    def check_writable(self) -> None:
        """See that records and verdicts can be written, before anything is measured.

        Raises:
            RecordError: they cannot; the message says where, and why.
        """
        for folder in (self.folder, self.artifacts / "verdicts"):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with _written_aside(folder / "check", b"can be written\n"):
                    pass
            except OSError as error:
                raise RecordError(
                    f"nothing can be written to {folder}: {error.strerror or error}; make room there, or "
                    "name another folder with --gnus-artifacts=DIR"
                ) from error

    def write(self, record: Mapping[str, Any], samples: Sequence[Mapping[str, Any]] = ()) -> Path:
        """Validate and write one record, its per-document outcomes first, each in one step.

        Returns the record's path. The file name carries niche, benchmark, variant and the record's own time.
        What is written is the record with the name and digest of its outcomes and its own digest.

        Raises:
            RecordError: the record does not fit its schema, or its name is taken; nothing is written.
        """
        content = dict(record) | {"samples": None, "samples_sha256": None}
        schema.validate(content | {"record_sha256": "0" * 64})
        stem = self.stem(record)
        path = self.folder / f"{stem}.json"
        packed = b""
        if samples:
            lines = "".join(json.dumps(sample, sort_keys=True, allow_nan=False) + "\n" for sample in samples)
            packed = gzip.compress(lines.encode(), mtime=0)
            content["samples"] = f"{stem}.samples.jsonl.gz"
            content["samples_sha256"] = hashlib.sha256(packed).hexdigest()
        content["record_sha256"] = record_digest(content)
        if path.exists():  # before outcomes are put beside it
            raise RecordError(f"{path.name} is there already; records are never overwritten")
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            if samples:
                write_new(self.folder / content["samples"], packed)
            write_new(path, json_bytes(content))
        except FileExistsError:
            raise RecordError(f"{path.name} is there already; records are never overwritten") from None
        self._listing.changed = -1
        return path

    def stem(self, record: Mapping[str, Any]) -> str:
        """`<niche>_<benchmark>_<variant>_<UTC stamp with microseconds>`."""
        try:
            moment = datetime.fromisoformat(record["timestamp_utc"])
        except ValueError as error:
            raise RecordError(f"not a valid record: timestamp_utc: {error}") from error
        return f"{record['niche']}_{record['benchmark']}_{record['variant']}_{moment.strftime(STAMP)}"

    def _own(self, content: dict[str, Any], name: str) -> dict[str, Any]:
        """A record in its own place: another one under its name would hide it.

        Raises:
            RecordError: it is another one.
        """
        try:
            stem = self.stem(content)
        except RecordError as error:
            raise RecordError(f"{name}: {error}") from error
        if name != f"{stem}.json":
            raise RecordError(f"{name}: another record, {stem}, stands in its place")
        return content

    def read_all(self, niche: str, benchmark: str, variant: str) -> Iterator[StoredRecord | UnreadableRecord]:
        """Records of one benchmark, the newest first; what cannot be read comes as an error that names it.

        Raises:
            RecordError: the remote history cannot be listed.
        """
        prefix = f"{niche}_{benchmark}_{variant}"
        names = dict.fromkeys(self._listing.names(self.folder, prefix), False)
        if self.remote is not None:
            names |= {
                name: True for name in self.remote.names(niche, benchmark, variant) if name not in names
            }
        # The stamp sorts as text, and it is the part of the name that no benchmark's name can hold.
        key = (niche, benchmark, variant)
        for name in sorted(names, key=stamp_of, reverse=True):
            try:
                content = (
                    self._fetched_content(key, name) if names[name] else self._content(self.folder / name)
                )
            except RecordError as error:
                yield UnreadableRecord(name, str(error))
                continue
            if (content["niche"], content["benchmark"], content["variant"]) == key:
                yield StoredRecord((self.fetched if names[name] else self.folder) / name, content)

    def newest_first(self) -> Iterator[StoredRecord | UnreadableRecord]:
        """Every record of every benchmark, read one by one; see `read_all`.

        Raises:
            RecordError: the remote history cannot be listed.
        """
        names: dict[str, tuple[str, str, str] | None] = dict.fromkeys(self._listing.all_names(self.folder))
        if self.remote is not None:
            for folder, name in self.remote.everything():
                if len(folder) == 3 and name.endswith("Z.json"):
                    names.setdefault(name, (folder[0], folder[1], folder[2]))
        for name in sorted(names, key=stamp_of, reverse=True):
            key = names[name]
            try:
                yield (
                    self.get(key, name)
                    if key
                    else StoredRecord(self.folder / name, self._content(self.folder / name))
                )
            except RecordError as error:
                yield UnreadableRecord(name, str(error))

    def get(self, key: tuple[str, str, str], name: str) -> StoredRecord:
        """The record of a name, of one benchmark (niche, benchmark, variant).

        Raises:
            RecordError: it is not there, cannot be read, or is another benchmark's.
        """
        is_here = self.remote is None or (self.folder / name).exists()
        content = self._content(self.folder / name) if is_here else self._fetched_content(key, name)
        if (content["niche"], content["benchmark"], content["variant"]) != key:
            raise RecordError(f"{name}: a record of something else")
        return StoredRecord((self.folder if is_here else self.fetched) / name, content)

    def _content(self, path: Path) -> dict[str, Any]:
        """A record, read once: several gates look at the same one."""
        try:
            found = path.stat()
        except OSError as error:
            raise RecordError(f"{path.name} cannot be read: {error}") from error
        key = (path.name, found.st_mtime_ns, found.st_size)
        if key not in self._read:
            self._read[key] = self._own(read(path), path.name)
        return self._read[key]

    def _fetched_content(self, key: tuple[str, str, str], name: str) -> dict[str, Any]:
        """A record of the remote history, fetched once.

        It is kept only if it is whole: a broken copy must not stay once the original is mended.
        """
        path = self.fetched / name
        if path.exists() or self.remote is None:
            return self._content(path)
        packed = self.remote.fetch(*key, name)
        content = self._own(parse(packed, name), name)
        self.fetched.mkdir(parents=True, exist_ok=True)
        write_atomically(path, packed)
        return content

    def read_samples(self, record: StoredRecord) -> list[dict[str, Any]]:
        """The per-document outcomes beside a record; empty where it has none.

        Raises:
            RecordError: the file is missing, broken, or not the one that the record was written with.
        """
        name = record.content["samples"]
        if name is None:
            return []
        path = record.path.parent / name
        if not path.exists() and self.remote is not None and record.path.parent == self.fetched:
            packed = self.remote.fetch(*record.key, name)
            if hashlib.sha256(packed).hexdigest() != record.content["samples_sha256"]:
                raise RecordError(f"{name} cannot be read: {_ALTERED}")
            write_atomically(path, packed)
        try:
            if file_sha256(path) != record.content["samples_sha256"]:
                raise RecordError(f"{name} cannot be read: {_ALTERED}")
            lines = gzip.decompress(path.read_bytes()).decode("utf-8").splitlines()
            samples = [json.loads(line) for line in lines]
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise RecordError(f"{name} cannot be read: {error}") from error
        if not all(isinstance(sample, dict) and sample.keys() >= _SAMPLE_KEYS for sample in samples):
            raise RecordError(f"{name} cannot be read: it does not hold outcomes of documents")
        return samples


def open_store(artifacts: Path, history: str | None = None) -> RecordStore:
    """The records below a folder, with the remote history at a URL behind them where there is one.

    Raises:
        RecordError: the URL cannot be used.
    """
    if history is None:
        return RecordStore(artifacts)
    from pytest_gnus.records.remote import RemoteHistory

    return RecordStore(artifacts, RemoteHistory.open(history))


@dataclass
class _Listing:
    """The names in the folder of records, by what stands before their stamp; read again when it changed.

    One listing serves every benchmark of a run: asking the folder for each pattern anew takes time that
    grows with everything ever recorded.
    """

    changed: int = -1
    listed: float = 0.0
    by_prefix: dict[str, list[str]] = field(default_factory=dict)

    def names(self, folder: Path, prefix: str) -> list[str]:
        """The names with what stands before the stamp.

        Raises:
            RecordError: the folder cannot be listed.
        """
        self._refresh(folder)
        return self.by_prefix.get(prefix, [])

    def all_names(self, folder: Path) -> list[str]:
        self._refresh(folder)
        return [name for names in self.by_prefix.values() for name in names]

    def _refresh(self, folder: Path) -> None:
        try:
            changed = folder.stat().st_mtime_ns
        except FileNotFoundError:
            self.by_prefix, self.changed = {}, -1
            return
        except OSError as error:
            raise RecordError(f"{folder} cannot be listed: {error.strerror}") from error
        # A folder that changed within the clock's grain may have changed again since, by another run.
        is_recent = time.time_ns() - changed < _CLOCK_GRAIN_NS
        if changed != self.changed or (is_recent and time.monotonic() - self.listed > _RELIST_SECONDS):
            self.by_prefix = {}
            for name in _listed(folder):
                if name.endswith("Z.json") and not name.startswith("."):
                    self.by_prefix.setdefault(name.rpartition("_")[0], []).append(name)
            self.changed, self.listed = changed, time.monotonic()


def _listed(folder: Path) -> list[str]:
    # Not `iterdir`: a Path for each of ten thousand names takes ten times as long.
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError as error:
        raise RecordError(f"{folder} cannot be listed: {error.strerror}") from error


def stamp_of(name: str) -> str:
    """The stamp in the name of a record's file."""
    return name.removesuffix(".json").rpartition("_")[2]


def never_compared(content: Mapping[str, Any]) -> str | None:
    """Why a record is not compared with anything, if it is not."""
    if score(content) is None:
        return f"has no score (status {content['status']})"
    if content["mode"] != "canonical" or content["limit"] is not None:
        return "is not canonical"
    return None


def not_comparable(content: Mapping[str, Any], fingerprint: Mapping[str, Any]) -> str | None:
    """Why a record cannot be compared with what was measured in the way of `fingerprint`, if it cannot."""
    never = never_compared(content)
    if never is not None:
        return never
    if not content["fingerprint_valid"]:
        return f"its fingerprint lacks {', '.join(content['fingerprint_missing'])}"
    changed = told_differences(content["fingerprint"], fingerprint)
    return f"differs in {changed}" if changed else None


def score(content: Mapping[str, Any]) -> float | None:
    """The score of a record, if it was measured."""
    results = content["results"].get(content["benchmark"]) or {}
    value = results.get("score")
    return float(value) if value is not None else None


def read(path: Path) -> dict[str, Any]:
    """One record.

    Raises:
        RecordError: naming the file and what is wrong with it: unreadable, not a record, altered.
    """
    try:
        packed = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path.name} cannot be read: {error}") from error
    return parse(packed, path.name)


def parse(packed: bytes, name: str) -> dict[str, Any]:
    """One record from its bytes; see `read`."""
    try:
        content = json.loads(packed.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{name} cannot be read: {error}") from error
    try:
        schema.validate(content)
    except RecordError as error:
        raise RecordError(f"{name}: {error}") from error
    try:
        own, of_fingerprint = record_digest(content), canonical_sha256(content["fingerprint"])
    except (ValueError, RecursionError) as error:  # text that is none, nested too deep
        raise RecordError(f"{name} cannot be read: {error}") from error
    if of_fingerprint != content["fingerprint_hash"]:
        raise RecordError(f"{name}: its fingerprint does not fit its digest: it was altered")
    if own != content["record_sha256"]:
        raise RecordError(f"{name}: it does not fit its own digest: it was altered")
    return dict(content)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json_bytes(content))


def json_bytes(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary name in the same folder, then rename: a reader sees all of it or none."""
    with _written_aside(path, content) as temporary:
        temporary.replace(path)


def write_new(path: Path, content: bytes) -> None:
    """`write_atomically`, of a file that must not be there yet.

    Raises:
        FileExistsError: it is, be it since this moment.
    """
    with _written_aside(path, content) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            if path.exists():
                raise FileExistsError(path) from None
            temporary.replace(path)


@contextlib.contextmanager
def _written_aside(path: Path, content: bytes) -> Iterator[Path]:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
