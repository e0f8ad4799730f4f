"""A history of records somewhere else, behind any fsspec URL: `s3://`, `gs://`, `hf://`, `file://`, `memory://`.

Below the URL each benchmark has a folder of its own, `<niche>/<benchmark>/<variant>/`, so that what is asked
for can be listed without listing everything ever recorded. Files are added and never changed: a record's name
carries the microsecond of its making, and what is there already is not written again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pytest_gnus.errors import RecordError

_DECISIONS = "decisions"


@dataclass(frozen=True)
class RemoteHistory:
    """Records and decisions below a URL. Every error names the place without its credentials."""

    filesystem: Any
    root: str = field(repr=False)
    shown: str
    _secrets: tuple[str, ...] = field(default=(), repr=False)
    _names: dict[tuple[str, ...], list[str] | RecordError] = field(
        default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def open(cls, url: str) -> RemoteHistory:
        """The history at a URL. Nothing is asked of the other side yet.

        Raises:
            RecordError: no file system of that name, or its package is not installed.
        """
        import fsspec

        shown, secrets = _without_credentials(url)
        try:
            filesystem, root = fsspec.core.url_to_fs(url)
        except ImportError as error:
            extra = {"s3": "s3", "gs": "gs", "gcs": "gs"}.get(url.partition("://")[0])
            remedy = f"; pip install 'pytest-gnus[{extra}]'" if extra else ""
            raise RecordError(
                f"the history {shown} needs a package that is not installed: {_told(error, secrets)}{remedy}"
            ) from error
        except Exception as error:
            # Each file system raises what it likes.
            raise RecordError(f"the history {shown} cannot be used: {_told(error, secrets)}") from error
        root = str(root).rstrip("/")
        if not url.partition("://")[2].strip("/") or not root or "::" in url:
            raise RecordError(f"the history {shown} cannot be used: a folder is needed behind the protocol")
        if "file" in _protocols(filesystem) and not Path(root).parent.is_dir():
            # A disk that is not mounted, or a mistyped path, is not an empty history.
            raise RecordError(f"the history {shown} cannot be used: there is no folder {Path(root).parent}")
        return cls(filesystem, root, shown, secrets)

    def names(self, niche: str, benchmark: str, variant: str) -> list[str]:
        """The names of the records of one benchmark; asked once in a run, which compares with earlier ones.

        Raises:
            RecordError: the history cannot be listed.
        """
        return [name for name in self._listed(niche, benchmark, variant) if name.endswith("Z.json")]

    def decisions(self) -> list[str]:
        """The names of the decisions."""
        return [name for name in self._listed(_DECISIONS) if name.endswith(".json")]

    def _listed(self, *folder: str) -> list[str]:
        # A failure is kept too: each attempt may take seconds, and every gate of a run asks.
        if folder not in self._names:
            try:
                self._names[folder] = self._asked(folder)
            except RecordError as error:
                self._names[folder] = error
        names = self._names[folder]
        if isinstance(names, RecordError):
            raise names
        return names

    def _asked(self, folder: tuple[str, ...]) -> list[str]:
        try:
            self.filesystem.invalidate_cache()
            found = self.filesystem.ls("/".join((self.root, *folder)), detail=False)
        except FileNotFoundError:
            return []
        except Exception as error:
            raise RecordError(f"the history {self.shown} cannot be listed: {self._told(error)}") from error
        return sorted(str(name).rstrip("/").rpartition("/")[2] for name in found)

    def fetch(self, niche: str, benchmark: str, variant: str, name: str) -> bytes:
        """One file of a benchmark.

        Raises:
            RecordError: it is not there or cannot be had.
        """
        return self._fetched(niche, benchmark, variant, name)

    def fetch_decision(self, name: str) -> bytes:
        return self._fetched(_DECISIONS, name)

    def _fetched(self, *parts: str) -> bytes:
        try:
            return bytes(self.filesystem.cat_file("/".join((self.root, *parts))))
        except Exception as error:
            raise RecordError(f"{parts[-1]} cannot be had from {self.shown}: {self._told(error)}") from error

    def _told(self, error: Exception) -> str:
        return _told(error, self._secrets)

    def add_record(self, path: Path, content: Mapping[str, Any]) -> None:
        """Upload a record with its outcomes; the outcomes first, so that no record stands without them.

        Raises:
            RecordError: it could not be written, or something else has its name.
        """
        folder = (content["niche"], content["benchmark"], content["variant"])
        if content["samples"] is not None:
            self._add((*folder, content["samples"]), (path.parent / content["samples"]).read_bytes())
        self._add((*folder, path.name), path.read_bytes())

    def add_decision(self, path: Path) -> None:
        """Upload a decision; see `add_record`."""
        self._add((_DECISIONS, path.name), path.read_bytes())

    def everything(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Every file below the URL, as its folder and its name.

        Raises:
            RecordError: the history cannot be listed.
        """
        try:
            self.filesystem.invalidate_cache()
            found: Iterable[str] = self.filesystem.find(self.root)
        except FileNotFoundError:
            return
        except Exception as error:
            raise RecordError(f"the history {self.shown} cannot be listed: {self._told(error)}") from error
        for path in found:
            *folder, name = str(path)[len(self.root) :].strip("/").split("/")
            yield tuple(folder), name

    def _add(self, parts: tuple[str, ...], content: bytes) -> None:
        path = "/".join((self.root, *parts))
        try:
            self._create(path, content)
        except FileExistsError:
            there = self._fetched(*parts)
            if hashlib.sha256(there).digest() != hashlib.sha256(content).digest():
                raise RecordError(
                    f"{parts[-1]} is in {self.shown} already, with other content; nothing is overwritten"
                ) from None
        except RecordError:
            raise
        except Exception as error:
            raise RecordError(
                f"{parts[-1]} could not be written to {self.shown}: {self._told(error)}"
            ) from error

    def _create(self, path: str, content: bytes) -> None:
        """Write a new file, in one step where the file system can.

        Raises:
            FileExistsError: the name is taken.
        """
        filesystem = self.filesystem
        if "file" in _protocols(filesystem):
            from pytest_gnus.records.store import write_new

            Path(path).parent.mkdir(parents=True, exist_ok=True)
            write_new(Path(path), content)
            return
        filesystem.invalidate_cache()
        if filesystem.exists(path):
            raise FileExistsError(path)
        try:
            # Where the store can, it refuses by itself what another run wrote in between.
            filesystem.pipe_file(path, content, mode="create")
        except Exception:
            filesystem.invalidate_cache()
            if filesystem.exists(path):
                raise FileExistsError(path) from None
            raise


def history_url(text: str, base: Path) -> str:
    """The URL of a history as typed: what has no `://` is a folder of this machine, relative to `base`."""
    return text if "://" in text else f"file://{(base / Path(text).expanduser()).resolve()}"


def _protocols(filesystem: Any) -> tuple[str, ...]:
    protocol = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _without_credentials(url: str) -> tuple[str, tuple[str, ...]]:
    """A URL to show, and what must not be shown of it: `user:password@`, and a query that may sign it."""
    protocol, separator, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    before, at, after = rest.rpartition("@")
    # A password may hold a slash though it must not; an `@` without any belongs to a path (hf://…@revision).
    is_login = bool(at) and (":" in before or "/" not in before)
    user, _, password = before.partition(":") if is_login else ("", "", "")
    secret = {before, password or user, unquote(password)} if is_login else set()
    hidden = sorted({*secret, query} - {""}, key=len, reverse=True)
    return f"{protocol}{separator}{after if is_login else rest}", tuple(hidden)


def _told(error: Exception, secrets: Iterable[str] = ()) -> str:
    # Some file systems write paragraphs.
    text = " ".join(f"{type(error).__name__}: {error}".split()) if str(error) else type(error).__name__
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
