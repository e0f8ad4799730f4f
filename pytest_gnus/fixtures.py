"""The fixtures of a benchmark item: a run, its models, a measurement; and the test that gates it.

Measuring happens in a fixture, so that what cannot be measured is an ERROR; gating in the test itself, so
that a gate that does not hold is a FAILURE. `gnus_model` may be overridden in a `conftest.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import pytest

from pytest_gnus.errors import GnusError
from pytest_gnus.measurement import Measurement
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.models.pool import ModelPool
from pytest_gnus.run import Run, Skip

if TYPE_CHECKING:
    from pytest_gnus.collection import BenchmarkFunction

RUN_KEY = pytest.StashKey[Run]()


class GnusWarning(pytest.PytestWarning):
    """Something about a measurement that fails nothing and that a person should know."""


@pytest.fixture(scope="session")
def gnus_run(pytestconfig: pytest.Config) -> Run:
    """The run that this session's records belong to."""
    return pytestconfig.stash[RUN_KEY]


@pytest.fixture(scope="session")
def gnus_models(gnus_run: Run) -> Iterator[ModelPool]:
    """The models of the session: each is loaded once and freed before the next."""
    yield gnus_run.pool
    gnus_run.pool.release()


@pytest.fixture
def gnus_model(request: pytest.FixtureRequest, gnus_models: ModelPool) -> LoadedModel:
    """The item's model, in memory."""
    try:
        return gnus_models.get(_item(request).state.item.model)
    except GnusError as error:
        pytest.fail(f"ModelError: {error}", pytrace=False)


@pytest.fixture
def gnus_measurement(request: pytest.FixtureRequest, gnus_run: Run) -> Measurement:
    """The item, measured. Its data are looked at before its model is loaded."""
    state = _item(request).state
    try:
        state.skip = gnus_run.skip(state.item)
        built = gnus_run.prepare(state.item) if state.skip is None else None
    except GnusError as error:
        pytest.fail(f"{type(error).__name__}: {error}", pytrace=False)
    if state.skip is not None or built is None:
        pytest.skip(cast("Skip", state.skip).reason)
    model = request.getfixturevalue("gnus_model")
    try:
        return gnus_run.measure(state, built, model)
    except GnusError as error:
        pytest.fail(f"{type(error).__name__}: {error}", pytrace=False)


def check_gates(request: pytest.FixtureRequest) -> None:
    """The body of every benchmark item."""
    from pytest_gnus.collection import GateFailure
    from pytest_gnus.reporting.failure import describe

    item = _item(request)
    run = request.config.stash[RUN_KEY]
    status = run.judge(item.state)
    measurement = cast("Measurement", item.state.measurement)
    item.user_properties.extend(
        [
            ("gnus_metric", measurement.metric),
            ("gnus_score", float(measurement.score)),
            ("gnus_n", measurement.n),
        ]
    )
    if status == "failed":
        raise GateFailure(describe(item.state))
    for text in item.state.warnings:
        item.warn(GnusWarning(text))
    if status == "warned":
        item.warn(GnusWarning(describe(item.state, only_first_line=True)))


def _item(request: pytest.FixtureRequest) -> BenchmarkFunction:
    return cast("BenchmarkFunction", request.node)
