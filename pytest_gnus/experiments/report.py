"""What an experiment came to: each model on each benchmark over its rounds, and models against each other."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from tabulate import tabulate

from pytest_gnus.errors import RecordError
from pytest_gnus.experiments.plan import ExperimentPlan
from pytest_gnus.experiments.result import ExperimentResult
from pytest_gnus.gates.categories import holm
from pytest_gnus.gates.comparison import MEAN_TOLERANCE, Comparison, NotCompared, compare
from pytest_gnus.gates.pairing import CannotPair, Outcome, pair

REPORT_VERSION = 1

#: Reads the documents of a result. Raises RecordError where they cannot be had.
Documents = Callable[[ExperimentResult], Sequence[Outcome]]

METHOD = (
    "Score: the mean over rounds. Std: the standard deviation between rounds (n - 1), of the few-shot "
    "examples and of sampling, not of the choice of documents. 95 % interval: documents are the unit, "
    "each with its mean over the rounds: mean ± t(0.975, n - 1) s / sqrt(n); Wilson's where every "
    "document is right or wrong; cluster-robust where documents share a cluster. A document that is written "
    "several times counts once. Comparisons: paired by "
    "document, each averaged over the rounds that both models were measured in; p adjusted by Holm over "
    "all comparisons of the report."
)


@dataclass(frozen=True)
class ModelSummary:
    """One model on one benchmark: `scores` by round, their mean and spread, the interval of the mean.

    `std` is None with fewer than two rounds, `ci95` where `interval_method` says why.
    """

    niche: str | None
    benchmark: str
    model: str
    model_label: str
    metric: str
    higher_is_better: bool
    scores: Mapping[int, float]
    mean: float
    std: float | None
    ci95: tuple[float, float] | None
    interval_method: str
    n: int


@dataclass(frozen=True)
class ModelComparison:
    """Two models on one benchmark. `difference` and `ci95` are second less first, in units of the score.

    `significant` says whether the adjusted p-value is at most 0.05 and the interval excludes zero; `better`
    then names the better model's label.
    """

    niche: str | None
    benchmark: str
    first: str
    second: str
    rounds: tuple[int, ...]
    n: int
    difference: float | None = None
    ci95: tuple[float, float] | None = None
    p_value: float | None = None
    adjusted_p: float | None = None
    significant: bool | None = None
    better: str | None = None
    method: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class ExperimentReport:
    """An experiment that has ended.

    `planned` counts its combinations, of which some may not have run; `settings` say how they were measured.

    `benchmarks` are distinct names in first-seen order, `models` as they were given, `results` with the
    rounds outermost.
    """

    benchmark_file: str
    output_file: str | None
    repeat: int
    benchmarks: list[str]
    models: list[str]
    name: str = "experiment"
    run_id: str = ""
    planned: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    results: list[ExperimentResult] = field(default_factory=list)
    summaries: list[ModelSummary] = field(default_factory=list)
    comparisons: list[ModelComparison] = field(default_factory=list)

    @property
    def unmeasured(self) -> list[ExperimentResult]:
        return [result for result in self.results if result.status != "measured"]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "schema_version": REPORT_VERSION,
            "name": self.name,
            "run_id": self.run_id,
            "benchmark_file": self.benchmark_file,
            "output_file": self.output_file,
            "repeat": self.repeat,
            "planned": self.planned,
            "settings": _json(self.settings),
            "benchmarks": list(self.benchmarks),
            "models": list(self.models),
            "method": METHOD,
            "summaries": [_plain(summary) for summary in self.summaries],
            "comparisons": [_plain(comparison) for comparison in self.comparisons],
            "results": [result.to_dict() for result in self.results],
        }

    def to_markdown(self) -> str:
        parts = [
            f"# Experiment {self.name}",
            f"Run {self.run_id}, {_count(self.repeat, 'round')}, benchmarks of {self.benchmark_file}; "
            f"{len(self.results)} of {self.planned} combinations ran.",
            *([f"Measured with {told(self.settings)}."] if self.settings else []),
        ]
        if self.summaries:
            parts.append(summary_table(self, "github"))
        if self.comparisons:
            parts += ["## Comparisons", comparison_table(self, "github")]
        if self.unmeasured:
            lines = [f"- {result.reason}" for result in self.unmeasured]
            parts += ["## Not measured", "\n".join(lines)]
        return "\n\n".join([*parts, METHOD]) + "\n"


def make_report(
    plan: ExperimentPlan,
    run_id: str,
    output_file: Path,
    results: Sequence[ExperimentResult],
    documents: Documents,
) -> ExperimentReport:
    """The report of results whose rounds stand outermost."""
    minimum_pairs = {(item.niche or None, item.benchmark.name): item.minimum_pairs for item in plan.items}
    statistics_of = _Statistics(results, documents, minimum_pairs)
    return ExperimentReport(
        benchmark_file=plan.benchmark_file,
        output_file=str(output_file),
        repeat=plan.rounds,
        benchmarks=plan.benchmarks,
        models=list(plan.models),
        name=plan.name,
        run_id=run_id,
        planned=len(plan.items),
        settings=plan.settings,
        results=list(results),
        summaries=list(statistics_of.summaries()),
        comparisons=list(statistics_of.comparisons()),
    )


def told(settings: Mapping[str, Any]) -> str:
    """Settings that are there, in words."""
    given = {name: value for name, value in _json(settings).items() if value not in (None, {})}
    return ", ".join(
        f"{name} {json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value}"
        for name, value in given.items()
    )


def _json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Plain JSON: what a file could say and JSON cannot, as text."""
    plain: dict[str, Any] = json.loads(json.dumps(settings, default=str))
    return plain


