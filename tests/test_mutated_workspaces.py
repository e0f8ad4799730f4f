"""Whatever is wrong with the files of a workspace, a person is told in a sentence.

`GNUS_MUTATED_WORKSPACES=2000 python -m pytest tests/test_mutated_workspaces.py` tries as many as a release
needs, each time others; without the variable it is the same few in every run.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.mutation import Mutation, write_workspace

COUNT = int(os.environ.get("GNUS_MUTATED_WORKSPACES", "100"))
SECONDS = 120
_NEVER = re.compile(r"^(INTERNALERROR|Traceback)", re.MULTILINE)
#: pytest shows the lines of a traceback with this in front where an error was not said in a sentence.
_SHOWN_TRACEBACK = re.compile(r"^E   ", re.MULTILINE)


class _Hang(BaseException):
    """A session that does not come to an end; nothing in it may catch this."""


def session(root: Path, *arguments: str) -> tuple[int, str]:
    """The exit status and the output of a session in this process, as a process of its own takes seconds."""
    output = io.StringIO()
    quiet = "cacheprovider faulthandler unraisableexception threadexception".split()
    options = ["-s", "-p", "pytest_gnus.plugin", *(f"-pno:{name}" for name in quiet)]
    with (
        warnings.catch_warnings(),
        contextlib.chdir(root),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
    ):
        warnings.simplefilter("default")  # those of the session that this test runs in are others
        status = pytest.main([*arguments, *options])
    return int(status), output.getvalue()


@contextlib.contextmanager
def _no_longer_than(seconds: int) -> Iterator[None]:
    def stop(*_arguments: Any) -> None:
        raise _Hang(f"no end after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sessions with this product's plugin only, and a collector that leaves the imported modules alone."""
    import pytest_gnus.evaluation  # noqa: F401

    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def test_the_workspace_as_it_should_be_passes(alone: None, tmp_path: Path) -> None:
    """Without this, every mutated one might fail for a reason of its own."""
    write_workspace(tmp_path)
    status, output = session(tmp_path, "--niche=toy")
    assert status == 0, output
    assert "toy: PROMOTE" in output
    for arguments in (["--gnus-experiment=trial"], ["--niche=toy", "--gnus-mode=diagnostic"]):
        status, output = session(tmp_path, *arguments)
        assert status == 0, output
        assert "6 passed" in output or "4 passed" in output


def test_a_mutated_workspace_ends_in_a_sentence(
    alone: None, tmp_path_factory: pytest.TempPathFactory, record_property: Callable[[str, object], None]
) -> None:
    statuses: list[int] = []

    @given(st.data())
    @settings(
        max_examples=COUNT,
        deadline=None,
        database=None,
        derandomize="GNUS_MUTATED_WORKSPACES" not in os.environ,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def try_one(data: st.DataObject) -> None:
        root = tmp_path_factory.mktemp("mutated")
        try:
            statuses.append(_status_of_mutated(root, data))
        finally:
            shutil.rmtree(root)

    try_one()
    assert len(statuses) >= COUNT
    # The mutations reach all that can become of a session: else they are none worth the name.
    assert {0, 1, 4} <= set(statuses)
    record_property("statuses", {status: statuses.count(status) for status in sorted(set(statuses))})


def _status_of_mutated(root: Path, data: st.DataObject) -> int:
    write_workspace(root)
    mutation = Mutation(root, data.draw)
    for _ in range(data.draw(st.sampled_from([1, 1, 1, 1, 2]))):
        mutation.apply()
    arguments = mutation.arguments()
    with _no_longer_than(SECONDS):
        status, output = session(root, *arguments)
    case = "\n".join([*mutation.log, str(arguments), output])
    assert status in (0, 1, 4, 5), case
    assert not _NEVER.search(output), case
    assert not _SHOWN_TRACEBACK.search(output), case
    return status
