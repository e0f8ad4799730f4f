"""Names of gates: which stand for one gate, whatever version wrote them."""

from __future__ import annotations

import pytest

from pytest_gnus.gates import names


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("hard_floor", "hard_floor", True),
        ("hard_floor", "hard_ceiling", True),
        ("sgfp4_regression", "quantization_regression", True),
        ("category_floor[a]", "category_ceiling[a]", True),
        ("category_floor[a]", "category_ceiling[b]", False),
        ("category_floor[a]", "hard_floor", False),
        ("hard_floor", "sgfp4_regression", False),
        ("previous_run", "previous_run", True),
        ("previous_run", "baseline_deviation", False),
        ("hard_floor_of_mine", "hard_floor", False),
        ("category_ceiling", "category_floor", False),  # names of somebody else's gates
    ],
)
def test_names_of_one_gate(one: str, other: str, same: bool) -> None:
    assert names.same_gate(one, other) is same
    assert names.same_gate(other, one) is same


def test_a_name_says_the_direction_and_the_format() -> None:
    assert names.hard_limit(higher_is_better=True) == "hard_floor"
    assert names.hard_limit(higher_is_better=False) == "hard_ceiling"
    assert names.category_limit("warm", higher_is_better=True) == "category_floor[warm]"
    assert names.category_limit("warm", higher_is_better=False) == "category_ceiling[warm]"
    assert names.regression(sgfp4=True) == "sgfp4_regression"
    assert names.regression(sgfp4=False) == "quantization_regression"


@pytest.mark.parametrize(
    ("name", "hard", "limit", "regression"),
    [
        ("hard_floor", True, True, False),
        ("hard_ceiling", True, True, False),
        ("category_floor[x]", False, True, False),
        ("category_ceiling[x]", False, True, False),
        ("sgfp4_regression", False, False, True),
        ("quantization_regression", False, False, True),
        ("truncated_share", False, False, False),
        ("floor_beyond_doubt", False, False, False),
    ],
)
def test_kinds_of_gates(name: str, hard: bool, limit: bool, regression: bool) -> None:
    assert names.is_hard_limit(name) is hard
    assert names.is_limit(name) is limit
    assert names.is_regression(name) is regression
