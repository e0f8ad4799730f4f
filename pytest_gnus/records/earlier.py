"""Earlier runs of one item, and those of its records that it can be compared with."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pytest_gnus.records.store import (
    STAMP,
    RecordStore,
    StoredRecord,
    UnreadableRecord,
    never_compared,
    not_comparable,
    stamp_of,
)

#: So many of an item's records, the newest that can be compared with anything, are looked through: a run
#: costs the same with a long history.
LOOK_BACK = 100

_RUN_STAMP = re.compile(r"^\d{8}T\d{6}(\.\d{6})?Z")


@dataclass(frozen=True)
class Found:
    """A record to compare with, or why there is none.

    `unreadable` are files that stand where a newer one may have been: what they held is not known, so that
    nothing may be made of the record behind them. `passed_over` says why readable ones were; `not_held`
    counts those of runs that are no measure of what is good enough.
    """

    record: StoredRecord | None
    unreadable: tuple[UnreadableRecord, ...] = ()
    passed_over: tuple[str, ...] = ()
    not_held: int = 0

    @property
    def why_not(self) -> str:
        """A clause on what was passed over, or nothing."""
        told = [*map(str, self.unreadable), *self.passed_over]
        more = f"; and {len(told) - 3} more" if len(told) > 3 else ""
        return f" ({'; '.join(told[:3])}{more})" if told else ""


def earlier_runs(
    store: RecordStore, key: tuple[str, str, str], run_id: str, now: datetime | None = None
) -> Iterator[StoredRecord | UnreadableRecord]:
    """Records of an item (niche, benchmark, variant) from runs before `run_id`, the newest run first.

    Siblings, that is records of this run, and later runs are left out. Runs are in the order in which they
    began, which is that of their ids; records come in the order in which they were written, so that one is
    held back until nothing to come can belong to a run that began later.

    What is there now and says that it began later than now did not: a clock is wrong, or was. It is taken for
    earlier, since leaving it out could only help a build.
    """
    present = (now or datetime.now(UTC)).strftime(STAMP)
    held: list[tuple[str, StoredRecord | UnreadableRecord]] = []
    for record in _newest(store.read_all(*key)):
        written = _comparable_stamp(stamp_of(_name(record)))
        # What is still to come was written before this; it cannot be of a run that began after it.
        ready = [entry for entry in held if began(entry[0]) > written]
        yield from _newest_first(ready)
        held = [entry for entry in held if entry not in ready]
        run = record.run_id if isinstance(record, StoredRecord) else stamp_of(_name(record))
        if isinstance(record, UnreadableRecord) or record.run_id < run_id or began(record.run_id) > present:
            held.append((run, record))
    yield from _newest_first(held)


def _newest(
    records: Iterable[StoredRecord | UnreadableRecord],
) -> Iterator[StoredRecord | UnreadableRecord]:
    counted = 0
    for record in records:
        yield record
        # Any number of errors and of runs with a limit must not hide those that count.
        counted += isinstance(record, UnreadableRecord) or never_compared(record.content) is None
        if counted >= LOOK_BACK:
            return


def _newest_first(
    entries: list[tuple[str, StoredRecord | UnreadableRecord]],
) -> Iterator[StoredRecord | UnreadableRecord]:
    for _, record in sorted(entries, key=lambda entry: (began(entry[0]), entry[0]), reverse=True):
        yield record


def _name(record: StoredRecord | UnreadableRecord) -> str:
    return record.path.name if isinstance(record, StoredRecord) else record.name


def began(run: str) -> str:
    """When a run began, by its id; a foreign id tells nothing, so that its record is held to the end."""
    match = _RUN_STAMP.match(run)
    return _comparable_stamp(match[0]) if match else ""


def _comparable_stamp(stamp: str) -> str:
    """A stamp with its microseconds, so that stamps compare as text."""
    return stamp if "." in stamp else f"{stamp.removesuffix('Z')}.000000Z"


def of_run(records: Iterable[StoredRecord | UnreadableRecord], run_id: str) -> StoredRecord | None:
    """The record that a run made, if it has made one by now; `records` are the newest first."""
    for record in records:
        if _comparable_stamp(stamp_of(_name(record))) < began(run_id):
            return None  # this and all that follow were written before the run began
        if isinstance(record, StoredRecord) and record.run_id == run_id:
            return record
    return None


def newest_comparable(
    records: Iterable[StoredRecord | UnreadableRecord],
    fingerprint: Mapping[str, Any],
    weights: str | None = None,
) -> Found:
    """The first record with a score measured in the same way.

    Args:
        weights: the `model_manifest_sha256` that it must have; None for any.
    """
    search = _Search(fingerprint)
    for record in search.comparable(_newest(records)):
        if weights in (None, record.content["fingerprint"]["model_manifest_sha256"]):
            return search.found(record)
        search.passed_over.append(f"{record.path.name}: of other weights than the model has now")
    return search.found(None)


def previous_run(
    records: Iterable[StoredRecord | UnreadableRecord],
    fingerprint: Mapping[str, Any],
    build: str,
    held: Callable[[StoredRecord], bool] = lambda _record: True,
) -> Found:
    """The newest earlier run to compare a build with, from `earlier_runs`.

    It is one that held, and one of another build, where there is any: a drop must not be forgiven because
    it was there before, be it that of a build that is run again, or of one that differs in a trifle.
    """
    search = _Search(fingerprint)
    same_build: StoredRecord | None = None
    not_held = 0
    for record in search.comparable(records):
        if not held(record):
            not_held += 1
        elif record.build != build:
            return search.found(record, not_held)
        else:
            same_build = same_build or record
    # What could not be read may have been of another build, wherever it stands.
    return search.found(same_build, not_held)


class _Search:
    """Goes through records and notes what it passes over."""

    def __init__(self, fingerprint: Mapping[str, Any]) -> None:
        self._fingerprint = fingerprint
        self._unreadable: list[UnreadableRecord] = []
        self.passed_over: list[str] = []

    def comparable(self, records: Iterable[StoredRecord | UnreadableRecord]) -> Iterator[StoredRecord]:
        for record in records:
            if isinstance(record, UnreadableRecord):
                self._unreadable.append(record)
                continue
            problem = not_comparable(record.content, self._fingerprint)
            if problem is None:
                yield record
            else:
                self.passed_over.append(f"{record.path.name}: {problem}")

    def found(self, record: StoredRecord | None, not_held: int = 0) -> Found:
        return Found(record, tuple(self._unreadable), tuple(self.passed_over), not_held)
