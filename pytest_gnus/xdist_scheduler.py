"""Keeps each niche on one xdist worker, so that no model is loaded twice.

`--dist=loadgroup` cannot do it: with pytest 9.2 and xdist 3.8 it silently does not group.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from pytest_gnus.advice import advise_session

_ITEM = re.compile(r"\.ya?ml::[^\[\]]+\[(?P<inside>.+)\]$")
_VARIANT = re.compile(r"^(?P<niche>.+)-(?:baseline|reference|quantized)$")
#: Distribution modes of xdist that keep the items of one model together.
_HARMLESS = frozenset({"no"})


def scope_of(nodeid: str) -> str | None:
    """What an item shares its worker with; None for a test that is no benchmark.

    A niche's items and its SGFP4 artifact belong together::

        benchmarks/bigpatent.yaml::bigpatent[patents-quantized]           gnus niche patents
        config/specialists/patents.yaml::sgfp4[patents-quantized]         gnus niche patents
    """
    item = _ITEM.search(nodeid)
    if item is None:
        return None
    if found := _VARIANT.match(item["inside"]):
        return f"gnus niche {found['niche']}"
    return None


class NicheScheduling(LoadScopeScheduling):
    """Load-scope scheduling by `scope_of`; tests that are no benchmarks stand alone."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid) or nodeid

    def remove_node(self, node: Any) -> str | None:
        """Take a worker away; what it had not begun goes to others, the item that it died in does not.

        xdist would run that item again, each time on a new worker: what kills one kills them all, and at
        its limit of workers the run ends with the rest of the niche never tried.
        """
        workload = self.assigned_work.pop(node)
        pending = [(unit, nodeid) for unit in workload.values() for nodeid, done in unit.items() if not done]
        if not pending:
            return None
        died_in: str
        unit, died_in = pending[0]
        unit[died_in] = True
        for scope, work in reversed(workload.items()):
            if not all(work.values()):
                self.workqueue[scope] = work
                self.workqueue.move_to_end(scope, last=False)  # it was begun: before those that were not
        for other in self.assigned_work:
            self._reschedule(other)
        return died_in


def make_scheduler(config: pytest.Config, log: Any) -> NicheScheduling | None:
    """The niche scheduler, unless a distribution was asked for by name: that one wins, with a warning."""
    mode = config.getoption("dist")
    if mode == "each":
        raise pytest.UsageError(
            "pytest-gnus: --dist=each measures every item on each worker; allowed: no --dist, which keeps a "
            "niche on one worker"
        )
    if mode == "load" and not _asks_for_a_distribution(_arguments(config)):
        return NicheScheduling(config, log)  # `load` is what `-n` alone comes to
    if mode not in _HARMLESS:
        advise_session(
            config,
            f"--dist={mode} may spread a niche over several workers: each then loads its models, and "
            "a quantized item may run before its reference; without --dist a niche stays on one worker",
        )
    return None


def how_it_ended(node: Any) -> str:
    """What became of a worker's process, as far as the system says."""
    process = getattr(getattr(node.gateway, "_io", None), "popen", None)  # there for workers of this machine
    try:
        status = process.wait(timeout=2) if process is not None else None
    except subprocess.TimeoutExpired:
        status = None
    if status is None:
        return "the connection to it was lost"
    if status >= 0:
        return f"its process exited with status {status}"
    if -status == signal.SIGKILL:
        return "its process was killed (SIGKILL), as the system does where memory runs out"
    return f"its process ended by signal {-status} ({signal.strsignal(-status)})"


def _arguments(config: pytest.Config) -> Sequence[str]:
    """All that was given as on a command line: there, in the environment, and as `addopts`."""
    environment = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
    return [*config.getini("addopts"), *environment, *map(str, config.invocation_params.args)]


def _asks_for_a_distribution(arguments: Iterable[str]) -> bool:
    return any(argument == "-d" or argument.startswith("--dist") for argument in arguments)
