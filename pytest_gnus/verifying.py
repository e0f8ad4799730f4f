"""`gnus verify`: whether every record and decision still is what was written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pytest_gnus.errors import RecordError
from pytest_gnus.records import decisions
from pytest_gnus.records.store import RecordStore, StoredRecord, UnreadableRecord

_OUTCOMES = ".samples.jsonl.gz"
_RECORD_NAME = re.compile(r"_\d{8}T\d{6}\.\d{6}Z\.json$")


@dataclass(frozen=True)
class Verification:
    """How many were looked at, and each fault, by file."""

    records: int
    outcomes: int
    decisions: int
    faults: tuple[str, ...]

    def text(self) -> str:
        seen = f"{self.records} records, {self.outcomes} files of outcomes, {self.decisions} decisions"
        if not self.faults:
            return f"{seen}: all as they were written"
        count = f"{len(self.faults)} fault{'s' if len(self.faults) > 1 else ''}"
        return "\n".join([*self.faults, f"{seen}: {count}"])


def verify(store: RecordStore) -> Verification:
    """Check every record's schema, its own digest and its fingerprint's, its outcomes, and every decision.

    Raises:
        RecordError: there is no record; the remote history cannot be listed.
    """
    records = outcomes = 0
    faults: list[str] = []
    for record in store.newest_first():
        records += 1
        if isinstance(record, UnreadableRecord):
            faults.append(str(record))
            continue
        if record.path.name != f"{store.stem(record.content)}.json":
            faults.append(
                f"{record.path.name}: its name is not that of its content: it was renamed or copied"
            )
        if record.content["samples"] is not None:
            outcomes += 1
            faults += _fault_of_outcomes(store, record)
    faults += [f"{path.name}: not the name of a record" for path in _foreign(store.folder)]
    faults += [f"{path.name}: the record that it belongs to is gone" for path in _orphans(store.folder)]
    decided = 0
    for decision in decisions.read_decisions(store):
        decided += 1
        if isinstance(decision, RecordError):
            faults.append(str(decision))
        else:
            faults += [fault for entry in decision for fault in _fault_of_decision(store, entry)]
    if not (records or decided or faults):
        raise RecordError(f"there is no record in {store.folder}")
    return Verification(records, outcomes, decided, tuple(faults))


def _fault_of_outcomes(store: RecordStore, record: StoredRecord) -> list[str]:
    try:
        store.read_samples(record)
    except RecordError as error:
        return [f"{record.path.name}: {error}"]
    return []


def _fault_of_decision(store: RecordStore, accepted: decisions.Acceptance) -> list[str]:
    told = f"the decision on run {accepted.run_id}"
    try:
        record = store.get(accepted.key, accepted.file)
    except RecordError as error:
        return [f"{told}: {error}"]
    if record.content["record_sha256"] != accepted.record_sha256:
        return [f"{told}: {accepted.file} is not the record that was accepted"]
    return []


def _foreign(folder: Path) -> list[Path]:
    """Files that end as a record does and are not named as one: no gate ever reads them."""
    return [path for path in sorted(folder.glob("*.json")) if not _RECORD_NAME.search(path.name)]


def _orphans(folder: Path) -> list[Path]:
    """Outcomes whose record was taken away: a row of failures may have been cut short that way."""
    return [
        path
        for path in sorted(folder.glob(f"*{_OUTCOMES}"))
        if not path.with_name(f"{path.name.removesuffix(_OUTCOMES)}.json").exists()
    ]
