"""The repair report of a niche that is blocked (D-10): what fell, whether that is noise, the likely cause.

Made from the records alone, so that it can be made again. It suggests; nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from pytest_gnus.errors import RecordError
from pytest_gnus.gates import truncation
from pytest_gnus.gates.categories import CategoryDrop, category_drops
from pytest_gnus.gates.comparison import MINIMUM_PAIRS, Comparison, NotCompared, compare
from pytest_gnus.gates.names import is_hard_limit, is_regression
from pytest_gnus.judging import documents
from pytest_gnus.records import earlier
from pytest_gnus.records.earlier import earlier_runs
from pytest_gnus.records.store import (
    RecordStore,
    StoredRecord,
    not_comparable,
    score,
)

_TRUNCATED = (
    "prompts do not fit the model's context: ask with fewer examples or shorter documents, or allow it with "
    "`truncated_max_share`"
)
Cause = Literal["quantization", "training", "quantization and training", "not clear"]


@dataclass(frozen=True)
class Change:
    """A measurement against another one. `against` says which; `fell` whether significantly so."""

    against: str
    score_before: float
    score_now: float
    result: Comparison | NotCompared
    categories: tuple[CategoryDrop, ...]

    @property
    def fell(self) -> bool | None:
        """None where nothing can be said of significance."""
        return self.result.significant_drop if isinstance(self.result, Comparison) else None


@dataclass(frozen=True)
class BenchmarkRepair:
    """One benchmark that failed."""

    benchmark: str
    failed_gates: tuple[str, ...]
    quantized_to_reference: Change | None
    quantized_to_previous: Change | None
    reference_to_previous: Change | None
    cause: Cause
    because: str
    suggestions: tuple[str, ...]


@dataclass(frozen=True)
class RepairReport:
    """What to look at in a niche that is blocked."""

    niche: str
    run_id: str
    benchmarks: tuple[BenchmarkRepair, ...]


def repair_report(
    store: RecordStore, niche: str, run_id: str, records: Sequence[StoredRecord], failed: Sequence[str]
) -> RepairReport | None:
    """The report of a run, from its records; None where no benchmark of `failed` has a score."""
    by_key = {record.key[1:]: record for record in records if record.content["niche"] == niche}
    repairs = []
    for benchmark in failed:
        quantized = by_key.get((benchmark, "quantized"))
        reference = by_key.get((benchmark, "reference"))
        subject = quantized or reference
        if subject is not None and score(subject.content) is not None:
            repairs.append(_repair(store, run_id, benchmark, quantized, reference))
    return RepairReport(niche, run_id, tuple(repairs)) if repairs else None


def _repair(
    store: RecordStore,
    run_id: str,
    benchmark: str,
    quantized: StoredRecord | None,
    reference: StoredRecord | None,
) -> BenchmarkRepair:
    reference = reference or (_newest_reference(store, quantized) if quantized else None)
    to_reference = _change(store, "its reference", reference, quantized)
    to_previous = _change(store, "the previous run", _previous(store, run_id, quantized), quantized)
    reference_moved = _change(store, "the previous run", _previous(store, run_id, reference), reference)
    shown = [record for record in (quantized, reference) if record is not None]
    cause, because = _cause(to_reference, reference_moved, reference, _fails(quantized, is_regression))
    return BenchmarkRepair(
        benchmark,
        tuple(dict.fromkeys(chain.from_iterable(map(_failed_gates, shown)))),
        to_reference,
        to_previous,
        reference_moved,
        cause,
        because,
        (
            *([_TRUNCATED] if any(_fails(record, truncation.NAME.__eq__) for record in shown) else []),
            *_suggestions(cause, to_reference, to_previous, reference_moved),
        ),
    )


def _newest_reference(store: RecordStore, quantized: StoredRecord) -> StoredRecord | None:
    niche, benchmark, _ = quantized.key
    found = earlier.newest_comparable(
        store.read_all(niche, benchmark, "reference"), quantized.content["fingerprint"]
    )
    return found.record


def _previous(store: RecordStore, run_id: str, record: StoredRecord | None) -> StoredRecord | None:
    if record is None:
        return None
    return earlier.previous_run(
        earlier_runs(store, record.key, run_id), record.content["fingerprint"], record.build
    ).record


def _change(
    store: RecordStore, against: str, before: StoredRecord | None, now: StoredRecord | None
) -> Change | None:
    if before is None or now is None or not_comparable(before.content, now.content["fingerprint"]):
        return None
    old, new = score(before.content), score(now.content)
    if old is None or new is None:
        return None
    better = now.content["results"][now.key[1]]["higher_is_better"] is not False
    try:
        outcomes = documents(store, before), documents(store, now)
    except RecordError as error:
        return Change(against, old, new, NotCompared(str(error)), ())
    several = len({outcome.task for outcome in outcomes[1]}) > 1
    return Change(
        against,
        old,
        new,
        compare(*outcomes, higher_is_better=better, reported=(old, new), minimum_pairs=MINIMUM_PAIRS),
        tuple(category_drops(*outcomes, higher_is_better=better)) if several else (),
    )


def _failed_gates(record: StoredRecord) -> list[str]:
    return [
        f"{gate['name']} ({record.key[2]}): {gate['detail']}"
        for gate in record.content["gates"]
        if not gate["passed"] and gate["severity"] != "note"
    ]


def _fails(record: StoredRecord | None, is_meant: Callable[[str], bool]) -> bool:
    gates = record.content["gates"] if record is not None else []
    return any(is_meant(gate["name"]) and gate["passed"] is False for gate in gates)


def _cause(
    to_reference: Change | None,
    reference_moved: Change | None,
    reference: StoredRecord | None,
    regression_fails: bool,
) -> tuple[Cause, str]:
    """Quantization where only the quantized variant fell, training where its reference fell or is too low."""
    quantization = regression_fails or bool(to_reference and to_reference.fell)
    low = _fails(reference, is_hard_limit)
    training = low or bool(reference_moved and reference_moved.fell)
    how = "is below its floor itself" if low else "fell from the previous run too"
    if quantization and training:
        return (
            "quantization and training",
            f"the quantized variant is below its reference, and the reference {how}",
        )
    if training:
        return "training", f"the reference {how}; quantization took nothing significant from it"
    if quantization and reference_moved is None:
        return (
            "quantization",
            "the quantized variant is below its reference, which reaches its floor and has no earlier run",
        )
    if quantization:
        return "quantization", "only the quantized variant fell; its reference did not"
    if to_reference is None:
        return "not clear", "there is no reference to compare with: measure it too"
    return "not clear", "no comparison shows a significant drop"


def _suggestions(
    cause: Cause, to_reference: Change | None, to_previous: Change | None, reference_moved: Change | None
) -> Iterator[str]:
    if "quantization" in cause:
        yield (
            "quantize with more bits per weight (`gnus quantize --target-bpw`), or keep the weights that "
            "matter most unquantized (`--keep PATTERN`)"
        )
        yield "look at fp4_relative_mse and the layers' errors: `gnus quantize --inspect PACKAGE`"
    if "training" in cause:
        yield "look at what changed in training since the previous run: the adapter, its data, its rate"
    fallen = _fallen(reference_moved if "training" in cause else to_reference) or _fallen(to_previous)
    if fallen:
        yield f"begin with what fell most: {', '.join(fallen)}"
    needed = _documents_needed(to_reference or to_previous)
    if needed:
        yield needed
    if cause == "not clear":
        yield "measure all variants in one run, `pytest --niche=NICHE --gnus-variant=all`, to tell the cause"
    yield "if it is a known trade-off: `gnus accept RUN --reason ...` makes the lower score the one to reach"


def _fallen(change: Change | None) -> list[str]:
    if change is None:
        return []
    return [
        f"{drop.category} ({drop.result.absolute_drop:+.4f})"
        for drop in sorted(change.categories, key=drop_of, reverse=True)
        if isinstance(drop.result, Comparison) and drop.flagged
    ]


def drop_of(drop: CategoryDrop) -> float:
    """To sort categories by; one that could not be compared comes last."""
    return drop.result.absolute_drop if isinstance(drop.result, Comparison) else float("-inf")


def _documents_needed(change: Change | None) -> str | None:
    if change is None or not isinstance(change.result, Comparison) or change.fell:
        return None
    drop = change.result.absolute_drop
    needed = change.result.documents_needed(drop) if drop > 0.0 else None
    if needed is None or needed <= change.result.n:
        return None
    return (
        f"the drop of {drop:.4f} may be noise: about {needed} documents would show it, "
        f"there are {change.result.n}"
    )
