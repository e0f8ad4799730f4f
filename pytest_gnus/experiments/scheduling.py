"""Under pytest-xdist: each model of an experiment on one worker, which then loads it once for all rounds.

Rounds are outermost on each worker; the report puts them so for the whole experiment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling


class ModelScheduling(LoadScopeScheduling):
    """Load-scope scheduling whose scope is the model; tests that are no items of the experiment stand alone.

    Args:
        labels: the label of the model of each item, by the item's name.
    """

    def __init__(self, config: pytest.Config, log: Any, labels: Mapping[str, str]) -> None:
        super().__init__(config, log)
        self._labels = labels

    def _split_scope(self, nodeid: str) -> str:
        label = self._labels.get(nodeid.rpartition("::")[2])
        return f"gnus model {label}" if label is not None else nodeid
