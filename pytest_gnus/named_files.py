"""Benchmarks and niches that a command line names as files, in a session that does not run them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from pytest_gnus.errors import ConfigError, HookError, listed
from pytest_gnus.hooks import Hooks
from pytest_gnus.workspace import Workspace, find_root, load_workspace


def files_without_niche(config: pytest.Config) -> list[str]:
    """What to add for each benchmark and each niche that is named where no niche was asked for."""
    return [_told(config, path, found) for path, found in _found(config)]


def files_of_other_niches(config: pytest.Config, workspace: Workspace, niches: Iterable[str]) -> list[str]:
    """What to change for each benchmark that is named and that none of the niches has."""
    asked = sorted(niches)
    told = []
    for path in _paths(config):
        names = _niches_with(workspace, path)
        if names is not None and not set(asked) & set(names):
            what = f"pytest-gnus: {_shown(config, path)} is no benchmark of {listed(asked)}"
            told.append(f"{what}: {_what_to_do(names)}")
    return told


def _found(config: pytest.Config) -> Iterator[tuple[Path, Workspace | None]]:
    """Files that lie where a workspace has its benchmarks and niches, each with its workspace if it loads."""
    for path in _paths(config):
        root = find_root(path.parent)
        if root is None or path.parent not in (root / "benchmarks", root / "config" / "specialists"):
            continue
        if path.parent.name == "benchmarks" and not _looks_like_benchmark(path):
            continue
        try:
            yield path, load_workspace(root, Hooks(config).providers())
        except (ConfigError, HookError):
            yield path, None  # told as soon as the niche is asked for


def _paths(config: pytest.Config) -> Iterator[Path]:
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        return
    for argument in config.args:
        path = (config.invocation_params.dir / argument.split("::")[0]).resolve()
        if path.suffix in (".yaml", ".yml") and path.is_file():
            yield path


def _looks_like_benchmark(path: Path) -> bool:
    """Other plugins too have tests in YAML; theirs are to be left alone."""
    keys = {line.partition(":")[0] for line in path.read_text("utf-8", "replace").splitlines() if ":" in line}
    return "name" in keys and bool({"task", "status"} & keys)


def _told(config: pytest.Config, path: Path, workspace: Workspace | None) -> str:
    what = f"pytest-gnus: {_shown(config, path)}"
    if path.parent.name == "specialists":
        return f"{what} is a niche: add --niche={path.stem}"
    names = _niches_with(workspace, path) if workspace is not None else None
    if names is None:
        return f"{what} is a benchmark and is run for a niche: add --niche=NAME"
    return f"{what} is a benchmark and is run for a niche: {_what_to_do(names)}"


def _niches_with(workspace: Workspace, path: Path) -> list[str] | None:
    """The niches that run a benchmark; None where the file is no benchmark of the workspace."""
    files = {file.resolve(): name for name, file in workspace.benchmark_files.items()}
    name = files.get(path)
    if name is None:
        return None
    return sorted(
        niche.niche
        for niche in workspace.niches.values()
        if name in (*niche.benchmarks.blocking, *niche.benchmarks.diagnostic)
    )


def _what_to_do(niches: list[str]) -> str:
    if not niches:
        return "no niche has it; list it in config/specialists/NAME.yaml and add --niche=NAME"
    if len(niches) == 1:
        return f"add --niche={niches[0]}"
    return f"add --niche=NAME; the niches with it are {', '.join(niches)}"


def _shown(config: pytest.Config, path: Path) -> str:
    """A path as short as it can be said."""
    here = config.invocation_params.dir.resolve()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else str(path)
