"""Under pytest-xdist: each model of an experiment on one worker, which then loads it once for all rounds.

Rounds are outermost on each worker; the report puts them so for the whole experiment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pytest_gnus.xdist_scheduler import NicheScheduling, make_scheduler


class ModelScheduling(NicheScheduling):
    """Scheduling whose scope is the model; tests that are no items of the experiment stand alone.

    Args:
        labels: the label of the model of each item, by the item's name.
    """

    def __init__(self, config: pytest.Config, log: Any, labels: Mapping[str, str]) -> None:
        super().__init__(config, log)
        self._labels = labels

    def _split_scope(self, nodeid: str) -> str:
        label = self._labels.get(nodeid.rpartition("::")[2])
        return f"gnus model {label}" if label is not None else nodeid


def make_model_scheduler(
    config: pytest.Config, log: Any, labels: Mapping[str, str]
) -> ModelScheduling | None:
    """The model scheduler, unless a distribution was asked for by name: that one wins, with a warning."""
    return ModelScheduling(config, log, labels) if make_scheduler(config, log) is not None else None
