"""Keys of configuration files that have a new name; the old one is understood, and the reader is told."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from pytest_gnus.errors import Problem


class RenamedKeyWarning(FutureWarning):
    """A file uses a key by a name that a later version will not understand."""


@dataclass
class RenamedContent:
    """A file's content with every key by its new name.

    `old_keys` are the places of what was renamed, new and old, each as the keys from the top of the file.
    """

    content: Any
    old_keys: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def told(self, where: str) -> str | None:
        """One sentence on all old names of a file; None where there are none."""
        if not self.old_keys:
            return None
        named = ", ".join(f"{'.'.join(old)} is now {new[-1]}" for new, old in self.old_keys.items())
        one = len(self.old_keys) == 1
        what = "a key has a new name" if one else f"{len(self.old_keys)} keys have new names"
        return f"{where}: {what}: {named}; the old {'name is' if one else 'names are'} deprecated"

    def as_written(self, location: list[str | int]) -> list[str | int]:
        """A place in the content as the file has it."""
        for length in range(len(location), 0, -1):
            old = self.old_keys.get(tuple(map(str, location[:length])))
            if old is not None:
                return [*old, *location[length:]]
        return location


def with_new_names(where: str, content: Any, model: type[BaseModel]) -> RenamedContent:
    """Give the keys of a file their new names, wherever `model` or a model in it has renamed some."""
    found = RenamedContent(None)
    found.content = _renamed(content, model, (), where, found)
    return found


def _renamed(
    content: Any, model: type[BaseModel], path: tuple[str, ...], where: str, found: RenamedContent
) -> Any:
    if not isinstance(content, Mapping):
        return content
    new_names: Mapping[str, str] = getattr(model, "RENAMED", {})
    result: dict[Any, Any] = {}
    for key, value in content.items():
        name = new_names.get(key, key) if isinstance(key, str) else key
        if name != key:
            old = (*path, str(key))
            if name in content:
                hint = f"Leave out {key}: {name} is its new name."
                found.problems.append(
                    Problem(where, ".".join(old), f"{name} beside it", "one of the two", hint)
                )
                continue
            found.old_keys[*path, name] = old
        info = model.model_fields.get(name) if isinstance(name, str) else None
        result[name] = (
            _inside(value, info.annotation, (*path, name), where, found) if info is not None else value
        )
    return result


def _inside(value: Any, annotation: Any, path: tuple[str, ...], where: str, found: RenamedContent) -> Any:
    """The value of one key: a model, or a mapping of models by name."""
    if not isinstance(value, Mapping):
        return value
    for one in _alternatives(annotation):
        if isinstance(one, type) and issubclass(one, BaseModel):
            return _renamed(value, one, path, where, found)
        inner = typing.get_args(one)
        if typing.get_origin(one) is dict and isinstance(inner[1], type) and issubclass(inner[1], BaseModel):
            return {
                key: _renamed(entry, inner[1], (*path, str(key)), where, found)
                for key, entry in value.items()
            }
    return value


def _alternatives(annotation: Any) -> Iterator[Any]:
    """The types of a union; a type that is none stands alone."""
    if typing.get_origin(annotation) is dict or isinstance(annotation, type):
        yield annotation
        return
    for part in typing.get_args(annotation):
        yield from _alternatives(part)
