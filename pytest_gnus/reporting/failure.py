"""What a failed item shows: one telling line, the gates as a table, the worst categories."""

from __future__ import annotations

from tabulate import tabulate

from pytest_gnus.gates.result import GateResult
from pytest_gnus.measurement import Measurement
from pytest_gnus.run import ArtifactState, ItemState

_WORST_CATEGORIES = 5


def describe(state: ItemState, *, only_first_line: bool = False) -> str:
    """The text of a failure. Its first line stands alone in pytest's short summary and in JUnit."""
    if state.measurement is None:
        return f"{state.item.name}: not measured"
    broken = [gate for gate in state.gates if gate.is_against]
    first = f"{'; '.join(map(_broken, broken))}: {score_line(state.measurement)}"
    if only_first_line:
        aside = state.item.not_gated_because or "diagnostic benchmarks warn and never fail"
        return f"{state.item.name}: {first}{'' if state.item.is_gated else f' ({aside})'}"
    parts = [first, "", gate_table(state.gates)]
    if state.measurement.per_category:
        parts += ["", "worst categories:", _worst(state.measurement)]
    parts += [f"note: {text}" for text in state.warnings]
    return "\n".join(parts)


def describe_artifact(state: ArtifactState, *, only_first_line: bool = False) -> str:
    """The text of an SGFP4 artifact whose gates do not hold."""
    first = "; ".join(_broken(gate) for gate in state.gates if not gate.holds)
    if only_first_line:
        return f"{state.item.name}: {first} ({state.item.not_gated_because})"
    return "\n".join([first, "", gate_table(state.gates)])


def score_line(measurement: Measurement) -> str:
    """`acc,none 0.1250 ± 0.0262 (n=160, 95% 0.0736 to 0.1764)`."""
    error = f" ± {measurement.stderr:.4f}" if measurement.stderr is not None else ""
    interval = ""
    if measurement.ci95 is not None:
        interval = f", 95% {measurement.ci95[0]:.4f} to {measurement.ci95[1]:.4f}"
    return f"{measurement.metric} {measurement.score:.4f}{error} (n={measurement.n}{interval})"


def gate_table(gates: tuple[GateResult, ...]) -> str:
    """Gates a row each."""
    rows = [
        [gate.name, gate_word(gate), _number(gate.value), _number(gate.threshold), gate.detail]
        for gate in gates
    ]
    return tabulate(rows, headers=["gate", "verdict", "value", "limit", "detail"], disable_numparse=True)


def gate_word(gate: GateResult) -> str:
    if not gate.evaluated:
        return "not evaluated"
    if gate.passed:
        return "passed"
    return "FAILED" if gate.severity == "block" else "warns"


def _broken(gate: GateResult) -> str:
    if not gate.evaluated:
        return f"{gate.name} not evaluated: {gate.detail}"
    return f"{gate.name} {'failed' if gate.severity == 'block' else 'warns'}: {gate.detail}"


def _worst(measurement: Measurement) -> str:
    worst_first = sorted(
        measurement.per_category.items(), key=lambda entry: entry[1], reverse=not measurement.higher_is_better
    )
    return tabulate(
        [[name, f"{score:.4f}"] for name, score in worst_first[:_WORST_CATEGORIES]], tablefmt="plain"
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
