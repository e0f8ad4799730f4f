"""Decisions of a person to accept a lower score: append-only, and never believed when altered."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gnus.errors import RecordError
from pytest_gnus.records import decisions
from pytest_gnus.records.decisions import (
    Acceptance,
    accept,
    decision_digest,
    newest_acceptance,
    parse_decision,
    read_decisions,
)
from pytest_gnus.records.store import RecordStore, StoredRecord
from tests.making_history import KEY, item_of, keep, run_id

AUTHOR = "Ann Example <ann@example.org>"
REASON = "smaller by a third, agreed"


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(tmp_path / "artifacts")


def kept(store: RecordStore, score: float = 0.4, **changes: Any) -> StoredRecord:
    path = keep(store, score, **changes)
    return StoredRecord(path, json.loads(path.read_text()))


def test_a_decision_names_who_why_and_which_records(store: RecordStore) -> None:
    record = kept(store, 0.4, began=7)
    path = accept(store, [record], f" {AUTHOR} ", f" {REASON}\n")
    assert path.parent == store.artifacts / "decisions"
    assert re.fullmatch(r"accept_\d{8}T\d{6}\.\d{6}Z\.json", path.name)
    content = json.loads(path.read_text())
    assert content | {"timestamp_utc": "", "decision_sha256": ""} == {
        "schema_version": 1,
        "run_id": run_id(7),
        "timestamp_utc": "",
        "author": AUTHOR,
        "reason": REASON,
        "records": [
            {
                "file": record.path.name,
                "record_sha256": record.content["record_sha256"],
                "niche": "toy",
                "benchmark": "colours",
                "variant": "quantized",
                "score": 0.4,
            }
        ],
        "decision_sha256": "",
    }
    assert content["decision_sha256"] == decision_digest(content)


def test_a_decision_is_read_back(store: RecordStore) -> None:
    record = kept(store, 0.4, began=7)
    accept(store, [record], AUTHOR, REASON)
    ((acceptance,),) = read_decisions(store)
    assert acceptance == Acceptance(
        run_id=run_id(7),
        key=KEY,
        file=record.path.name,
        record_sha256=record.content["record_sha256"],
        score=0.4,
        author=AUTHOR,
        reason=REASON,
        timestamp_utc=acceptance.timestamp_utc,
    )
    day = acceptance.timestamp_utc[:10]
    assert str(acceptance) == f"accepted by {AUTHOR} on {day}: {REASON} (run {run_id(7)}, score 0.4000)"


def test_a_score_of_zero_and_of_one_can_be_accepted(store: RecordStore) -> None:
    for second, score in enumerate((0.0, 1.0)):
        accept(store, [kept(store, score, began=second)], AUTHOR, REASON)
    assert [decision[0].score for decision in read_decisions(store) if isinstance(decision, list)] == [0, 1]


@pytest.mark.parametrize(("author", "reason"), [("", REASON), (" ", REASON), (AUTHOR, ""), (AUTHOR, "\n")])
def test_a_decision_needs_a_person_and_a_reason(store: RecordStore, author: str, reason: str) -> None:
    with pytest.raises(RecordError, match="a decision needs a reason and an author"):
        accept(store, [kept(store)], author, reason)
    assert not (store.artifacts / "decisions").exists()


def test_there_must_be_a_score_to_accept(store: RecordStore) -> None:
    with pytest.raises(RecordError, match="there is no score to accept"):
        accept(store, [kept(store, status="error")], AUTHOR, REASON)
    with pytest.raises(RecordError, match="there is no score to accept"):
        accept(store, [], AUTHOR, REASON)


def test_records_without_a_score_are_left_out_of_a_decision(store: RecordStore) -> None:
    records = [
        kept(store, item=item_of(benchmark="shapes"), status="error"),
        kept(store, item=item_of(benchmark="sizes")),
    ]
    accept(store, records, AUTHOR, REASON)
    ((acceptance,),) = read_decisions(store)
    assert acceptance.key == ("toy", "sizes", "quantized")


def test_a_decision_is_about_one_run(store: RecordStore) -> None:
    with pytest.raises(RecordError, match="a decision is about one run, not 2"):
        accept(store, [kept(store, began=1), kept(store, began=2)], AUTHOR, REASON)


def test_decisions_are_added_and_never_overwritten(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = accept(store, [kept(store)], AUTHOR, REASON)
    before = first.read_bytes()
    monkeypatch.setattr(decisions, "STAMP", first.stem.removeprefix("accept_"))
    with pytest.raises(RecordError, match=f"{first.name} is there already; decisions are never overwritten"):
        accept(store, [kept(store, began=1)], AUTHOR, "another")
    assert first.read_bytes() == before
    assert [path.name for path in first.parent.iterdir()] == [first.name]


def test_the_oldest_decision_comes_first(store: RecordStore) -> None:
    for second in (3, 1, 2):
        accept(store, [kept(store, began=second)], AUTHOR, f"number {second}")
    assert [decision[0].reason for decision in read_decisions(store) if isinstance(decision, list)] == [
        "number 3",
        "number 1",
        "number 2",
    ]


def resealed(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Altered by someone who knows how the digest is made."""

    def change(content: dict[str, Any]) -> dict[str, Any]:
        content = content | changes
        return content | {"decision_sha256": decision_digest(content)}

    return change


