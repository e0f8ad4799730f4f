"""One pytest session with benchmarks: what the hooks call, each of them in one line."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gnus import settings as settings_room
from pytest_gnus.collection import (
    MARKERS,
    ArtifactFunction,
    BenchmarkFile,
    BenchmarkFunction,
    GateFailure,
    SpecialistFile,
    items_by_file,
    sort_items,
)
from pytest_gnus.errors import ConfigError, HookError, Problem
from pytest_gnus.fixtures import SESSION_KEY, WaitWarning
from pytest_gnus.hooks import Hooks
from pytest_gnus.models import device as devices
from pytest_gnus.models.compute import ComputeOptions
from pytest_gnus.models.cpu import expected_blas, missing_blas, share_cores
from pytest_gnus.models.room import size_in_memory
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.plan import ArtifactItem, BenchmarkItem, Planner
from pytest_gnus.settings import Settings
from pytest_gnus.versions import package_versions
from pytest_gnus.workspace import Workspace, find_root, load_workspace

if TYPE_CHECKING:
    from pytest_gnus.gates.verdict import Status
    from pytest_gnus.models.provider import Providers
    from pytest_gnus.reporting.summary import RunSummary
    from pytest_gnus.run import ArtifactState, FinishedItem, ItemState, Run

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
        self._without_artifact = planner.without_artifact()
        self._is_worker = hasattr(config, "workerinput")
        self._niches = [workspace.niches[name] for name in settings.niches]
        self._taken: set[str] = set()
        self._failures_to_block = {niche.niche: workspace.failures_to_block(niche) for niche in self._niches}

    # What is imported below is not needed for collecting, which is to be instant.

    @cached_property
    def run(self) -> Run:
        """The run that measures; on an xdist worker a part of the controller's."""
        from pytest_gnus.models import registry
        from pytest_gnus.models.pool import ModelPool
        from pytest_gnus.records.store import open_store
        from pytest_gnus.run import Run, new_run_id

        run_id = getattr(self._config, "workerinput", {}).get("gnus_run_id") or new_run_id()
        compute = ComputeOptions(self._settings.dtype, self._settings.batch_tokens)
        share = devices.DeviceShare(
            devices.device_of_this_process(),
            self._settings.workers_per_device,
            getattr(self._config, "workerinput", {}).get("workerid", "pytest"),
            self._tell_of_waiting,
            size=self._size_on_device,
        )
        pool = ModelPool(partial(registry.load, options=compute, providers=self._providers), share)
        return Run(
            open_store(self._settings.artifacts, self._settings.history),
            run_id,
            pool,
            providers=self._providers,
            more_gates=self._hooks.gates,
        )

    @cached_property
    def summary(self) -> RunSummary:
        from pytest_gnus.reporting.summary import RunSummary

        return RunSummary(self.run.references, self._niches, self._settings, self._failures_to_block)

    @classmethod
    def start(cls, config: pytest.Config) -> Session:
        """Load the workspace, resolve the settings, and narrow the collection to `benchmarks/`.

        Raises:
            pytest.UsageError: with every problem of options and files at once.
        """
        root = find_root(config.rootpath, config.invocation_params.dir)
        if root is None:
            raise pytest.UsageError(
                "pytest-gnus: --niche needs a workspace: there is no folder config/specialists/ in "
                f"{config.rootpath} or above"
            )
        _check_conftest(config, root)
        hooks = Hooks(config)
        try:
            workspace, settings = cls._resolved(config, root, hooks.providers())
        except (ConfigError, HookError) as error:
            raise pytest.UsageError(str(error)) from None
        session = cls(config, workspace, settings, hooks)
        config.stash[SESSION_KEY] = session
        if session._is_worker and devices.expected_device() == "cpu":
            share_cores(min(config.workerinput["workercount"], session._scopes))  # type: ignore[attr-defined]
        for marker in MARKERS:
            config.addinivalue_line("markers", marker)
        if config.args_source is not pytest.Config.ArgsSource.ARGS:
            # The artifacts first: a broken one is to fail before anything is run on it.
            config.args = [*map(str, session.artifact_files), str(workspace.benchmarks_directory)]
        return session

    @classmethod
    def _resolved(cls, config: pytest.Config, root: Path, providers: Providers) -> tuple[Workspace, Settings]:
        problems: list[Problem] = []
        workspace: Workspace | None = None
        try:
            workspace = load_workspace(root, providers)
            known = sorted(workspace.niches)
        except ConfigError as error:
            problems.extend(error.problems)
            known = sorted(path.stem for path in (root / "config" / "specialists").glob("*.y*ml"))
        settings, of_options = settings_room.resolve(config, root, known, providers)
        problems.extend(of_options)
        if workspace is not None and not problems:
            problems.extend(cls._planner(config, workspace, settings).problems())
        if problems or workspace is None:
            raise ConfigError(problems)
        return workspace, settings

    @staticmethod
    def _planner(config: pytest.Config, workspace: Workspace, settings: Settings) -> Planner:
        return Planner(workspace, settings, config.invocation_params.dir)

    @property
    def _scopes(self) -> int:
        """How many workers can be busy: a niche stays on one."""
        return max(1, len({item.niche for item in self._plan}))

    def header(self) -> list[str]:
        settings = self._settings
        device = devices.expected_device()
        source = self._plan[0].request.source if self._plan else settings.source
        parts = [
            f"niche={','.join(settings.niches)}",
            f"mode={settings.mode}",
            f"source={source}",
            f"device={device}",
            *([f"blas={expected_blas().name}"] if device == "cpu" else []),
            f"dtype={settings.dtype or ('float32' if device == 'cpu' else 'stored')}",
            *([f"limit={settings.limit}"] if settings.limit else []),
            *(
                f"{name} {version}"
                for name, version in package_versions(("lm_eval", "mlx", "mlx-lm")).items()
            ),
        ]
        missing = missing_blas() if device == "cpu" else None
        return [f"gnus: {', '.join(parts)}", *([f"gnus: {missing}"] if missing else [])]

    def show_progress(self) -> None:
        """Once the terminal is there: give the run a display."""
        if self._config.option.collectonly:
            return
        from pytest_gnus.reporting.progress import make_progress

        self.run.progress = make_progress(self._config)

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
        """Put the finished item on the report that decides it: a setup that did not pass, or the call."""
        if not isinstance(item, (BenchmarkFunction, ArtifactFunction)) or report.when == "teardown":
            return
        item.seconds += report.duration
        if report.when == "setup" and report.passed:
            return
        finished = self._finished(item, call.excinfo.value if call.excinfo is not None else None, report)
        setattr(report, _ATTRIBUTE, {**asdict(finished), "seconds": item.seconds})

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
            return "skipped", _text_of(report)  # a user's own skip
        if error is not None or not report.passed:
            return "error", _text_of(report)
        return status_of(state.gates, gated=state.item.is_gated), None

    def lose(self, nodeid: str, report: pytest.TestReport) -> None:
        """A worker died in an item: what the worker cannot say any more is said here, as an ERROR."""
        planned = self._planned_for(nodeid)
        if planned is None:
            return
        from pytest_gnus.run import ArtifactState, ItemState
        from pytest_gnus.xdist_scheduler import how_it_ended

        after = nodeid in self._taken  # it had been measured; there is a record already
        done = "after it had measured" if after else "while it ran"
        worker: Any = report.node
        reason = f"the worker {worker.gateway.id} died {done} {planned.name}: {how_it_ended(worker)}"
        report.when = "teardown" if after else "setup"
        report.longrepr = reason
        if isinstance(planned, ArtifactItem):
            finished = self.run.finish_artifact(ArtifactState(planned), "error", reason)
        else:
            finished = self.run.finish(ItemState(planned), "error", reason)
        if after:
            finished = replace(finished, record=None, artifact=None)
        setattr(report, _ATTRIBUTE, {**asdict(finished), "seconds": 0.0})

    def _planned_for(self, nodeid: str) -> BenchmarkItem | ArtifactItem | None:
        file, _, name = nodeid.partition("::")
        path = (self._config.rootpath / file).resolve()
        artifact = self._artifacts.get(path)
        if artifact is not None and artifact.name == name:
            return artifact
        return next((item for item in self._by_file.get(path, []) if item.name == name), None)

    def _size_on_device(self, spec: ModelSpec) -> int | None:
        if not self._providers.get(spec.provider).is_local:
            return 0
        return size_in_memory(spec)

    def _tell_of_waiting(self, text: str) -> None:
        """As a warning, which xdist brings to the controller at once; never an error, as a filter may say."""
        message = warnings.WarningMessage(WaitWarning(text), WaitWarning, __file__, 0)
        self._config.hook.pytest_warning_recorded.call_historic(
            kwargs={"warning_message": message, "when": "runtest", "nodeid": "", "location": None}
        )

    def show_waiting(self, message: warnings.WarningMessage) -> None:
        """On the controller: say at once that a worker waits, and for whom."""
        if not issubclass(message.category, WaitWarning) or self._is_worker:
            return
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        capture = self._config.pluginmanager.get_plugin("capturemanager")
        if reporter is None or self._config.get_verbosity() < 0:
            return
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            reporter.ensure_newline()
            reporter.write_line(f"gnus: {message.message}")

    def take(self, report: pytest.TestReport) -> None:
        """On the controller: write the record and keep what the summary needs."""
        finished: Mapping[str, Any] | None = getattr(report, _ATTRIBUTE, None)
        if finished is None or self._is_worker:
            return
        self._taken.add(report.nodeid)
        from pytest_gnus.gates.verdict import ItemOutcome
        from pytest_gnus.run import FinishedItem

        self.summary.take(
            FinishedItem(
                outcome=ItemOutcome(**finished["outcome"] | _tuples(finished["outcome"])),
                niche=finished["niche"],
                not_gated=finished["not_gated"],
                record=finished["record"],
                samples=finished["samples"],
                artifact=finished["artifact"],
            ),
            seconds=finished["seconds"],
        )
        row = self.summary.rows[-1]
        self._hooks.item_finished(row.niche, row.outcome, row.record, row.path)

    def finish(self, session: pytest.Session) -> None:
        """Write the verdicts; a blocking benchmark that could not be measured must not look like a pass."""
        if self._is_worker or self._config.option.collectonly:
            return
        self.summary.close(self._without_artifact)
        self._hooks.run_finished(self.run.run_id, self.summary.verdicts, self._settings.artifacts)
        self.summary.reporter_errors = self._hooks.reporter_errors
        if self.summary.must_not_pass and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            self.summary.changed_exit_status = True

    def summarize(self, terminal: pytest.TerminalReporter) -> None:
        if not self._is_worker and not self._config.option.collectonly:
            from pytest_gnus.reporting.terminal import show

            show(self.summary, terminal)


