"""One pytest session with an experiment: what the hooks call, each of them in one line."""

from __future__ import annotations

from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gnus.collection import items_by_file
from pytest_gnus.errors import ConfigError, HookError, RecordError
from pytest_gnus.experiments.collection import ExperimentFile, ExperimentFunction, sort_items
from pytest_gnus.experiments.options import models_directory, requested
from pytest_gnus.experiments.plan import ExperimentItem, ExperimentPlan, plan
from pytest_gnus.hooks import Hooks
from pytest_gnus.models.compute import ComputeOptions
from pytest_gnus.session import header_lines, text_of
from pytest_gnus.settings import Settings
from pytest_gnus.starting import enter, resolved, tell_old_names, workspace_root
from pytest_gnus.workers import how_it_was_lost, is_worker, run_id_of, share_of_device
from pytest_gnus.workspace import Workspace

if TYPE_CHECKING:
    from pytest_gnus.experiments.output import ExperimentOutput
    from pytest_gnus.experiments.result import ExperimentResult
    from pytest_gnus.models.provider import Providers
    from pytest_gnus.run import Run

#: The attribute of a test report that carries a result from where it was measured to the controller.
_ATTRIBUTE = "gnus_result"


class ExperimentSession:
    """Holds a session's plan and run, and what has been measured so far."""

    def __init__(
        self,
        config: pytest.Config,
        hooks: Hooks,
        workspace: Workspace,
        settings: Settings,
        plan: ExperimentPlan,
    ) -> None:
        self._config = config
        self._hooks = hooks
        self._settings = settings
        self._plan = plan
        self._providers = workspace.providers
        by_file = items_by_file(plan.items, dict(workspace.benchmark_files))
        self._by_file: dict[Path, list[Any]] = {path: list(items) for path, items in by_file.items()}
        self._by_name = {item.name: item for item in plan.items}
        self._is_worker = is_worker(config)
        self._opened = False
        self._taken: set[str] = set()
        self._changed_exit_status = False

    @cached_property
    def run(self) -> Run:
        """The run that measures; on an xdist worker a part of the controller's."""
        from pytest_gnus.models import registry
        from pytest_gnus.models.pool import ModelPool
        from pytest_gnus.models.room import has_room
        from pytest_gnus.records.store import RecordStore
        from pytest_gnus.run import Run, new_run_id

        run_id = run_id_of(self._config) or new_run_id()
        compute = ComputeOptions(self._settings.dtype, self._settings.batch_tokens)
        # Rounds run one after the other, and each asks for every model. What there is room for stays in
        # memory, so that the rounds can stand outermost and still load each model once; where there is no
        # room, a model is loaded once in each round.
        load = partial(registry.load, options=compute, providers=self._providers)
        store = RecordStore(self._settings.artifacts)
        share = share_of_device(self._config, self._settings, self._providers)
        return Run(store, run_id, ModelPool(load, has_room, share), providers=self._providers)

    @cached_property
    def output(self) -> ExperimentOutput:
        from pytest_gnus.experiments.output import ExperimentOutput

        return ExperimentOutput(self._plan, self.run.run_id, self._settings.artifacts)

    @classmethod
    def start(cls, config: pytest.Config) -> ExperimentSession:
        """Load the workspace, resolve the experiment, and narrow the collection to `benchmarks/`.

        Raises:
            pytest.UsageError: with every problem of options and files at once.
        """
        root = workspace_root(config, "an experiment")
        hooks = Hooks(config)
        try:
            session = cls(config, hooks, *cls._resolved(config, root, hooks.providers()))
        except (ConfigError, HookError) as error:
            raise pytest.UsageError(str(error)) from None
        tell_old_names(config, session._plan.deprecations)
        enter(config, session, _scopes(session._plan), [root / "benchmarks"])
        return session

    @classmethod
    def settings_and_scopes(cls, config: pytest.Config, root: Path) -> tuple[Settings, int]:
        """The settings, and how many workers can be busy.

        Raises:
            ConfigError, HookError: something in options or files is wrong.
        """
        _, settings, plan = cls._resolved(config, root, Hooks(config).providers())
        return settings, _scopes(plan)

    @staticmethod
    def _resolved(
        config: pytest.Config, root: Path, providers: Providers
    ) -> tuple[Workspace, Settings, ExperimentPlan]:
        workspace, settings, problems = resolved(config, root, providers)
        if workspace is not None:
            try:
                request = requested(config, workspace, settings)
                if not problems:
                    directory = models_directory(config, workspace)
                    return workspace, settings, plan(workspace, request, settings, directory)
            except ConfigError as error:
                problems.extend(error.problems)
        raise ConfigError(problems)

    def header(self) -> list[str]:
        planned = self._plan
        items = planned.items
        parts = [
            f"experiment={planned.name}",
            *([f"niche={','.join(planned.niches)}"] if planned.niches else []),
            f"benchmarks={','.join(planned.benchmarks)}",
            f"models={','.join(dict.fromkeys(item.label for item in items))}",
            f"rounds={planned.rounds}",
            f"mode={planned.mode}",
            f"source={items[0].request.source}",
        ]
        notes = self.output.file.notes if self._opened else []
        return header_lines(parts, self._settings) + [f"gnus: {note}" for note in notes]

    def show_progress(self) -> None:
        """Once the terminal is there: give the run a display, and make its file ready.

        Raises:
            pytest.UsageError: results cannot be written to the file.
        """
        if self._config.option.collectonly:
            return
        from pytest_gnus.reporting.progress import make_progress

        self.run.progress = make_progress(self._config)
        if self._is_worker:
            return
        try:
            self.output.open()
        except (OSError, RecordError) as error:
            raise pytest.UsageError(f"pytest-gnus: the results cannot be written: {error}") from None
        self._opened = True

    def begin(self) -> None:
        """An experiment has no verdict that could be left over."""

    def collect(self, path: Path, parent: pytest.Collector) -> ExperimentFile | None:
        planned = self._by_file.get(path.resolve()) if path.suffix in (".yaml", ".yml") else None
        if planned is None:
            return None
        file: ExperimentFile = ExperimentFile.from_parent(parent, path=path)
        file.planned = planned
        return file

    def sort(self, items: list[pytest.Item]) -> None:
        sort_items(items, self._plan.items)

    def scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Under xdist: what gives out the items."""
        from pytest_gnus.experiments.scheduling import make_model_scheduler

        labels = {name: item.label for name, item in self._by_name.items()}
        return make_model_scheduler(config, log, labels)

    def attach(self, item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
        """Put the result on the report that decides it: a setup that did not pass, or the call."""
        if not isinstance(item, ExperimentFunction) or report.when == "teardown":
            return
        if report.when == "setup" and report.passed:
            return
        error = call.excinfo.value if call.excinfo is not None else None
        result, documents = self._result(item, error, report)
        setattr(report, _ATTRIBUTE, {"result": result.to_dict(), "documents": documents})

    def _result(
        self, item: ExperimentFunction, error: BaseException | None, report: pytest.TestReport
    ) -> tuple[ExperimentResult, list[Any]]:
        """What happened decides, not what pytest makes of it: an `xfail` mark turns an error into a skip."""
        from pytest_gnus.experiments.result import measured, skipped, unmeasured

        state = item.state
        if error is None and report.passed:
            return measured(state, self._plan.name, self.run.run_id)
        if isinstance(error, pytest.skip.Exception) and state.skip is not None:
            return skipped(item.planned, self._plan.name, self.run.run_id, state.skip), []
        of_item = partial(unmeasured, item.planned, self._plan.name, self.run.run_id)
        if isinstance(error, pytest.skip.Exception) or (error is None and report.skipped):
            return of_item("skipped", text_of(report)), []  # a user's own skip
        return of_item("error", text_of(report)), []

    def take(self, report: pytest.TestReport) -> None:
        """On the controller: write the result at once."""
        if self._is_worker or not self._opened:
            return
        from pytest_gnus.experiments.result import ExperimentResult

        carried = getattr(report, _ATTRIBUTE, None)
        if carried is not None:
            self._taken.add(report.nodeid)
            result = ExperimentResult.from_dict(carried["result"])
            self._hooks.result_finished(self.output.take(result, carried["documents"]))

    def lose(self, nodeid: str, report: pytest.TestReport) -> None:
        """A worker died in an item: what the worker cannot say any more is said here, as an ERROR."""
        from pytest_gnus.experiments.result import unmeasured

        item: ExperimentItem | None = self._by_name.get(nodeid.rpartition("::")[2])
        if item is None:
            return
        after = nodeid in self._taken  # its result is on disk already
        reason = how_it_was_lost(item.name, report, after=after)
        if not after:
            result = unmeasured(item, self._plan.name, self.run.run_id, "error", reason)
            setattr(report, _ATTRIBUTE, {"result": result.to_dict(), "documents": []})

    def finish(self, session: pytest.Session) -> None:
        """Write the report; an experiment that is not whole must not look as if it were."""
        if self._is_worker or not self._opened:
            return
        output = self.output
        report = output.close()
        self._hooks.experiment_finished(report, (output.file.path, *output.report_files))
        lacking = any(result.required for result in report.unmeasured)
        if (lacking or output.write_errors) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            self._changed_exit_status = True

    def summarize(self, terminal: pytest.TerminalReporter) -> None:
        if not self._is_worker and self._opened:
            from pytest_gnus.experiments.terminal import show

            show(
                self.output,
                terminal,
                changed_exit_status=self._changed_exit_status,
                reporter_errors=self._hooks.reporter_errors,
            )


def _scopes(plan: ExperimentPlan) -> int:
    """How many workers of xdist can be busy: a model stays on one."""
    return max(1, len({item.label for item in plan.items}))
