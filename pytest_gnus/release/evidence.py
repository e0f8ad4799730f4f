"""Which build and which settings an item is measured with, and earlier records of exactly these.

A niche may be measured in parts. An item that this run did not measure counts as passed only by a record that
names the same build and the same settings, and in which it passed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pytest_gnus.errors import GnusError, RecordError
from pytest_gnus.gates.verdict import Missing
from pytest_gnus.harness import harness_identity
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.plan import ArtifactItem, BenchmarkItem, Request
from pytest_gnus.records.earlier import earlier_runs
from pytest_gnus.records.fingerprint import canonical_sha256, file_sha256, record_digest
from pytest_gnus.records.store import RecordStore, UnreadableRecord, stamp_of
from pytest_gnus.tasks.local_data import FORMATS, digest
from pytest_gnus.workspace import FunctionReference

#: The key of a record, and of an artifact's file, that holds the digest of build and settings.
KEY = "build_and_settings_sha256"
#: The statuses in which nothing speaks against an item.
_PASSED = ("passed", "warned")


@dataclass(frozen=True)
class Identities:
    """Digests of build and settings.

    Args:
        weights: gives the digest of a model's files on this machine; None where it cannot be known.
        surroundings: what applies to every item, such as the gates that plugins add.
    """

    weights: Callable[[ModelSpec], str | None]
    surroundings: Mapping[str, Any] = field(default_factory=dict)

    def of(self, item: BenchmarkItem | ArtifactItem) -> str | None:
        """The digest of an item; None where something that decides its outcome cannot be known."""
        try:
            if isinstance(item, ArtifactItem):
                return self._of_artifact(item)
            return self._of_benchmark(item)
        except (GnusError, OSError, TypeError, ValueError):
            return None  # the item's own run says what is wrong with it

    def _of_artifact(self, item: ArtifactItem) -> str | None:
        weights = [item.model, *([item.reference] if item.reference else [])]
        return self._digest(weights, {"limits": dict(item.limits)})

    def _of_benchmark(self, item: BenchmarkItem) -> str | None:
        data = _data(item.request)
        if data is None:
            return None
        weights = [item.model]
        if item.variant == "quantized" and "reference" in item.counterparts:
            weights.append(item.counterparts["reference"].model)
        settings = {
            "benchmark": item.benchmark.model_dump(
                mode="json", exclude={"task", "diagnostic", "description"}
            ),
            "request": _request(item.request),
            "thresholds": item.thresholds.model_dump(mode="json"),
            "regression_policy": item.regression_policy,
            "minimum_pairs": item.minimum_pairs,
            "failures_to_block": item.failures_to_block,
            "data": data,
            "harness": harness_identity(),
        }
        return self._digest(weights, settings)

    def _digest(self, weights: Iterable[ModelSpec], settings: Mapping[str, Any]) -> str | None:
        digests = [self.weights(entry) for entry in weights]
        if None in digests:
            return None
        return canonical_sha256([digests, settings, dict(self.surroundings)])


def _request(request: Request) -> dict[str, Any]:
    """How an item is measured, as plain JSON; its local data are described by their content."""
    return {
        entry.name: _plain(getattr(request, entry.name))
        for entry in fields(request)
        if entry.name not in ("local", "force_download")
    }


def _data(request: Request) -> str | None:
    """Which documents are measured; None for a data set on the hub that may change at any time."""
    if request.local is None:
        return request.revision
    paths = [path for path in request.local.folder.rglob("*") if path.is_file()]
    return digest(path for path in paths if path.name.endswith(FORMATS))


def _plain(value: Any) -> Any:
    if isinstance(value, FunctionReference):
        modules = sorted(value.directory.glob("*.py"))
        return {"function": value.name, "modules": {path.name: file_sha256(path) for path in modules}}
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{value!r} has no stable text")


def name_of(item: BenchmarkItem | ArtifactItem) -> tuple[str, str]:
    """The benchmark and the variant of an item."""
    return (item.benchmark if isinstance(item, ArtifactItem) else item.benchmark.name, item.variant)


@dataclass(frozen=True)
class _Earlier:
    """One earlier measurement, or a file in its place that cannot be read."""

    name: str
    run_id: str
    digest: str | None
    status: str
    content: Mapping[str, Any]
    problem: str = ""


def missing_item(
    item: BenchmarkItem | ArtifactItem, store: RecordStore, run_id: str, identities: Identities
) -> Missing:
    """What stands for an item that a run has not measured: its newest record of this build and settings."""
    key = name_of(item)
    own = identities.of(item)
    if own is None:
        return Missing(
            key, problem="was not run, and its build and settings cannot be compared with a record's"
        )
    others = 0
    try:
        for earlier in _earlier(item, store, run_id):
            if earlier.problem:
                return Missing(
                    key, problem=f"was not run, and an earlier record is unknown: {earlier.problem}"
                )
            if earlier.digest != own:
                others += 1
                continue
            where = f"in run {earlier.run_id} ({earlier.name})"
            if earlier.status in _PASSED:
                return Missing(key, evidence=f"{earlier.status} {where}", record=earlier.content)
            status = earlier.status.replace("_", " ")
            return Missing(
                key,
                problem=f"was not run; its status was {status!r} {where}, with the same build and settings",
            )
    except RecordError as error:
        return Missing(key, problem=f"was not run, and earlier records cannot be read: {error}")
    aside = "; earlier records are of another build or other settings" if others else ""
    return Missing(key, problem=f"was not run{aside}")


def _earlier(item: BenchmarkItem | ArtifactItem, store: RecordStore, run_id: str) -> Iterator[_Earlier]:
    """Earlier measurements of an item, the newest first."""
    if isinstance(item, ArtifactItem):
        yield from _earlier_artifacts(item, store.artifacts / "sgfp4", run_id)
        return
    for record in earlier_runs(store, item.key, run_id):
        if isinstance(record, UnreadableRecord):
            yield _Earlier(record.name, "", None, "", {}, record.problem)
            continue
        content = record.content
        yield _Earlier(record.path.name, record.run_id, content.get(KEY), content["status"], content)


def _earlier_artifacts(item: ArtifactItem, folder: Path, run_id: str) -> Iterator[_Earlier]:
    pattern = f"{item.niche}_{item.benchmark}_{item.variant}_*.json"
    for path in sorted(folder.glob(pattern), key=lambda path: stamp_of(path.name), reverse=True):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            # A file without digests is one of an older version, of which the settings are not known.
            if KEY in content and content["record_sha256"] != record_digest(content):
                raise ValueError("it does not fit its own digest: it was altered")
            found = _Earlier(path.name, content["run_id"], content.get(KEY), content["status"], content)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            found = _Earlier(path.name, "", None, "", {}, f"{path.name}: {error}")
        if found.run_id != run_id:
            yield found


def sealed(artifact: Mapping[str, Any]) -> dict[str, Any]:
    """The content of an artifact's file with its own digest."""
    return {**artifact, "record_sha256": record_digest(artifact)}
