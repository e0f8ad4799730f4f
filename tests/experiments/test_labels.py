"""Short names of models."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gnus.experiments.labels import model_labels


@pytest.mark.parametrize(
    ("models", "labels"),
    [
        (["demo:patents", "demo:patents-baseline"], ["patents", "patents-baseline"]),
        (["mlx:/models/run1/final", "mlx:/models/run2/final"], ["run1-final", "run2-final"]),
        (["mlx:org/Name-4bit", "mlx:models/x"], ["Name-4bit", "x"]),
        (["mlx:org/Name", "hf:org/Name"], ["mlx-org-Name", "hf-org-Name"]),
        (["mlx:a/x", "mlx:b/x", "mlx:y"], ["a-x", "b-x", "y"]),
        (["lm_eval:dummy,size=[1 2]"], ["dummy-size-1-2"]),
        (["mlx:../up/", "mlx:.."], ["up", "mlx"]),
        (["mlx:a b", "mlx:a_b", "mlx:a(b"], ["mlx-a-b-1", "a_b", "mlx-a-b-2"]),
    ],
)
def test_the_last_part_and_as_much_before_it_as_sets_it_apart(models, labels):
    assert model_labels(models) == labels


@given(st.lists(st.text(alphabet="ab:/-. ()", min_size=1, max_size=8), max_size=6))
def test_labels_are_unique_safe_and_never_empty(models):
    labels = model_labels(models)
    assert len(labels) == len(models) == len(set(labels))
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+", label) for label in labels)
