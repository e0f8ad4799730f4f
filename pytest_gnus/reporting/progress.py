"""The one progress display of a run: the item, its requests done, tokens per second, time left."""

from __future__ import annotations

import sys
import time
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

        self._reporter.ensure_newline()
        self._tokens, self._started = 0, time.monotonic()
        self._bar = tqdm(
            total=requests,
            desc=self._name,
            unit="request",
            file=_PastCapture(self._capture),
            mininterval=_INTERVAL,
            leave=False,
            dynamic_ncols=True,
        )

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

    def __init__(self, capture: Any) -> None:
        self._capture = capture

    def write(self, text: str) -> None:
        stream = sys.__stderr__
        if stream is None:
            return
        if self._capture is None:
            stream.write(text)
            stream.flush()
            return
        with self._capture.global_and_fixture_disabled():
            stream.write(text)
            stream.flush()

    def flush(self) -> None:
        """Every write is flushed."""

    def fileno(self) -> int:
        return 2

    def isatty(self) -> bool:
        return True
