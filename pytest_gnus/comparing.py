"""`gnus compare`: two recorded runs side by side, with the statistics that the gates use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tabulate import tabulate

from pytest_gnus.errors import RecordError
from pytest_gnus.gates.categories import CategoryDrop, category_drops, holm
from pytest_gnus.gates.comparison import MINIMUM_PAIRS, Comparison, NotCompared, compare
from pytest_gnus.gates.pairing import Outcome
from pytest_gnus.gates.power import ALPHA
from pytest_gnus.gates.regression import relative_drop
from pytest_gnus.judging import documents
from pytest_gnus.records.fingerprint import FIELDS, MANIFEST_FIELDS
from pytest_gnus.records.runs import RecordedRun
from pytest_gnus.records.store import RecordStore, StoredRecord, score


@dataclass(frozen=True)
class FlippedDocument:
    """A document whose outcome is another in the second run."""

    task: str
    doc_id: int
    doc_hash: str
    before: float
    after: float


@dataclass(frozen=True)
class BenchmarkComparison:
    """One benchmark of both runs. `changed` are fingerprint fields; drops are positive where B is worse.

    `adjusted_p` is the p-value after Holm's correction over all benchmarks compared.
    """

    name: str
    score_a: float | None
    score_b: float | None
    metric: str | None
    higher_is_better: bool
    result: Comparison | NotCompared
    changed: tuple[str, ...]
    categories: tuple[CategoryDrop, ...] = ()
    flipped: tuple[FlippedDocument, ...] = ()
    adjusted_p: float | None = None

    @property
    def drop(self) -> float | None:
        if self.score_a is None or self.score_b is None:
            return None
        return (self.score_a - self.score_b) * (1.0 if self.higher_is_better else -1.0)

    @property
    def significant(self) -> bool:
        """Whether the interval excludes zero and the adjusted p-value is at most 0.05."""
        if self.adjusted_p is None or not isinstance(self.result, Comparison):
            return False
        return self.result.significant and self.adjusted_p <= ALPHA

    @property
    def relative_drop(self) -> float | None:
        if self.score_a is None or self.score_b is None:
            return None
        return relative_drop(self.score_b, self.score_a, higher_is_better=self.higher_is_better)

    @property
    def protocol_changed(self) -> tuple[str, ...]:
        """Fields that say how it was measured: where one changed, a drop is not the model's alone."""
        return tuple(name for name in self.changed if name not in MANIFEST_FIELDS)


@dataclass(frozen=True)
class RunComparison:
    """Two runs. `only_in_a` and `only_in_b` name what the other one lacks."""

    run_a: str
    run_b: str
    benchmarks: tuple[BenchmarkComparison, ...]
    only_in_a: tuple[str, ...] = ()
    only_in_b: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "run_a": self.run_a,
            "run_b": self.run_b,
            "benchmarks": [_benchmark_json(entry) for entry in self.benchmarks],
            "only_in_a": list(self.only_in_a),
            "only_in_b": list(self.only_in_b),
            "notes": list(self.notes),
        }


def compare_runs(
    store: RecordStore, a: RecordedRun, b: RecordedRun, minimum_pairs: int = MINIMUM_PAIRS
) -> RunComparison:
    """Compare what two runs have in common. Two files of one benchmark are, whatever was measured on it.

    Raises:
        RecordError: they have nothing in common.
    """
    first, second = _by_name(a), _by_name(b)
    if a.is_file and b.is_file and a.records[0].key[1] == b.records[0].key[1]:
        names = {f"{next(iter(first))} against {next(iter(second))}": (a.records[0], b.records[0])}
        if first.keys() == second.keys():
            names = {next(iter(first)): (a.records[0], b.records[0])}
    else:
        names = {name: (record, second[name]) for name, record in first.items() if name in second}
    if not names:
        raise RecordError(
            f"run {a.run_id} and run {b.run_id} have no benchmark in common: "
            f"{', '.join(first)} against {', '.join(second)}"
        )
    notes: list[str] = []
    compared = [
        _compared(store, name, one, other, minimum_pairs, notes) for name, (one, other) in names.items()
    ]
    single = a.is_file and b.is_file
    return RunComparison(
        a.run_id,
        b.run_id,
        tuple(_corrected(compared)),
        () if single else tuple(name for name in first if name not in second),
        () if single else tuple(name for name in second if name not in first),
        tuple(notes),
    )


