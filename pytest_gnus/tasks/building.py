"""From a benchmark's file to lm-eval's task objects."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from lm_eval.api.group import Group
from lm_eval.api.task import Task
from lm_eval.config.group import GroupConfig
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml

from pytest_gnus.errors import DataError, EvaluationError, did_you_mean, first_line, listed, nearest
from pytest_gnus.tasks.benchmark_task import CONFIG_KEY, BenchmarkTask, TaskData, unknown_metric
from pytest_gnus.tasks.metrics import register_metrics
from pytest_gnus.workspace import FunctionReference

_WRAPPER = "pytest_gnus"


@dataclass(frozen=True)
class BuiltTask:
    """What `simple_evaluate` gets: a task or a group, its manager, and the leaves that will be measured."""

    name: str
    task: Task | Group
    manager: TaskManager
    leaves: Mapping[str, Task]

    @property
    def is_group(self) -> bool:
        return isinstance(self.task, Group)

    @property
    def dataset_revision(self) -> str | None:
        """The revision of the documents; for a group, of all its data sets if it is one."""
        revisions = {getattr(leaf, "dataset_revision", None) for leaf in self.leaves.values()}
        if len(revisions) == 1:
            return revisions.pop()
        if None in revisions:
            return None
        joined = "\n".join(sorted(str(revision) for revision in revisions))
        return f"sha256:{hashlib.sha256(joined.encode()).hexdigest()}"


def build(
    name: str,
    task: str | Mapping[str, Any],
    data: TaskData,
    overrides: Mapping[str, Any],
    subtasks: list[str],
) -> BuiltTask:
    """Build the lm-eval task of a benchmark, with its documents.

    Args:
        name: the benchmark's name, for messages and for an inline task that names itself not.
        task: the name of an lm-eval task or group, or a whole task config.
        overrides: keys of the task config to replace.
        subtasks: what of a group to measure; empty for all of it.

    Raises:
        DataError: the documents are not usable.
        EvaluationError: there is no such task.
    """
    register_metrics()
    if isinstance(task, str):
        built = _build_named(name, task, data, overrides, subtasks)
    elif subtasks:
        raise EvaluationError(
            f"{name}: `subtasks:` narrows an lm-eval group; this benchmark's task is a mapping"
        )
    else:
        built = _build_inline(name, task, data, overrides)
    for leaf in built.leaves.values():
        _check_metrics(name, leaf)
    return built


def _check_metrics(name: str, task: Task) -> None:
    """lm-eval only logs a metric that it does not know, and fails once the model has answered."""
    functions: Mapping[str, Any] = getattr(task, "_metric_fn_list", {})
    if getattr(task.config, "process_results", None) is not None:
        return
    for metric, function in functions.items():
        if function is None:
            raise EvaluationError(unknown_metric(name, str(metric)))


def _build_inline(
    name: str, task: Mapping[str, Any], data: TaskData, overrides: Mapping[str, Any]
) -> BuiltTask:
    if "group" in task:
        raise EvaluationError(f"{name}: a task mapping describes one task; name a group of lm-eval's instead")
    manager = TaskManager(include_defaults=False)
    config = {"task": name, **_resolved(dict(task)), **_resolved(dict(overrides))}
    _refuse_generated_programs(name, name, config)
    if not isinstance(config["task"], str):
        raise EvaluationError(f"{name}: task.task must be a name, found {config['task']!r}")
    loaded = manager.load([{**config, "class": BenchmarkTask, CONFIG_KEY: data}])
    (built,) = loaded["tasks"].values()
    return BuiltTask(config["task"], built, manager, loaded["tasks"])


def _build_named(
    name: str, task: str, data: TaskData, overrides: Mapping[str, Any], subtasks: list[str]
) -> BuiltTask:
    check_known(name, task)
    manager = _manager_for(task)
    entry = manager.task_index[task]
    if entry.kind.name == "PY_TASK":
        return _build_python(name, task, data, overrides, manager)
    is_group = entry.kind.name in ("GROUP", "TAG")
    if subtasks and not is_group:
        raise EvaluationError(f"{name}: `subtasks:` narrows a group; {task} is one task")
    changes = {
        **_resolved(dict(overrides)),
        "class": BenchmarkTask,
        CONFIG_KEY: replace(data, group=task) if is_group else data,
    }
    if not is_group:
        tasks = _load_leaves(name, [task], manager, changes)
        return BuiltTask(task, tasks[task], manager, tasks)
    members = _members(task, manager, subtasks) if subtasks else list(_leaves(task, manager))
    tasks = _load_leaves(name, members, manager, changes)
    group = _assembled(task, manager, tasks) if not subtasks else _group(task, manager, tasks.values())
    return BuiltTask(task, group, manager, tasks)


def check_known(name: str, task: str) -> None:
    """Whether lm-eval has a task or group of this name; its documents are not looked at.

    Raises:
        EvaluationError: it has none.
    """
    manager = _manager_for(task)
    if task not in manager.task_index:
        hint = nearest(task, manager.task_index)
        hint = hint or "`lm_eval ls tasks` lists them; a whole task config as a mapping is allowed too."
        raise EvaluationError(f"{name}: task: lm-eval has no task {task!r}. {hint}")


def _refuse_generated_programs(name: str, task: str, config: Mapping[str, Any]) -> None:
    """A task whose score comes from running what the model wrote; before its own code is imported.

    Raises:
        EvaluationError: it is one.
    """
    if config.get("unsafe_code"):
        raise EvaluationError(
            f"{name}: {task} runs the programs that a model writes (`unsafe_code`), for which there is no "
            "sandbox yet and so no permission; give the benchmark `status: not_implemented` with a `reason`"
        )


def _load_leaves(
    benchmark: str, names: Sequence[str], manager: TaskManager, changes: Mapping[str, Any]
) -> dict[str, Task]:
    """Registered tasks with changes to their config: lm-eval takes changes inside a group's list only."""
    for name in names:
        path = manager.task_index[name].yaml_path
        if path is not None:
            _refuse_generated_programs(benchmark, name, load_yaml(path, resolve_func=False))
    spec = {"group": _WRAPPER, "task": [{"task": name, **changes} for name in dict.fromkeys(names)]}
    tasks: dict[str, Task] = manager.load([spec])["tasks"]
    return tasks


