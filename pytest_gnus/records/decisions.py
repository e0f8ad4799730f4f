"""Decisions of a person to accept a lower score: append-only files, each about the records of one run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pytest_gnus.errors import RecordError
from pytest_gnus.records.fingerprint import canonical_sha256
from pytest_gnus.records.store import STAMP, RecordStore, StoredRecord, json_bytes, score, write_new

if TYPE_CHECKING:
    from pytest_gnus.records.remote import RemoteHistory

DECISION_VERSION: Literal[1] = 1
_Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Text = Annotated[str, Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class AcceptedRecord(_Strict):
    """A record that a decision is about."""

    file: _Text
    record_sha256: _Sha256
    niche: _Text
    benchmark: _Text
    variant: _Text
    score: Annotated[float, Field(allow_inf_nan=False)]


class Decision(_Strict):
    """One file of decisions."""

    schema_version: Literal[1]
    run_id: _Text
    timestamp_utc: _Text
    author: _Text
    reason: _Text
    records: list[AcceptedRecord] = Field(min_length=1)
    decision_sha256: _Sha256


@dataclass(frozen=True)
class Acceptance:
    """One accepted record: its score is a reference point from then on."""

    run_id: str
    key: tuple[str, str, str]
    file: str
    record_sha256: str
    score: float
    author: str
    reason: str
    timestamp_utc: str

    def __str__(self) -> str:
        return (
            f"accepted by {self.author} on {self.timestamp_utc[:10]}: {self.reason} "
            f"(run {self.run_id}, score {self.score:.4f})"
        )


def accept(store: RecordStore, records: Sequence[StoredRecord], author: str, reason: str) -> Path:
    """Write the decision that the scores of a run's records are accepted; uploads it where there is a remote.

    Raises:
        RecordError: there is nothing to accept, the reason or the author is empty, or it cannot be written.
    """
    if not reason.strip() or not author.strip():
        raise RecordError("a decision needs a reason and an author")
    scored = [record for record in records if score(record.content) is not None]
    if not scored:
        raise RecordError("there is no score to accept")
    runs = {record.run_id for record in scored}
    if len(runs) != 1:
        raise RecordError(f"a decision is about one run, not {len(runs)}")
    moment = datetime.now(UTC)
    content: dict[str, Any] = {
        "schema_version": DECISION_VERSION,
        "run_id": runs.pop(),
        "timestamp_utc": moment.isoformat(timespec="microseconds"),
        "author": author.strip(),
        "reason": reason.strip(),
        "records": [_named(record) for record in scored],
    }
    content["decision_sha256"] = decision_digest(content)
    path = folder(store) / f"accept_{moment.strftime(STAMP)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        write_new(path, json_bytes(content))
    except FileExistsError:
        raise RecordError(f"{path.name} is there already; decisions are never overwritten") from None
    if store.remote is not None:
        store.remote.add_decision(path)
    return path


def _named(record: StoredRecord) -> dict[str, Any]:
    content = record.content
    return {
        "file": record.path.name,
        "record_sha256": content["record_sha256"],
        "niche": content["niche"],
        "benchmark": content["benchmark"],
        "variant": content["variant"],
        "score": score(content),
    }


def folder(store: RecordStore) -> Path:
    return store.artifacts / "decisions"


def read_decisions(store: RecordStore) -> Iterator[list[Acceptance] | RecordError]:
    """What each decision accepts, the oldest first; one that cannot be read as an error that names it."""
    here = sorted(path.name for path in folder(store).glob("*.json"))
    there = store.remote.decisions() if store.remote is not None else []
    for name in sorted({*here, *there}):
        try:
            if name in here:
                packed = (folder(store) / name).read_bytes()
            else:
                packed = cast("RemoteHistory", store.remote).fetch_decision(name)
            yield parse_decision(packed, name)
        except RecordError as error:
            yield error
        except OSError as error:
            yield RecordError(f"{name} cannot be read: {error}")


def parse_decision(packed: bytes, name: str) -> list[Acceptance]:
    """What a decision accepts.

    Raises:
        RecordError: it cannot be read, is newer than this package, or was altered.
    """
    try:
        content = json.loads(packed.decode("utf-8"))
        decision = Decision.model_validate(content)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"])) or "decision"
        raise RecordError(f"{name}: not a decision: {where}: {fault['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{name} cannot be read: {error}") from error
    if decision_digest(content) != decision.decision_sha256:
        raise RecordError(f"{name}: it does not fit its own digest: it was altered")
    return [
        Acceptance(
            run_id=decision.run_id,
            key=(entry.niche, entry.benchmark, entry.variant),
            file=entry.file,
            record_sha256=entry.record_sha256,
            score=entry.score,
            author=decision.author,
            reason=decision.reason,
            timestamp_utc=decision.timestamp_utc,
        )
        for entry in decision.records
    ]


def decision_digest(content: Mapping[str, Any]) -> str:
    """The SHA-256 that a decision carries of itself, over all of it but that key."""
    return canonical_sha256({key: value for key, value in content.items() if key != "decision_sha256"})


def newest_acceptance(
    decisions: Sequence[Acceptance], key: tuple[str, str, str], before_run: str
) -> Acceptance | None:
    """The newest decision about an item, from `read_decisions`, on a run before `before_run`."""
    return next((a for a in reversed(decisions) if a.key == key and a.run_id < before_run), None)
