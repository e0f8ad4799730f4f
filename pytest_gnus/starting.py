"""How a session with benchmarks starts, be it a gate or an experiment."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gnus import settings as settings_room
from pytest_gnus.compatibility import incompatible
from pytest_gnus.errors import ConfigError, Problem
from pytest_gnus.fixtures import SESSION_KEY
from pytest_gnus.renaming import RenamedKeyWarning
from pytest_gnus.settings import Settings
from pytest_gnus.workers import is_worker, use_part_of_cores
from pytest_gnus.workspace import Workspace, find_root, load_workspace

if TYPE_CHECKING:
    from pytest_gnus.models.provider import Providers


def leave_unit_tests_alone(config: pytest.Config) -> None:
    """Where no path was given, load the conftests of the benchmarks first, in place of those of `testpaths`.

    A gate must not depend on what the project's unit tests need. pytest loads the first conftests before it
    knows all options, so this is called before that, with what is known of the command line by then.
    """
    known, directory = config.known_args_namespace, config.invocation_params.dir
    root = find_root(config.rootpath, directory)
    if root is None or any(_is_path(argument, directory) for argument in known.file_or_dir):
        return
    benchmarks = root / "benchmarks"
    known.file_or_dir = [str(benchmarks if benchmarks.is_dir() else root / "config" / "specialists")]


def _is_path(argument: str, directory: Path) -> bool:
    """Whether an argument is a path or node id, not the value of an option that a conftest will define."""
    try:
        return (directory / argument.partition("::")[0]).exists()
    except OSError:  # too long for a path
        return False


def workspace_root(config: pytest.Config, asked_by: str) -> Path:
    """The root of the workspace that a session runs in, with its conftest in force.

    Args:
        asked_by: what needs a workspace, for the message.

    Raises:
        pytest.UsageError: there is none, or its conftest was not loaded.
    """
    root = find_root(config.rootpath, config.invocation_params.dir)
    if root is None:
        raise pytest.UsageError(
            f"pytest-gnus: {asked_by} needs a workspace: there is no folder config/specialists/ in "
            f"{config.rootpath} or above"
        )
    _check_conftest(config, root)
    return root


def resolved(
    config: pytest.Config, root: Path, providers: Providers
) -> tuple[Workspace | None, Settings, list[Problem]]:
    """The workspace, the settings, and what is wrong with either; no workspace where its files are wrong."""
    problems: list[Problem] = incompatible()
    workspace: Workspace | None = None
    try:
        workspace = load_workspace(root, providers)
        known = sorted(workspace.niches)
    except ConfigError as error:
        problems.extend(error.problems)
        known = sorted(path.stem for path in (root / "config" / "specialists").glob("*.y*ml"))
    settings, of_options = settings_room.resolve(config, root, known, providers)
    return workspace, settings, [*problems, *of_options]


def tell_old_names(config: pytest.Config, deprecations: Iterable[str]) -> None:
    """Warn, once in a session, of files that use old names; what `-W error` says of that fails no build."""
    if is_worker(config):
        return
    for text in deprecations:
        warning = RenamedKeyWarning(text)
        try:
            config.issue_config_time_warning(warning, stacklevel=2)
        except RenamedKeyWarning:
            message = warnings.WarningMessage(warning, RenamedKeyWarning, __file__, 0)
            config.hook.pytest_warning_recorded.call_historic(
                kwargs={"warning_message": message, "when": "config", "nodeid": "", "location": None}
            )


def enter(config: pytest.Config, session: Any, scopes: int, paths: list[Path]) -> None:
    """Make a session pytest's own: its fixtures find it, its paths are collected.

    Args:
        scopes: how many workers of xdist can be busy.
        paths: what is collected where nothing else was asked for.
    """
    config.stash[SESSION_KEY] = session
    use_part_of_cores(config, scopes)
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = list(map(str, paths))
        # These are no `testpaths`, as the header would say.
        config.args_source = pytest.Config.ArgsSource.INVOCATION_DIR


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
