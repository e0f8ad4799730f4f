"""What a gate says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

#: What a gate that does not hold does to its item: fails it, warns, or is only noted.
Severity = Literal["block", "warn", "note"]


@dataclass(frozen=True)
class GateResult:
    """The verdict of one gate, with its numbers.

    `passed` is None exactly where the gate was not evaluated; a gate that was not evaluated has not passed.
    `value` is what was compared, `threshold` what it was compared with, `reference` the other side's score.
    `severity` is what it does where it does not hold. `consecutive_failures` counts the builds in a row, this
    one included, on which a trend gate has not held. `accepted` says whose decision a gate relies on.
    `significant` says whether the interval of a difference excludes zero, to either side; None without one.
    """

    name: str
    passed: bool | None
    value: float | None = None
    threshold: float | None = None
    reference: float | None = None
    ci95: tuple[float, float] | None = None
    p_value: float | None = None
    detail: str = ""
    severity: Severity = "block"
    consecutive_failures: int | None = None
    accepted: str | None = None
    significant: bool | None = None

    @property
    def evaluated(self) -> bool:
        return self.passed is not None

    @property
    def holds(self) -> bool:
        return self.passed is True

    @property
    def is_against(self) -> bool:
        """Whether it tells against its item: it does not hold, and that is more than a note."""
        return not self.holds and self.severity != "note"

    def to_record(self) -> dict[str, Any]:
        """The gate as the record has it."""
        entry = asdict(self)
        entry["evaluated"] = self.evaluated
        entry["ci95"] = list(self.ci95) if self.ci95 else None
        return entry


def not_evaluated(
    name: str, detail: str, threshold: float | None = None, severity: Severity = "block"
) -> GateResult:
    return GateResult(name, None, threshold=threshold, detail=detail, severity=severity)