def _by_name(run: RecordedRun) -> dict[str, StoredRecord]:
    """A run's records, the newest of each benchmark, in the order of their names."""
    found: dict[str, StoredRecord] = {}
    for record in sorted(run.records, key=lambda record: (record.key, record.stamp)):
        niche, benchmark, variant = record.key
        found[f"{benchmark}[{niche}-{variant}]"] = record
    return found


def _compared(
    store: RecordStore, name: str, a: StoredRecord, b: StoredRecord, minimum_pairs: int, notes: list[str]
) -> BenchmarkComparison:
    result_a, result_b = (record.content["results"][record.content["benchmark"]] for record in (a, b))
    fields_a, fields_b = (record.content["fingerprint"] for record in (a, b))
    better = result_a["higher_is_better"] is not False
    entry = BenchmarkComparison(
        name,
        score(a.content),
        score(b.content),
        result_b["metric"],
        better,
        NotCompared("a run has no score of it"),
        tuple(field for field in FIELDS if fields_a[field] != fields_b[field]),
    )
    if entry.score_a is None or entry.score_b is None:
        return replace(entry, changed=())
    if result_a["metric"] != result_b["metric"]:
        return replace(entry, result=NotCompared(f"the metric differs: {result_a['metric']} in A"))
    if result_a["higher_is_better"] != result_b["higher_is_better"]:
        return replace(entry, result=NotCompared("higher_is_better differs"))
    try:
        ours = documents(store, a), documents(store, b)
    except RecordError as error:
        notes.append(f"{name}: {error}")
        return replace(entry, result=NotCompared(str(error)))
    return replace(
        entry,
        result=compare(
            *ours,
            higher_is_better=better,
            reported=(entry.score_a, entry.score_b),
            minimum_pairs=minimum_pairs,
        ),
        categories=_categories(*ours, better, minimum_pairs),
        flipped=tuple(_flipped(*ours)),
    )


def _categories(
    a: Sequence[Outcome], b: Sequence[Outcome], better: bool, minimum_pairs: int
) -> tuple[CategoryDrop, ...]:
    """Every task of a group of several."""
    if len({outcome.task for outcome in (*a, *b)}) < 2:
        return ()
    return tuple(category_drops(a, b, higher_is_better=better, minimum_pairs=minimum_pairs))


def _flipped(a: Sequence[Outcome], b: Sequence[Outcome]) -> Iterator[FlippedDocument]:
    """Documents in both runs, by their digest and place, whose outcome is another."""
    before = {(outcome.task, outcome.doc_hash, outcome.doc_id): outcome.score for outcome in a}
    for outcome in b:
        old = before.get((outcome.task, outcome.doc_hash, outcome.doc_id))
        if old is not None and outcome.score is not None and old != outcome.score:
            yield FlippedDocument(outcome.task, outcome.doc_id, outcome.doc_hash, old, outcome.score)


def _corrected(entries: Sequence[BenchmarkComparison]) -> list[BenchmarkComparison]:
    compared = [entry.result.p_value for entry in entries if isinstance(entry.result, Comparison)]
    corrected = iter(holm(compared))
    return [
        replace(entry, adjusted_p=next(corrected)[0]) if isinstance(entry.result, Comparison) else entry
        for entry in entries
    ]


def render(comparison: RunComparison, *, with_documents: bool = False) -> str:
    """The comparison as text."""
    parts = [
        f"A {comparison.run_a}",
        f"B {comparison.run_b}",
        "",
        _table(comparison.benchmarks),
        "",
        "drop: A less B, positive where B is worse; p after Holm's correction over the benchmarks above "
        "(* significant)",
        *_what_changed(comparison.benchmarks),
        *(f"only in A: {name}" for name in comparison.only_in_a),
        *(f"only in B: {name}" for name in comparison.only_in_b),
        *(f"note: {note}" for note in comparison.notes),
    ]
    for entry in comparison.benchmarks:
        parts += _category_lines(entry)
        if with_documents:
            parts += _document_lines(entry)
    return "\n".join(parts)


