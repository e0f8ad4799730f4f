"""What is relied on in other packages, and what is said of versions that were not tested."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_gnus import recording, session
from pytest_gnus.compatibility import LM_EVAL, PACKAGES, XDIST, incompatible, parameters, source, untested
from pytest_gnus.experiments.scheduling import ModelScheduling
from pytest_gnus.models.completions import CompletionsModel
from pytest_gnus.models.demo_models import _KnowsNothing
from pytest_gnus.models.harness_model import HarnessModel
from pytest_gnus.models.language_model import MLXLanguageModel
from pytest_gnus.models.path_cache import PathKVCache
from pytest_gnus.models.token_model import TokenLanguageModel
from pytest_gnus.tasks.benchmark_task import BenchmarkTask
from pytest_gnus.xdist_scheduler import NicheScheduling

OURS = (
    BenchmarkTask,
    CompletionsModel,
    HarnessModel,
    MLXLanguageModel,
    ModelScheduling,
    NicheScheduling,
    PathKVCache,
    TokenLanguageModel,
    _KnowsNothing,
)


def overridden_by(kind: type) -> dict[tuple[str, str], tuple[str, ...]]:
    """Each method that a class overrides in another package's, with its parameters there."""
    others = [
        base for base in kind.__mro__ if not base.__module__.startswith(("pytest_gnus", "builtins", "abc"))
    ]
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for name in vars(kind):
        base = next((base for base in others if name in vars(base)), None)
        if base is None or (name.startswith("__") and name != "__init__"):
            continue
        method: Any = vars(base)[name]
        method = method.fget if isinstance(method, property) else method
        if callable(method):
            found[(base.__module__, f"{base.__qualname__}.{name}")] = tuple(
                inspect.signature(method).parameters
            )
    return found


def test_every_overridden_method_is_listed_with_its_parameters() -> None:
    listed = {
        (part.module, part.name): part.parameters
        for package in PACKAGES
        for part in package.parts
        # That one needs torch, which is not always there; the next test reads it.
        if part.overridden and part.module != "lm_eval.models.huggingface"
    }
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for kind in OURS:
        found |= overridden_by(kind)
    assert len(found) > 25
    assert listed == found


def test_what_is_installed_has_all_that_is_relied_on() -> None:
    """Read as an untested version would be, from the sources."""
    assert incompatible(version_of=lambda _: "999.0") == []


@pytest.mark.parametrize(
    ("version", "tested"),
    [("0.4.13", True), ("0.4.12", False), ("0.4.14", False), ("0.4.14.dev3+g1234", False), ("local", False)],
)
def test_a_version_outside_the_tested_ones_is_told(version: str, tested: bool) -> None:
    said = untested([LM_EVAL], lambda _: version)
    expected = f"lm_eval {version} was not tested with this pytest-gnus; tested: 0.4.13"
    assert said == (() if tested else (expected,))


def test_the_ends_of_a_range_are_tested_and_what_is_not_installed_says_nothing() -> None:
    assert [untested([XDIST], lambda _, v=v: v) for v in ("3.6.1", "3.7.0", "3.8.0", None)] == [()] * 4
    assert untested([XDIST], lambda _: "3.8.1") == (
        "pytest-xdist 3.8.1 was not tested with this pytest-gnus; tested: 3.6.1 to 3.8.0",
    )


CHANGED = """
class LoadScopeScheduling:
    def __init__(self, config, log): ...
    def _split_scope(self, nodeid, *, group=None): ...
    def _reschedule(self, node, now=False): ...
"""


def test_another_signature_and_a_method_that_is_gone_are_named_with_the_versions_that_work() -> None:
    problems = incompatible([XDIST], lambda _: "4.0", lambda _: CHANGED)
    assert [str(problem) for problem in problems] == [
        "pytest-xdist: xdist.scheduler.loadscope.LoadScopeScheduling._split_scope: "
        "found (self, nodeid, group) in version 4.0; "
        "allowed: (self, nodeid), as in the versions that work: 3.6.1 to 3.8.0. "
        "Install one of these: pip install 'pytest-xdist>=3.6.1,<=3.8.0'.",
        "pytest-xdist: xdist.scheduler.loadscope.LoadScopeScheduling.remove_node: found nothing of that name "
        "in version 4.0; allowed: (self, node), as in the versions that work: 3.6.1 to 3.8.0. "
        "Install one of these: pip install 'pytest-xdist>=3.6.1,<=3.8.0'.",
    ]


def test_of_a_tested_version_no_source_is_read() -> None:
    def read(_: str) -> str:
        raise AssertionError("read")

    assert incompatible([XDIST], lambda _: "3.7.0", read) == []
    with pytest.raises(AssertionError, match="read"):
        incompatible([XDIST], lambda _: "3.9.0", read)


def test_parameters_are_read_from_a_source() -> None:
    text = "def one(a, /, b, *rest, c=1, **more): ...\nclass K:\n    @property\n    def two(self): ...\n"
    assert parameters(text, "one") == ("a", "b", "c", "rest", "more")
    assert parameters(text, "K.two") == ("self",)
    assert parameters(text, "K.one") is None
    assert parameters(None, "one") is None
    assert source("no_such_package.module") is None


def test_header_and_record_say_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "untested", lambda: ("lm_eval 9 was not tested",))
    monkeypatch.setattr(recording, "untested", lambda: ("lm_eval 9 was not tested",))
    settings: Any = SimpleNamespace(dtype=None, limit=None)
    assert "gnus: lm_eval 9 was not tested" in session.header_lines([], settings)
    assert recording.environment(None)["untested"] == ["lm_eval 9 was not tested"]


def test_a_session_with_an_incompatible_version_is_a_usage_error(toy: Any) -> None:
    toy.pytester.makeconftest(
        "from pytest_gnus import starting\n"
        "from pytest_gnus.compatibility import XDIST, incompatible\n"
        "starting.incompatible = lambda: incompatible([XDIST], lambda _: '4.0', lambda _: '')\n"
    )
    result = toy.run("--niche=toy")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*the versions that work: 3.6.1 to 3.8.0*"])
    assert not (toy.path / "artifacts").exists()
