"""Gates of an SGFP4 artifact."""

from __future__ import annotations

import math

import pytest

from pytest_gnus.gates.artifact import NAMES, ArtifactNumbers, artifact_gates
from pytest_gnus.schema import ArtifactThresholds

NUMBERS = ArtifactNumbers(bits_per_weight=4.25, ternary_ratio=0.04, mse=0.001, relative_mse=0.02)
LIMITS = {
    "fp4_mse": 0.001,
    "fp4_relative_mse": 0.02,
    "fp4_effective_bitrate": 4.25,
    "fp4_t158_ratio": 0.04,
}


def test_limits_are_reached_with_equality() -> None:
    gates = artifact_gates(NUMBERS, LIMITS)
    assert [gate.name for gate in gates] == list(NAMES)
    assert all(gate.holds for gate in gates)
    assert [gate.value for gate in gates] == [0.001, 0.02, 4.25, 0.04]


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("fp4_mse", 0.00099),
        ("fp4_relative_mse", 0.0199),
        ("fp4_effective_bitrate", 4.2),
        ("fp4_t158_ratio", 0.05),
    ],
)
def test_each_fails_by_itself(name: str, limit: float) -> None:
    gates = {gate.name: gate for gate in artifact_gates(NUMBERS, {**LIMITS, name: limit})}
    assert [gate for gate in gates if not gates[gate].holds] == [name]
    assert gates[name].passed is False
    assert gates[name].threshold == limit


def test_a_gate_without_a_limit_is_off() -> None:
    assert artifact_gates(NUMBERS, dict.fromkeys(NAMES)) == []


def test_errors_without_a_reference_are_not_evaluated_and_do_not_hold() -> None:
    numbers = ArtifactNumbers(bits_per_weight=4.0, ternary_ratio=0.0, missing="no reference weights: gone")
    gates = {gate.name: gate for gate in artifact_gates(numbers, LIMITS)}
    for name in ("fp4_mse", "fp4_relative_mse"):
        assert gates[name].passed is None
        assert gates[name].detail == "no reference weights: gone"
    assert gates["fp4_effective_bitrate"].passed is True


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_no_number_is_not_evaluated(value: float) -> None:
    numbers = ArtifactNumbers(bits_per_weight=value, ternary_ratio=0.0)
    (gate,) = artifact_gates(numbers, {"fp4_effective_bitrate": 4.5})
    assert gate.passed is None


def test_the_defaults_and_how_levels_are_laid_over_each_other() -> None:
    built_in = ArtifactThresholds().over(ArtifactThresholds())
    assert built_in == {
        "fp4_mse": 0.01,
        "fp4_relative_mse": 0.03,
        "fp4_effective_bitrate": 4.5,
        "fp4_t158_ratio": None,
    }
    pipeline = ArtifactThresholds(fp4_mse=0.5, fp4_t158_ratio=0.05)
    niche = ArtifactThresholds(fp4_mse=None, fp4_effective_bitrate=4.1)
    assert niche.over(pipeline) == {
        "fp4_mse": None,
        "fp4_relative_mse": 0.03,
        "fp4_effective_bitrate": 4.1,
        "fp4_t158_ratio": 0.05,
    }
