"""Runs by their names: an id or the beginning of one, `latest`, `previous`, or the file of a record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pytest_gnus.errors import RecordError, did_you_mean, listed
from pytest_gnus.records.earlier import began
from pytest_gnus.records.store import RecordStore, StoredRecord, UnreadableRecord, read, score

LATEST = "latest"
PREVIOUS = "previous"


@dataclass(frozen=True)
class RecordedRun:
    """The records of one run; of one file, where that was named."""

    run_id: str
    records: tuple[StoredRecord, ...]
    is_file: bool = False

    @property
    def keys(self) -> set[tuple[str, str, str]]:
        return {record.key for record in self.records}


@dataclass
class Runs:
    """Finds runs in a store. `unreadable` gathers what could not be read on the way."""

    store: RecordStore
    unreadable: list[UnreadableRecord] = field(default_factory=list)

    def pair(self, first: str, second: str) -> tuple[RecordedRun, RecordedRun]:
        """Two runs; `previous` is the newest before the other one with a score of a benchmark of its.

        Raises:
            RecordError: one of them is not there, or a name fits several.
        """
        if PREVIOUS not in (first, second):
            return self.named(first), self.named(second)
        if first == second:
            raise RecordError("previous is a run before another one: name that one, for example `latest`")
        other = self.named(second if first == PREVIOUS else first)
        before = self._newest(before=other.run_id, sharing=other.keys)
        if before is None:
            raise RecordError(f"there is no run before {other.run_id} with a score of one of its benchmarks")
        return (before, other) if first == PREVIOUS else (other, before)

    def named(self, name: str) -> RecordedRun:
        """One run.

        Raises:
            RecordError: there is none of that name, or there are several.
        """
        file = next((path for path in (Path(name), self.store.folder / name) if path.is_file()), None)
        if file is not None:
            record = StoredRecord(file, read(file))
            return RecordedRun(record.run_id, (record,), is_file=True)
        if name == LATEST:
            latest = self._newest()
            if latest is None:
                raise RecordError(f"there is no record in {self.store.folder}")
            return latest
        if name == PREVIOUS:
            raise RecordError("previous is a run before another one: it needs two runs")
        return self._of_id(name)

    def _of_id(self, name: str) -> RecordedRun:
        found: dict[str, list[StoredRecord]] = {}
        known: set[str] = set()
        for record in self._records():
            # A run's records are written after it began, and its id begins with that moment.
            if name[:1].isdigit() and record.stamp < name and not record.stamp.startswith(name):
                break
            known.add(record.run_id)
            if record.run_id.startswith(name):
                found.setdefault(record.run_id, []).append(record)
        if name in found:
            return RecordedRun(name, tuple(found[name]))
        if len(found) > 1:
            raise RecordError(f"{name!r} is the beginning of several runs: {listed(sorted(found))}")
        if not found:
            hint = did_you_mean(name, known)
            raise RecordError(
                f"there is no run {name!r} in {self.store.folder}; allowed: a run id, the beginning of one, "
                f"{LATEST}, {PREVIOUS}, or the file of a record. {hint}".rstrip()
            )
        ((run_id, records),) = found.items()
        return RecordedRun(run_id, tuple(records))

    def _newest(
        self, before: str | None = None, sharing: set[tuple[str, str, str]] | None = None
    ) -> RecordedRun | None:
        """The run that began last (before another one, with a key in common)."""
        best = ""
        found: dict[str, list[StoredRecord]] = {}
        for record in self._records():
            if best and record.stamp < began(best):
                break
            if before is not None and record.run_id >= before:
                continue
            found.setdefault(record.run_id, []).append(record)
            if sharing is None or (record.key in sharing and score(record.content) is not None):
                best = max(best, record.run_id)
        return RecordedRun(best, tuple(found[best])) if best else None

    def _records(self) -> Iterable[StoredRecord]:
        for record in self.store.newest_first():
            if isinstance(record, UnreadableRecord):
                self.unreadable.append(record)
            else:
                yield record
