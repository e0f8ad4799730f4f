"""A model in memory, as the rest of the product sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pytest_gnus.models.progress import Progress
from pytest_gnus.models.provider import Abilities
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.models.usage import Usage


class LanguageModel(Protocol):
    """What a provider's lm-eval model must offer beside lm-eval's own interface."""

    usage: Usage
    progress: Progress

    def release(self) -> None: ...


@dataclass(frozen=True)
class LoadedModel:
    """An lm-eval model with what the record says of it.

    `directories` are what the model's digest is computed over: its weights' and its adapter's directory.
    Where there are none, `identity` says which weights they are; None where nobody can know, which makes
    the fingerprint invalid. `tokenizer` is what `tokenizer_identity` says of it, None where it is not known.
    `abilities` are what loading showed of them. `warnings` are things found while loading that a person
    should know. `wait_seconds` went by before it was loaded, while other processes held the device.
    """

    spec: ModelSpec
    lm: LanguageModel
    dtype: str | None = None
    device: str | None = None
    blas: str | None = None
    version: str | None = None
    demonstration: bool = False
    quantization: Mapping[str, Any] | None = None
    directories: Mapping[str, Path] = field(default_factory=dict)
    identity: str | None = None
    abilities: Abilities = field(default_factory=Abilities)
    tokenizer: Mapping[str, Any] | None = None
    warnings: tuple[str, ...] = ()
    load_seconds: float = 0.0
    wait_seconds: float = 0.0