def _assembled(name: str, manager: TaskManager, tasks: Mapping[str, Task]) -> Group:
    """A registered group with its own structure around tasks that are loaded already."""
    members: list[Task | Group] = []
    for member in (manager.task_index[name].cfg or {}).get("task", []):
        entry = manager.task_index[member]
        if entry.kind.name == "GROUP":
            members.append(_assembled(member, manager, tasks))
        else:
            members.extend(tasks[leaf] for leaf in _leaves(member, manager))
    return _group(name, manager, members)


def _group(name: str, manager: TaskManager, members: Iterable[Task | Group]) -> Group:
    """A group that aggregates as the registered one of its name does."""
    config = manager.task_index[name].cfg or {}
    known = {field.name for field in fields(GroupConfig)}
    group = Group.from_config({"group": name, **{key: config[key] for key in known & config.keys()}})
    for member in members:
        group.add(member)
    return group


def _build_python(
    name: str, task: str, data: TaskData, overrides: Mapping[str, Any], manager: TaskManager
) -> BuiltTask:
    """A task that lm-eval defines in Python brings its own way to its documents."""
    if data.local is not None:
        raise DataError(
            f"{name}: lm-eval reads the documents of {task} in Python; --gnus-source=local cannot"
        )
    if overrides:
        raise EvaluationError(f"{name}: {task} is defined in Python; its config cannot be overridden")
    loaded = manager.load([task])
    return BuiltTask(task, loaded["tasks"][task], manager, loaded["tasks"])


