"""From an experiment's plan to pytest items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from pytest_gnus.advice import advise
from pytest_gnus.collection import MeasuringFunction, as_planned, put_in_their_places
from pytest_gnus.experiments.plan import ExperimentItem


class ExperimentFile(pytest.File):
    """One `benchmarks/<name>.yaml`; its items are the models and rounds that it is measured on."""

    planned: Sequence[ExperimentItem] = ()

    def collect(self) -> Iterable[ExperimentFunction]:
        for planned in self.planned:
            yield ExperimentFunction.make(self, planned)


class ExperimentFunction(MeasuringFunction):
    """Measures one benchmark on one model in one round; passes if it could be measured."""

    planned: ExperimentItem

    @classmethod
    def make(cls, parent: ExperimentFile, planned: ExperimentItem) -> ExperimentFunction:
        item: ExperimentFunction = cls.from_parent(parent, name=planned.name, callobj=_test_function())
        item.planned = planned
        if planned.niche:
            item.add_marker(pytest.mark.gnus_niche(name=planned.niche))
        item.add_marker(pytest.mark.gnus_benchmark(name=planned.benchmark.name))
        # By keyword, so that `-m "gnus_model(name='patents') and gnus_round(index=0)"` selects.
        item.add_marker(pytest.mark.gnus_model(name=planned.label))
        item.add_marker(pytest.mark.gnus_round(index=planned.round_index))
        return item


def _test_function() -> Callable[..., None]:
    """A function of each item's own: pytest keeps marks on it."""

    def check(gnus_measurement: Any, request: pytest.FixtureRequest) -> None:
        item = request.node
        item.note_score(gnus_measurement)
        advise(item, item.state.warnings)

    return check


def sort_items(items: list[pytest.Item], plan: Sequence[ExperimentItem]) -> None:
    """Order an experiment's items, in place, as planned. Other tests keep their places."""
    ours = as_planned((item for item in items if isinstance(item, ExperimentFunction)), plan)
    put_in_their_places(items, ours)