class _Statistics:
    """Computes over results; the documents of one benchmark are in memory at a time."""

    def __init__(
        self,
        results: Iterable[ExperimentResult],
        documents: Documents,
        minimum_pairs: Mapping[tuple[str | None, str], int],
    ) -> None:
        self._documents = documents
        self._minimum_pairs = minimum_pairs
        #: By niche and benchmark, then by model, in first-seen order: its measured rounds.
        self._rounds: dict[tuple[str | None, str], dict[str, dict[int, ExperimentResult]]] = {}
        for result in results:
            if result.status == "measured":
                models = self._rounds.setdefault((result.niche, result.benchmark), {})
                models.setdefault(result.model_label, {})[result.round_index] = result

    def summaries(self) -> Iterator[ModelSummary]:
        for models in self._rounds.values():
            for rounds in models.values():
                yield self._summary(rounds)

    def _summary(self, rounds: Mapping[int, ExperimentResult]) -> ModelSummary:
        results = list(rounds.values())
        scores = {index: _score(result) for index, result in rounds.items()}
        mean = math.fsum(scores.values()) / len(scores)
        first = results[0]
        ci95, method = self._interval(results, mean)
        return ModelSummary(
            niche=first.niche,
            benchmark=first.benchmark,
            model=first.model,
            model_label=first.model_label,
            metric=first.metric or "",
            higher_is_better=first.higher_is_better is not False,
            scores=scores,
            mean=mean,
            std=statistics.stdev(scores.values()) if len(scores) > 1 else None,
            ci95=ci95,
            interval_method=method,
            n=first.n or 0,
        )

    def _interval(
        self, results: Sequence[ExperimentResult], mean: float
    ) -> tuple[tuple[float, float] | None, str]:
        from pytest_gnus.gates.intervals import mean_interval

        try:
            documents = averaged([self._documents(result) for result in results])
            side = pair(documents, documents).reference
        except (RecordError, CannotPair) as error:
            return _of_standard_errors(results, mean, str(error))
        if not math.isclose(side.mean, mean, rel_tol=MEAN_TOLERANCE, abs_tol=MEAN_TOLERANCE):
            return _of_standard_errors(results, mean, "the score is no mean over documents")
        return mean_interval(side)

    def comparisons(self) -> Iterator[ModelComparison]:
        """Every pair of models on every benchmark, their p-values adjusted together."""
        found = [
            (niche, benchmark, first, second, self._common(models[first], models[second]))
            for (niche, benchmark), models in self._rounds.items()
            for first, second in combinations(models, 2)
        ]
        compared = [
            self._compared(self._rounds[niche, benchmark], first, second, common)
            for niche, benchmark, first, second, common in found
        ]
        p_values = [result.p_value for result in compared if isinstance(result, Comparison)]
        adjusted = iter(holm(p_values))
        for (niche, benchmark, first, second, common), result in zip(found, compared, strict=True):
            entry = ModelComparison(niche, benchmark, first, second, common, result.n)
            yield _with_numbers(entry, result, next(adjusted) if isinstance(result, Comparison) else None)

    @staticmethod
    def _common(
        one: Mapping[int, ExperimentResult], other: Mapping[int, ExperimentResult]
    ) -> tuple[int, ...]:
        """Rounds in which both were measured: others had other few-shot examples."""
        return tuple(sorted(one.keys() & other.keys()))

    def _compared(
        self,
        models: Mapping[str, Mapping[int, ExperimentResult]],
        first: str,
        second: str,
        common: Sequence[int],
    ) -> Comparison | NotCompared:
        if not common:
            return NotCompared("no round in which both were measured")
        sides = [[models[label][index] for index in common] for label in (first, second)]
        try:
            documents = [averaged([self._documents(result) for result in side]) for side in sides]
        except (RecordError, CannotPair) as error:
            return NotCompared(str(error))
        means = [math.fsum(map(_score, side)) / len(side) for side in sides]
        return compare(
            documents[0],
            documents[1],
            higher_is_better=sides[0][0].higher_is_better is not False,
            reported=(means[0], means[1]),
            minimum_pairs=self._minimum_pairs[sides[0][0].niche, sides[0][0].benchmark],
        )


