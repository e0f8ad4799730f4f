"""The one progress display of a run: the item, its requests done, tokens per second, time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from pytest_gnus.models.progress import NoProgress, Progress

#: Seconds between two updates; each stops pytest's capture for a moment.
_INTERVAL = 0.5


def make_progress(config: pytest.Config) -> Progress:
    """A display where a person looks on: not under xdist, with `-q`, or where the output is no terminal."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or config.get_verbosity() < 0 or hasattr(config, "workerinput"):
        return NoProgress()
    if config.getoption("numprocesses", None) or not reporter.isatty:
        return NoProgress()
    return TerminalProgress(config, reporter)


class TerminalProgress:
    """A tqdm bar on standard error, past pytest's capture, gone when its item is done."""

    def __init__(self, config: pytest.Config, reporter: pytest.TerminalReporter) -> None:
        self._capture = config.pluginmanager.get_plugin("capturemanager")
        self._reporter = reporter
        self._name = ""
        self._bar: Any = None
        self._tokens = 0
        self._started = 0.0

    def item(self, name: str) -> None:
        self._name = name

    def begin(self, requests: int) -> None:
        if not requests:
            return
        if self._bar is not None:  # an item may ask in several ways, one after the other
            self._bar.total += requests
            return
        from tqdm import tqdm

        with self._uncaptured():
            self._reporter.ensure_newline()
        self._tokens, self._started = 0, time.monotonic()
        self._bar = tqdm(
            total=requests,
            desc=self._name,
            unit="request",
            file=_PastCapture(self._uncaptured),
            mininterval=_INTERVAL,
            leave=False,
            dynamic_ncols=True,
        )

    def _uncaptured(self) -> AbstractContextManager[None]:
        if self._capture is None:
            return nullcontext()
        disabled: AbstractContextManager[None] = self._capture.global_and_fixture_disabled()
        return disabled

    def advance(self, requests: int, tokens: int) -> None:
        if self._bar is None:
            return
        self._tokens += tokens
        seconds = max(time.monotonic() - self._started, 1e-9)
        self._bar.set_postfix_str(f"{self._tokens / seconds:,.0f} tokens/s", refresh=False)
        self._bar.update(requests)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class _PastCapture:
    """Writes to the terminal although pytest captures both streams."""

    def __init__(self, uncaptured: Callable[[], AbstractContextManager[None]]) -> None:
        self._uncaptured = uncaptured
        self.encoding = getattr(sys.__stderr__, "encoding", None) or "ascii"

    def write(self, text: str) -> None:
        stream = sys.__stderr__
        if stream is None:
            return
        with self._uncaptured():
            stream.write(text)
            stream.flush()

    def flush(self) -> None:
        """Every write is flushed."""

    def fileno(self) -> int:
        return 2

    def isatty(self) -> bool:
        return True
