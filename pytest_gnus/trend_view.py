"""`gnus trends`: a niche's records over time. A view, made anew each time; it can be thrown away (D-11)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from pytest_gnus.errors import RecordError
from pytest_gnus.gates.regression import relative_drop
from pytest_gnus.records.fingerprint import same_protocol
from pytest_gnus.records.store import RecordStore, StoredRecord, UnreadableRecord, score, write_json

TRENDS_VERSION = 1


@dataclass(frozen=True)
class Point:
    """One run of a series. `drop` is relative to the point before, None where the two do not compare."""

    run_id: str
    timestamp_utc: str
    status: str
    mode: str
    score: float | None
    ci95: tuple[float, float] | None
    n: int | None
    build: str
    drop: float | None
    changed: tuple[str, ...]
    gates: Mapping[str, bool | None]
    consecutive_failures: Mapping[str, int]
    accepted: tuple[str, ...]
    file: str


@dataclass(frozen=True)
class Series:
    """One benchmark on one variant, the oldest run first."""

    benchmark: str
    variant: str
    metric: str | None
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Trends:
    """A niche over time, and the files that should have been part of it."""

    niche: str
    series: tuple[Series, ...]
    unreadable: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; the same records give the same view."""
        return {"schema_version": TRENDS_VERSION, **asdict(self)}


def trends(store: RecordStore, niche: str) -> Trends:
    """The trends of a niche, from its records.

    Raises:
        RecordError: there is no record of it, or the history cannot be listed.
    """
    by_key: dict[tuple[str, str], list[StoredRecord]] = {}
    unreadable = []
    for record in store.newest_first():
        if isinstance(record, UnreadableRecord):
            unreadable.append(str(record))
        elif record.content["niche"] == niche:
            by_key.setdefault(record.key[1:], []).append(record)
    if not by_key:
        raise RecordError(f"there is no record of the niche {niche!r} in {store.folder}")
    series = tuple(_series(*key, records) for key, records in sorted(by_key.items()))
    return Trends(niche, series, tuple(unreadable))


def _series(benchmark: str, variant: str, records: Sequence[StoredRecord]) -> Series:
    ordered = sorted(records, key=lambda record: (record.run_id, record.stamp))
    metric = ordered[-1].content["results"][benchmark]["metric"]
    return Series(benchmark, variant, metric, tuple(_points(benchmark, ordered)))


def _points(benchmark: str, records: Sequence[StoredRecord]) -> Iterator[Point]:
    before: StoredRecord | None = None
    for record in records:
        content = record.content
        results = content["results"][benchmark]
        measured = score(content)
        changed: tuple[str, ...] = ()
        if before is not None and measured is not None:
            changed = tuple(same_protocol(before.content["fingerprint"], content["fingerprint"]))
        old = score(before.content) if before else None
        comparable = measured is not None and old is not None and not changed
        yield Point(
            run_id=record.run_id,
            timestamp_utc=content["timestamp_utc"],
            status=content["status"],
            mode=content["mode"] if content["limit"] is None else f"limit {content['limit']}",
            score=measured,
            ci95=tuple(results["ci95"]) if results["ci95"] else None,
            n=results["n"],
            build=record.build,
            drop=relative_drop(measured, old, higher_is_better=results["higher_is_better"] is not False)
            if comparable and measured is not None and old is not None
            else None,
            changed=changed,
            gates={gate["name"]: gate["passed"] for gate in content["gates"]},
            consecutive_failures={
                gate["name"]: gate["consecutive_failures"]
                for gate in content["gates"]
                if gate["consecutive_failures"]
            },
            accepted=tuple(gate["accepted"] for gate in content["gates"] if gate["accepted"]),
            file=record.path.name,
        )
        if measured is not None:
            before = record


def write(store: RecordStore, view: Trends) -> Path:
    """Write the view to `trends/<niche>.json`; returns its path."""
    path = store.artifacts / "trends" / f"{view.niche}.json"
    write_json(path, view.to_json())
    return path


def render(view: Trends, last: int) -> str:
    """The newest `last` runs of each series, the newest at the bottom."""
    parts = []
    for series in view.series:
        parts += [f"{series.benchmark} [{view.niche}-{series.variant}] {series.metric or ''}".rstrip()]
        rows = [_row(point) for point in series.points[-last:]]
        headers = ["run", "score", "95 %", "n", "drop", "build", "status", "does not hold", "remarks"]
        parts.append(tabulate(rows, headers=headers, disable_numparse=True))
        hidden = len(series.points) - last
        parts.append(f"({hidden} earlier runs not shown)" if hidden > 0 else "")
    parts += [f"cannot be read: {problem}" for problem in view.unreadable]
    return "\n".join(parts)


def _row(point: Point) -> list[str]:
    broken = [_broken(point, name) for name, passed in point.gates.items() if passed is False]
    remarks = [
        *([point.mode] if point.mode != "canonical" else []),
        *([f"changed: {', '.join(point.changed)}"] if point.changed else []),
        *point.accepted,
    ]
    return [
        point.run_id,
        "-" if point.score is None else f"{point.score:.4f}",
        f"{point.ci95[0]:.4f} to {point.ci95[1]:.4f}" if point.ci95 else "-",
        "-" if point.n is None else str(point.n),
        "-" if point.drop is None else f"{point.drop:+.1%}",
        point.build[:8],
        point.status,
        ", ".join(broken),
        "; ".join(remarks),
    ]


def _broken(point: Point, gate: str) -> str:
    count = point.consecutive_failures.get(gate)
    return f"{gate} ({count} in a row)" if count else gate