def averaged(rounds: Sequence[Sequence[Outcome]]) -> list[Outcome]:
    """Each document with its mean score over rounds, None where a round gave it none.

    Raises:
        CannotPair: the rounds have different documents.
    """
    by_place = [{(outcome.task, outcome.doc_id): outcome for outcome in outcomes} for outcomes in rounds]
    if any(places.keys() != by_place[0].keys() for places in by_place):
        raise CannotPair("the rounds have different documents")
    means = []
    for place, outcome in by_place[0].items():
        all_rounds = [places[place] for places in by_place]
        if any(other.doc_hash != outcome.doc_hash for other in all_rounds):
            raise CannotPair("the rounds have different documents")
        scores = [other.score for other in all_rounds if other.score is not None]
        mean = math.fsum(scores) / len(scores) if len(scores) == len(rounds) else None
        means.append(replace(outcome, score=mean))
    return means


def _of_standard_errors(
    results: Sequence[ExperimentResult], mean: float, reason: str
) -> tuple[tuple[float, float] | None, str]:
    """Without documents: the rounds' own standard errors. Rounds share documents, so none is made smaller."""
    errors = [result.stderr for result in results if result.stderr is not None]
    if len(errors) < len(results):
        return None, reason
    half = 1.96 * math.fsum(errors) / len(errors)
    return (mean - half, mean + half), f"1.96 standard errors of a round: {reason}"


def _with_numbers(
    entry: ModelComparison, result: Comparison | NotCompared, adjusted: tuple[float, bool] | None
) -> ModelComparison:
    if isinstance(result, NotCompared) or adjusted is None:
        return replace(entry, note=result.reason if isinstance(result, NotCompared) else None)
    adjusted_p, rejected = adjusted
    significant = rejected and result.significant
    sign = -1.0 if result.higher_is_better else 1.0
    low, high = sorted(sign * end for end in result.ci95)
    better = (entry.first if result.absolute_drop > 0 else entry.second) if significant else None
    note = None
    if result.mean_of_documents is False:
        note = "the difference is that of the documents' means, of which the score is none"
    return replace(
        entry,
        difference=sign * result.absolute_drop + 0.0,  # no difference has no sign
        ci95=(low, high),
        p_value=result.p_value,
        adjusted_p=adjusted_p,
        significant=significant,
        better=better,
        method=result.method,
        note=note,
    )


def summary_table(report: ExperimentReport, style: str = "simple") -> str:
    """Models by benchmark."""
    headers = ("niche", "benchmark", "model", "rounds", "score", "std", "95% interval", "n")
    rows = [
        (
            summary.niche or "-",
            summary.benchmark,
            summary.model_label,
            str(len(summary.scores)),
            f"{summary.mean:.4f}",
            "-" if summary.std is None else f"{summary.std:.4f}",
            _interval(summary.ci95),
            str(summary.n),
        )
        for summary in report.summaries
    ]
    return _table(rows, headers, ("left",) * 3 + ("right",) * 5, style)


def comparison_table(report: ExperimentReport, style: str = "simple") -> str:
    """Pairs of models by benchmark."""
    headers = ("benchmark", "first", "second", "second - first", "95% interval", "p", "p (Holm)", "better")
    rows = [
        (
            f"{comparison.benchmark} ({comparison.niche})" if comparison.niche else comparison.benchmark,
            comparison.first,
            comparison.second,
            "-" if comparison.difference is None else f"{comparison.difference:+.4f}",
            _interval(comparison.ci95, sign="+"),
            "-" if comparison.p_value is None else f"{comparison.p_value:.2g}",
            "-" if comparison.adjusted_p is None else f"{comparison.adjusted_p:.2g}",
            _verdict(comparison),
        )
        for comparison in report.comparisons
    ]
    return _table(rows, headers, ("left",) * 3 + ("right",) * 4 + ("left",), style)


def _verdict(comparison: ModelComparison) -> str:
    if comparison.p_value is None:
        return f"not compared: {comparison.note}"
    return comparison.better or "no difference shown"


def _table(rows: Sequence[Sequence[str]], headers: Sequence[str], align: Sequence[str], style: str) -> str:
    return str(tabulate(rows, headers=headers, disable_numparse=True, colalign=align, tablefmt=style))


def _interval(ends: tuple[float, float] | None, sign: str = "") -> str:
    return "-" if ends is None else f"{ends[0]:{sign}.4f} to {ends[1]:{sign}.4f}"


def _score(result: ExperimentResult) -> float:
    if result.score is None:
        raise ValueError(f"{result.name} has no score")
    return result.score


def _plain(entry: ModelSummary | ModelComparison) -> dict[str, Any]:
    content = asdict(entry)
    for key, value in content.items():
        if isinstance(value, tuple):
            content[key] = list(value)
    if isinstance(entry, ModelSummary):
        content["scores"] = {str(index): score for index, score in entry.scores.items()}
    return content


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
