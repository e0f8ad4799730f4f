"""pytest's hooks. Without `--niche` or an experiment only the options exist; else `BenchmarkPlugin` too."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gnus import options

if TYPE_CHECKING:
    from pytest_gnus.experiments.session import ExperimentSession
    from pytest_gnus.session import Session


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_gnus import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    if options.asks_for_benchmarks(early_config, early_config.known_args_namespace):
        from pytest_gnus.starting import leave_unit_tests_alone

        leave_unit_tests_alone(early_config)


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> Generator[None, int, int]:
    workers = yield
    if options.is_active(config):
        from pytest_gnus.workers import useful_workers

        return useful_workers(config, workers, _session_class(config))
    return workers


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    options.register_markers(config)
    if options.is_active(config):
        from pytest_gnus import fixtures

        session = _session_class(config).start(config)
        config.pluginmanager.register(fixtures, "gnus_fixtures")
        config.pluginmanager.register(BenchmarkPlugin(config, session), "gnus_benchmarks")
        if config.pluginmanager.hasplugin("xdist"):
            config.pluginmanager.register(XdistPlugin(session), "gnus_xdist")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """A benchmark that is named without a niche is not found by pytest; say what to add."""
    if options.may_name_benchmarks(session.config) and not options.is_active(session.config):
        from pytest_gnus.named_files import files_without_niche

        told = files_without_niche(session.config)
        if told:
            raise pytest.UsageError("\n".join(told))


def _session_class(config: pytest.Config) -> type[Session] | type[ExperimentSession]:
    if options.is_experiment(config):
        from pytest_gnus.experiments.session import ExperimentSession

        return ExperimentSession
    from pytest_gnus.session import Session

    return Session


class BenchmarkPlugin:
    """The hooks of a session that runs benchmarks."""

    def __init__(self, config: pytest.Config, session: Session | ExperimentSession) -> None:
        self._config = config
        self._session = session

    def pytest_report_header(self) -> list[str]:
        return self._session.header()

    def pytest_sessionstart(self) -> None:
        self._session.show_progress()

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.File | None:
        return self._session.collect(file_path, parent)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, None, None]:
        # After all others, be they wrappers that shuffle: a reference comes before what is compared with it.
        yield
        self._session.sort(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        self._session.begin()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        self._session.attach(item, call, report)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._session.take(report)

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage) -> None:
        from pytest_gnus.workers import show_waiting

        show_waiting(self._config, warning_message)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._session.finish(session)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        self._session.summarize(terminalreporter)


class XdistPlugin:
    """The hooks of pytest-xdist; registered only where it is installed."""

    def __init__(self, session: Session | ExperimentSession) -> None:
        self._session = session

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["gnus_run_id"] = self._session.run.run_id

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        return self._session.scheduler(config, log)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        self._session.lose(crashitem, report)
