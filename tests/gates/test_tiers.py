"""Tiers over consecutive builds, and the composite of a niche."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_gnus.gates.result import GateResult, not_evaluated
from pytest_gnus.gates.trends import (
    EarlierStanding,
    Standing,
    composite,
    consecutive_failures,
    dimension,
    tiered,
)

FAILS = GateResult("previous_run", False, value=0.2, threshold=0.1, detail="drop +20.00%")
HOLDS = GateResult("previous_run", True, value=0.05, threshold=0.1, detail="drop +5.00%")
NOTED = not_evaluated("previous_run", "no earlier run", 0.1, severity="note")
UNREADABLE = not_evaluated("previous_run", "a newer record cannot be read", 0.1)

WORDS: dict[str, Standing] = {"F": "failed", "H": "held", "-": "absent"}


def past(text: str) -> list[EarlierStanding]:
    """`F1 H2 -3 F?`: how the gate stood and on which build, the newest first; `?` is not known."""
    return [
        EarlierStanding(None if entry[1:] == "?" else entry[1:], WORDS[entry[0]]) for entry in text.split()
    ]


@pytest.mark.parametrize(
    ("earlier", "count"),
    [
        ("", 1),
        ("F1", 2),
        ("F1 F2", 3),
        ("F1 F2 F3", 3),  # counted no further than is asked for
        ("H1 F2 F3", 1),
        ("F1 H2 F3", 2),
        # the same build run again, now and before
        ("F0", 1),
        ("F0 F0 F0", 1),
        ("F1 F1", 2),
        ("F1 F1 F2", 3),
        ("F0 F1 F0 F2", 3),
        ("F1 F0 F1 F0", 2),
        # where a build stood otherwise when it was run before, its newest standing counts
        ("H0 F1", 2),
        ("F1 H1 F2", 3),
        ("H1 F1 F2", 1),
        # nothing to compare with
        ("-1 F2", 2),
        ("-1 -2 -3", 1),
        ("F1 -2 F3", 3),
        ("F1 -1 H2", 2),
        ("-0 F1 F2", 3),
        # what cannot be read is a failure of a build of its own
        ("F?", 2),
        ("F? F?", 3),
        ("F? F1", 3),
        ("H? F1 F2", 1),
        ("-? F1 F2", 3),
    ],
)
def test_builds_in_a_row_are_counted(earlier: str, count: int) -> None:
    assert consecutive_failures("0", past(earlier), 3) == count


def test_a_build_that_is_not_known_is_one_of_its_own() -> None:
    assert consecutive_failures(None, past("F? F1 H2"), 9) == 3


@pytest.mark.parametrize(("enough", "count"), [(1, 1), (2, 2), (3, 3), (4, 4), (5, 4)])
def test_the_count_ends_where_it_is_enough(enough: int, count: int) -> None:
    assert consecutive_failures("0", past("F1 F2 F3"), enough) == count


def test_the_past_is_read_only_as_far_as_needed() -> None:
    def endless() -> Iterator[EarlierStanding]:
        yield EarlierStanding("1", "failed")
        yield EarlierStanding("2", "failed")
        raise AssertionError("read on")

    assert consecutive_failures("0", endless(), 3) == 3

    def never() -> Iterator[EarlierStanding]:
        raise AssertionError("read")
        yield

    assert consecutive_failures("0", never(), 1) == 1
    assert tiered(HOLDS, "0", never(), 3).consecutive_failures == 0
    assert tiered(NOTED, "0", never(), 3) == NOTED


builds = st.sampled_from(["0", "1", "2", "3", None])
histories = st.lists(
    st.builds(EarlierStanding, builds, st.sampled_from(["held", "failed", "absent"])), max_size=12
)


def counted_plainly(build: str | None, earlier: Sequence[EarlierStanding], enough: int) -> int:
    """The rule written the other way round: the builds as they stood last, in the order of their last run."""
    last: list[EarlierStanding] = []
    for entry in earlier:
        known = entry.build is not None and entry.build in {build, *(e.build for e in last)}
        if entry.standing != "absent" and not known:
            last.append(entry)
    # One that held ends the row, unless a failure of an unknown build before it may have been of its build.
    end = next(
        (
            place
            for place, entry in enumerate(last)
            if entry.standing == "held"
            and sum(e.standing == "held" for e in last[: place + 1])
            > sum(e.standing == "failed" and e.build is None for e in last[:place])
        ),
        len(last),
    )
    return min(enough, 1 + sum(entry.standing == "failed" for entry in last[:end]))


@given(builds, histories, st.integers(1, 6))
@example("0", [EarlierStanding("1", "failed"), EarlierStanding("1", "held")], 3)
def test_the_count_is_that_of_the_plain_rule(
    build: str | None, earlier: list[EarlierStanding], enough: int
) -> None:
    assert consecutive_failures(build, earlier, enough) == counted_plainly(build, earlier, enough)


@given(builds, histories, st.integers(1, 6))
def test_running_a_build_again_changes_nothing(
    build: str | None, earlier: list[EarlierStanding], enough: int
) -> None:
    count = consecutive_failures(build, earlier, enough)
    again = [EarlierStanding(build, "failed"), *earlier]
    if build is None:
        assert consecutive_failures(build, again, enough) >= min(enough, count + 1)
    else:
        assert consecutive_failures(build, again, enough) == count
    for place in range(len(earlier) + 1):
        absent = [*earlier[:place], EarlierStanding("9", "absent"), *earlier[place:]]
        assert consecutive_failures(build, absent, enough) == count


@given(histories, st.integers(1, 6), st.data())
def test_a_record_that_can_no_longer_be_read_never_helps(
    earlier: list[EarlierStanding], enough: int, data: st.DataObject
) -> None:
    """Whatever it said before."""
    if not earlier:
        return
    place = data.draw(st.integers(0, len(earlier) - 1))
    broken = [*earlier[:place], EarlierStanding(None, "failed"), *earlier[place + 1 :]]
    assert consecutive_failures("now", broken, enough) >= consecutive_failures("now", earlier, enough)


@given(histories, st.integers(1, 6))
def test_one_more_failing_build_counts_one_more(earlier: list[EarlierStanding], enough: int) -> None:
    count = consecutive_failures("now", earlier, 99)
    assert consecutive_failures("next", [EarlierStanding("now", "failed"), *earlier], 99) == count + 1
    assert 1 <= consecutive_failures("now", earlier, enough) == min(enough, count)


@pytest.mark.parametrize("gate", [FAILS, UNREADABLE], ids=["failed", "unreadable"])
@pytest.mark.parametrize(
    ("earlier", "severity", "count"),
    [("", "warn", 1), ("F1", "warn", 2), ("F1 F2", "block", 3), ("H1", "warn", 1), ("F0 F0", "warn", 1)],
)
def test_a_gate_that_does_not_hold_warns_first_and_blocks_later(
    gate: GateResult, earlier: str, severity: str, count: int
) -> None:
    found = tiered(gate, "0", past(earlier), 3)
    assert (found.severity, found.consecutive_failures) == (severity, count)
    assert (found.passed, found.value, found.is_against) == (gate.passed, gate.value, True)
    many = {1: "1 build", 2: "2 builds", 3: "3 or more builds"}[count]
    assert found.detail == f"{gate.detail}; not held on {many} in a row, blocks from 3"


def test_where_one_failure_is_enough_the_first_blocks() -> None:
    assert tiered(FAILS, "0", [], 1).severity == "block"
    assert tiered(FAILS, "0", past("F1"), 1).consecutive_failures == 1


@pytest.mark.parametrize("earlier", ["", "F1 F2 F3"])
def test_a_gate_that_holds_or_is_noted_is_left_as_it_is(earlier: str) -> None:
    assert tiered(HOLDS, "0", past(earlier), 3) == replace(HOLDS, consecutive_failures=0)
    assert tiered(NOTED, "0", past(earlier), 3) == NOTED
    assert not tiered(NOTED, "0", past(earlier), 1).is_against


@pytest.mark.parametrize(
    ("previous", "baseline", "passed", "held"),
    [
        (True, True, True, 3),
        (True, False, True, 2),
        (False, True, True, 2),
        (False, False, False, 1),
        (True, None, True, 2),
        (None, True, True, 2),
        (False, None, False, 1),  # two evaluated, one holds
        (None, False, False, 1),
    ],
)
def test_two_of_three_must_hold(
    previous: bool | None, baseline: bool | None, passed: bool, held: int
) -> None:
    gate = composite(True, {"previous_run": previous, "baseline_deviation": baseline})
    assert (gate.name, gate.passed, gate.value, gate.threshold) == ("composite", passed, float(held), 2.0)
    assert gate.detail.startswith(f"{held} of 3 held, 2 are needed: floors held, previous_run ")


def test_a_dimension_that_nobody_measured_is_not_counted_as_passed() -> None:
    gate = composite(True, {"previous_run": None, "baseline_deviation": None})
    assert (gate.passed, gate.severity, gate.is_against) == (None, "note", False)
    assert gate.detail == (
        "fewer than 2 of 3 dimensions evaluated: floors held, previous_run not evaluated, "
        "baseline_deviation not evaluated"
    )


@pytest.mark.parametrize("previous", [True, False, None])
@pytest.mark.parametrize("baseline", [True, False, None])
@pytest.mark.parametrize(
    ("floors", "told"),
    [
        (False, "applies after all floors of the niche, and one does not hold"),
        (None, "applies after all floors of the niche: not evaluated for b"),
    ],
)
def test_the_composite_applies_only_after_all_floors(
    previous: bool | None, baseline: bool | None, floors: bool | None, told: str
) -> None:
    dimensions = {"previous_run": previous, "baseline_deviation": baseline}
    gate = composite(floors, dimensions, "not evaluated for b")
    assert (gate.passed, gate.severity, gate.detail) == (None, "note", told)


@pytest.mark.parametrize(
    ("passed", "expected"),
    [
        ([], None),
        ([None, None], None),
        ([True], True),
        ([True, None], True),
        ([False, None], False),
        ([True, False], False),
    ],
)
def test_a_dimension_holds_where_it_does_on_every_benchmark(
    passed: list[bool | None], expected: bool | None
) -> None:
    assert dimension(passed) is expected
