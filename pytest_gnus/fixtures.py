"""The fixtures of a benchmark item: a run, its models, a measurement; and the test that gates it.

Measuring happens in a fixture, so that what cannot be measured is an ERROR; gating in the test itself, so
that a gate that does not hold is a FAILURE. `gnus_model` may be overridden in a `conftest.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

from pytest_gnus.advice import advise, warnings_shown
from pytest_gnus.errors import GnusError

if TYPE_CHECKING:
    from pytest_gnus.collection import ArtifactFunction, BenchmarkFunction
    from pytest_gnus.measurement import Measurement
    from pytest_gnus.models.loaded import LoadedModel
    from pytest_gnus.models.pool import ModelPool
    from pytest_gnus.run import Run
    from pytest_gnus.tasks.building import BuiltTask

#: The `Session` whose hooks are registered.
SESSION_KEY = pytest.StashKey[Any]()


@pytest.fixture(scope="session")
def gnus_run(pytestconfig: pytest.Config) -> Run:
    """The run that this session's records belong to."""
    return cast("Run", pytestconfig.stash[SESSION_KEY].run)


@pytest.fixture(scope="session")
def gnus_models(gnus_run: Run) -> Iterator[ModelPool]:
    """The models of the session: each is loaded once and freed before the next."""
    yield gnus_run.pool
    gnus_run.pool.release()


@pytest.fixture
def gnus_model(request: pytest.FixtureRequest, gnus_models: ModelPool) -> LoadedModel:
    """The item's model, in memory."""
    with _shown_plainly(request.config):
        return gnus_models.get(_item(request).state.item.model)


@pytest.fixture
def gnus_measurement(request: pytest.FixtureRequest, gnus_run: Run) -> Measurement:
    """The item, measured once. Its data are looked at before its model is loaded.

    A rerun, as pytest-rerunfailures makes, is given what was measured: nothing is measured until it passes.
    """
    state = _item(request).state
    if state.measurement is not None:
        with _shown_plainly(request.config):
            gnus_run.ask_gates(state)
        return state.measurement
    with _shown_plainly(request.config):
        state.skip = gnus_run.skip(state.item)
        built = gnus_run.prepare(state.item) if state.skip is None else None
    if state.skip is not None:
        pytest.skip(state.skip.reason)
    model = request.getfixturevalue("gnus_model")
    with _shown_plainly(request.config):
        measurement = gnus_run.measure(state, cast("BuiltTask", built), model)
        gnus_run.ask_gates(state)
    return measurement


@pytest.fixture
def gnus_artifact(request: pytest.FixtureRequest, gnus_run: Run) -> None:
    """The SGFP4 artifact of an item, measured."""
    state = cast("ArtifactFunction", request.node).state
    with _shown_plainly(request.config):
        gnus_run.inspect(state)
    if state.skip is not None:
        pytest.skip(state.skip.reason)


@contextlib.contextmanager
def _shown_plainly(config: pytest.Config) -> Iterator[None]:
    """One of the product's own errors is shown as its message; `--full-trace` shows where it came from.

    A warning is no error, whatever a filter says.
    """
    try:
        with warnings_shown():
            yield
    except GnusError as error:
        if config.option.fulltrace:
            raise
        raise pytest.fail.Exception(f"{type(error).__name__}: {error}", pytrace=False) from None


def check_gates(request: pytest.FixtureRequest) -> None:
    """The body of every benchmark item."""
    from pytest_gnus.collection import GateFailure
    from pytest_gnus.reporting.failure import describe

    item = _item(request)
    run: Run = request.config.stash[SESSION_KEY].run
    with _shown_plainly(request.config):
        status = run.judge(item.state)
    item.note_score(cast("Measurement", item.state.measurement))
    if status == "failed":
        raise GateFailure(describe(item.state))
    told = [describe(item.state, only_first_line=True)] if status == "warned" else []
    advise(item, [*item.state.warnings, *told])


def check_artifact_gates(request: pytest.FixtureRequest) -> None:
    """The body of every artifact item."""
    from pytest_gnus.collection import GateFailure
    from pytest_gnus.reporting.failure import describe_artifact

    state = cast("ArtifactFunction", request.node).state
    if all(gate.holds for gate in state.gates):
        return
    if state.item.not_gated_because is None:
        raise GateFailure(describe_artifact(state))
    advise(request.node, [describe_artifact(state, only_first_line=True)])


def _item(request: pytest.FixtureRequest) -> BenchmarkFunction:
    return cast("BenchmarkFunction", request.node)
