"""A pytest session inside a test, in the test's own process.

A session in a process of its own spends nearly all of its time on importing lm-eval and MLX. Inside this
process they are there already. What a session and the files of its workspace change in the process is put
back afterwards, so that the next session finds it as it was.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import pkgutil
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pytest_gnus

#: Packages whose attributes a conftest of a test may replace.
_RESTORED = ("pytest_gnus", "lm_eval")


def run(folder: Path, arguments: tuple[str, ...]) -> pytest.RunResult:
    """Run pytest in the current folder, as `python -m pytest` would.

    Args:
        folder: where everything lies that the session may import beside what is installed.
    """
    _import_product()
    output, errors = _stream(), _stream()
    started = time.perf_counter()
    with (
        _environment(),
        _imports(folder),
        _attributes(),
        _default_warnings(),
        _small_heap(),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        # Of its own plugin for it, Hypothesis keeps one state in the process: that of the test's session.
        status = pytest.main(["-p", "no:hypothesispytest", *arguments])
    duration = time.perf_counter() - started
    texts = [_text(stream) for stream in (output, errors)]
    sys.stdout.write(texts[0])
    sys.stderr.write(texts[1])
    return pytest.RunResult(status, texts[0].splitlines(), texts[1].splitlines(), duration)


def _import_product() -> None:
    """Import now what a session would: streams that it finds and keeps, or parts that a test replaces.

    What only torch needs is left out, as it is in a session that does not run on torch.
    """
    for module in pkgutil.walk_packages(pytest_gnus.__path__, "pytest_gnus."):
        if "torch" not in module.name:
            importlib.import_module(module.name)


def _stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="", write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    before = dict(os.environ)
    folder = Path.cwd()
    try:
        yield
    finally:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _imports(folder: Path) -> Iterator[None]:
    """Modules are found as `python -m pytest` finds them; those of the folder are forgotten at the end."""
    path, writes_nothing = list(sys.path), sys.dont_write_bytecode
    importlib.invalidate_caches()
    # Byte code names the second in which its source was written: two sessions may fall into one.
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(Path.cwd()))
    try:
        yield
    finally:
        sys.path[:] = path
        sys.dont_write_bytecode = writes_nothing
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(f"{folder}{os.sep}"):
                del sys.modules[name]


@contextlib.contextmanager
def _attributes() -> Iterator[None]:
    """What was replaced in the product's and lm-eval's modules and classes is put back."""
    before = [(owner, dict(vars(owner))) for owner in _owners()]
    try:
        yield
    finally:
        for owner, attributes in before:
            for name in vars(owner).keys() - attributes.keys():
                if not (name.startswith("__") or isinstance(vars(owner)[name], ModuleType)):
                    delattr(owner, name)
            for name, value in attributes.items():
                if vars(owner).get(name) is not value:
                    setattr(owner, name, value)


def _owners() -> Iterator[Any]:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in _RESTORED or not isinstance(module, ModuleType):
            continue
        yield module
        for value in list(vars(module).values()):
            if isinstance(value, type) and value.__module__ == name:
                yield value


@contextlib.contextmanager
def _small_heap() -> Iterator[None]:
    """A session collects garbage several times: it is not to look through all that is imported here."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def _default_warnings() -> Iterator[None]:
    """Python's own filters, not those of the test's session."""
    with warnings.catch_warnings():
        warnings.resetwarnings()
        for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", category)
        yield