def _members(group: str, manager: TaskManager, wanted: list[str]) -> list[str]:
    """The leaf tasks of a group that `subtasks:` asks for, by full name or without the group's prefix."""
    leaves = list(dict.fromkeys(_leaves(group, manager)))
    by_name = {leaf: leaf for leaf in leaves} | {leaf.removeprefix(f"{group}_"): leaf for leaf in leaves}
    unknown = [name for name in wanted if name not in by_name]
    if unknown:
        hint = did_you_mean(unknown[0], by_name)
        raise EvaluationError(
            f"{group} has no subtask {listed(unknown)}; it has {listed(leaves)}. {hint}".rstrip()
        )
    return list(dict.fromkeys(by_name[name] for name in wanted))


def _leaves(name: str, manager: TaskManager) -> Iterator[str]:
    entry = manager.task_index.get(name)
    if entry is None:
        return
    if entry.kind.name == "TAG":
        yield from sorted(entry.tags)
    elif entry.kind.name == "GROUP":
        for member in (entry.cfg or {}).get("task", []):
            if not isinstance(member, str):
                raise EvaluationError(
                    f"{name}: lm-eval defines parts of this group inside it; name its parts"
                )
            yield from _leaves(member, manager)
    else:
        yield name


def _manager_for(task: str) -> TaskManager:
    """A manager that knows a built-in task: of the one folder that defines it, else of all.

    Indexing all of lm-eval's tasks takes several seconds, indexing one folder milliseconds. Where the folder
    names something of another folder, only the whole index will do.
    """
    folder = _folder_of(task)
    if folder is not None:
        manager = _narrow_manager(folder)
        if task in manager.task_index and _is_closed(task, manager):
            return manager
    return _full_manager()


def _is_closed(name: str, manager: TaskManager) -> bool:
    entry = manager.task_index.get(name)
    if entry is None:
        return False
    if entry.kind.name != "GROUP":
        return True
    members = (entry.cfg or {}).get("task", [])
    return all(isinstance(member, str) and _is_closed(member, manager) for member in members)


def _folder_of(task: str) -> Path | None:
    """The folder below lm-eval's tasks with the longest name that the task's starts with; checked later."""
    spec = importlib.util.find_spec("lm_eval.tasks")
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parent
    folders = [path for path in root.iterdir() if path.is_dir() and task.startswith(path.name)]
    return max(folders, key=lambda path: len(path.name), default=None)


@cache
def _narrow_manager(folder: Path) -> TaskManager:
    return TaskManager(include_path=str(folder), include_defaults=False)


@cache
def _full_manager() -> TaskManager:
    return TaskManager()


def _resolved(value: Any) -> Any:
    """A config with each `!function` imported."""
    if isinstance(value, FunctionReference):
        return _imported(value)
    if isinstance(value, Mapping):
        return {key: _resolved(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_resolved(entry) for entry in value]
    return value


def _imported(reference: FunctionReference) -> Any:
    """The function that ``!function module.name`` names: in a Python file beside the YAML file, nowhere else.

    Raises:
        EvaluationError: no such file or function, or a file outside the folder.
    """
    module_name, _, function_name = reference.name.rpartition(".")
    path = (reference.directory / f"{module_name.replace('.', '/')}.py").resolve()
    if not module_name or not path.is_relative_to(reference.directory.resolve()) or not path.is_file():
        raise EvaluationError(
            f"!function {reference.name}: expected module.function with the module beside the YAML file, "
            f"{path} is no such file"
        )
    function = getattr(_module(path), function_name, None)
    if not callable(function):
        raise EvaluationError(f"!function {reference.name}: {path} has no function {function_name!r}")
    return function


@cache
def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"pytest_gnus_workspace_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise EvaluationError(f"cannot import {path}")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise EvaluationError(f"cannot import {path}: {first_line(error)}") from error
    return module
