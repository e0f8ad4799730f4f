"""Which earlier run is the previous one, whatever was written when."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gnus.records.earlier import LOOK_BACK, Found, earlier_runs, newest_comparable, previous_run
from pytest_gnus.records.store import RecordStore, StoredRecord, UnreadableRecord, build_of, score
from tests.making_history import KEY, REQUEST, fields, item_of, keep, run_id, stamp

NOW = 10_000.0


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(tmp_path / "artifacts")


def runs(store: RecordStore, now: str | None = None) -> list[Any]:
    """Scores of what was found, and the names of what cannot be read."""
    return [
        score(record.content) if isinstance(record, StoredRecord) else record.name
        for record in earlier_runs(store, KEY, now or run_id(NOW))
    ]


def previous(store: RecordStore, build: str = "c", **changes: Any) -> Found:
    known = fields(build, **changes)
    return previous_run(earlier_runs(store, KEY, run_id(NOW)), known, build_of(known))


def score_of(found: Found) -> float | None:
    return score(found.record.content) if found.record is not None else None


def test_runs_come_newest_first(store: RecordStore) -> None:
    for second in (2, 1, 3):
        keep(store, second / 10, began=second)
    assert runs(store) == [0.3, 0.2, 0.1]


def test_siblings_of_this_run_are_left_out(store: RecordStore) -> None:
    """The second-newest file was taken for the previous run, and was a sibling (mistake 9)."""
    keep(store, 0.1, began=1)
    for second in range(3):
        keep(store, 0.9, began=NOW, written=NOW + second)
    assert runs(store) == [0.1]
    assert score_of(previous(store)) == 0.1


def test_runs_that_began_later_are_left_out_whenever_they_wrote(store: RecordStore) -> None:
    keep(store, 0.1, began=1)
    keep(store, 0.8, began=NOW + 5)
    keep(store, 0.9, run=run_id(NOW, "00000001"), began=NOW)  # within the same microsecond
    assert runs(store) == [0.1]


def test_order_is_that_in_which_runs_began_not_that_in_which_they_wrote(store: RecordStore) -> None:
    """A long run, begun first, writes last."""
    keep(store, 0.1, began=1, written=100)
    keep(store, 0.2, began=2, written=50)
    keep(store, 0.3, began=3, written=10)
    assert runs(store) == [0.3, 0.2, 0.1]
    assert score_of(previous(store)) == 0.3


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12, unique_by=lambda pair: sum(pair))
)
def test_whatever_overlaps_runs_come_in_the_order_of_their_ids(
    tmp_path_factory: pytest.TempPathFactory, times: list[tuple[int, int]]
) -> None:
    store = RecordStore(tmp_path_factory.mktemp("runs"))
    for number, (began, lasted) in enumerate(times):
        keep(store, number / 100, began=began, written=began + lasted, run=run_id(began, f"{number:08d}"))
    found = [r.run_id for r in earlier_runs(store, KEY, run_id(20)) if isinstance(r, StoredRecord)]
    expected = [run_id(began, f"{number:08d}") for number, (began, _) in enumerate(times)]
    assert found == sorted((run for run in expected if run < run_id(20)), reverse=True)


def test_ids_with_and_without_microseconds_are_ordered_by_time(store: RecordStore) -> None:
    keep(store, 0.1, run="20260101T000001Z-00000000", written=30)
    keep(store, 0.2, run=run_id(1.5), written=31)
    keep(store, 0.3, run="20260101T000002Z-00000000", written=29)
    assert runs(store) == [0.3, 0.2, 0.1]


def test_a_foreign_id_comes_last(store: RecordStore) -> None:
    keep(store, 0.1, run="0-nightly", written=50)
    keep(store, 0.2, began=1)
    assert runs(store) == [0.2, 0.1]


def test_what_cannot_be_read_stands_where_it_was_written(store: RecordStore) -> None:
    keep(store, 0.1, began=1)
    broken = keep(store, 0.2, began=2)
    keep(store, 0.3, began=3)
    broken.write_text("{")
    assert runs(store) == [0.3, broken.name, 0.1]


def test_what_cannot_be_read_may_be_of_any_run_that_began_before_it_was_written(store: RecordStore) -> None:
    """So it counts as the newest that it may be, never as an older one."""
    keep(store, 0.3, began=3, written=40)
    broken = keep(store, 0.2, began=1, written=20)
    broken.write_text("{")
    assert runs(store) == [broken.name, 0.3]
    assert previous(store).unreadable == (
        UnreadableRecord(
            broken.name,
            f"{broken.name} cannot be read: "
            "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        ),
    )


def test_another_build_is_preferred_to_a_newer_run_of_the_same(store: RecordStore) -> None:
    """A drop is not forgiven by repeating the build."""
    keep(store, 0.8, began=1, build="a")
    keep(store, 0.7, began=2, build="b")
    keep(store, 0.5, began=3, build="c")
    keep(store, 0.5, began=4, build="c")
    assert score_of(previous(store, "c")) == 0.7
    assert score_of(previous(store, "b")) == 0.5


def test_an_earlier_run_of_the_same_build_serves_where_there_is_no_other(store: RecordStore) -> None:
    keep(store, 0.4, began=1)
    keep(store, 0.5, began=2)
    assert score_of(previous(store)) == 0.5


def test_of_the_same_weights_in_another_package_the_build_is_another(store: RecordStore) -> None:
    keep(store, 0.4, began=1, sgfp4_manifest_sha256="e" * 64)
    keep(store, 0.5, began=2)
    assert score_of(previous(store)) == 0.4


@pytest.mark.parametrize("place", [1, 2, 3])
def test_what_cannot_be_read_may_have_been_another_build(store: RecordStore, place: int) -> None:
    """Wherever it stands among runs of the same build."""
    paths = [keep(store, 0.5, began=second) for second in (1, 2, 3)]
    paths[place - 1].write_text("")
    found = previous(store)
    assert score_of(found) == 0.5
    assert [entry.name for entry in found.unreadable] == [paths[place - 1].name]


def test_what_cannot_be_read_behind_the_run_that_is_found_does_not_matter(store: RecordStore) -> None:
    keep(store, 0.4, began=1, build="a").write_text("")
    keep(store, 0.6, began=2, build="b")
    found = previous(store)
    assert (score_of(found), found.unreadable) == (0.6, ())


def test_a_protocol_that_differs_is_passed_over_and_says_in_what(store: RecordStore) -> None:
    keep(store, 0.4, began=1, build="a")
    other = keep(store, 0.9, began=2, build="b", prompt_hash="f" * 64, fewshot_seed=7)
    found = previous(store)
    assert score_of(found) == 0.4
    assert found.passed_over == (f"{other.name}: differs in prompt_hash, fewshot_seed",)
    assert previous(store, task_revision="2.0").why_not == (
        f" ({other.name}: differs in task_revision, prompt_hash, fewshot_seed; "
        f"toy_colours_quantized_{stamp(1.5)}.json: differs in task_revision)"
    )


def test_where_there_is_nothing_there_is_no_reason(store: RecordStore) -> None:
    assert previous(store) == Found(None)
    assert previous(store).why_not == ""


NOT_COMPARED: dict[str, dict[str, Any]] = {
    "error": {"status": "error"},
    "limited": {"item": item_of(run_limit=5)},
    "diagnostic": {"item": item_of(request=replace(REQUEST, mode="diagnostic"))},
}


@pytest.mark.parametrize("changes", NOT_COMPARED.values(), ids=NOT_COMPARED.keys())
def test_any_number_of_runs_that_do_not_count_hide_none_that_does(
    store: RecordStore, changes: dict[str, Any]
) -> None:
    """A developer's hundred runs with a limit do not empty the history."""
    keep(store, 0.4, began=1, build="a")
    for second in range(2, LOOK_BACK + 12):
        keep(store, began=second, **changes)
    assert score_of(previous(store)) == 0.4
    known = fields()
    assert score_of(newest_comparable(store.read_all(*KEY), known)) == 0.4


