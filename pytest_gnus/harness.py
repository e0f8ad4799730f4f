"""lm-eval, kept from leaving marks on the process it runs in."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import os
import random
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from typing import Any

#: lm-eval's own defaults, handed over explicitly: canonical runs are frozen to them (D-03).
SEEDS = {"random_seed": 0, "numpy_random_seed": 1234, "torch_random_seed": 1234}


@contextlib.contextmanager
def quiet_harness(seed: int) -> Iterator[None]:
    """Run lm-eval seeded, silent and without a trace.

    Global generators are seeded for code that draws from them while tasks are built, and put back afterwards.
    Progress bars and log lines go nowhere. `simple_evaluate` asks git about the current folder and, with
    torch installed, spends seconds on describing the machine, and a model without a tokenizer asks the hub
    for one so that it can be described: all of it is left out.
    """
    import datasets
    import lm_eval.evaluator
    import numpy as np

    random_state, numpy_state = random.getstate(), np.random.get_state()
    torch = sys.modules.get("torch")
    torch_state = torch.get_rng_state() if torch is not None else None
    caching = datasets.is_caching_enabled()
    random.seed(seed)
    np.random.seed(SEEDS["numpy_random_seed"])
    # A `process_docs` that draws at random must draw from this seed, not find another run's choices cached.
    datasets.disable_caching()
    try:
        with (
            _silenced(),
            _in_one_process(),
            _replaced(lm_eval.evaluator, "get_git_commit_hash", lambda: None),
            _replaced(lm_eval.evaluator, "add_env_info", lambda _results: None),
            _replaced(lm_eval.evaluator, "add_tokenizer_info", lambda _results, _model: None),
        ):
            yield
    finally:
        random.setstate(random_state)
        np.random.set_state(numpy_state)
        if torch is not None and torch_state is not None:
            torch.set_rng_state(torch_state)
        if caching:
            datasets.enable_caching()


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    logger = logging.getLogger("lm_eval")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _in_one_process() -> Iterator[None]:
    """lm-eval forks a pool to resample; a process that holds a device and its threads must not be forked."""
    name = "DISABLE_MULTIPROC"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


@cache
def harness_identity() -> str | None:
    """Which lm-eval this is: its commit where it was installed from one, else release and content digest.

    A release from a package index carries no commit. Its version, with a digest over the digests of its
    installed modules and tasks, says as much and is the same on every machine.
    """
    try:
        distribution = metadata.distribution("lm_eval")
    except metadata.PackageNotFoundError:
        return None
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    commit = origin.get("vcs_info", {}).get("commit_id")
    if commit:
        return str(commit)
    lines = sorted(
        f"{file}={file.hash.value}"
        for file in distribution.files or ()
        if file.hash is not None and str(file).startswith("lm_eval/") and file.suffix != ".pyc"
    )
    if not lines:
        return None
    return f"v{distribution.version}+sha256:{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()}"
