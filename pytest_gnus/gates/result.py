"""What a gate says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class GateResult:
    """The verdict of one gate, with its numbers.

    `passed` is None exactly where the gate was not evaluated; a gate that was not evaluated has not passed.
    `value` is what was compared, `threshold` what it was compared with, `reference` the other side's score.
    """

    name: str
    passed: bool | None
    value: float | None = None
    threshold: float | None = None
    reference: float | None = None
    ci95: tuple[float, float] | None = None
    p_value: float | None = None
    detail: str = ""

    @property
    def evaluated(self) -> bool:
        return self.passed is not None

    @property
    def holds(self) -> bool:
        return self.passed is True

    def to_record(self) -> dict[str, Any]:
        """The gate as the record has it."""
        entry = asdict(self)
        entry["evaluated"] = self.evaluated
        entry["ci95"] = list(self.ci95) if self.ci95 else None
        return entry


def not_evaluated(name: str, detail: str, threshold: float | None = None) -> GateResult:
    return GateResult(name, None, threshold=threshold, detail=detail)
