"""One run: its items measured and judged. Knows nothing of pytest; the plugin and the Python API share it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pytest_gnus.errors import DataAbsentError, HookError, ModelError
from pytest_gnus.gates import truncation
from pytest_gnus.gates.artifact import ArtifactNumbers, artifact_gates
from pytest_gnus.gates.names import same_gate
from pytest_gnus.gates.result import GateResult
from pytest_gnus.gates.verdict import ItemOutcome, Status, status_of
from pytest_gnus.judging import Reference, References, judge
from pytest_gnus.measurement import Measurement
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.models.pool import ModelPool
from pytest_gnus.models.progress import NoProgress, Progress
from pytest_gnus.models.provider import Abilities, Providers
from pytest_gnus.models.registry import BUILT_IN
from pytest_gnus.models.tokenizer_identity import tokenizer_differences
from pytest_gnus.plan import ArtifactItem, BenchmarkItem
from pytest_gnus.recording import Manifests, build_record, is_sgfp4, item_fingerprint, sample_records
from pytest_gnus.records.fingerprint import Fingerprint
from pytest_gnus.records.store import RecordStore
from pytest_gnus.release.evidence import KEY, Identities

if TYPE_CHECKING:
    from pytest_gnus.tasks.building import BuiltTask


def new_run_id() -> str:
    """A name for a run that sorts by time and that no two runs share."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(4)}"


@dataclass(frozen=True)
class Skip:
    """An item that is not measured, by plan: not implemented, or a diagnostic benchmark without its data."""

    status: Status
    reason: str


@dataclass
class ItemState:
    """What is known of an item so far; the record is made of it, however far it got."""

    item: BenchmarkItem
    skip: Skip | None = None
    model: LoadedModel | None = None
    measurement: Measurement | None = None
    identity: Fingerprint | None = None
    gates: tuple[GateResult, ...] = ()
    gate_warnings: tuple[str, ...] = ()
    guessed_floors: tuple[str, ...] = ()
    added_gates: tuple[GateResult, ...] | None = None
    judged: Status | None = None

    @property
    def warnings(self) -> list[str]:
        """What a person should know though it fails nothing."""
        found = list(self.model.warnings) if self.model else []
        if self.measurement is not None:
            found.extend(self.measurement.flags)
            found.extend(self.measurement.notes)
            counts = self.measurement.counts
            told = any(gate.name == truncation.NAME and gate.is_against for gate in self.gates)
            if counts.truncated_prompts and not told:
                context = self.measurement.context_tokens
                found.append(
                    truncation.truncation_sentence(counts.truncated_prompts, counts.requests, context)
                )
            if counts.duplicates:
                found.append(
                    f"{counts.duplicates} of {counts.documents} documents repeat another one: intervals, "
                    f"p-values and counts of pairs take them for {counts.documents - counts.duplicates}"
                )
            if counts.examples_of_evaluated_documents:
                found.append(
                    f"{counts.examples_of_evaluated_documents} of "
                    f"{self.measurement.num_fewshot * counts.documents} few-shot examples are documents that "
                    "are evaluated too (never the document itself): name another split as fewshot_split"
                )
        found.extend(self.guessed_floors)
        found.extend(self.gate_warnings)
        if self.identity is not None and not self.identity.valid:
            found.append(f"the fingerprint is not valid: {', '.join(self.identity.missing)} not known")
        return [f"{self.item.name}: {text}" for text in found]


@dataclass
class ArtifactState:
    """What is known of an SGFP4 artifact so far."""

    item: ArtifactItem
    numbers: ArtifactNumbers | None = None
    skip: Skip | None = None
    gates: tuple[GateResult, ...] = ()


@dataclass(frozen=True)
class FinishedItem:
    """An item at its end, as plain JSON: it travels from an xdist worker to the controller."""

    outcome: ItemOutcome
    niche: str
    not_gated: str | None
    record: Mapping[str, Any] | None
    samples: Sequence[Mapping[str, Any]]
    artifact: Mapping[str, Any] | None = None

    def stands_against(self, later: FinishedItem) -> bool:
        """Whether an item that is run again in the same run has come to nothing new.

        So it is once it was measured, unless it ends in an error; then that is what it has come to.
        """
        measured = self.record is not None or self.artifact is not None
        return measured and "error" not in (self.outcome.status, later.outcome.status)


