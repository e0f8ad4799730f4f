"""One pytest session with benchmarks: what the hooks call, each of them in one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gnus.collection import (
    ArtifactFunction,
    BenchmarkFile,
    BenchmarkFunction,
    GateFailure,
    SpecialistFile,
    items_by_file,
    sort_items,
)
from pytest_gnus.compatibility import untested
from pytest_gnus.errors import ConfigError, HookError
from pytest_gnus.hooks import Hooks
from pytest_gnus.models.compute import ComputeOptions
from pytest_gnus.models.cpu import expected_blas, missing_blas
from pytest_gnus.models.device import expected_device
from pytest_gnus.named_files import files_of_other_niches
from pytest_gnus.options import asks_for_a_part
from pytest_gnus.plan import ArtifactItem, BenchmarkItem, Planner
from pytest_gnus.settings import Settings
from pytest_gnus.starting import enter, resolved, tell_old_names, workspace_root
from pytest_gnus.versions import package_versions
from pytest_gnus.workers import how_it_was_lost, is_worker, run_id_of, share_of_device
from pytest_gnus.workspace import Workspace

if TYPE_CHECKING:
    from pytest_gnus.gates.verdict import Status
    from pytest_gnus.models.provider import Providers
    from pytest_gnus.release.collector import Row, RunSummary
    from pytest_gnus.run import ArtifactState, FinishedItem, ItemState, Run

#: How a session ended that did not come to its end, by its exit status.
_ENDED = {
    int(pytest.ExitCode.INTERRUPTED): "the session was interrupted",
    int(pytest.ExitCode.INTERNAL_ERROR): "the session ended with an internal error",
}
#: The attribute of a test report that carries a finished item from where it ran to the controller.
_ATTRIBUTE = "gnus_finished"


class Session:
    """Holds a session's plan and run, and what has finished so far."""

    def __init__(self, config: pytest.Config, workspace: Workspace, settings: Settings, hooks: Hooks) -> None:
        self._config = config
        self._hooks = hooks
        self._providers = workspace.providers
        self._settings = settings
        self._plan = tuple(self._planner(config, workspace, settings).items())
        planner = self._planner(config, workspace, settings)
        self._by_file = items_by_file(self._plan, dict(workspace.benchmark_files))
        self._artifacts = {
            workspace.niche_files[artifact.niche].resolve(): artifact for artifact in planner.artifacts()
        }
        self._niche_files = workspace.niche_files
        self._without_artifact = planner.without_artifact()
        self._is_worker = is_worker(config)
        self._niches = [workspace.niches[name] for name in settings.niches]
        self._taken: set[str] = set()
        self._failures_to_block = {niche.niche: workspace.failures_to_block(niche) for niche in self._niches}
        self._required = {niche.niche: planner.required(niche) for niche in self._niches}
        self._surroundings = _surroundings(workspace.root, settings, hooks)
        self._rows: dict[str, Row] = {}
        self._began = False

    # What is imported below is not needed for collecting, which is to be instant.

    @cached_property
    def run(self) -> Run:
        """The run that measures; on an xdist worker a part of the controller's."""
        from pytest_gnus.models import registry
        from pytest_gnus.models.pool import ModelPool
        from pytest_gnus.records.store import open_store
        from pytest_gnus.run import Run, new_run_id

        compute = ComputeOptions(self._settings.dtype, self._settings.batch_tokens)
        share = share_of_device(self._config, self._settings, self._providers)
        load = partial(registry.load, options=compute, providers=self._providers)
        return Run(
            open_store(self._settings.artifacts, self._settings.history),
            run_id_of(self._config) or new_run_id(),
            ModelPool(load, share=share),
            providers=self._providers,
            more_gates=self._hooks.gates,
            surroundings=self._surroundings,
        )

    @cached_property
    def summary(self) -> RunSummary:
        from pytest_gnus.release.collector import RunSummary

        return RunSummary(
            self.run.references,
            self._niches,
            self._settings,
            self._failures_to_block,
            self._required,
            self.run.identities,
        )

    @classmethod
    def start(cls, config: pytest.Config) -> Session:
        """Load the workspace, resolve the settings, and narrow the collection to `benchmarks/`.

        Raises:
            pytest.UsageError: with every problem of options and files at once.
        """
        root = workspace_root(config, "--niche")
        hooks = Hooks(config)
        try:
            workspace, settings = cls._resolved(config, root, hooks.providers())
        except (ConfigError, HookError) as error:
            raise pytest.UsageError(str(error)) from None
        tell_old_names(config, workspace.deprecations)
        of_others = files_of_other_niches(config, workspace, settings.niches)
        if of_others:
            raise pytest.UsageError("\n".join(of_others))
        session = cls(config, workspace, settings, hooks)
        # The artifacts first: a broken one is to fail before anything is run on it.
        paths = [*session.artifact_files, workspace.benchmarks_directory]
        enter(config, session, _scopes(session._plan), paths)
        return session

    @classmethod
    def _resolved(cls, config: pytest.Config, root: Path, providers: Providers) -> tuple[Workspace, Settings]:
        workspace, settings, problems = resolved(config, root, providers)
        if workspace is not None and not problems:
            problems.extend(cls._planner(config, workspace, settings).problems())
        if problems or workspace is None:
            raise ConfigError(problems)
        return workspace, settings

    @classmethod
    def settings_and_scopes(cls, config: pytest.Config, root: Path) -> tuple[Settings, int]:
        """The settings, and how many workers can be busy.

        Raises:
            ConfigError, HookError: something in options or files is wrong.
        """
        workspace, settings = cls._resolved(config, root, Hooks(config).providers())
        return settings, _scopes(cls._planner(config, workspace, settings).items())

    @staticmethod
    def _planner(config: pytest.Config, workspace: Workspace, settings: Settings) -> Planner:
        return Planner(workspace, settings, config.invocation_params.dir)

    def header(self) -> list[str]:
        settings = self._settings
        source = self._plan[0].request.source if self._plan else settings.source
        parts = [f"niche={','.join(settings.niches)}", f"mode={settings.mode}", f"source={source}"]
        return header_lines(parts, settings)

    def show_progress(self) -> None:
        """Once the terminal is there: give the run a display, and see that it can be recorded.

        Raises:
            pytest.UsageError: nothing can be written to the folder of artifacts.
        """
        if self._config.option.collectonly:
            return
        from pytest_gnus.reporting.progress import make_progress

        self.run.progress = make_progress(self._config)
        if not self._is_worker:
            self._check_artifacts()

    def _check_artifacts(self) -> None:
        from pytest_gnus.errors import RecordError

        try:
            self.run.store.check_writable()
        except RecordError as error:
            raise pytest.UsageError(f"pytest-gnus: {error}") from None

    def begin(self) -> None:
        """Before the first item: the verdict of an earlier run says nothing of this one."""
        if not self._is_worker and not self._config.option.collectonly:
            self._began = True
            self.summary.begin()

    @property
    def artifact_files(self) -> list[Path]:
        """The niches' files that have an artifact item."""
        return list(self._artifacts)

    def collect(self, path: Path, parent: pytest.Collector) -> BenchmarkFile | SpecialistFile | None:
        if path.suffix not in (".yaml", ".yml"):
            return None
        artifact = self._artifacts.get(path.resolve())
        if artifact is not None:
            specialist: SpecialistFile = SpecialistFile.from_parent(parent, path=path)
            specialist.planned = [artifact]
            return specialist
        planned = self._by_file.get(path.resolve())
        if planned is None:
            return None
        file: BenchmarkFile = BenchmarkFile.from_parent(parent, path=path)
        file.planned = planned
        return file

    def sort(self, items: list[pytest.Item]) -> None:
        sort_items(items, self._plan)

    def attach(self, item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
        """Put the finished item on the report that decides it: a setup that did not pass, or the call.

        What was measured once keeps its outcome, however often other plugins run the item again; only an
        ERROR is not hidden by it, and does not hide what is measured after it.
        """
        if not isinstance(item, (BenchmarkFunction, ArtifactFunction)) or report.when == "teardown":
            return
        item.seconds += report.duration
        if report.when == "setup" and report.passed:
            return
        finished = self._finished(item, call.excinfo.value if call.excinfo is not None else None, report)
        again = item.finished is not None and item.finished.stands_against(finished)
        if not again:
            item.finished = finished
        _carry(report, item.finished or finished, item.seconds, again=again)

    def _finished(
        self,
        item: BenchmarkFunction | ArtifactFunction,
        error: BaseException | None,
        report: pytest.TestReport,
    ) -> FinishedItem:
        status, reason = self._status(item.state, error, report)
        if isinstance(item, ArtifactFunction):
            return self.run.finish_artifact(item.state, status, reason)
        return self.run.finish(item.state, status, reason)

    @staticmethod
    def _status(
        state: ItemState | ArtifactState, error: BaseException | None, report: pytest.TestReport
    ) -> tuple[Status, str | None]:
        """What happened decides, not what pytest makes of it: an `xfail` mark turns a failure into a skip."""
        from pytest_gnus.gates.verdict import status_of

        if isinstance(error, GateFailure):
            return "failed", None
        if isinstance(error, pytest.skip.Exception) and state.skip is not None:
            return state.skip.status, state.skip.reason
        if isinstance(error, pytest.skip.Exception) or (error is None and report.skipped):
            return "skipped", text_of(report)  # a user's own skip
        if error is not None or not report.passed:
            return "error", text_of(report)
        return status_of(state.gates, gated=state.item.is_gated), None

    def lose(self, nodeid: str, report: pytest.TestReport) -> None:
        """A worker died in an item: what the worker cannot say any more is said here, as an ERROR."""
        planned = self._planned_for(nodeid)
        if planned is None:
            return
        from pytest_gnus.run import ArtifactState, ItemState

        after = nodeid in self._taken  # there is a record already
        reason = how_it_was_lost(planned.name, report, after=after)
        if isinstance(planned, ArtifactItem):
            finished = self.run.finish_artifact(ArtifactState(planned), "error", reason)
        else:
            finished = self.run.finish(ItemState(planned), "error", reason)
        if after:
            finished = replace(finished, record=None, artifact=None)
        _carry(report, finished, 0.0, lost=True)

    def _planned_for(self, nodeid: str) -> BenchmarkItem | ArtifactItem | None:
        file, _, name = nodeid.partition("::")
        path = (self._config.rootpath / file).resolve()
        artifact = self._artifacts.get(path)
        if artifact is not None and artifact.name == name:
            return artifact
        return next((item for item in self._by_file.get(path, []) if item.name == name), None)

    def take(self, report: pytest.TestReport) -> None:
        """On the controller: write the record and keep what the summary needs."""
        finished: Mapping[str, Any] | None = getattr(report, _ATTRIBUTE, None)
        if self._is_worker:
            return
        if finished is None:
            if report.when == "teardown" and report.failed and report.nodeid in self._rows:
                self.summary.fail_teardown(self._rows[report.nodeid], text_of(report))
            return
        self._taken.add(report.nodeid)
        from pytest_gnus.gates.verdict import ItemOutcome
        from pytest_gnus.run import FinishedItem

        row = self.summary.take(
            FinishedItem(
                outcome=ItemOutcome(**finished["outcome"] | _tuples(finished["outcome"])),
                niche=finished["niche"],
                not_gated=finished["not_gated"],
                record=finished["record"],
                samples=finished["samples"],
                artifact=finished["artifact"],
            ),
            seconds=finished["seconds"],
            failed=report.failed,
            again=finished["again"],
            lost=finished["lost"],
        )
        self._rows[report.nodeid] = row
        if not finished["again"]:
            self._hooks.item_finished(row.niche, row.outcome, row.record, row.path)

    def finish(self, session: pytest.Session) -> None:
        """Write the verdicts; what blocks a niche must not look like a pass anywhere."""
        if self._is_worker or not self._began:
            return
        summary = self.summary
        summary.close(
            self._without_artifact,
            part=asks_for_a_part(self._config),
            ended=_ENDED.get(int(session.exitstatus)),
        )
        self._hooks.run_finished(self.run.run_id, summary.verdicts, self._settings.artifacts)
        summary.reporter_errors = self._hooks.reporter_errors
        if summary.must_not_pass and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            summary.changed_exit_status = True
        if session.exitstatus == pytest.ExitCode.OK:
            summary.note_pass()
        self._report_verdicts()

    def _report_verdicts(self) -> None:
        """Tell pytest's other reporters: each verdict, and a failure where no item has failed for it."""
        for plugin in self._config.pluginmanager.get_plugins():
            if hasattr(plugin, "add_global_property"):  # JUnit's
                for verdict in self.summary.verdicts:
                    plugin.add_global_property(f"gnus_verdict[{verdict.niche}]", verdict.verdict)
        for verdict in self.summary.blocked_without_failure:
            path, root = self._niche_files[verdict.niche], self._config.rootpath
            file = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
            name = f"verdict[{verdict.niche}]"
            report = pytest.TestReport(
                nodeid=f"{file}::{name}",
                location=(file, None, name),
                keywords={},
                outcome="failed",
                longrepr=f"{verdict.niche}: BLOCK: {'; '.join(verdict.reasons)}",
                when="call",
            )
            self._config.hook.pytest_runtest_logreport(report=report)

    @staticmethod
    def scheduler(config: pytest.Config, log: Any) -> Any:
        """Under xdist: what gives out the items."""
        from pytest_gnus.xdist_scheduler import make_scheduler

        return make_scheduler(config, log)

    def summarize(self, terminal: pytest.TerminalReporter) -> None:
        if not self._is_worker and not self._config.option.collectonly:
            from pytest_gnus.reporting.terminal import show

            show(self.summary, terminal)


def _scopes(items: Iterable[BenchmarkItem]) -> int:
    """How many workers of xdist can be busy: a niche stays on one."""
    return max(1, len({item.niche for item in items}))


def _surroundings(root: Path, settings: Settings, hooks: Hooks) -> dict[str, Any]:
    """What else decides the outcome of every item of a workspace."""
    from pytest_gnus.records.fingerprint import file_sha256

    conftests = [path for folder in ("", "benchmarks") if (path := root / folder / "conftest.py").is_file()]
    return {
        "dtype": settings.dtype,
        "gates": hooks.gates_identity(),
        "conftests": {path.relative_to(root).as_posix(): file_sha256(path) for path in conftests},
    }


def _carry(
    report: pytest.TestReport,
    finished: FinishedItem,
    seconds: float,
    *,
    again: bool = False,
    lost: bool = False,
) -> None:
    """Have a report bring what an item came to; `again` and `lost` are those of `RunSummary.take`."""
    content = {**asdict(finished), "seconds": seconds, "again": again, "lost": lost}
    setattr(report, _ATTRIBUTE, content)


def _tuples(outcome: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """What a report of an xdist worker brings as lists."""
    return {name: tuple(outcome[name]) for name in ("notes", "accepted", "warnings")}


def header_lines(parts: Sequence[str], settings: Settings) -> list[str]:
    """What is run, and where: the lines that a session starts with."""
    device = expected_device()
    parts = [
        *parts,
        f"device={device}",
        *([f"blas={expected_blas().name}"] if device == "cpu" else []),
        f"dtype={settings.dtype or ('float32' if device == 'cpu' else 'stored')}",
        *([f"limit={settings.limit}"] if settings.limit else []),
        *(f"{name} {version}" for name, version in package_versions(("lm_eval", "mlx", "mlx-lm")).items()),
    ]
    missing = missing_blas() if device == "cpu" else None
    warnings = [*([missing] if missing else []), *untested()]
    return [f"gnus: {', '.join(parts)}", *(f"gnus: {warning}" for warning in warnings)]


def text_of(report: pytest.TestReport) -> str:
    """The last line of what a report shows: the error itself."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    lines = [line for line in report.longreprtext.splitlines() if line.strip()]
    message = getattr(getattr(report.longrepr, "reprcrash", None), "message", None)
    return str(message or (lines[-1] if lines else "error")).removeprefix("Failed: ").strip()
