"""The Python API of experiments: the same without a pytest session, through the same rooms."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pytest_gnus.errors import ConfigError, GnusError, Problem, did_you_mean, listed
from pytest_gnus.experiments.plan import ExperimentItem, ExperimentPlan, plan
from pytest_gnus.experiments.request import ExperimentRequest, experiment_file
from pytest_gnus.models.provider import Provider
from pytest_gnus.options import MODES, SOURCES
from pytest_gnus.renaming import RenamedKeyWarning
from pytest_gnus.schema import NAME, DiagnosticOverrides, Mode, Source
from pytest_gnus.settings import Settings
from pytest_gnus.workspace import Workspace, open_workspace

if TYPE_CHECKING:
    from pytest_gnus.experiments.output import ExperimentOutput
    from pytest_gnus.experiments.report import ExperimentReport
    from pytest_gnus.run import Run


class ExperimentRunner:
    """Runs benchmarks x models x rounds.

    Args:
        project_root: the workspace; without one, the nearest folder upwards with `config/specialists/`.
        providers: providers of models beside the built-in ones.

    Raises:
        ConfigError: there is no workspace, or something in it is wrong.
    """

    def __init__(self, project_root: Path | str | None = None, providers: Iterable[Provider] = ()) -> None:
        self._workspace = open_workspace(project_root, "ExperimentRunner", providers)

    @property
    def workspace(self) -> Workspace:
        return self._workspace

    def request_from_file(self, name: Path | str) -> ExperimentRequest:
        """The request of an experiment's file: a path, or the name of one in `config/experiments/`.

        Raises:
            ConfigError: there is no such file, or something in it is wrong.
        """
        root = self._workspace.root
        path = experiment_file(root, root, str(name), where="request_from_file")
        return ExperimentRequest.from_file(self._workspace, path)

    def build_task_requests(self, request: ExperimentRequest) -> list[ExperimentItem]:
        """What one round measures: each benchmark on each model, all models of a benchmark together.

        Raises:
            ValueError: no model identifier.
            ConfigError: with every problem of the request.
        """
        return self._plan(request).first_round()

    def run(self, request: ExperimentRequest) -> ExperimentReport:
        """Measure everything. Each result is on disk at once; what cannot be measured is one with an error.

        Raises:
            ValueError: no model identifier.
            ConfigError: with every problem of the request.
            RecordError, OSError: the results cannot be written.
        """
        from pytest_gnus.experiments.output import ExperimentOutput
        from pytest_gnus.models import registry
        from pytest_gnus.models.pool import ModelPool
        from pytest_gnus.models.room import has_room
        from pytest_gnus.records.store import RecordStore
        from pytest_gnus.run import Run

        planned = self._plan(request)
        artifacts = self._workspace.root / "artifacts"
        known = self._workspace.providers
        pool = ModelPool(partial(registry.load, providers=known), has_room)
        run = Run(RecordStore(artifacts), pool=pool, providers=known)
        output = ExperimentOutput(planned, run.run_id, artifacts)
        output.open()
        try:
            for item in planned.items:
                self._measure(run, output, item)
        finally:
            run.pool.release()
            report = output.close()
        if output.write_errors:
            raise OSError("; ".join(output.write_errors))
        return report

    def _plan(self, request: ExperimentRequest) -> ExperimentPlan:
        problems = [
            Problem(*request.place(key), repr(value), listed(known), did_you_mean(str(value), known))
            for key, value, known in (("mode", request.mode, MODES), ("source", request.source, SOURCES))
            if value is not None and value not in known
        ]
        problems += _problems_of_types(request)
        if problems:
            raise ConfigError(problems)
        settings = Settings(
            mode=cast("Mode", request.mode),
            source=cast("Source | None", request.source),
            limit=request.limit,
            artifacts=self._workspace.root / "artifacts",
        )
        planned = plan(self._workspace, request, settings, self._workspace.root)
        for text in planned.deprecations:
            if text not in self._workspace.deprecations:  # those were told when the workspace was opened
                warnings.warn(text, RenamedKeyWarning, stacklevel=3)
        return planned

    @staticmethod
    def _measure(run: Run, output: ExperimentOutput, item: ExperimentItem) -> None:
        from pytest_gnus.experiments.result import measured, skipped, unmeasured
        from pytest_gnus.run import ItemState

        state = ItemState(item)
        try:
            state.skip = run.skip(item)
            if state.skip is not None:
                output.take(skipped(item, output.name, run.run_id, state.skip))
                return
            built = run.prepare(item)
            run.measure(state, built, run.pool.get(item.model))
        except Exception as error:  # noqa: BLE001 - one that lm-eval raises is this item's, not the others'
            text = str(error) if isinstance(error, GnusError) else f"{type(error).__name__}: {error}"
            output.take(unmeasured(item, output.name, run.run_id, "error", text))
            return
        output.take(*measured(state, output.name, run.run_id))


def _problems_of_types(request: ExperimentRequest) -> Iterator[Problem]:
    """What a file's schema would say of a request that a program makes."""
    checks = (
        ("name", request.name, re.fullmatch(NAME, str(request.name)), "letters, digits, `.`, `_` and `-`"),
        ("repeat", request.repeat, type(request.repeat) is int, "a whole number"),
        (
            "limit",
            request.limit,
            request.limit is None or (type(request.limit) is int and request.limit >= 1),
            "a whole number from 1 up",
        ),
        ("models", request.model_identifiers, not isinstance(request.model_identifiers, str), "a list"),
        ("benchmarks", request.benchmark_names, not isinstance(request.benchmark_names, str), "a list"),
        ("niche", request.niches, not isinstance(request.niches, str), "a list"),
        (
            "overrides",
            request.overrides,
            isinstance(request.overrides, (Mapping, DiagnosticOverrides)),
            "a mapping",
        ),
    )
    for key, value, fits, allowed in checks:
        if not fits:
            yield Problem(*request.place(key), repr(value), allowed)
