"""The share of prompts that were longer than the model's context, as a gate."""

from __future__ import annotations

import pytest

from pytest_gnus.gates.truncation import truncated_share, truncation_sentence


@pytest.mark.parametrize(
    ("truncated", "requests", "threshold", "passed", "share"),
    [
        (0, 16, 0.0, True, 0.0),
        (1, 16, 0.0, False, 0.0625),
        (16, 16, 0.0, False, 1.0),
        (16, 16, 1.0, True, 1.0),
        (4, 16, 0.25, True, 0.25),  # equality holds
        (5, 16, 0.25, False, 0.3125),
        (1, 1000, 0.0, False, 0.001),
        (0, 0, 0.0, True, 0.0),
    ],
)
def test_the_share_is_held_against_the_limit(
    truncated: int, requests: int, threshold: float, passed: bool, share: float
) -> None:
    gate = truncated_share(truncated, requests, threshold)
    assert gate is not None
    assert (gate.name, gate.passed, gate.value, gate.threshold) == (
        "truncated_share",
        passed,
        share,
        threshold,
    )
    assert gate.severity == "block"


def test_the_detail_names_numbers_and_the_context() -> None:
    gate = truncated_share(16, 16, 0.0, 2048)
    assert gate is not None
    assert gate.detail == (
        "16 of 16 prompts were longer than the model's context of 2048 tokens; their oldest tokens were "
        "dropped; truncated_max_share allows 0.00%"
    )
    none = truncated_share(0, 16, 0.0, 2048)
    assert none is not None
    assert none.detail == "none of 16 prompts was longer than the model's context of 2048 tokens"
    assert truncation_sentence(1, 9).startswith("1 of 9 prompts was longer than the model's context; ")


def test_without_a_limit_there_is_no_gate() -> None:
    assert truncated_share(3, 16, None) is None
    assert truncated_share(None, 16, None) is None


def test_what_nobody_counts_is_not_evaluated_and_noted() -> None:
    gate = truncated_share(None, 16, 0.0)
    assert gate is not None
    assert (gate.passed, gate.value, gate.threshold, gate.severity) == (None, None, 0.0, "note")
    assert not gate.is_against


@pytest.mark.parametrize(("truncated", "requests"), [(17, 16), (1, 0), (-1, 16)])
def test_counts_that_cannot_be_do_not_pass(truncated: int, requests: int) -> None:
    gate = truncated_share(truncated, requests, 1.0)
    assert gate is not None
    assert (gate.passed, gate.severity) == (None, "block")
    assert gate.is_against
