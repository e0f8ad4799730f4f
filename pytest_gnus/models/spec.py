"""Names of models: `provider:name`, resolved against a project without loading anything."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_gnus.errors import Problem

if TYPE_CHECKING:
    from pytest_gnus.models.provider import Providers

DEFAULT_PROVIDER = "mlx"
#: A model directory with this file is an SGFP4 package.
SGFP4_MANIFEST = "sgfp4_manifest.json"

_PREFIX = re.compile(r"^([A-Za-z][A-Za-z0-9_]+):(.*)$", re.DOTALL)
_HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[\w.-]+$")


@dataclass(frozen=True)
class ModelSpec:
    """Which weights to load: equal specs are one model, loaded once.

    `name` is a directory, a hub id, or a provider's own name; `adapter` a directory of LoRA weights.
    """

    provider: str
    name: str
    adapter: str | None = None

    def __str__(self) -> str:
        adapter = f" with adapter {self.adapter}" if self.adapter else ""
        return f"{self.provider}:{self.name}{adapter}"

    @property
    def directory(self) -> Path | None:
        """The local directory of the weights, where the name is one."""
        path = Path(self.name)
        is_path = self.provider == DEFAULT_PROVIDER or path.is_absolute()
        return path if is_path and path.is_dir() else None


def parse(text: str, root: Path, adapter: str | None = None, providers: Providers | None = None) -> ModelSpec:
    """`provider:name`, or a bare directory or hub id of the default provider.

    A directory may be relative to `root`, the project's; it is made absolute. What is no directory stays a
    hub id if it looks like one. Without `providers` the built-in ones are known.
    """
    provider, name = _split(text)
    resolved = located(adapter, root) if adapter else None
    return ModelSpec(provider, _known(providers).get(provider).located(name, root), resolved)


def parse_problem(text: str, where: str, key: str = "", providers: Providers | None = None) -> Problem | None:
    """What is wrong with a model's name, as far as can be told without looking for it."""
    provider, name = _split(text)
    known = _known(providers)
    if provider not in known.names:
        return known.unknown(provider, text, where, key)
    allowed = known.get(provider).problem(name)
    return Problem(where, key, repr(text), allowed) if allowed is not None else None


def is_hub_id(name: str) -> bool:
    """Whether a name that is no directory may be looked up on the hub."""
    return _HUB_ID.match(name) is not None


def located(name: str, root: Path) -> str:
    """A directory of the project, made absolute; what is none stays a hub id if it looks like one."""
    path = root / Path(name).expanduser()
    return str(path.resolve()) if path.exists() or not is_hub_id(name) else name


def _known(providers: Providers | None) -> Providers:
    if providers is not None:
        return providers
    from pytest_gnus.models.registry import BUILT_IN

    return BUILT_IN


def _split(text: str) -> tuple[str, str]:
    match = _PREFIX.match(text)
    return (match.group(1), match.group(2)) if match else (DEFAULT_PROVIDER, text)