def test_no_more_than_the_newest_are_looked_through(store: RecordStore) -> None:
    """A run costs the same with a long history: records behind are not even read."""
    old = keep(store, 0.9, began=1, build="a")
    for second in range(2, LOOK_BACK + 2):
        keep(store, 0.5, began=second, build="c")
    old.write_text("{")
    found = previous(store)
    assert (score_of(found), found.unreadable) == (0.5, ())
    assert len(runs(store)) == LOOK_BACK


def test_files_that_cannot_be_read_are_counted_in_what_is_looked_through(store: RecordStore) -> None:
    keep(store, 0.4, began=1, build="a")
    for second in range(2, LOOK_BACK + 2):
        keep(store, began=second).write_text("")
    found = previous(store)
    assert (found.record, len(found.unreadable)) == (None, LOOK_BACK)
    assert found.why_not.endswith(f"; and {LOOK_BACK - 3} more)")


@pytest.mark.parametrize(
    ("key", "named"),
    [("niche", "other"), ("benchmark", "shapes"), ("variant", "reference")],
)
def test_only_records_of_the_same_item_are_earlier_runs(store: RecordStore, key: str, named: str) -> None:
    changes: dict[str, Any] = {key: named}
    keep(store, 0.9, began=2, item=item_of(**changes))
    keep(store, 0.4, began=1)
    assert runs(store) == [0.4]


def test_a_record_of_another_benchmark_in_the_place_of_a_newer_one_is_not_passed_over(
    store: RecordStore,
) -> None:
    """It would hide the run that stood there."""
    keep(store, 0.4, began=1, build="a")
    hidden = keep(store, 0.9, began=2, build="b")
    other = keep(store, 0.1, began=3, item=item_of(benchmark="shapes"))
    hidden.write_bytes(other.read_bytes())
    found = previous(store)
    assert [entry.name for entry in found.unreadable] == [hidden.name]
    assert "another record, toy_shapes_quantized_" in str(found.unreadable[0])


def test_an_old_record_copied_to_a_newer_name_is_not_a_newer_run(store: RecordStore) -> None:
    low = keep(store, 0.1, began=1, build="a")
    keep(store, 0.9, began=2, build="b")
    copied = low.with_name(f"toy_colours_quantized_{stamp(50)}.json")
    copied.write_bytes(low.read_bytes())
    found = previous(store)
    assert [entry.name for entry in found.unreadable] == [copied.name]


def test_a_newer_schema_is_not_passed_over(store: RecordStore) -> None:
    keep(store, 0.4, began=1, build="a")
    newer = keep(store, 0.9, began=2, build="b")
    newer.write_text(json.dumps(json.loads(newer.read_text()) | {"schema_version": 2}))
    (unreadable,) = previous(store).unreadable
    assert str(unreadable) == (
        f"{newer.name}: written with schema version 2, newer than 1: upgrade pytest-gnus"
    )