def _table(entries: Sequence[BenchmarkComparison]) -> str:
    rows = []
    for entry in entries:
        compared = entry.result if isinstance(entry.result, Comparison) else None
        rows.append(
            [
                entry.name,
                entry.metric or "-",
                _number(entry.score_a),
                _number(entry.score_b),
                _number(entry.drop, "+.4f"),
                _number(entry.relative_drop, "+.1%"),
                f"{compared.ci95[0]:+.4f} to {compared.ci95[1]:+.4f}" if compared else "-",
                _number(entry.adjusted_p, ".2g") + (" *" if entry.significant else ""),
                str(compared.n) if compared else "-",
                compared.method if compared else getattr(entry.result, "reason", ""),
            ]
        )
    headers = ["benchmark", "metric", "A", "B", "drop", "relative", "95 %", "p", "n", "method"]
    align = ("left", "left", *("right",) * 7, "left")
    return tabulate(rows, headers=headers, disable_numparse=True, colalign=align)


def _what_changed(entries: Sequence[BenchmarkComparison]) -> list[str]:
    lines = []
    for entry in entries:
        if entry.changed:
            lines.append(f"{entry.name}: changed: {', '.join(entry.changed)}")
        if entry.protocol_changed:
            lines.append(
                f"{entry.name}: measured in another way ({', '.join(entry.protocol_changed)}): "
                "no gate compares these, and a drop is not the model's alone"
            )
    return lines


def _category_lines(entry: BenchmarkComparison) -> list[str]:
    """The categories that moved, the worst first; a star where that is significant."""
    moved = [
        (drop.result.absolute_drop, drop)
        for drop in entry.categories
        if isinstance(drop.result, Comparison) and drop.result.absolute_drop != 0.0
    ]
    few = [drop for drop in entry.categories if isinstance(drop.result, NotCompared)]
    if not moved and not few:
        return []
    rows = [
        [
            f"{drop.category}{' *' if drop.flagged else ''}",
            f"{change:+.4f}",
            f"{drop.result.ci95[0]:+.4f} to {drop.result.ci95[1]:+.4f}",
            f"{drop.adjusted_p:.2g}",
            str(drop.result.n),
        ]
        for change, drop in sorted(moved, key=lambda pair: -pair[0])
        if isinstance(drop.result, Comparison)
    ]
    lines = ["", f"{entry.name}: categories that moved (* significant after Holm)"]
    if rows:
        lines.append(tabulate(rows, headers=["category", "drop", "95 %", "p", "n"], disable_numparse=True))
    return [*lines, *(f"{drop.category}: {getattr(drop.result, 'reason', '')}" for drop in few)]


def _document_lines(entry: BenchmarkComparison) -> list[str]:
    if not entry.flipped:
        return ["", f"{entry.name}: no document's outcome changed"]
    rows = [
        [flip.task, str(flip.doc_id), flip.doc_hash[:12], f"{flip.before:g}", f"{flip.after:g}"]
        for flip in entry.flipped
    ]
    headers = ["task", "document", "hash", "A", "B"]
    return [
        "",
        f"{entry.name}: {len(entry.flipped)} documents with another outcome",
        tabulate(rows, headers=headers, disable_numparse=True),
    ]


def _number(value: float | None, form: str = ".4f") -> str:
    return "-" if value is None else format(value, form)


def _benchmark_json(entry: BenchmarkComparison) -> dict[str, Any]:
    return {
        "name": entry.name,
        "metric": entry.metric,
        "score_a": entry.score_a,
        "score_b": entry.score_b,
        "drop": entry.drop,
        "relative_drop": entry.relative_drop,
        "adjusted_p": entry.adjusted_p,
        "significant": entry.significant,
        "comparison": _result_json(entry.result),
        "changed": list(entry.changed),
        "categories": [
            {
                "category": drop.category,
                "flagged": drop.flagged,
                "adjusted_p": drop.adjusted_p,
                "comparison": _result_json(drop.result),
            }
            for drop in entry.categories
        ],
        "flipped": [asdict(flip) for flip in entry.flipped],
    }


def _result_json(result: Comparison | NotCompared) -> Mapping[str, Any]:
    return (
        result.to_record()
        if isinstance(result, Comparison)
        else {"not_compared": result.reason, "n": result.n}
    )
