"""lm-eval leaves no marks on the process it runs in."""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import sys
import warnings
from pathlib import Path

import datasets
import lm_eval.evaluator
import numpy as np
import pytest

from pytest_gnus.harness import harness_identity, quiet_harness
from pytest_gnus.models.demo_models import RandomModel
from tests.conftest import choice_documents, choice_task
from tests.test_evaluation import item_of, measured


def misbehave() -> None:
    """Draw, make noise, and fail, as a task may."""
    with quiet_harness(7):
        random.random()
        np.random.random()
        sys.stdout.write("noise")
        sys.stderr.write("noise")
        warnings.warn("noise", stacklevel=1)
        assert not datasets.is_caching_enabled()
        raise RuntimeError("inside")


def test_everything_is_put_back_even_after_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    random.seed(3)
    np.random.seed(3)
    states = (random.getstate(), np.random.get_state()[1].tolist())
    level = logging.getLogger("lm_eval").level
    git, caching = lm_eval.evaluator.get_git_commit_hash, datasets.is_caching_enabled()
    environment = dict(os.environ)
    with pytest.raises(RuntimeError, match="inside"):
        misbehave()
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states
    assert logging.getLogger("lm_eval").level == level
    assert lm_eval.evaluator.get_git_commit_hash is git
    assert datasets.is_caching_enabled() == caching
    assert dict(os.environ) == environment
    assert capsys.readouterr() == ("", "")


def test_inside_the_global_generators_follow_the_seed() -> None:
    drawn = []
    for _ in range(2):
        random.seed(None)
        with quiet_harness(5):
            drawn.append((random.random(), float(np.random.random())))
    assert drawn[0] == drawn[1]


def test_a_metric_without_a_formula_for_its_error_forks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise AssertionError("a pool was started")

    monkeypatch.setattr(multiprocessing, "Pool", refuse)
    task = choice_task("colours", metric_list=[{"metric": "mcc"}])
    item = item_of(tmp_path, choice_documents([0, 1, 2, 3] * 5), task=task, metric="mcc")
    measurement = measured(item, RandomModel())
    assert measurement.metric == "mcc,none"
    assert measurement.stderr is not None
    assert measurement.stderr > 0


def test_the_harness_says_which_it_is_and_never_by_a_placeholder() -> None:
    identity = harness_identity()
    assert identity is not None
    assert identity == harness_identity()
    release, _, digest = identity.partition("+sha256:")
    assert release.startswith("v0.")
    assert len(digest) == 64
