"""A gate: a blocking benchmark must reach its floor with the lower end of its 95 % interval, not by luck.

Put this beside `benchmarks/` and `config/`, or into `benchmarks/conftest.py`, or into a plugin of your own.
Its result stands in the gate table and in the record, and counts in the niche's verdict.
"""

from pytest_gnus import GateResult

NAME = "floor_beyond_doubt"


def pytest_gnus_gates(item, measurement):
    floor = item.thresholds.hard_floor
    if not item.blocking or floor is None or not measurement.higher_is_better:
        return None  # nothing to say of this one
    if measurement.ci95 is None:
        # What could not be evaluated has not passed.
        return GateResult(NAME, None, threshold=floor, detail=f"{measurement.metric} has no standard error")
    low, high = measurement.ci95
    verb = "reaches" if low >= floor else "is below"
    return GateResult(
        name=NAME,
        passed=low >= floor,
        value=low,
        threshold=floor,
        ci95=(low, high),
        detail=f"the lower end of {low:.4f} to {high:.4f} {verb} {floor}",
    )
