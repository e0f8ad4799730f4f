"""Which gates apply to an item, and what they say of its measurement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from pytest_gnus.errors import RecordError
from pytest_gnus.gates import names
from pytest_gnus.gates.categories import category_drops
from pytest_gnus.gates.comparison import Comparison, NotCompared, compare
from pytest_gnus.gates.floors import category_floors, hard_floor, of_category
from pytest_gnus.gates.pairing import Outcome, ScoredDocument
from pytest_gnus.gates.policy import RegressionVerdict, regression_gate
from pytest_gnus.gates.result import GateResult, not_evaluated
from pytest_gnus.gates.trends import BASELINE_DEVIATION, PREVIOUS_RUN, EarlierStanding, tiered
from pytest_gnus.gates.truncation import truncated_share
from pytest_gnus.gates.trust import guessed_floor
from pytest_gnus.measurement import Measurement
from pytest_gnus.plan import BenchmarkItem, Weights
from pytest_gnus.records import earlier
from pytest_gnus.records.decisions import Acceptance, newest_acceptance, read_decisions
from pytest_gnus.records.earlier import Found, earlier_runs
from pytest_gnus.records.fingerprint import same_protocol, told_differences
from pytest_gnus.records.store import (
    RecordStore,
    StoredRecord,
    UnreadableRecord,
    build_of,
    never_compared,
    not_comparable,
    score,
)
from pytest_gnus.schema import Variant


@dataclass(frozen=True)
class Reference:
    """The other side of a comparison, or why there is none.

    `outcomes` are its documents', or why they cannot be had. `unreadable` says that there may be one, which
    cannot be read: that must not pass, while having nothing to compare with yet is only noted. `run_id` is
    that of an earlier run, of which `told` says more in a clause. `build` is the digest of its weights,
    `tokenizer` the identity of its tokenizer, where that is known.
    """

    score: float | None
    missing: str = ""
    outcomes: Sequence[ScoredDocument] | NotCompared = ()
    unreadable: bool = False
    run_id: str | None = None
    told: str = ""
    build: str | None = None
    tokenizer: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class _Measured:
    """What this process has measured of an item."""

    measurement: Measurement
    fields: Mapping[str, Any]
    tokenizer: Mapping[str, Any] | None


@dataclass(frozen=True)
class Judgement:
    """The gates of an item, and what a person should know although it decides nothing.

    `guessed_floors` are about floors that guessing reaches, and belong to the niche's verdict too.
    """

    gates: tuple[GateResult, ...]
    warnings: tuple[str, ...] = ()
    guessed_floors: tuple[str, ...] = ()


@dataclass
class References:
    """Measurements to compare with: of this run, else of comparable records; and decisions about them.

    What another process measured in this run is found in its record, by the run's id. `weights` gives the
    `model_manifest_sha256` of a model that was not measured in this run, if that can be known.
    """

    store: RecordStore
    run_id: str
    weights: Callable[[Weights], str | None] = field(default=lambda _weights: None)
    _measured: dict[tuple[str, str, str], _Measured] = field(default_factory=dict)
    _unmeasured: dict[tuple[str, str, str], str] = field(default_factory=dict)
    _acceptances: dict[tuple[str, str, str], tuple[Acceptance, StoredRecord] | str | None] = field(
        default_factory=dict
    )

    def remember(
        self,
        item: BenchmarkItem,
        measurement: Measurement,
        fields: Mapping[str, Any],
        tokenizer: Mapping[str, Any] | None = None,
    ) -> None:
        self._measured[item.key] = _Measured(measurement, fields, tokenizer)

    def note_unmeasured(self, item: BenchmarkItem, status: str) -> None:
        """An item of this run has no score: no other run's is to stand in for it."""
        self._unmeasured[item.key] = status

    def tokenizer(self, item: BenchmarkItem, variant: Variant) -> Mapping[str, Any] | None:
        """The identity of the tokenizer that another variant was measured with in this run, if it was."""
        key = (item.niche, item.benchmark.name, variant)
        if key in self._measured:
            return self._measured[key].tokenizer
        try:
            record = earlier.of_run(self.store.read_all(*key), self.run_id)
        except RecordError:
            return None  # the gate that needs the record says so
        return record.tokenizer if record is not None else None

    def of_variant(self, item: BenchmarkItem, variant: Variant, fields: Mapping[str, Any]) -> Reference:
        """Another variant's measurement of an item's benchmark, made in the same way as the item's."""
        niche, benchmark, _ = item.key
        command = f"pytest --niche={niche} --gnus-variant={variant} -k {benchmark}"
        measured = self._measured.get((niche, benchmark, variant))
        if measured is not None:
            changed = told_differences(measured.fields, fields)
            if not changed:
                return Reference(
                    measured.measurement.score,
                    outcomes=measured.measurement.outcomes,
                    build=build_of(measured.fields),
                    tokenizer=measured.tokenizer,
                )
            return self._measured_differently(variant, changed, measured.tokenizer)
        try:
            of_this_run = self._of_this_run((niche, benchmark, variant), fields)
            if of_this_run is not None:
                return of_this_run
            if item.not_gated_because:
                return Reference(None, f"no {variant} in this run; records are for canonical runs")
            known = item.counterparts.get(variant)
            found = earlier.newest_comparable(
                self.store.read_all(niche, benchmark, variant),
                fields,
                self.weights(known) if known is not None else None,
            )
        except RecordError as error:
            return Reference(None, str(error), unreadable=True)
        return self._reference(found, f"no comparable record of the {variant}", f"run `{command}`")

    def previous_of(self, item: BenchmarkItem, fields: Mapping[str, Any]) -> Reference:
        """The same item in the newest earlier run that it can be compared with, and in which it held."""
        try:
            found = earlier.previous_run(
                earlier_runs(self.store, item.key, self.run_id), fields, build_of(fields), _held
            )
        except RecordError as error:
            return Reference(None, str(error), unreadable=True)
        if found.record is None and found.not_held:
            missing = f"in none of the {found.not_held} runs before did it hold{found.why_not}"
            return Reference(None, f"{missing}; `gnus accept` takes one as the measure", unreadable=True)
        remedy = "restore or remove it" if found.unreadable else "the next run has this one"
        return self._reference(found, "no earlier run to compare with", remedy)

    def _reference(self, found: Found, missing: str, remedy: str) -> Reference:
        if found.unreadable:
            # What is behind it may be compared with, but it is not known to be the newest.
            told = "; ".join(map(str, found.unreadable))
            return Reference(None, f"a newer record cannot be read: {told}; {remedy}", unreadable=True)
        if found.record is None:
            return Reference(None, f"{missing}{found.why_not}; {remedy}")
        outcomes = self._outcomes(found.record)
        return Reference(
            score(found.record.content),
            outcomes=outcomes,
            unreadable=isinstance(outcomes, NotCompared),
            run_id=found.record.run_id,
            told=self._told(found.record.run_id, found.not_held),
            build=found.record.build,
            tokenizer=found.record.tokenizer,
        )

    def _told(self, run_id: str, not_held: int) -> str:
        newer = f", {not_held} newer did not hold" if not_held else ""
        later = ", which by its id began after this one: a clock is wrong" if run_id > self.run_id else ""
        return f"; against run {run_id}{newer}{later}"

    def _of_this_run(self, key: tuple[str, str, str], fields: Mapping[str, Any]) -> Reference | None:
        """What this run has of an item that another worker has run, or that failed; None if nothing."""
        status = self._unmeasured.get(key)
        if status is None:
            record = earlier.of_run(self.store.read_all(*key), self.run_id)
            if record is None:
                return None
            value, status = score(record.content), record.content["status"]
            if value is not None:
                changed = told_differences(record.content["fingerprint"], fields)
                if not changed:
                    outcomes = self._outcomes(record)
                    return Reference(
                        value,
                        outcomes=outcomes,
                        unreadable=isinstance(outcomes, NotCompared),
                        build=record.build,
                        tokenizer=record.tokenizer,
                    )
                return self._measured_differently(key[2], changed, record.tokenizer)
        return Reference(None, f"the {key[2]} has no score in this run: its status is {status}")

    @staticmethod
    def _measured_differently(variant: str, changed: str, tokenizer: Mapping[str, Any] | None) -> Reference:
        return Reference(
            None,
            f"the {variant} was measured differently: {changed} differ; check both models",
            tokenizer=tokenizer,
        )

    def _outcomes(self, record: StoredRecord) -> Sequence[ScoredDocument] | NotCompared:
        try:
            return documents(self.store, record)
        except RecordError as error:
            return NotCompared(str(error))

    @cached_property
    def _decisions(self) -> tuple[list[Acceptance], list[str]]:
        """Every acceptance, and the problems of decisions that cannot be read."""
        accepted: list[Acceptance] = []
        problems: list[str] = []
        try:
            for decision in read_decisions(self.store):
                if isinstance(decision, RecordError):
                    problems.append(str(decision))
                else:
                    accepted += decision
        except RecordError as error:
            problems.append(str(error))
        return accepted, problems

    def accepted_run(self, key: tuple[str, str, str]) -> str | None:
        """The earlier run whose record of an item was accepted last."""
        found = self._accepted(key)
        return found[0].run_id if isinstance(found, tuple) else None

    def _accepted(self, key: tuple[str, str, str]) -> tuple[Acceptance, StoredRecord] | str | None:
        """The newest decision about an item with the record that it is about, or why it does not count."""
        if key not in self._acceptances:
            self._acceptances[key] = self._looked_up(key)
        return self._acceptances[key]

    def _looked_up(self, key: tuple[str, str, str]) -> tuple[Acceptance, StoredRecord] | str | None:
        decision = newest_acceptance(self._decisions[0], key, self.run_id)
        if decision is None:
            return None
        try:
            found = self.store.get(key, decision.file)
        except RecordError as error:
            return _not_counted(decision, str(error))
        if found.content["record_sha256"] != decision.record_sha256 or found.run_id != decision.run_id:
            return _not_counted(decision, f"{decision.file} is not the record that was accepted")
        return decision, found

    @property
    def decision_problems(self) -> list[str]:
        return [f"a decision is not counted: {problem}" for problem in self._decisions[1]]

    def accepted(
        self, item: BenchmarkItem, fields: Mapping[str, Any]
    ) -> tuple[Acceptance, Reference] | str | None:
        """The decision about an item and the record that it accepted, or why it does not count."""
        found = self._accepted(item.key)
        if not isinstance(found, tuple):
            return found
        decision, record = found
        problem = not_comparable(record.content, fields)
        if problem is not None:
            return _not_counted(decision, f"{decision.file} {problem}")
        return decision, Reference(
            score(record.content), outcomes=self._outcomes(record), run_id=decision.run_id
        )

    def held_since(
        self, item: BenchmarkItem, fields: Mapping[str, Any], gate: str, run_id: str
    ) -> str | None:
        """A run after `run_id` in which a gate held without any decision."""
        for record in earlier_runs(self.store, item.key, self.run_id):
            if isinstance(record, UnreadableRecord):
                continue
            if record.run_id <= run_id:
                return None
            content = record.content
            if never_compared(content) is None and not same_protocol(content["fingerprint"], fields):
                stood = _gate_of(content, gate)
                if stood is not None and stood["passed"] and not stood["accepted"]:
                    return record.run_id
        return None

    def standings(
        self, item: BenchmarkItem, fields: Mapping[str, Any], gate: str
    ) -> Iterator[EarlierStanding]:
        """How a trend gate of an item stood in earlier runs, up to the newest accepted one."""
        accepted = self.accepted_run(item.key)
        for record in earlier_runs(self.store, item.key, self.run_id):
            if isinstance(record, UnreadableRecord):
                yield EarlierStanding(None, "failed")
                continue
            content = record.content
            if accepted is not None and record.run_id <= accepted:
                return
            if never_compared(content) is None and not same_protocol(content["fingerprint"], fields):
                # Without a valid fingerprint two runs are not known to be of one build.
                build = record.build if content["fingerprint_valid"] else None
                yield EarlierStanding(build, standing_of(content, gate))