def _tuples(outcome: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """What a report of an xdist worker brings as lists."""
    return {name: tuple(outcome[name]) for name in ("notes", "accepted")}


def _check_conftest(config: pytest.Config, root: Path) -> None:
    """The workspace's conftest must be in force: a gate that it adds is not to be left out silently.

    pytest does not load one that lies above its root directory, as after a start in a folder of a project
    without an ini file.
    """
    conftest = root / "conftest.py"
    if config.option.noconftest or not conftest.is_file():
        return
    loaded = (Path(name) for name, _ in config.pluginmanager.list_name_plugin() if name)
    if not any(path.name == "conftest.py" and path.is_file() and path.samefile(conftest) for path in loaded):
        raise pytest.UsageError(
            f"pytest-gnus: pytest has not loaded {conftest}, with whatever gates, providers and fixtures it "
            f"holds: start pytest in {root}, or with --rootdir={root}"
        )


def _text_of(report: pytest.TestReport) -> str:
    """The last line of what a report shows: the error itself."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    lines = [line for line in report.longreprtext.splitlines() if line.strip()]
    message = getattr(getattr(report.longrepr, "reprcrash", None), "message", None)
    return str(message or (lines[-1] if lines else "error")).removeprefix("Failed: ").strip()


def useful_workers(config: pytest.Config, workers: int) -> int:
    """Of the workers that `-n auto` would start, those that would have something to do.

    That is one for each niche, and on a GPU no more than may hold a model at once. What a person asked for by
    `PYTEST_XDIST_AUTO_NUM_WORKERS` stays, and so do the workers of a session with other tests.
    """
    root = find_root(config.rootpath, config.invocation_params.dir)
    if root is None or os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS") or _names_other_tests(config, root):
        return workers
    try:
        workspace, settings = Session._resolved(config, root, Hooks(config).providers())
    except (ConfigError, HookError):
        return workers  # told when the session starts
    niches = {item.niche for item in Session._planner(config, workspace, settings).items()}
    places = workers if devices.expected_device() == "cpu" else settings.workers_per_device
    return max(1, min(workers, len(niches), places))


def _names_other_tests(config: pytest.Config, root: Path) -> bool:
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        return False
    ours = [(root / name).resolve() for name in ("benchmarks", "config")]
    paths = [(config.invocation_params.dir / argument.split("::")[0]).resolve() for argument in config.args]
    return not all(any(path.is_relative_to(folder) for folder in ours) for path in paths)
