"""`gnus accept`: a person's decision that a run's lower scores are the new reference point."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from pytest_gnus.errors import RecordError, listed
from pytest_gnus.records import decisions
from pytest_gnus.records.runs import RecordedRun
from pytest_gnus.records.store import RecordStore, StoredRecord, score


def accept(store: RecordStore, run: RecordedRun, reason: str, benchmarks: Sequence[str] = ()) -> str:
    """Write the decision; returns what was decided, as text.

    Args:
        benchmarks: only these; all of the run without any.

    Raises:
        RecordError: there is nothing that can be accepted, or git knows no author.
    """
    records = [record for record in run.records if _counts(record)]
    for record in records:
        if run.is_file and not _is_of(store, record):
            raise RecordError(f"{record.path} is no record of {store.folder}: no gate would find it there")
    if benchmarks:
        known = {record.key[1] for record in records}
        unknown = [name for name in benchmarks if name not in known]
        if unknown:
            raise RecordError(
                f"run {run.run_id} has no score of {listed(unknown)}; it has {listed(sorted(known))}"
            )
        records = [record for record in records if record.key[1] in benchmarks]
    if not records:
        raise RecordError(
            f"run {run.run_id} has no canonical score of a quantized variant over all documents: "
            "there is nothing that a gate would compare with"
        )
    path = decisions.accept(store, records, git_author(), reason)
    lines = [
        f"{benchmark}[{niche}-{variant}] {score(record.content):.4f}"
        for record in records
        for niche, benchmark, variant in [record.key]
    ]
    return "\n".join([f"accepted, in {path}:", *(f"  {line}" for line in lines)])


def _counts(record: StoredRecord) -> bool:
    content = record.content
    canonical = content["mode"] == "canonical" and content["limit"] is None
    return canonical and content["variant"] == "quantized" and score(content) is not None


def _is_of(store: RecordStore, record: StoredRecord) -> bool:
    try:
        return store.get(record.key, record.path.name).content == record.content
    except RecordError:
        return False


def git_author(folder: Path | None = None) -> str:
    """`Name <e-mail>` from git's configuration.

    Raises:
        RecordError: git is not there, or knows no name.
    """
    name, email = (_git_config(key, folder) for key in ("user.name", "user.email"))
    if not name:
        raise RecordError("a decision needs an author: git config user.name is not set")
    return f"{name} <{email}>" if email else name


def _git_config(key: str, folder: Path | None) -> str:
    try:
        done = subprocess.run(
            ["git", "config", "--get", key], cwd=folder, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise RecordError(f"a decision needs an author from git's configuration: {error}") from error
    return done.stdout.strip()
