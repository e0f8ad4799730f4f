"""Warnings that are advice: shown, and never turned into errors by a filter such as `-W error`.

What a benchmark came to must not depend on how strictly a project reads the warnings of its unit tests.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest


class GnusWarning(pytest.PytestWarning):
    """Something about a measurement that fails nothing and that a person should know."""


class WaitWarning(GnusWarning):
    """A model is not loaded yet, because other processes hold the device."""


@contextlib.contextmanager
def warnings_shown() -> Iterator[None]:
    """Within, what a filter would raise is shown instead; other filters stay in force."""
    with warnings.catch_warnings():
        filters: list[Any] = list(warnings.filters)
        warnings.resetwarnings()
        for action, message, category, module, line in reversed(filters):
            warnings.filterwarnings(
                "default" if action == "error" else action,
                _pattern(message),
                category,
                _pattern(module),
                line or 0,
            )
        yield


def advise(item: pytest.Item, texts: list[str]) -> None:
    """Warnings of an item."""
    with warnings_shown():
        for text in texts:
            item.warn(GnusWarning(text))


def advise_session(config: pytest.Config, text: str) -> None:
    """A warning of the session."""
    warning = GnusWarning(text)
    try:
        config.issue_config_time_warning(warning, stacklevel=2)
    except GnusWarning:  # a filter makes an error of it
        record(config, warning, when="config")


def record(config: pytest.Config, warning: GnusWarning, when: str) -> None:
    """Have a warning shown at once, past all filters; xdist brings it to the controller."""
    message = warnings.WarningMessage(warning, type(warning), __file__, 0)
    config.hook.pytest_warning_recorded.call_historic(
        kwargs={"warning_message": message, "when": when, "nodeid": "", "location": None}
    )


def _pattern(part: re.Pattern[str] | str | None) -> str:
    """A filter holds its patterns compiled; those that Python starts with are plain names."""
    if part is None:
        return ""
    return part if isinstance(part, str) else part.pattern
