"""A session inside a test leaves nothing behind in the process, and sees nothing of the test's own."""

from __future__ import annotations

import os
import random
import sys
import warnings

import lm_eval
import pytest

from pytest_gnus.models import demo_models
from pytest_gnus.models.demo_models import ConstantModel
from tests.conftest import ToyWorkspace

CONFTEST = """
import os, sys, warnings
import lm_eval
import helper
from pytest_gnus.models import demo_models

demo_models.ConstantModel._logprob = lambda self, context, continuation: 0.0
demo_models.ConstantModel.added = True
demo_models._ANSWER_WORDS = 1
demo_models.added = True
lm_eval.simple_evaluate = lambda **keywords: 1 / 0
os.environ["GNUS_LEFT_BEHIND"] = "1"
del os.environ["PATH"]
os.chdir("benchmarks")
sys.path.append("left-behind")
warnings.simplefilter("error")
"""


def test_what_a_workspace_changes_is_put_back(toy: ToyWorkspace) -> None:
    toy.run("--niche=toy", "--collect-only")  # imports of the product that add filters of their own
    (toy.path / "conftest.py").write_text(CONFTEST)
    (toy.path / "helper.py").write_text("")
    environment, path, folder = dict(os.environ), list(sys.path), os.getcwd()  # noqa: PTH109
    filters, evaluate = list(warnings.filters), lm_eval.simple_evaluate
    logprob, streams = ConstantModel._logprob, (sys.stdout, sys.stderr)
    toy.run("--niche=toy").assert_outcomes(errors=2)  # the division
    del environment["PYTEST_CURRENT_TEST"]
    assert {name: os.environ.get(name) for name in environment} == environment
    assert "GNUS_LEFT_BEHIND" not in os.environ
    assert (sys.path, os.getcwd(), warnings.filters) == (path, folder, filters)  # noqa: PTH109
    assert (sys.stdout, sys.stderr) == streams
    assert lm_eval.simple_evaluate is evaluate
    assert ConstantModel._logprob is logprob
    assert demo_models._ANSWER_WORDS == 24
    assert not hasattr(demo_models, "added")
    assert not hasattr(ConstantModel, "added")
    assert not {"helper", "conftest"} & set(sys.modules)


def test_the_next_session_imports_its_files_anew(toy: ToyWorkspace) -> None:
    """Two sources of one length, written within one second."""
    for number in range(3):
        (toy.path / "test_own.py").write_text(f"def test_own(): print('NUMBER {number}')\n")
        toy.run("-s", "test_own.py").stdout.fnmatch_lines([f"*NUMBER {number}*"])


def test_output_errors_and_exit_status_are_those_of_the_session(toy: ToyWorkspace) -> None:
    (toy.path / "test_own.py").write_text("def test_own(): assert 1 == 2\n")
    result = toy.run("test_own.py")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E * assert 1 == 2"])
    wrong = toy.run("--niche=toi")
    assert wrong.ret == pytest.ExitCode.USAGE_ERROR
    wrong.stderr.fnmatch_lines(["*Did you mean 'toy'?*"])
    assert wrong.outlines == []


def test_filters_of_the_tests_own_session_are_not_in_force(toy: ToyWorkspace) -> None:
    """This project's tests turn a warning of pytest into an error."""
    (toy.path / "test_own.py").write_text(
        "import warnings, pytest\ndef test_own(): warnings.warn(pytest.PytestWarning('HEARD'))\n"
    )
    toy.run("test_own.py").assert_outcomes(passed=1, warnings=1)


def test_a_process_and_a_session_inside_measure_the_same(toy: ToyWorkspace) -> None:
    random.seed(1)
    inside, outside = toy.run("--niche=toy"), toy.run_process("--niche=toy")
    assert inside.ret == outside.ret
    assert inside.parseoutcomes() == outside.parseoutcomes() | {"warnings": 8}
    first, _, second, _ = toy.records()
    for key in ("fingerprint", "results", "status", "counts", "model", "environment"):
        assert first[key] == second[key], key
