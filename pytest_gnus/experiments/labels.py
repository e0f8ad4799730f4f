"""Short names of models: for ids, `-k` and tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


def model_labels(models: Sequence[str]) -> list[str]:
    """A name for each `provider:name`, as short as keeps them apart: `demo:patents` is `patents`.

    The last part of the path, with as many of the parts before it (the provider is the first) as set it apart
    from the others; a number where even that does not.
    """
    parts = [_parts(model) for model in models]
    labels = [""] * len(models)
    for depth in range(1, max(map(len, parts), default=0) + 1):
        shown = ["-".join(path[-depth:]) for path in parts]
        counts = Counter(shown)
        for index, label in enumerate(shown):
            if not labels[index] and counts[label] == 1 and label not in labels:
                labels[index] = label
    for index, path in enumerate(parts):
        if not labels[index]:
            labels[index] = _numbered("-".join(path), labels)
    return labels


def _parts(model: str) -> list[str]:
    provider, colon, name = model.partition(":")
    pieces = [provider, *name.split("/")] if colon else model.split("/")
    return [safe for piece in pieces if (safe := _UNSAFE.sub("-", piece).strip("-."))] or ["model"]


def _numbered(label: str, taken: Sequence[str]) -> str:
    number = 1
    while f"{label}-{number}" in taken:
        number += 1
    return f"{label}-{number}"
