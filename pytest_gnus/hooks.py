"""Asks the implementations of the product's hooks, and trusts none of their answers."""

from __future__ import annotations

import copy
import inspect
import math
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy
import pytest

from pytest_gnus.errors import HookError
from pytest_gnus.models.provider import Provider, Providers
from pytest_gnus.models.registry import BUILT_IN
from pytest_gnus.records.fingerprint import file_sha256

if TYPE_CHECKING:
    from pytest_gnus.experiments.report import ExperimentReport
    from pytest_gnus.experiments.result import ExperimentResult
    from pytest_gnus.gates.result import GateResult
    from pytest_gnus.gates.verdict import ItemOutcome, NicheVerdict

#: `pytest.fail` and the like are no answers of a hook, and no hook ends the session with a status of its own.
_RAISED = (Exception, SystemExit, pytest.fail.Exception, pytest.skip.Exception, pytest.xfail.Exception)


class Hooks:
    """The implementations of one session. `reporter_errors` says which reporters failed, and how."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.reporter_errors: list[str] = []

    def providers(self) -> Providers:
        """The built-in providers and those of others.

        Raises:
            HookError: an implementation raised, or gave something else than providers.
            ConfigError: a provider's name cannot be used.
        """
        found: list[tuple[str, Provider]] = []
        for plugin, answers in self._asked("pytest_gnus_providers"):
            for answer in _flat(answers, Provider):
                if not isinstance(answer, Provider):
                    raise HookError(
                        f"pytest_gnus_providers of {plugin} gave {answer!r}: an instance of a subclass of "
                        "pytest_gnus.Provider is needed"
                    )
                found.append((plugin, answer))
        return BUILT_IN.extended(found)

    def gates(self, reference: Callable[[], Any], **subject: Any) -> Sequence[GateResult]:
        """The gates of others on a measured item. `reference` is looked for only where somebody asks.

        Raises:
            HookError: an implementation raised, or gave something else than gates.
        """
        from pytest_gnus.gates.result import GateResult

        found: list[GateResult] = []
        if not self._plugins("pytest_gnus_gates"):
            return found
        subject["reference"] = reference()
        for plugin, answers in self._asked("pytest_gnus_gates", **subject):
            for answer in _flat(answers, GateResult):
                fault = _fault(answer)
                if fault is not None:
                    raise HookError(f"pytest_gnus_gates of {plugin} gave {fault}")
                found.append(answer)
        return found

    def gates_identity(self) -> dict[str, str | None]:
        """The plugins that add gates, each with the digest of its code; None where that cannot be known."""
        found: dict[str, str | None] = {}
        for plugin in self._plugins("pytest_gnus_gates"):
            try:
                code = Path(inspect.getfile(plugin if inspect.ismodule(plugin) else type(plugin)))
                found[self._name(plugin)] = file_sha256(code)
            except (OSError, TypeError):
                found[self._name(plugin)] = None
        return dict(sorted(found.items()))

    def item_finished(
        self, niche: str, outcome: ItemOutcome, record: Mapping[str, Any] | None, path: Path | None
    ) -> None:
        self._report(
            "pytest_gnus_item_finished",
            niche=niche,
            outcome=outcome,
            record=copy.deepcopy(record),
            path=path,
        )

    def run_finished(self, run_id: str, verdicts: Sequence[NicheVerdict], artifacts: Path) -> None:
        self._report("pytest_gnus_run_finished", run_id=run_id, verdicts=tuple(verdicts), artifacts=artifacts)

    def result_finished(self, result: ExperimentResult) -> None:
        self._report("pytest_gnus_result_finished", result=copy.deepcopy(result))

    def experiment_finished(self, report: ExperimentReport, files: Sequence[Path]) -> None:
        self._report("pytest_gnus_experiment_finished", report=report, files=tuple(files))

    def _report(self, name: str, **arguments: Any) -> None:
        """Tell every reporter; one that fails keeps no other from hearing."""
        for plugin in self._plugins(name):
            try:
                self._answers(plugin, name, arguments)
            except HookError as error:
                self.reporter_errors.append(str(error))

    def _asked(self, name: str, **arguments: Any) -> Iterator[tuple[str, list[Any]]]:
        for implementation in self._implementations(name):
            plugin = implementation.plugin
            if implementation.wrapper or implementation.hookwrapper:
                raise HookError(
                    f"{name} of {self._name(plugin)} is a wrapper, which would see no answer but its own: "
                    "write it as an ordinary implementation"
                )
            yield self._name(plugin), self._answers(plugin, name, arguments)

    def _plugins(self, name: str) -> list[Any]:
        return [implementation.plugin for implementation in self._implementations(name)]

    def _implementations(self, name: str) -> list[pluggy.HookImpl]:
        """Those of a hook, in the order in which pluggy calls them: the last of its list first."""
        caller: pluggy.HookCaller = getattr(self._config.pluginmanager.hook, name)
        return caller.get_hookimpls()[::-1]

    def _answers(self, plugin: Any, name: str, arguments: Mapping[str, Any]) -> list[Any]:
        """What one plugin answers: asked alone, so that what it does wrong can be told by its name."""
        others = [other for other in self._plugins(name) if other is not plugin]
        ask = self._config.pluginmanager.subset_hook_caller(name, others)
        try:
            answers: list[Any] = ask(**arguments, config=self._config)
        except _RAISED as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            raise HookError(
                f"{name} of {self._name(plugin)} raised {type(error).__name__}: {error} "
                f"({Path(place.filename).name}, line {place.lineno})"
            ) from error
        return answers

    def _name(self, plugin: Any) -> str:
        """A plugin's name; for a conftest its path below the root."""
        name = self._config.pluginmanager.get_name(plugin) or type(plugin).__name__
        path = Path(name)
        root = self._config.rootpath
        return path.relative_to(root).as_posix() if path.is_relative_to(root) else name


def _flat(answers: Iterable[Any], one: type) -> Iterator[Any]:
    """Answers of implementations, each one thing or several."""
    for answer in answers:
        if isinstance(answer, (one, str, Mapping)) or not isinstance(answer, Iterable):
            yield answer
        else:
            yield from answer


def _fault(gate: Any) -> str | None:
    """What keeps a gate from being recorded and judged, if anything."""
    from pytest_gnus.gates.result import GateResult

    if not isinstance(gate, GateResult):
        return f"{gate!r}: a pytest_gnus.GateResult is needed"
    if not isinstance(gate.name, str) or not gate.name:
        return f"a gate with the name {gate.name!r}: a text is needed"
    if gate.passed is not None and not isinstance(gate.passed, bool):
        return f"the gate {gate.name!r} with passed={gate.passed!r}: True, False or None is needed"
    for key in ("value", "threshold", "reference", "p_value"):
        if not _is_number_or_none(getattr(gate, key)):
            return f"the gate {gate.name!r} with {key}={getattr(gate, key)!r}: a finite number is needed"
    interval = gate.ci95
    if interval is not None and (
        len(interval) != 2 or None in interval or not all(map(_is_number_or_none, interval))
    ):
        return f"the gate {gate.name!r} with ci95={interval!r}: two finite numbers are needed"
    if gate.significant is not None and not isinstance(gate.significant, bool):
        return f"the gate {gate.name!r} with significant={gate.significant!r}: True, False or None is needed"
    if not isinstance(gate.detail, str):
        return f"the gate {gate.name!r} with detail={gate.detail!r}: a text is needed"
    return None


def _is_number_or_none(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
