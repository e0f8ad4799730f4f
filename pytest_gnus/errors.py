"""The product's own errors: each a message for a person, shown without a traceback."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class GnusError(Exception):
    """Base of all errors that this product raises on purpose."""


@dataclass(frozen=True)
class Problem:
    """One fault in what a person wrote: where, what was found, what is allowed, what to do."""

    where: str
    key: str
    found: str
    allowed: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f". {self.hint}" if self.hint else ""
        key = f" {self.key}:" if self.key else ""
        return f"{self.where}:{key} found {self.found}; allowed: {self.allowed}{hint}"


class ConfigError(GnusError):
    """Every problem of the configuration at once."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        head = "1 problem" if count == 1 else f"{count} problems"
        super().__init__(
            "\n".join([f"pytest-gnus: {head} in the configuration", *(f"  - {p}" for p in self.problems)])
        )


class ModelError(GnusError):
    """A model cannot be found, loaded or used."""


class DataError(GnusError):
    """A benchmark's data cannot be used: missing split, empty file, missing field, outside its folder."""


class DataAbsentError(DataError):
    """A benchmark's local data are not there at all."""


class EvaluationError(GnusError):
    """lm-eval ran, but what came back cannot be trusted as a measurement."""


class HookError(GnusError):
    """A hook of a plugin or a conftest raised, or answered with something else than it was asked for."""


class RecordError(GnusError):
    """A record does not fit its schema or cannot be read."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence that names the nearest known word, or nothing."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else ""


def listed(words: Iterable[str]) -> str:
    """Words for a message: ``a, b, c``, or ``(none)``."""
    return ", ".join(words) or "(none)"
