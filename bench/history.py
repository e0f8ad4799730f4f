"""What a long history costs the gates of a run.

    python bench/history.py [--records 100 1000 10000] [--repeats 5] [--documents 160]

Judges one run of a niche with three blocking benchmarks, all gates and the composite, once with an empty
store and once with a store of so many records, in turn, in one process; prints what the records add. The
records are those of 5 niches with 4 benchmarks on 3 variants each, written by earlier runs, so that each
benchmark has N/60 of them.

- `steady`: the newest run can be compared with, as on any ordinary day.
- `falling`: every gate fails, and did in every run before: those are counted, looked through for one that
  held, and the composite is made again from them.
- `foreign`: no earlier record was measured in the same way, so that all that may be read is read.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from tabulate import tabulate

from pytest_gnus.judging import References, judge
from pytest_gnus.measurement import Counts, DocumentOutcome, Measurement, Protocol
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.niche_judging import NicheJudging
from pytest_gnus.plan import BenchmarkItem, Request
from pytest_gnus.recording import build_record, sample_records
from pytest_gnus.records.fingerprint import fingerprint, record_digest
from pytest_gnus.records.store import RecordStore
from pytest_gnus.schema import BUILT_IN_THRESHOLDS, Benchmark, Variant

NICHES = ("code", "encyclopedic", "medical", "patents", "qa_technical")
BENCHMARKS = ("first", "second", "third", "fourth")
BLOCKING = BENCHMARKS[:3]
VARIANTS: tuple[Variant, ...] = ("baseline", "reference", "quantized")
KINDS = ("steady", "falling", "foreign")
NOW = "20270101T000000.000000Z-00000000"


def protocol(kind: str = "") -> Protocol:
    prompts = hashlib.sha256(kind.encode()).hexdigest()
    return Protocol("v1", "task", "1.0", None, prompts, 1234, "b" * 64, {"metric": "acc"}, {})


def measured(documents: int, score: float, how: Protocol) -> Measurement:
    right = round(documents * score)
    order = Random(documents)
    places = list(range(documents))
    order.shuffle(places)
    outcomes = tuple(
        DocumentOutcome("task", place, f"{place:064x}", float(rank < right))
        for rank, place in enumerate(places)
    )
    return Measurement(
        metric="acc,none",
        score=right / documents,
        stderr=0.03,
        ci95=(score - 0.06, score + 0.06),
        n=documents,
        higher_is_better=True,
        num_fewshot=0,
        protocol=how,
        counts=Counts(documents, documents),
        outcomes=outcomes,
    )


def item_of(niche: str, benchmark: str, variant: Variant) -> BenchmarkItem:
    return BenchmarkItem(
        niche=niche,
        benchmark=Benchmark(name=benchmark, task="task"),
        variant=variant,
        blocking=True,
        model=ModelSpec("mlx", f"/models/{niche}-{variant}"),
        thresholds=BUILT_IN_THRESHOLDS.model_copy(update={"hard_floor": 0.2}),
        request=Request(
            "task", "canonical", "local", 0, 1234, False, None, {}, {}, None, False, None, (), None
        ),
    )


def fields_of(how: Protocol, build: int) -> Mapping[str, Any]:
    return {**how.__dict__, "model_manifest_sha256": f"{build:064x}", "sgfp4_manifest_sha256": None}


def fill(store: RecordStore, count: int, kind: str, documents: int) -> None:
    """Write `count` records, an hour between runs, without waiting for the disk at each."""
    store.folder.mkdir(parents=True)
    keys = [
        (niche, benchmark, variant) for niche in NICHES for benchmark in BENCHMARKS for variant in VARIANTS
    ]
    how = protocol("other" if kind == "foreign" else "")
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    made: dict[tuple[str, str, str, bool], tuple[dict[str, Any], bytes]] = {}
    for number in range(count):
        build, place = divmod(number, len(keys))
        niche, benchmark, variant = keys[place]
        if place == 0:
            moment += timedelta(hours=1)
        if (niche, benchmark, variant, kind == "falling") not in made:
            made[niche, benchmark, variant, kind == "falling"] = _made(
                item_of(niche, benchmark, variant), kind, documents, how
            )
        template, packed = made[niche, benchmark, variant, kind == "falling"]
        stamped = moment + timedelta(seconds=place)
        identity = fingerprint(fields_of(how, build), is_sgfp4=False)
        record = template | {
            "run_id": f"{moment:%Y%m%dT%H%M%S.%fZ}-00000000",
            "timestamp_utc": stamped.isoformat(timespec="microseconds"),
            "fingerprint": dict(identity.fields),
            "fingerprint_hash": identity.digest,
        }
        stem = store.stem(record)
        record |= {
            "samples": f"{stem}.samples.jsonl.gz",
            "samples_sha256": hashlib.sha256(packed).hexdigest(),
        }
        record["record_sha256"] = record_digest(record)
        (store.folder / f"{stem}.samples.jsonl.gz").write_bytes(packed)
        (store.folder / f"{stem}.json").write_text(json.dumps(record, indent=2), encoding="utf-8")


def _made(item: BenchmarkItem, kind: str, documents: int, how: Protocol) -> tuple[dict[str, Any], bytes]:
    """A record and its packed outcomes; where runs fall, with trend gates that did not hold."""
    measurement = measured(documents, 0.75, how)
    record = build_record(
        item,
        "20200101T000000.000000Z-00000000",
        "passed",
        measurement=measurement,
        identity=fingerprint(fields_of(how, 0), is_sgfp4=False),
        gates=_earlier_gates(item) if kind == "falling" and item.variant == "quantized" else (),
    )
    lines = "".join(json.dumps(sample, sort_keys=True) + "\n" for sample in sample_records(measurement))
    return record, gzip.compress(lines.encode(), mtime=0)


def _earlier_gates(item: BenchmarkItem) -> Sequence[Any]:
    from pytest_gnus.gates.floors import hard_floor
    from pytest_gnus.gates.result import GateResult

    floor = hard_floor(0.75, 0.2)
    failed = [GateResult(name, False, severity="warn") for name in ("previous_run", "baseline_deviation")]
    return [floor, *failed] if floor is not None else failed


def gates_of_a_run(store: RecordStore, kind: str, documents: int) -> tuple[float, int]:
    """Seconds for all gates of a run of one niche, and how many were evaluated."""
    how = protocol()
    score = 0.4 if kind == "falling" else 0.75
    measurement = measured(documents, score, how)
    fields = fields_of(how, 10**9)
    references = References(store, NOW)
    records = {}
    started = time.perf_counter()
    evaluated = 0
    for name in BLOCKING:
        item = item_of("patents", name, "quantized")
        gates = judge(item, measurement, fields, references).gates
        evaluated += sum(gate.evaluated for gate in gates)
        records[name] = {
            "gates": [gate.to_record() for gate in gates],
            "fingerprint": fields,
            "fingerprint_valid": True,
        }
    gate = NicheJudging("patents", BLOCKING, references, 3).composite(records)
    return time.perf_counter() - started, evaluated + gate.evaluated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--records", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--documents", type=int, default=160)
    options = parser.parse_args()
    rows = []
    for kind in KINDS:
        for count in options.records:
            with tempfile.TemporaryDirectory() as folder:
                long, empty = (RecordStore(Path(folder) / name) for name in ("long", "empty"))
                fill(long, count, kind, options.documents)
                gates_of_a_run(long, kind, options.documents)  # imports
                pairs = []
                for _ in range(options.repeats):
                    # A store of its own each time: nothing is remembered from one run to the next.
                    cold = RecordStore(long.artifacts)
                    with_history, evaluated = gates_of_a_run(cold, kind, options.documents)
                    without, _ = gates_of_a_run(empty, kind, options.documents)
                    pairs.append((with_history, without))
                added = statistics.median(with_history - without for with_history, without in pairs)
                rows.append(
                    [
                        kind,
                        count,
                        evaluated,
                        *(f"{statistics.median(side) * 1000:.0f}" for side in zip(*pairs, strict=True)),
                        f"{added * 1000:.0f}",
                    ]
                )
    headers = ["history", "records", "gates evaluated", "with, ms", "empty, ms", "added, ms"]
    print(tabulate(rows, headers=headers, disable_numparse=True))


if __name__ == "__main__":
    main()
