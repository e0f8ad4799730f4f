"""Keeps each niche on one xdist worker, so that no model is loaded twice.

`--dist=loadgroup` cannot do it: with pytest 9.2 and xdist 3.8 it silently does not group.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from pytest_gnus.fixtures import GnusWarning

_NICHE = re.compile(r"\.ya?ml::[^\[\]]+\[(?P<niche>.+)-(?:baseline|reference|quantized)\]$")
#: Distribution modes of xdist that keep the items of one model together, or that are not for speed.
_HARMLESS = frozenset({"no", "each"})


class NicheScheduling(LoadScopeScheduling):
    """Load-scope scheduling whose scope is the niche; tests that are no benchmarks stand alone."""

    def _split_scope(self, nodeid: str) -> str:
        """`benchmarks/bigpatent.yaml::bigpatent[patents-quantized]` -> `gnus niche patents`."""
        match = _NICHE.search(nodeid)
        return f"gnus niche {match['niche']}" if match else nodeid


def make_scheduler(config: pytest.Config, log: Any) -> NicheScheduling | None:
    """The niche scheduler, unless a distribution was asked for by name: that one wins, with a warning."""
    if not any(argument.startswith("--dist") for argument in config.invocation_params.args):
        return NicheScheduling(config, log)
    mode = config.getoption("dist")
    if mode not in _HARMLESS:
        config.issue_config_time_warning(
            GnusWarning(
                f"--dist={mode} may spread a niche over several workers: each then loads its models, and "
                "a quantized item may run before its reference; without --dist a niche stays on one worker"
            ),
            stacklevel=2,
        )
    return None
