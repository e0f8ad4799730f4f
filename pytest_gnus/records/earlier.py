"""Earlier runs of one item, and those of its records that it can be compared with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pytest_gnus.records.store import (
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
    nothing may be made of the record behind them. `passed_over` says why readable ones were.
    """

    record: StoredRecord | None
    unreadable: tuple[UnreadableRecord, ...] = ()
    passed_over: tuple[str, ...] = ()

    @property
    def why_not(self) -> str:
        """A clause on what was passed over, or nothing."""
        told = [*map(str, self.unreadable), *self.passed_over]
        more = f"; and {len(told) - 3} more" if len(told) > 3 else ""
        return f" ({'; '.join(told[:3])}{more})" if told else ""


def earlier_runs(
    store: RecordStore, key: tuple[str, str, str], run_id: str
) -> Iterator[StoredRecord | UnreadableRecord]:
    """Records of an item (niche, benchmark, variant) from runs before `run_id`, the newest run first.

    Siblings, that is records of this run, and later runs are left out. Runs are in the order in which they
    began, which is that of their ids; records come in the order in which they were written, so that one is
    held back until nothing to come can belong to a run that began later.
    """
    held: list[tuple[str, StoredRecord | UnreadableRecord]] = []
    for record in _newest(store.read_all(*key)):
        written = _comparable_stamp(stamp_of(_name(record)))
        # What is still to come was written before this; it cannot be of a run that began after it.
        ready = [entry for entry in held if began(entry[0]) > written]
        yield from _newest_first(ready)
        held = [entry for entry in held if entry not in ready]
        run = record.run_id if isinstance(record, StoredRecord) else stamp_of(_name(record))
        if isinstance(record, UnreadableRecord) or record.run_id < run_id:
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
    """The record that a run made, if it has made one by now."""
    readable = (record for record in islice(records, LOOK_BACK) if isinstance(record, StoredRecord))
    return next((record for record in readable if record.run_id == run_id), None)


def newest_comparable(
    records: Iterable[StoredRecord | UnreadableRecord], fingerprint: Mapping[str, Any]
) -> Found:
    """The first record with a score measured in the same way, whatever weights it measured."""
    return _first(_newest(records), fingerprint, other_than=None)


def previous_run(
    records: Iterable[StoredRecord | UnreadableRecord], fingerprint: Mapping[str, Any], build: str
) -> Found:
    """The newest earlier run to compare a build with, from `earlier_runs`.

    It is one of another build, where there is any: a build that is run again would else be compared with
    itself, and a drop be forgiven by repeating it.
    """
    return _first(records, fingerprint, other_than=build)


def _first(
    records: Iterable[StoredRecord | UnreadableRecord],
    fingerprint: Mapping[str, Any],
    other_than: str | None,
) -> Found:
    unreadable: list[UnreadableRecord] = []
    passed_over: list[str] = []
    same_build: StoredRecord | None = None
    for record in records:
        if isinstance(record, UnreadableRecord):
            unreadable.append(record)
            continue
        problem = not_comparable(record.content, fingerprint)
        if problem is not None:
            passed_over.append(f"{record.path.name}: {problem}")
            continue
        if record.build != other_than:
            return Found(record, tuple(unreadable), tuple(passed_over))
        same_build = same_build or record
    # What could not be read may have been of another build, wherever it stands.
    return Found(same_build, tuple(unreadable), tuple(passed_over))
