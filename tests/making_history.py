"""Records of earlier runs, made by the product itself, for tests of what is compared with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pytest_gnus.gates.result import GateResult
from pytest_gnus.gates.verdict import Status
from pytest_gnus.measurement import Counts, DocumentOutcome, Measurement, Protocol
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.plan import BenchmarkItem, Request
from pytest_gnus.recording import build_record
from pytest_gnus.records.fingerprint import fingerprint
from pytest_gnus.records.store import RecordStore
from pytest_gnus.schema import Benchmark, Thresholds, Variant

PROTOCOL = Protocol("v1", "colours", "1.0", "sha256:x", "a" * 64, 1234, "b" * 64, {"metric": "acc"}, {})
REQUEST = Request("colours", "canonical", "local", 0, 1234, False, None, {}, {}, None, False, None, (), None)
KEY = ("toy", "colours", "quantized")
LIMITS = Thresholds(
    hard_floor=0.3,
    max_relative_drop=0.1,
    max_relative_drop_from_previous=0.1,
    max_relative_drop_from_baseline=0.2,
)
_BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


def stamp(second: float) -> str:
    return f"{_BEGINNING + timedelta(seconds=second):%Y%m%dT%H%M%S.%fZ}"


def run_id(second: float, suffix: str = "00000000") -> str:
    """The id of a run that began at a second."""
    return f"{stamp(second)}-{suffix}"


def fields(build: str = "c", **changes: Any) -> dict[str, Any]:
    """The fields of a fingerprint; `build` is a digit that makes the weights' digest."""
    manifests = {"model_manifest_sha256": build * 64, "sgfp4_manifest_sha256": None}
    return {**PROTOCOL.__dict__, **manifests, **changes}


def item_of(
    variant: Variant = "quantized",
    niche: str = "toy",
    benchmark: str = "colours",
    thresholds: Thresholds = LIMITS,
    **changes: Any,
) -> BenchmarkItem:
    item = BenchmarkItem(
        niche=niche,
        benchmark=Benchmark(name=benchmark, task="colours"),
        variant=variant,
        blocking=True,
        model=ModelSpec("mlx", f"/models/{variant}"),
        thresholds=thresholds,
        request=REQUEST,
    )
    return replace(item, **changes)


def measured(score: float = 0.5, right: Sequence[bool] | None = None) -> Measurement:
    """A measurement of 60 documents, or of those given, with their outcomes."""
    rights = right if right is not None else ()
    return Measurement(
        metric="acc,none",
        score=sum(rights) / len(rights) if rights else score,
        stderr=None,
        ci95=None,
        n=len(rights) or 60,
        higher_is_better=True,
        num_fewshot=0,
        protocol=PROTOCOL,
        counts=Counts(len(rights) or 60, len(rights) or 60),
        outcomes=tuple(
            DocumentOutcome("colours", number, f"{number:064x}", float(is_right))
            for number, is_right in enumerate(rights)
        ),
    )


def rights(count: int, of: int = 100) -> list[bool]:
    return [number < count for number in range(of)]


def keep(
    store: RecordStore,
    score: float = 0.5,
    *,
    began: float = 0,
    written: float | None = None,
    build: str = "c",
    item: BenchmarkItem | None = None,
    status: Status = "passed",
    gates: Sequence[GateResult] = (),
    right: Sequence[bool] | None = None,
    run: str | None = None,
    build_and_settings: str | None = None,
    **changes: Any,
) -> Path:
    """Write the record of a run that began at a second; `changes` are of its fingerprint."""
    has_score = status in ("passed", "failed", "warned")
    measurement = measured(score, right)
    known: Mapping[str, Any] = fields(build, **changes)
    record = build_record(
        item or item_of(),
        run or run_id(began),
        status,
        reason=None if has_score else "no such model",
        measurement=measurement if has_score else None,
        identity=fingerprint(known, is_sgfp4=False),
        gates=gates,
        build_and_settings=build_and_settings,
    )
    moment = _BEGINNING + timedelta(seconds=began + 0.5 if written is None else written)
    samples = [outcome.to_record() for outcome in measurement.outcomes]
    return store.write(record | {"timestamp_utc": moment.isoformat(timespec="microseconds")}, samples)