def _not_counted(decision: Acceptance, problem: str) -> str:
    return f"the decision on run {decision.run_id} does not count: {problem}"


def documents(store: RecordStore, record: StoredRecord) -> list[Outcome]:
    """The per-document outcomes of a record.

    Raises:
        RecordError: they cannot be read.
    """
    return [
        Outcome(
            str(sample["task"]),
            int(sample["doc_id"]),
            str(sample["doc_hash"]),
            sample["score"],
            sample.get("cluster"),
            sample.get("question"),
        )
        for sample in store.read_samples(record)
    ]


def standing_of(content: Mapping[str, Any], gate: str) -> Any:
    """How a gate stood in a record; where it could not read what it needed, it did not hold."""
    entry = _gate_of(content, gate)
    if entry is None:
        return "absent"
    if entry["passed"]:
        return "held"
    return "absent" if entry["severity"] == "note" else "failed"


def _gate_of(content: Mapping[str, Any], gate: str) -> Mapping[str, Any] | None:
    """A record's gate, by any of the names that it has had."""
    return next((entry for entry in content["gates"] if names.same_gate(entry["name"], gate)), None)


def _held(record: StoredRecord) -> bool:
    """Whether a run is a measure for later ones: the gate held in it, or had nothing to compare with."""
    return bool(standing_of(record.content, PREVIOUS_RUN) != "failed")


