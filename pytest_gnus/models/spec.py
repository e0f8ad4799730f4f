"""Names of models: `provider:name`, resolved against a project without loading anything."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pytest_gnus.errors import Problem, did_you_mean, listed

PROVIDERS = ("mlx", "demo")
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
        """The local directory of the weights, where there is one."""
        path = Path(self.name)
        return path if self.provider == "mlx" and path.is_dir() else None


def parse(text: str, root: Path, adapter: str | None = None) -> ModelSpec:
    """`provider:name`, or a bare directory or hub id of the default provider.

    A directory may be relative to `root`, the project's; it is made absolute. What is no directory stays a
    hub id if it looks like one.
    """
    provider, name = _split(text)
    if provider == "mlx":
        name = _located(name, root)
    resolved = _located(adapter, root) if adapter else None
    return ModelSpec(provider, name, resolved)


def parse_problem(text: str, where: str, key: str = "") -> Problem | None:
    """What is wrong with a model's name, as far as can be told without looking for it."""
    provider, name = _split(text)
    if provider not in PROVIDERS:
        hint = did_you_mean(provider, PROVIDERS)
        allowed = f"a provider of {listed(PROVIDERS)}, as in mlx:DIR, mlx:HUB_ID or demo:patents"
        return Problem(where, key, f"the provider {provider!r} in {text!r}", allowed, hint)
    if not name.strip():
        return Problem(where, key, repr(text), "a name after the colon, as in mlx:DIR or demo:patents")
    return None


def is_hub_id(name: str) -> bool:
    """Whether a name that is no directory may be looked up on the hub."""
    return _HUB_ID.match(name) is not None


def _split(text: str) -> tuple[str, str]:
    match = _PREFIX.match(text)
    return (match.group(1), match.group(2)) if match else (DEFAULT_PROVIDER, text)


def _located(name: str, root: Path) -> str:
    path = root / Path(name).expanduser()
    return str(path.resolve()) if path.exists() or not is_hub_id(name) else name
