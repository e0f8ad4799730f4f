"""Names with arguments: `NAME,key=value,...`, as lm-eval writes them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_gnus.errors import did_you_mean, listed

#: A name is written into the record of each item, so none of these may stand in it.
_SECRET_KEYS = frozenset(
    "api_key apikey auth_token authorization header headers hf_token key password secret token".split()
)
_PASSWORD_IN_URL = re.compile(r"://[^/]*@")


@dataclass(frozen=True)
class NamedArguments:
    """A name and its arguments, as text."""

    name: str
    values: Mapping[str, str]
    malformed: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> NamedArguments:
        name, *rest = text.split(",")
        pairs = [part.partition("=") for part in rest if part.strip()]
        malformed = tuple(key for key, equals, _ in pairs if not equals or not key.strip())
        return cls(name.strip(), {key.strip(): value for key, equals, value in pairs if equals}, malformed)

    def __str__(self) -> str:
        return ",".join([self.name, *(f"{key}={value}" for key, value in self.values.items())])

    def problem(self, known: Mapping[str, type] | None = None) -> str | None:
        """What is allowed instead; `known` are all arguments with their types, None where any will do."""
        if not self.name:
            return "a name before the first comma"
        if self.malformed:
            return f"NAME,argument=value,..., without {self.malformed[0]!r}"
        for key, value in self.values.items():
            if key.lower() in _SECRET_KEYS or _PASSWORD_IN_URL.search(value):
                return f"no {key} here: it would be written into the records; give secrets by the environment"
            if key == "trust_remote_code" and value.lower() not in ("false", "0", ""):
                return "no trust_remote_code: code that comes with a model is never run"
            if known is None:
                continue
            if key not in known:
                return f"arguments of {listed(known)}, no {key!r}. {did_you_mean(key, known)}".rstrip()
            if known[key] is int and not (value.isascii() and value.isdigit() and int(value) > 0):
                return f"a whole number from 1 up as {key}"
            if not value:
                return f"a value of {key}"
        return None

    def located(self, root: Path, keys: Collection[str]) -> NamedArguments:
        """With those values of `keys` made absolute that are directories of the project."""
        values = {
            key: str(path.resolve()) if key in keys and (path := _below(root, value)).is_dir() else value
            for key, value in self.values.items()
        }
        return replace(self, values=values)


def _below(root: Path, text: str) -> Path:
    return root / Path(text).expanduser()
