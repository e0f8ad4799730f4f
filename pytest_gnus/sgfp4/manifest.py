"""The manifest beside containers: which tensor lies where, with what shape and what digest.

Two forms are read: a whole model's `tensors`, and a single-tensor export's `fp4_binary`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PureWindowsPath
from typing import Any

from pytest_gnus.models.spec import SGFP4_MANIFEST as MANIFEST_NAME
from pytest_gnus.sgfp4.errors import SGFP4Error

__all__ = ["MANIFEST_NAME", "Manifest", "TensorEntry", "manifest_content", "read_manifest"]

MANIFEST_VERSION = "2"
#: Of a manifest: far above what any model needs, far below what would fill memory.
_LARGEST = 256 * 1024 * 1024


@dataclass(frozen=True)
class TensorEntry:
    """One container: the weight's name, its file, the file's SHA-256, the matrix's shape, and its numbers.

    `dtype` is that of the weight it was made from, None where nobody says.
    """

    name: str
    path: Path
    sha256: str
    shape: tuple[int, int]
    dtype: str | None = None
    stats: Mapping[str, Any] = field(default_factory=dict)

    def read(self) -> bytes:
        """The container, its digest checked.

        Raises:
            SGFP4Error: the file is not there, or is not the one that the manifest means.
        """
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise SGFP4Error(
                f"cannot be read: {error.strerror}", source=str(self.path), tensor=self.name
            ) from error
        found = hashlib.sha256(data).hexdigest()
        if found != self.sha256:
            raise SGFP4Error(
                f"the file's SHA-256 is {found}, but the manifest says {self.sha256}: the file was altered, "
                "or belongs to another build",
                source=str(self.path),
                tensor=self.name,
            )
        return data


@dataclass(frozen=True)
class Manifest:
    """A manifest as read; `content` is all of it, `sha256` the digest of the file."""

    path: Path
    sha256: str
    tensors: tuple[TensorEntry, ...]
    content: Mapping[str, Any]


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        SGFP4Error: naming the file, the key, what was found and what is allowed.
    """
    reader = _Reader(path)
    try:
        if path.stat().st_size > _LARGEST:
            raise reader.fault("", "a file of more than 256 MiB", "a manifest")
        data = path.read_bytes()
        content = json.loads(data)
    except OSError as error:
        raise SGFP4Error(f"cannot be read: {error.strerror}", source=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise SGFP4Error(f"is not JSON: {error}", source=str(path)) from error
    if not isinstance(content, dict):
        raise reader.fault("", type(content).__name__, "a JSON object")
    return Manifest(path, hashlib.sha256(data).hexdigest(), tuple(reader.tensors(content)), content)


@dataclass(frozen=True)
class _Reader:
    path: Path

    def fault(self, key: str, found: object, allowed: str) -> SGFP4Error:
        at = f"{key}: " if key else ""
        return SGFP4Error(f"{at}found {found!r}; allowed: {allowed}", source=str(self.path))

    def tensors(self, content: Mapping[str, Any]) -> list[TensorEntry]:
        if "tensors" in content:
            listed = content["tensors"]
            if not isinstance(listed, list) or not listed:
                raise self.fault("tensors", listed, "a list of at least one tensor")
            entries = [self._entry(f"tensors[{i}]", entry, None) for i, entry in enumerate(listed)]
        elif "fp4_binary" in content:
            name = content.get("tensor_name")
            entries = [self._entry("fp4_binary", content["fp4_binary"], str(name) if name else "weight")]
        else:
            raise self.fault("", sorted(content), "a key `tensors` or `fp4_binary`")
        for key in ("name", "path"):
            values = [getattr(entry, key) for entry in entries]
            repeated = sorted({str(value) for value in values if values.count(value) > 1})
            if repeated:
                raise self.fault("tensors", f"{key} {repeated[0]} twice", f"every {key} once")
        return entries

    def _entry(self, key: str, entry: Any, name: str | None) -> TensorEntry:
        if not isinstance(entry, dict):
            raise self.fault(key, entry, "an object")
        stats = entry.get("stats") or {}
        if not isinstance(stats, dict):
            raise self.fault(f"{key}.stats", stats, "an object")
        given = entry.get("name", name)
        if not isinstance(given, str) or not given:
            raise self.fault(f"{key}.name", given, "the name of a weight")
        dtype = entry.get("dtype")
        return TensorEntry(
            name=given,
            path=self._container(f"{key}.path", entry.get("path")),
            sha256=self._digest(f"{key}.sha256", entry.get("sha256")),
            shape=self._shape(f"{key}.shape", entry.get("shape", stats.get("shape"))),
            dtype=dtype if isinstance(dtype, str) else None,
            stats=stats,
        )

    def _container(self, key: str, text: Any) -> Path:
        """Beside the manifest, or in `sgfp4/` beside it: of what is written only the file's name counts.

        Exporters wrote whole paths of the machine that they ran on.
        """
        name = PureWindowsPath(text).name if isinstance(text, str) else ""
        if not name or name in (".", ".."):
            raise self.fault(key, text, "the path of a container")
        beside = self.path.parent / name
        inside = self.path.parent / "sgfp4" / name
        return inside if inside.is_file() or not beside.is_file() else beside

    def _digest(self, key: str, text: Any) -> str:
        if not isinstance(text, str) or len(text) != 64 or not set(text.lower()) <= set("0123456789abcdef"):
            raise self.fault(key, text, "a SHA-256 of 64 hexadecimal digits")
        return text.lower()

    def _shape(self, key: str, shape: Any) -> tuple[int, int]:
        whole = isinstance(shape, list) and all(type(side) is int and side > 0 for side in shape)
        if not whole or len(shape) != 2:
            raise self.fault(key, shape, "[rows, columns], each at least 1")
        return shape[0], shape[1]


def manifest_content(
    entries: list[Mapping[str, Any]],
    *,
    base_model: str,
    base_model_sha256: str | None,
    niche: str | None,
    encoder: Mapping[str, Any],
    stats: Mapping[str, Any],
) -> dict[str, Any]:
    """A whole model's manifest as JSON; `entries` as `read_manifest` reads them."""
    return {
        "manifest_version": MANIFEST_VERSION,
        "niche": niche,
        "base_model": base_model,
        "base_model_sha256": base_model_sha256,
        "format": "sgfp4",
        "encoder": dict(encoder),
        "stats": dict(stats),
        "tensors": [dict(entry) for entry in entries],
    }
