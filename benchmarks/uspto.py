"""Documents of `uspto_classification`."""

from __future__ import annotations

from typing import Any

#: Labels 0 to 7 are the CPC sections A to H.
SECTIONS = 8


def sections_only(dataset: Any) -> Any:
    """The documents whose label is a section."""
    return dataset.filter(lambda document: document["label"] < SECTIONS)
