"""The product's own errors: each a message for a person, shown without a traceback."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


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


def nearest(word: str, known: Iterable[str], count: int = 3) -> str:
    """A sentence that names the nearest known words, or nothing."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=count, cutoff=0.6)
    return f"Did you mean {' or '.join(map(repr, close))}?" if close else ""


def first_line(error: BaseException) -> str:
    """An error as one line: its kind, and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def foreign_place(error: BaseException) -> str | None:
    """Where code of others raised an error: a file's name and a line; None where the product's own did.

    What comes out of the product's models counts as its own too, whoever raised it: what they call is theirs
    to know.
    """
    package = Path(__file__).parent
    frames = traceback.extract_tb(error.__traceback__)
    own = [Path(frame.filename) for frame in frames if Path(frame.filename).is_relative_to(package)]
    if not own or Path(frames[-1].filename) == own[-1] or own[-1].is_relative_to(package / "models"):
        return None
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}"


def listed(words: Iterable[str]) -> str:
    """Words for a message: ``a, b, c``, or ``(none)``."""
    return ", ".join(words) or "(none)"
