"""Who hears how far a model has come with the requests of an item."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A listener; `begin` and `advance` are called by the model, the rest by the run."""

    def item(self, name: str) -> None:
        """An item is about to be measured."""

    def begin(self, requests: int) -> None:
        """So many requests have come in."""

    def advance(self, requests: int, tokens: int) -> None:
        """So many requests are finished, and so many tokens were run, since the last call."""

    def close(self) -> None:
        """The item has been measured, or it failed."""


class NoProgress:
    """Shows nothing."""

    def item(self, name: str) -> None: ...

    def begin(self, requests: int) -> None: ...

    def advance(self, requests: int, tokens: int) -> None: ...

    def close(self) -> None: ...
