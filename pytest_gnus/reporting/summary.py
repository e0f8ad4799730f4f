"""Gathers the finished items of a run on the controller, writes records and verdicts, keeps rows to show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_gnus.errors import RecordError
from pytest_gnus.gates.verdict import ItemOutcome, NicheVerdict, niche_verdict
from pytest_gnus.records.store import STAMP, RecordStore, write_json
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


class RunSummary:
    """What a run has come to so far."""

    def __init__(self, store: RecordStore, run_id: str, niches: Sequence[Niche], settings: Settings) -> None:
        self._store = store
        self._run_id = run_id
        self._niches = niches
        self._settings = settings
        self._not_gated: str | None = None
        self.rows: list[Row] = []
        self.verdicts: list[NicheVerdict] = []
        self.write_errors: list[str] = []
        self.reporter_errors: list[str] = []
        self.changed_exit_status = False

    def take(self, finished: FinishedItem, seconds: float) -> None:
        """Write the item's record at once, so that nothing measured is lost with the session."""
        path = None
        if finished.record is not None:
            try:
                path = self._store.write(finished.record, finished.samples)
            except (OSError, RecordError) as error:
                self.write_errors.append(f"{finished.outcome.name}: {error}")
        if finished.artifact is not None:
            self._write_artifact(finished.artifact)
        self._not_gated = finished.not_gated or self._not_gated
        self.rows.append(
            Row(finished.niche, finished.outcome, finished.record, path, seconds, finished.artifact)
        )

    def _write_artifact(self, artifact: Mapping[str, Any]) -> None:
        moment = datetime.fromisoformat(artifact["timestamp_utc"]).strftime(STAMP)
        name = f"{artifact['niche']}_sgfp4_{artifact['variant']}_{moment}.json"
        try:
            write_json(self._store.artifacts / "sgfp4" / name, artifact)
        except OSError as error:
            self.write_errors.append(f"sgfp4 of {artifact['niche']}: {error}")

    def close(self, without_artifact: Sequence[str] = ()) -> None:
        """Make and write the verdict of each niche of which something ran.

        `without_artifact` are niches whose quantized weights are not in SGFP4.
        """
        for niche in self._niches:
            rows = [row for row in self.rows if row.niche == niche.niche]
            if rows:
                verdict = niche_verdict(
                    niche.niche,
                    niche.benchmarks.blocking,
                    [row.outcome for row in rows],
                    not_gated=self._not_gated,
                    without_artifact=niche.niche in without_artifact,
                )
                self.verdicts.append(verdict)
                self._write(verdict, rows)

    def _write(self, verdict: NicheVerdict, rows: Sequence[Row]) -> None:
        content = {
            "schema_version": VERDICT_VERSION,
            **asdict(verdict),
            "run_id": self._run_id,
            "timestamp_utc": datetime.now(UTC).isoformat(timespec="microseconds"),
            "mode": self._settings.mode,
            "outcomes": [asdict(row.outcome) for row in rows],
            "records": [f"benchmarks/{row.path.name}" for row in rows if row.path is not None],
        }
        try:
            write_json(self._store.artifacts / "verdicts" / f"{verdict.niche}.json", content)
        except OSError as error:
            self.write_errors.append(f"verdict of {verdict.niche}: {error}")

    @property
    def must_not_pass(self) -> bool:
        """Whether a session without failures still must not exit with 0: see `NicheVerdict.must_fail`.

        So it is too where a record or a verdict was lost.
        """
        return bool(self.write_errors) or any(verdict.must_fail for verdict in self.verdicts)