def judge(
    item: BenchmarkItem,
    measurement: Measurement,
    fields: Mapping[str, Any],
    references: References,
    *,
    is_sgfp4: bool = False,
) -> Judgement:
    """The gates of an item: its limits, and for the quantized variant what it is compared with.

    That is the unquantized reference, and in a canonical run over all documents the previous run and the
    baseline.
    """
    thresholds = item.thresholds
    better = measurement.higher_is_better
    limit = thresholds.hard_limit(higher_is_better=better)
    floor = hard_floor(measurement.score, limit, higher_is_better=better, ci95=measurement.ci95)
    if floor is None and item.blocking:
        kind = "floor" if better else "ceiling"
        name = names.hard_limit(higher_is_better=better)
        floor = not_evaluated(name, f"no {kind} is set: a blocking benchmark needs one (D-08)")
    gates = [floor] if floor is not None else []
    categories = thresholds.category_limits(higher_is_better=better)
    gates += category_floors(measurement.per_category, categories, higher_is_better=better)
    counts = measurement.counts
    truncation = truncated_share(
        counts.truncated_prompts,
        counts.requests,
        thresholds.truncated_max_share,
        measurement.context_tokens,
    )
    gates += [truncation] if truncation is not None else []
    guessed = tuple(_guessed_floors(item, measurement))
    if item.variant != "quantized":
        return Judgement(tuple(gates), guessed_floors=guessed)
    judging = _Judging(item, measurement, fields, references, is_sgfp4)
    compared = [judging.regression()]
    if item.not_gated_because is None:
        compared += [judging.previous_run(), judging.baseline_deviation()]
    warnings = [text for judged in compared if judged is not None for text in judged.warnings]
    return Judgement(
        (*gates, *(judged.gate for judged in compared if judged is not None)),
        (*warnings, *judging.notes()),
        guessed,
    )


