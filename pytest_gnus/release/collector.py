"""Gathers the finished items of a run on the controller, writes records and verdicts, keeps rows to show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_gnus.errors import RecordError
from pytest_gnus.gates.result import GateResult, not_evaluated
from pytest_gnus.gates.trends import COMPOSITE
from pytest_gnus.gates.verdict import ItemOutcome, Missing, NicheVerdict, niche_verdict
from pytest_gnus.judging import References
from pytest_gnus.niche_judging import NicheJudging, fallen_benchmarks
from pytest_gnus.plan import ArtifactItem, BenchmarkItem, not_gated_because
from pytest_gnus.records.store import STAMP, StoredRecord, read, write_json
from pytest_gnus.release.evidence import Identities, missing_item, name_of, sealed
from pytest_gnus.repairs import repair_report
from pytest_gnus.reporting import repair
from pytest_gnus.run import FinishedItem
from pytest_gnus.schema import Niche
from pytest_gnus.settings import Settings

VERDICT_VERSION = 1


@dataclass(frozen=True)
class Row:
    """One finished item as the summary shows it."""

    niche: str
    outcome: ItemOutcome
    record: Mapping[str, Any] | None
    path: Path | None
    seconds: float
    artifact: Mapping[str, Any] | None = None
    #: What the item came to before it was run again in this run.
    before: tuple[ItemOutcome, ...] = ()


class RunSummary:
    """What a run has come to so far."""

    def __init__(
        self,
        references: References,
        niches: Sequence[Niche],
        settings: Settings,
        failures_to_block: Mapping[str, int],
        required: Mapping[str, Sequence[ArtifactItem | BenchmarkItem]],
        identities: Identities,
    ) -> None:
        self._references = references
        self._store = references.store
        self._run_id = references.run_id
        self._niches = niches
        self._settings = settings
        self._failures_to_block = failures_to_block
        self._required = required
        self._identities = identities
        self._not_gated = not_gated_because(settings.mode, settings.limit)
        self._failed: set[str] = set()
        self.rows: list[Row] = []
        self.verdicts: list[NicheVerdict] = []
        self.repairs: dict[str, Path] = {}
        self.write_errors: list[str] = []
        self.reporter_errors: list[str] = []
        self.changed_exit_status = False
        self.passes_although_blocked: list[str] = []

    def take(
        self,
        finished: FinishedItem,
        seconds: float,
        *,
        again: bool = False,
        lost: bool = False,
        failed: bool = False,
    ) -> Row:
        """Write the item's record at once, so that nothing measured is lost with the session.

        An item has one row, however often it is run.

        Args:
            again: it was run again and came to nothing new; its record is there.
            lost: the worker that ran it died; it was not run again.
            failed: pytest counts the item as failed; a mark of a user's may keep it from that.
        """
        if failed:
            self._failed.add(finished.niche)
        earlier = next((row for row in self.rows if _is_of_one_item(row, finished)), None)
        before = (*earlier.before, *([] if lost else [earlier.outcome])) if earlier is not None else ()
        if earlier is not None and again:
            return self._put(replace(earlier, seconds=seconds, before=before), earlier)
        record, artifact, path = finished.record, finished.artifact, None
        if record is not None:
            record = {**record, "reruns": len(before)}
            try:
                path = self._store.write(record, finished.samples)
            except (OSError, RecordError) as error:
                self.write_errors.append(f"{finished.outcome.name}: {error}")
        if artifact is not None:
            artifact = {**artifact, "reruns": len(before)}
            self._write_artifact(artifact)
        if lost and earlier is not None and record is None and artifact is None:
            record, artifact, path = earlier.record, earlier.artifact, earlier.path
        row = Row(finished.niche, finished.outcome, record, path, seconds, artifact, before)
        return self._put(row, earlier)

    def _put(self, row: Row, earlier: Row | None) -> Row:
        if earlier is None:
            self.rows.append(row)
        else:
            self.rows[self.rows.index(earlier)] = row
        return row

    def _write_artifact(self, artifact: Mapping[str, Any]) -> None:
        moment = datetime.fromisoformat(artifact["timestamp_utc"]).strftime(STAMP)
        name = f"{artifact['niche']}_sgfp4_{artifact['variant']}_{moment}.json"
        try:
            write_json(self._store.artifacts / "sgfp4" / name, sealed(artifact))
        except OSError as error:
            self.write_errors.append(f"sgfp4 of {artifact['niche']}: {error}")

    def fail_teardown(self, row: Row, detail: str) -> None:
        """What was set up for an item could not be taken down: the item is an ERROR after all."""
        self._failed.add(row.niche)
        outcome = replace(row.outcome, status="error", detail=f"its teardown failed: {detail}")
        self._put(replace(row, outcome=outcome), row)

    def begin(self) -> None:
        """Take back the verdict of each niche: from now until the end of the run it is not known."""
        for niche in self._niches:
            self._write(NicheVerdict(niche.niche, "block", ("not finished",), (), (), must_fail=True), [])

    def close(
        self, without_artifact: Sequence[str] = (), *, part: bool = False, ended: str | None = None
    ) -> None:
        """Make and write the verdict of each niche.

        Args:
            without_artifact: niches whose quantized weights are not in SGFP4.
            part: whether a part of the niches was asked for.
            ended: how the session ended, if not by itself.
        """
        self._upload()
        for niche in self._niches:
            rows = [row for row in self.rows if row.niche == niche.niche]
            verdict = self._verdict(niche, rows, without_artifact, part=part, ended=ended)
            if not self._write(verdict, rows):
                verdict = replace(
                    verdict,
                    verdict="block",
                    reasons=(*self._problems(ended), *verdict.reasons),
                    must_fail=True,
                )
            self.verdicts.append(verdict)
            if rows and verdict.must_fail:
                self._suggest_repairs(niche.niche, rows)

    def _verdict(
        self,
        niche: Niche,
        rows: Sequence[Row],
        without_artifact: Sequence[str],
        *,
        part: bool,
        ended: str | None,
    ) -> NicheVerdict:
        required = {name_of(item): item for item in self._required.get(niche.niche, ())}
        of_benchmarks = [(name, "quantized") for name in niche.benchmarks.blocking]
        missing = self._missing(required, rows)
        quantized = self._quantized(niche, rows, missing)
        return niche_verdict(
            niche.niche,
            # A niche that names no quantized weights lacks them, whatever else it has.
            list(dict.fromkeys([*required, *of_benchmarks])) if of_benchmarks else [],
            [row.outcome for row in rows],
            missing=missing,
            part=part,
            problems=self._problems(ended),
            not_gated=self._not_gated,
            without_artifact=bool(rows) and niche.niche in without_artifact,
            gates=self._niche_gates(niche, quantized),
            warnings=(
                *fallen_benchmarks(quantized),
                *(self._problems_of_decisions() if rows else ()),
                *_measured_after_errors(rows),
            ),
        )

    def _problems(self, ended: str | None) -> list[str]:
        """What keeps the run as a whole from promoting anything."""
        lost = f"records could not be written: {'; '.join(self.write_errors)}" if self.write_errors else None
        return [text for text in (ended, lost) if text is not None]

    def _missing(
        self, required: Mapping[tuple[str, str], ArtifactItem | BenchmarkItem], rows: Sequence[Row]
    ) -> list[Missing]:
        """What earlier runs say of the blocking items that this run has not measured."""
        if not rows or self._not_gated:
            return []
        measured = {(row.outcome.benchmark, row.outcome.variant) for row in rows}
        return [
            missing_item(item, self._store, self._run_id, self._identities)
            for key, item in required.items()
            if key not in measured
        ]

    def _problems_of_decisions(self) -> list[str]:
        return [] if self._not_gated else self._references.decision_problems

    def _suggest_repairs(self, niche: str, rows: Sequence[Row]) -> None:
        """Write what a person should look at. A report that cannot be made changes no verdict."""
        failed = [
            row.outcome.benchmark
            for row in rows
            if row.outcome.blocking and row.outcome.status in ("failed", "warned")
        ]
        try:
            records = [StoredRecord(row.path, read(row.path)) for row in rows if row.path is not None]
            report = repair_report(self._store, niche, self._run_id, records, list(dict.fromkeys(failed)))
            if report is not None:
                self.repairs[niche] = repair.write(self._store, report)
        except (OSError, RecordError) as error:
            self.write_errors.append(f"repair report of {niche}: {error}")

    @staticmethod
    def _quantized(
        niche: Niche, rows: Sequence[Row], missing: Sequence[Missing]
    ) -> dict[str, Mapping[str, Any]]:
        """The records of a niche's blocking benchmarks on what ships, those of earlier runs included."""
        earlier = {
            entry.key[0]: entry.record
            for entry in missing
            if entry.record is not None
            and entry.key[1] == "quantized"
            and entry.key[0] in niche.benchmarks.blocking
        }
        return earlier | {
            row.outcome.benchmark: row.record
            for row in rows
            if row.record is not None
            and row.outcome.variant == "quantized"
            and row.outcome.benchmark in niche.benchmarks.blocking
        }

    def _niche_gates(self, niche: Niche, records: Mapping[str, Mapping[str, Any]]) -> list[GateResult]:
        if self._not_gated or not records:
            return []
        judging = NicheJudging(
            niche.niche,
            niche.benchmarks.blocking,
            self._references,
            self._failures_to_block[niche.niche],
        )
        try:
            return [judging.composite(records)]
        except RecordError as error:
            return [not_evaluated(COMPOSITE, f"the history cannot be read: {error}")]

    def _upload(self) -> None:
        """Put what this run recorded into the remote history, each record on its own."""
        if self._store.remote is None:
            return
        for row in self.rows:
            if row.path is None:
                continue
            try:
                self._store.remote.add_record(row.path, read(row.path))
            except (OSError, RecordError) as error:
                self.write_errors.append(f"history: {error}")

    def _write(self, verdict: NicheVerdict, rows: Sequence[Row]) -> bool:
        """Write the verdict of a niche in the place of the last one; False where that failed."""
        content = {
            "schema_version": VERDICT_VERSION,
            **asdict(verdict),
            "run_id": self._run_id,
            "timestamp_utc": datetime.now(UTC).isoformat(timespec="microseconds"),
            "mode": self._settings.mode,
            "outcomes": [asdict(row.outcome) | {"reruns": len(row.before)} for row in rows],
            "records": [f"benchmarks/{row.path.name}" for row in rows if row.path is not None],
        }
        try:
            write_json(self._store.artifacts / "verdicts" / f"{verdict.niche}.json", content)
        except OSError as error:
            self.write_errors.append(f"verdict of {verdict.niche}: {error}")
            return False
        return True

    def note_pass(self) -> None:
        """The session exits with 0: keep in mind of which niches that says nothing."""
        promoted = {verdict.niche for verdict in self.verdicts if verdict.verdict == "promote"}
        self.passes_although_blocked = [n.niche for n in self._niches if n.niche not in promoted]

    @property
    def must_not_pass(self) -> bool:
        """Whether a session without failures still must not exit with 0: see `NicheVerdict.must_fail`.

        So it is too where a record or a verdict was lost.
        """
        return bool(self.write_errors) or any(verdict.must_fail for verdict in self.verdicts)

    @property
    def blocked_without_failure(self) -> list[NicheVerdict]:
        """Verdicts that the session must not pass with although pytest counts no item of theirs as failed."""
        return [
            verdict for verdict in self.verdicts if verdict.must_fail and verdict.niche not in self._failed
        ]


def _is_of_one_item(row: Row, finished: FinishedItem) -> bool:
    return (row.niche, row.outcome.name) == (finished.niche, finished.outcome.name)


def _measured_after_errors(rows: Sequence[Row]) -> list[str]:
    """What passed or failed only in a rerun."""
    return [
        f"{row.outcome.name} was measured in rerun {len(row.before)}; before that: error: {errors[-1]}"
        for row in rows
        if row.outcome.status != "error"
        for errors in [[outcome.detail for outcome in row.before if outcome.status == "error"]]
        if errors
    ]
