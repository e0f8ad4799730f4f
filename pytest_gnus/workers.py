"""The processes of a session and of others: what they share of a device, who waits, who has died."""

from __future__ import annotations

import os
import warnings
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gnus.advice import WaitWarning, record
from pytest_gnus.errors import ConfigError, HookError
from pytest_gnus.models import device as devices
from pytest_gnus.models.cpu import share_cores
from pytest_gnus.models.room import size_in_memory
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.settings import Settings
from pytest_gnus.workspace import find_root

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_gnus.experiments.session import ExperimentSession
    from pytest_gnus.models.provider import Providers
    from pytest_gnus.session import Session


def is_worker(config: pytest.Config) -> bool:
    """Whether this process is a worker of pytest-xdist."""
    return hasattr(config, "workerinput")


def run_id_of(config: pytest.Config) -> str | None:
    """On a worker: the controller's run, of which this one is a part."""
    run_id: str | None = getattr(config, "workerinput", {}).get("gnus_run_id")
    return run_id


def use_part_of_cores(config: pytest.Config, scopes: int) -> None:
    """On a worker: leave the others their part of the CPU. `scopes` is how many workers can be busy."""
    if is_worker(config) and devices.expected_device() == "cpu":
        share_cores(min(getattr(config, "workerinput", {})["workercount"], scopes))


def share_of_device(config: pytest.Config, settings: Settings, providers: Providers) -> devices.DeviceShare:
    """What this process may hold of the device that it runs on; it says so when it has to wait."""

    def size(spec: ModelSpec) -> int | None:
        return size_in_memory(spec) if providers.get(spec.provider).is_local else 0

    def tell(text: str) -> None:
        record(config, WaitWarning(text), when="runtest")

    return devices.DeviceShare(
        devices.device_of_this_process(),
        settings.workers_per_device,
        getattr(config, "workerinput", {}).get("workerid", "pytest"),
        tell,
        size=size,
    )


def show_waiting(config: pytest.Config, message: warnings.WarningMessage) -> None:
    """On the controller: say at once that a worker waits, and for whom."""
    if not issubclass(message.category, WaitWarning) or is_worker(config):
        return
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")
    if reporter is None or config.get_verbosity() < -1:
        return
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        reporter.ensure_newline()
        reporter.write_line(f"gnus: {message.message}")


def useful_workers(
    config: pytest.Config, workers: int, session: type[Session] | type[ExperimentSession]
) -> int:
    """Of the workers that `-n auto` would start, those that would have something to do.

    That is one for each niche, or for each model of an experiment, and on a GPU no more than may hold a model
    at once. What a person asked for by `PYTEST_XDIST_AUTO_NUM_WORKERS` stays, and so do the workers of a
    session with other tests.
    """
    root = find_root(config.rootpath, config.invocation_params.dir)
    if root is None or os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS") or _names_other_tests(config, root):
        return workers
    try:
        settings, scopes = session.settings_and_scopes(config, root)
    except (ConfigError, HookError):
        return workers  # told when the session starts
    places = workers if devices.expected_device() == "cpu" else settings.workers_per_device
    return max(1, min(workers, scopes, places))


def _names_other_tests(config: pytest.Config, root: Path) -> bool:
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        return False
    ours = [(root / name).resolve() for name in ("benchmarks", "config")]
    paths = [(config.invocation_params.dir / argument.split("::")[0]).resolve() for argument in config.args]
    return not all(any(path.is_relative_to(folder) for folder in ours) for path in paths)


def how_it_was_lost(planned: str, report: pytest.TestReport, *, after: bool) -> str:
    """Why an item has no more to say: the worker that died in it, and how.

    `after` is whether the worker had measured the item by then. The report becomes an ERROR of the item.
    """
    from pytest_gnus.xdist_scheduler import how_it_ended

    worker: Any = getattr(report, "node", None)
    done = "after it had measured" if after else "while it ran"
    reason = f"the worker {worker.gateway.id} died {done} {planned}: {how_it_ended(worker)}"
    report.when = "teardown" if after else "setup"
    report.longrepr = reason
    report.location = (report.nodeid.partition("::")[0], None, planned)
    return reason