def with_file(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda content: resealed(records=[content["records"][0] | {"file": name}])(content)


ALTERED: Mapping[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "reason": (lambda c: c | {"reason": "other"}, "it does not fit its own digest: it was altered"),
    "run": (lambda c: c | {"run_id": run_id(99)}, "it does not fit its own digest: it was altered"),
    "author": (lambda c: c | {"author": "Bob"}, "it does not fit its own digest: it was altered"),
    "score": (
        lambda c: c | {"records": [c["records"][0] | {"score": 0.1}]},
        "it does not fit its own digest: it was altered",
    ),
    "no digest": (lambda c: {k: v for k, v in c.items() if k != "decision_sha256"}, "decision_sha256"),
    "newer": (resealed(schema_version=2), "not a decision: schema_version"),
    "surplus": (resealed(surplus=1), "not a decision: surplus"),
    "no records": (resealed(records=[]), "not a decision: records"),
    "no reason": (resealed(reason=""), "not a decision: reason"),
    "text score": (
        lambda c: resealed(records=[c["records"][0] | {"score": "0.4"}])(c),
        "not a decision: records.0.score",
    ),
    "a list": (lambda c: [c], "not a decision: decision"),
    "a path": (with_file("../../evil.json"), "not a decision: records.0.file"),
    "an absolute path": (with_file("/etc/evil.json"), "not a decision: records.0.file"),
    "a hidden file": (with_file(".evil.json"), "not a decision: records.0.file"),
}


@pytest.mark.parametrize(("alter", "told"), ALTERED.values(), ids=ALTERED.keys())
def test_a_decision_that_was_altered_is_told_and_not_counted(
    store: RecordStore, alter: Callable[[dict[str, Any]], Any], told: str
) -> None:
    path = accept(store, [kept(store, began=1)], AUTHOR, REASON)
    content = json.loads(path.read_text())
    path.write_text(json.dumps(alter(content)))
    accept(store, [kept(store, began=2)], AUTHOR, "whole")
    error, whole = read_decisions(store)
    assert isinstance(error, RecordError)
    assert str(error).startswith(f"{path.name}: ")
    assert told in str(error)
    assert isinstance(whole, list)
    assert whole[0].reason == "whole"


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"null", b'{"reason": "\\ud800"}', b"NaN", b'{"a": 1e999}'],
)
def test_a_decision_that_cannot_be_read_is_told_by_name(store: RecordStore, content: bytes) -> None:
    path = accept(store, [kept(store)], AUTHOR, REASON)
    path.write_bytes(content)
    (error,) = read_decisions(store)
    assert isinstance(error, RecordError)
    assert str(error).startswith(path.name)


def test_a_decision_that_is_a_folder_is_told_by_name(store: RecordStore) -> None:
    (store.artifacts / "decisions" / "accept_x.json").mkdir(parents=True)
    (error,) = read_decisions(store)
    assert str(error).startswith("accept_x.json cannot be read")


def test_where_there_are_none_there_are_none(store: RecordStore) -> None:
    assert list(read_decisions(store)) == []


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    store = RecordStore(tmp_path_factory.mktemp("whole"))
    return accept(store, [kept(store)], AUTHOR, REASON).read_bytes()


@given(st.data())
@settings(deadline=None)
def test_garbled_bytes_are_the_same_decision_or_refused_by_name(whole: bytes, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(whole) - 1))
    garbage = data.draw(st.binary(max_size=5))
    packed = whole[:position] + garbage + whole[position + len(garbage) + data.draw(st.integers(0, 3)) :]
    said = ""
    try:
        found = parse_decision(packed, "d.json")
    except RecordError as error:
        said = str(error)
    else:
        assert found == parse_decision(whole, "d.json")
    assert said == "" or said.startswith("d.json")


def acceptance(run: float, reason: str, key: tuple[str, str, str] = KEY) -> Acceptance:
    return Acceptance(run_id(run), key, "f.json", "0" * 64, 0.4, AUTHOR, reason, "2026-01-01T00:00:00")


def test_the_newest_decision_about_an_earlier_run_of_the_item_is_taken() -> None:
    found = [
        acceptance(1, "first"),
        acceptance(3, "second"),
        acceptance(2, "third"),
        acceptance(9, "of a later run"),
        acceptance(2, "of another item", ("toy", "shapes", "quantized")),
    ]

    def newest(before: float) -> str | None:
        decision = newest_acceptance(found, KEY, run_id(before))
        return decision.reason if decision is not None else None

    assert [newest(before) for before in (10, 9, 3, 2, 1)] == [
        "of a later run",
        "third",
        "third",
        "first",
        None,
    ]