@dataclass
class Run:
    """Measures and judges items, one after the other, with one model in memory at a time.

    `more_gates` gives gates beside the product's own: see `pytest_gnus.hookspecs.pytest_gnus_gates`.
    `surroundings` is what else decides an item's outcome, as plain JSON: see `pytest_gnus.release.evidence`.
    """

    store: RecordStore
    run_id: str = field(default_factory=new_run_id)
    pool: ModelPool = field(default_factory=ModelPool)
    manifests: Manifests = field(default_factory=Manifests)
    progress: Progress = field(default_factory=NoProgress)
    providers: Providers = BUILT_IN
    more_gates: Callable[..., Sequence[GateResult]] = field(default=lambda *_arguments, **_subject: ())
    surroundings: Mapping[str, Any] = field(default_factory=dict)
    references: References = field(init=False)
    identities: Identities = field(init=False)

    def __post_init__(self) -> None:
        self.references = References(self.store, self.run_id, self.manifests.of_weights)
        self.identities = Identities(self.manifests.of_files, self.surroundings)

    def skip(self, item: BenchmarkItem) -> Skip | None:
        """Whether an item is not to be measured. Looks at files only.

        Raises:
            EvaluationError: its data are not there, and neither is its task: the task is what to mend first.
            DataError: a blocking benchmark whose local data are not there, or data outside their folder.
        """
        benchmark = item.benchmark
        if benchmark.status == "not_implemented":
            return Skip("not_implemented", f"not implemented: {benchmark.reason}")
        if item.request.local is not None:
            try:
                item.request.local.check_present(benchmark.name)
            except DataAbsentError as error:
                if isinstance(item.request.task, str):
                    from pytest_gnus.tasks.building import check_known

                    check_known(benchmark.name, item.request.task)
                if item.blocking:
                    raise
                return Skip("skipped", str(error))
        return None

    def prepare(self, item: BenchmarkItem) -> BuiltTask:
        """The item's task with its documents, before any model is loaded.

        Raises:
            GnusError: its data cannot be used; its model cannot give what the task needs.
        """
        from pytest_gnus.evaluation import prepare

        built = prepare(item)
        _check_abilities(item, built, self.providers.abilities(item.model))
        return built

    def measure(self, state: ItemState, built: BuiltTask, model: LoadedModel) -> Measurement:
        """Evaluate an item, and take note of who it was."""
        from pytest_gnus.evaluation import measure

        state.model = model
        _check_abilities(state.item, built, model.abilities)
        is_compared = state.item.key[2] == "quantized"  # an experiment's key says something else
        if is_compared:
            _check_tokenizer(state.item, model, self.references.tokenizer(state.item, "reference"))
        model.lm.progress = self.progress
        self.progress.item(state.item.name)
        try:
            measurement = measure(state.item, built, model)
        finally:
            self.progress.close()
        state.identity = item_fingerprint(state.item, measurement, model, self.manifests)
        if is_compared:  # now a record of an earlier run can be found too
            reference = self.references.of_variant(state.item, "reference", state.identity.fields)
            _check_tokenizer(state.item, model, reference.tokenizer)
        state.measurement = measurement
        self.references.remember(state.item, measurement, state.identity.fields, model.tokenizer)
        return measurement

    def ask_gates(self, state: ItemState) -> None:
        """Have the gates of others evaluated on a measured item, once.

        Raises:
            HookError: one of them could not be.
        """
        item, identity = state.item, state.identity
        if state.measurement is None or identity is None:
            raise ValueError(f"{item.name} has not been measured")
        if state.added_gates is not None:
            return

        def reference() -> Reference | None:
            compared = item.variant == "quantized"
            return self.references.of_variant(item, "reference", identity.fields) if compared else None

        state.added_gates = tuple(
            self.more_gates(
                reference,
                item=item,
                measurement=state.measurement,
                model=state.model,
                fingerprint=identity,
            )
        )

    def judge(self, state: ItemState) -> Status:
        """Apply the gates to a measured item, once: whoever asks again is given the same answer.

        Raises:
            HookError: a gate of others has the name of another gate.
        """
        if state.judged is not None:
            return state.judged
        self.ask_gates(state)
        if state.measurement is None or state.identity is None or state.added_gates is None:
            raise ValueError(f"{state.item.name} has not been measured")
        judgement = judge(
            state.item,
            state.measurement,
            state.identity.fields,
            self.references,
            is_sgfp4=is_sgfp4(state.model),
        )
        gates = (*judgement.gates, *state.added_gates)
        for gate in state.added_gates:
            if sum(same_gate(gate.name, other.name) for other in gates) > 1:
                raise HookError(f"pytest_gnus_gates: the name {gate.name!r} stands for more than one gate")
        state.gates = gates
        state.gate_warnings = judgement.warnings
        state.guessed_floors = judgement.guessed_floors
        state.judged = status_of(state.gates, gated=state.item.is_gated)
        return state.judged

    def inspect(self, state: ArtifactState) -> None:
        """Measure an artifact's containers and apply its gates, once.

        Raises:
            GnusError: a container is missing, altered or broken; the reference does not fit.
        """
        from pytest_gnus.models.artifact import inspect

        if state.numbers is not None:
            return
        try:
            state.numbers = inspect(state.item)
        except ModelError as error:
            self.pool.refuse(state.item.model, str(error))
            raise
        if state.numbers is None:
            state.skip = Skip("skipped", "the quantized weights are not in SGFP4: no gate is evaluated")
            return
        state.gates = tuple(artifact_gates(state.numbers, state.item.limits))

    def finish_artifact(
        self, state: ArtifactState, status: Status, reason: str | None = None
    ) -> FinishedItem:
        """An artifact at its end."""
        item = state.item
        reason = reason or _broken_gates(state.gates)
        blocking = status != "skipped"
        artifact = {
            "run_id": self.run_id,
            "niche": item.niche,
            "variant": item.variant,
            "model": str(item.model),
            "timestamp_utc": datetime.now(UTC).isoformat(timespec="microseconds"),
            "status": status,
            "reason": reason or None,
            "numbers": asdict(state.numbers) if state.numbers else None,
            "gates": [gate.to_record() for gate in state.gates],
            KEY: self.identities.of(item),
        }
        return FinishedItem(
            outcome=ItemOutcome(item.benchmark, item.variant, blocking, status, reason or ""),
            niche=item.niche,
            not_gated=item.not_gated_because,
            record=None,
            samples=[],
            artifact=artifact if blocking else None,
        )

    def finish(self, state: ItemState, status: Status, reason: str | None = None) -> FinishedItem:
        """The item at its end. A skipped item measured nothing and has no record."""
        item = state.item
        measurement = state.measurement if status in ("passed", "failed", "warned") else None
        reason = reason or _broken_gates(state.gates)
        record = None
        if status == "error":
            self.references.note_unmeasured(item, status)
        if status != "skipped":
            record = build_record(
                item,
                self.run_id,
                status,
                reason=reason or None,
                model=state.model,
                measurement=measurement,
                identity=state.identity,
                gates=state.gates if measurement else (),
                build_and_settings=self.identities.of(item) if item.is_gated else None,
            )
        return FinishedItem(
            outcome=ItemOutcome(
                item.benchmark.name,
                item.variant,
                item.blocking,
                status,
                reason or "",
                notes=tuple(
                    f"{gate.name}: {gate.detail}"
                    for gate in state.gates
                    if not gate.evaluated and gate.severity == "note"
                ),
                accepted=tuple(f"{gate.name} {gate.accepted}" for gate in state.gates if gate.accepted),
                warnings=state.guessed_floors,
            ),
            niche=item.niche,
            not_gated=item.not_gated_because,
            record=record,
            samples=sample_records(measurement) if measurement else [],
        )


def _check_abilities(item: BenchmarkItem, built: BuiltTask, abilities: Abilities) -> None:
    """Whether a model can give what the tasks need; nothing has been asked of it yet."""
    for name, leaf in built.leaves.items():
        output_type = leaf.get_config("output_type")
        lacking = abilities.lacking(output_type)
        if lacking is not None:
            raise ModelError(
                f"{item.benchmark.name}: {name} is of the type {output_type}, for which {item.model} gives "
                f"no {lacking}"
            )


def _check_tokenizer(item: BenchmarkItem, model: LoadedModel, reference: Mapping[str, Any] | None) -> None:
    """Whether the reference's texts became the same tokens; the scores of others cannot be compared."""
    if model.tokenizer is None or reference is None:
        return
    differences = tokenizer_differences(model.tokenizer, reference)
    if differences:
        raise ModelError(
            f"{item.benchmark.name}: the tokenizer of {item.model} is not the reference's: "
            f"{'; '.join(differences)}; give both the same tokenizer files"
        )


def _broken_gates(gates: Sequence[GateResult]) -> str:
    return "; ".join(
        f"{gate.name}{'' if gate.evaluated else ' not evaluated'}: {gate.detail}"
        for gate in gates
        if gate.is_against
    )