def _guessed_floors(item: BenchmarkItem, measurement: Measurement) -> Iterator[str]:
    """Floors that an answerer who knows nothing reaches: they hold nothing back.

    Chance levels are known of shares right only, where higher is better.
    """
    floor = item.thresholds.hard_floor
    if floor is not None and (told := guessed_floor("hard_floor", floor, measurement.chance)):
        yield told
    for name, floor in item.thresholds.category_floors.items():
        chance = of_category(measurement.category_chance, name)
        if told := guessed_floor(f"category_floor[{name}]", floor, chance):
            yield told


@dataclass
class _Judging:
    """The comparisons of one quantized item."""

    item: BenchmarkItem
    measurement: Measurement
    fields: Mapping[str, Any]
    references: References
    is_sgfp4: bool
    _fallen: list[str] = field(default_factory=list)

    def regression(self) -> RegressionVerdict | None:
        """The mandatory check against the unquantized reference (D-08)."""
        limit = self.item.thresholds.max_relative_drop
        if limit is None and self.item.regression_policy == "threshold":
            return None
        reference = self.references.of_variant(self.item, "reference", self.fields)
        self._fallen = _fallen_categories(self.item, self.measurement, reference)
        name = names.regression(sgfp4=self.is_sgfp4)
        judged = self._judged(name, reference, limit)
        if self.fields["model_manifest_sha256"] is None or reference.build != build_of(self.fields):
            return judged
        told = f"{name}: the reference has the same weights as the quantized variant: it shows nothing"
        return replace(judged, warnings=(*judged.warnings, told))

    def previous_run(self) -> RegressionVerdict:
        """Against the newest earlier run of another build in which this gate held."""
        limit = self.item.thresholds.max_relative_drop_from_previous
        return self._trend(PREVIOUS_RUN, self.references.previous_of(self.item, self.fields), limit)

    def baseline_deviation(self) -> RegressionVerdict:
        """Against the untrained backbone (D-07)."""
        limit = self.item.thresholds.max_relative_drop_from_baseline
        return self._trend(
            BASELINE_DEVIATION, self.references.of_variant(self.item, "baseline", self.fields), limit
        )

    def notes(self) -> list[str]:
        """What fell of a group's tasks, and decisions that cannot be read."""
        return [*self._fallen, *self.references.decision_problems]

    def _trend(self, name: str, reference: Reference, limit: float | None) -> RegressionVerdict:
        judged = self._judged(name, reference, limit)
        gate = judged.gate
        if not reference.unreadable and self._is_no_measure(reference.score):
            gate = replace(gate, severity="note")
        standings = self.references.standings(self.item, self.fields, name)
        try:
            gate = tiered(gate, build_of(self.fields), standings, self.item.failures_to_block)
        except RecordError as error:  # without its past a failure is not known to be the first
            gate = replace(gate, severity="block", detail=f"{gate.detail}; the row is not known: {error}")
        return replace(judged, gate=gate)

    def _is_no_measure(self, score: float | None) -> bool:
        """Whether there is nothing to compare with, or nothing that could be fallen short of."""
        return score is None or (score == 0.0 and self.measurement.higher_is_better)

    def _judged(self, name: str, reference: Reference, limit: float | None) -> RegressionVerdict:
        judged = self._against(name, limit, reference)
        if judged.gate.passed is False:
            judged = self._with_decision(judged, reference, partial(self._against, name, limit))
        return replace(judged, warnings=tuple(f"{name}: {text}" for text in judged.warnings))

    def _with_decision(
        self,
        judged: RegressionVerdict,
        reference: Reference,
        against: Callable[[Reference], RegressionVerdict],
    ) -> RegressionVerdict:
        """A drop that a person has accepted is measured from what was accepted (D-06)."""
        found = self.references.accepted(self.item, self.fields)
        if found is None:
            return judged
        if isinstance(found, str):
            return replace(judged, warnings=(*judged.warnings, found))
        decision, accepted = found
        try:
            better = self.references.held_since(self.item, self.fields, judged.gate.name, decision.run_id)
        except RecordError as error:
            return replace(judged, warnings=(*judged.warnings, _not_counted(decision, str(error))))
        if better is not None:
            told = f"{decision} counts no longer: run {better} held without it"
            return replace(judged, warnings=(*judged.warnings, told))
        newer = reference.run_id is not None and reference.run_id > decision.run_id
        if judged.gate.name == PREVIOUS_RUN and newer:
            return judged  # the reference point has moved on
        again = against(accepted)
        if not again.gate.holds:
            detail = f"{judged.gate.detail}; lower than what was {decision} too: {again.gate.detail}"
            return replace(judged, gate=replace(judged.gate, detail=detail))
        detail = f"{decision}: {again.gate.detail}; without it: {judged.gate.detail}"
        return replace(again, gate=replace(again.gate, detail=detail, accepted=str(decision)))

    def _against(self, name: str, limit: float | None, reference: Reference) -> RegressionVerdict:
        judged = regression_gate(
            name,
            self._compared(reference),
            self.measurement.score,
            reference.score,
            limit,
            self.item.regression_policy,
            higher_is_better=self.measurement.higher_is_better,
            missing=reference.missing,
            tell_power=names.is_regression(name),
        )
        return replace(judged, gate=replace(judged.gate, detail=judged.gate.detail + reference.told))

    def _compared(self, reference: Reference) -> Comparison | NotCompared | None:
        if reference.score is None:
            return None
        if isinstance(reference.outcomes, NotCompared):
            return reference.outcomes
        return compare(
            reference.outcomes,
            self.measurement.outcomes,
            higher_is_better=self.measurement.higher_is_better,
            reported=(reference.score, self.measurement.score),
            minimum_pairs=self.item.minimum_pairs,
        )


def _fallen_categories(item: BenchmarkItem, measurement: Measurement, reference: Reference) -> list[str]:
    """The tasks of a group that fell, chance over all of them left out (Holm)."""
    if len(measurement.per_category) < 2 or isinstance(reference.outcomes, NotCompared):
        return []
    drops = category_drops(
        reference.outcomes,
        measurement.outcomes,
        higher_is_better=measurement.higher_is_better,
        minimum_pairs=item.minimum_pairs,
    )
    return [
        f"{drop.category} fell by {drop.result.absolute_drop:.4f} (p = {drop.adjusted_p:.2g}, Holm)"
        for drop in drops
        if drop.flagged and isinstance(drop.result, Comparison)
    ]
