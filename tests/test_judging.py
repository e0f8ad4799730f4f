"""Which gates apply to an item, and what they are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_gnus.gates.result import GateResult
from pytest_gnus.judging import Judgement, References, judge
from pytest_gnus.measurement import Counts, DocumentOutcome, Measurement, Protocol
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.plan import BenchmarkItem, Request
from pytest_gnus.recording import build_record
from pytest_gnus.records.fingerprint import fingerprint
from pytest_gnus.records.store import RecordStore
from pytest_gnus.schema import Benchmark, RegressionPolicy, Thresholds, Variant

PROTOCOL = Protocol("v1", "colours", "1.0", "sha256:x", "a" * 64, 1234, "b" * 64, {"metric": "acc"}, {})
FIELDS: Mapping[str, Any] = {
    **PROTOCOL.__dict__,
    "model_manifest_sha256": "c" * 64,
    "sgfp4_manifest_sha256": None,
}
REQUEST = Request("colours", "canonical", "local", 0, 1234, False, None, {}, {}, None, False, None, (), None)
LIMITS = Thresholds(hard_floor=0.3, max_relative_drop=0.1, category_floors={"warm": 0.2})
RUN = "20260601T000000.000000Z-deadbeef"
COMMAND = "pytest --niche=toy --gnus-variant=reference -k colours"


def item_of(variant: Variant = "quantized", thresholds: Thresholds = LIMITS, **changes: Any) -> BenchmarkItem:
    item = BenchmarkItem(
        niche="toy",
        benchmark=Benchmark(name="colours", task="colours"),
        variant=variant,
        blocking=True,
        model=ModelSpec("mlx", f"/models/{variant}"),
        thresholds=thresholds,
        request=REQUEST,
    )
    return replace(item, **changes)


def measured(score: float = 0.5, *, higher: bool = True, warm: float = 0.25) -> Measurement:
    return Measurement(
        metric="acc,none",
        score=score,
        stderr=0.05,
        ci95=(score - 0.1, score + 0.1),
        n=60,
        higher_is_better=higher,
        num_fewshot=0,
        protocol=PROTOCOL,
        counts=Counts(60, 60),
        per_category={"colours_warm": warm, "colours_cold": 0.9},
    )


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(tmp_path / "artifacts")


@pytest.fixture
def references(store: RecordStore) -> References:
    return References(store, RUN)


def keep(store: RecordStore, score: float, item: BenchmarkItem | None = None, **fields: Any) -> Path:
    """Write the record of a reference measured earlier; `fields` replace those of its fingerprint."""
    return store.write(
        build_record(
            item or item_of("reference"),
            "20260101T000000Z-deadbeef",
            "passed",
            measurement=measured(score),
            identity=fingerprint({**FIELDS, **fields}, is_sgfp4=False),
        )
    )


def regression(references: References, item: BenchmarkItem | None = None, score: float = 0.5) -> GateResult:
    return regression_of(judge(item or item_of(), measured(score), FIELDS, references))


def regression_of(judgement: Judgement) -> GateResult:
    (gate,) = [gate for gate in judgement.gates if gate.name == "quantization_regression"]
    return gate


def test_the_quantized_variant_has_its_floors_and_the_regression_gate(references: References) -> None:
    references.remember(item_of("reference"), measured(0.5), FIELDS)
    gates = judge(item_of(), measured(0.48), FIELDS, references).gates
    assert [(gate.name, gate.passed, gate.value) for gate in gates] == [
        ("hard_floor", True, 0.48),
        ("category_floor[warm]", True, 0.25),
        ("quantization_regression", True, pytest.approx(0.04)),
        ("previous_run", None, None),
        ("baseline_deviation", None, None),
    ]
    assert gates[0].ci95 == pytest.approx((0.38, 0.58))
    assert gates[2].reference == 0.5


@pytest.mark.parametrize("variant", ["reference", "baseline"])
def test_other_variants_have_floors_only(references: References, variant: Variant) -> None:
    gates = judge(item_of(variant), measured(), FIELDS, references).gates
    assert [gate.name for gate in gates] == ["hard_floor", "category_floor[warm]"]


def test_a_blocking_benchmark_without_a_floor_is_not_passed_over(references: References) -> None:
    gates = judge(item_of(thresholds=Thresholds(max_relative_drop=0.1)), measured(), FIELDS, references).gates
    assert [(gate.name, gate.passed) for gate in gates[:2]] == [
        ("hard_floor", None),
        ("quantization_regression", None),
    ]
    assert "a blocking benchmark needs one" in gates[0].detail
    (alone,) = judge(item_of("reference", Thresholds()), measured(), FIELDS, references).gates
    assert (alone.name, alone.passed) == ("hard_floor", None)


def test_each_gate_fails_on_its_own(references: References) -> None:
    references.remember(item_of("reference"), measured(0.5), FIELDS)
    gates = judge(item_of(), measured(0.29, warm=0.1), FIELDS, references).gates
    assert [gate.passed for gate in gates[:3]] == [False, False, False]
    assert gates[2].value == pytest.approx(0.42)


def test_where_lower_is_better_all_gates_turn_round(references: References) -> None:
    references.remember(item_of("reference"), measured(10.0, higher=False), FIELDS)
    limits = Thresholds(hard_floor=12.0, max_relative_drop=0.1, category_floors={"cold": 1.0})
    gates = judge(item_of(thresholds=limits), measured(11.5, higher=False), FIELDS, references).gates
    assert [gate.passed for gate in gates[:3]] == [True, True, False]
    assert gates[2].value == pytest.approx(0.15)


def test_the_reference_of_this_run_is_preferred_to_a_record(
    store: RecordStore, references: References
) -> None:
    keep(store, 0.9)
    references.remember(item_of("reference"), measured(0.5), FIELDS)
    assert regression(references).reference == 0.5


def test_a_record_is_the_reference_where_this_run_measured_none(
    store: RecordStore, references: References
) -> None:
    keep(store, 0.9)
    keep(store, 0.52)
    gate = regression(references)
    assert (gate.passed, gate.reference) == (True, 0.52)


def test_a_record_of_other_weights_can_be_the_reference(store: RecordStore, references: References) -> None:
    keep(store, 0.52, model_manifest_sha256="f" * 64)
    assert regression(references).reference == 0.52


def test_neither_another_variant_nor_benchmark_nor_niche_is_the_reference(
    store: RecordStore, references: References
) -> None:
    others = [
        item_of("baseline"),
        item_of("quantized"),
        item_of("reference", niche="other"),
        item_of("reference", benchmark=Benchmark(name="shapes", task="t")),
    ]
    for other in others:
        references.remember(other, measured(0.5), FIELDS)
        keep(store, 0.5, other)
    assert regression(references).passed is None


def test_without_any_reference_the_gate_says_how_to_get_one(references: References) -> None:
    gate = regression(references)
    assert (gate.passed, gate.threshold) == (None, 0.1)
    assert gate.detail == f"no comparable record of the reference; run `{COMMAND}`"


def test_records_that_cannot_be_compared_with_are_named_with_the_reason(
    store: RecordStore, references: References
) -> None:
    other = keep(store, 0.5, prompt_hash="f" * 64)
    gate = regression(references)
    assert gate.passed is None
    assert f"{other.name}: differs in prompt_hash" in gate.detail
    assert COMMAND in gate.detail
    broken = keep(store, 0.5)
    broken.write_text("{")
    gate = regression(references)
    assert gate.passed is None
    assert f"{broken.name} cannot be read" in gate.detail
    assert COMMAND in gate.detail
    assert broken.read_text() == "{"


def test_a_corrupt_newest_record_is_not_passed_over_for_an_older_one(
    store: RecordStore, references: References
) -> None:
    """What it held is not known: the older one may be lower."""
    keep(store, 0.5)
    broken = keep(store, 0.9)
    broken.write_text("")
    gate = regression(references)
    assert (gate.passed, gate.severity, gate.reference) == (None, "block", None)
    assert f"a newer record cannot be read: {broken.name} cannot be read" in gate.detail
    assert COMMAND in gate.detail
    references.remember(item_of("reference"), measured(0.5), FIELDS)
    assert regression(references).passed is True


def test_a_corrupt_record_behind_a_whole_one_changes_nothing(
    store: RecordStore, references: References
) -> None:
    keep(store, 0.9).write_text("")
    keep(store, 0.5)
    assert regression(references).reference == 0.5


def test_of_many_records_passed_over_the_newest_three_are_named(
    store: RecordStore, references: References
) -> None:
    paths = [keep(store, 0.5, prompt_hash=str(number) * 64) for number in range(5)]
    detail = regression(references).detail
    assert [path.name in detail for path in paths] == [False, False, True, True, True]


@pytest.mark.parametrize(
    "item",
    [
        item_of("reference", run_limit=5),
        item_of("reference", request=replace(REQUEST, mode="diagnostic")),
    ],
    ids=["limited", "diagnostic"],
)
def test_records_of_runs_that_were_not_gated_are_no_reference(
    store: RecordStore, references: References, item: BenchmarkItem
) -> None:
    keep(store, 0.5, item)
    gate = regression(references)
    assert gate.passed is None
    assert "is not canonical" in gate.detail


def test_a_reference_measured_differently_in_this_run_is_not_compared_with(
    store: RecordStore, references: References
) -> None:
    """Nor is an older record put in its place."""
    keep(store, 0.5)
    changed = {**FIELDS, "chat_template_hash": "f" * 64, "fewshot_seed": 7}
    references.remember(item_of("reference"), measured(0.5), changed)
    gate = regression(references)
    assert gate.passed is None
    assert "measured differently: fewshot_seed, chat_template_hash differ" in gate.detail


@pytest.mark.parametrize(
    "item",
    [item_of(run_limit=5), item_of(request=replace(REQUEST, mode="diagnostic"))],
    ids=["limited", "diagnostic"],
)
def test_a_run_that_is_not_gated_compares_within_itself_only(
    store: RecordStore, references: References, item: BenchmarkItem
) -> None:
    keep(store, 0.9)
    gate = regression(references, item)
    assert (gate.passed, gate.detail) == (
        None,
        "no reference in this run; records are for canonical runs",
    )
    references.remember(replace(item, variant="reference"), measured(0.5), FIELDS)
    assert regression(references, item).reference == 0.5


def test_a_reference_of_zero_is_a_reference(store: RecordStore, references: References) -> None:
    keep(store, 0.0)
    assert regression(references, score=0.0).passed is True
    gate = regression(references, score=0.5)
    assert (gate.passed, "no relative drop exists" in gate.detail) == (None, True)


def test_the_newest_measurement_of_a_reference_counts(references: References) -> None:
    for score in (0.9, 0.5):
        references.remember(item_of("reference"), measured(score), FIELDS)
    assert regression(references).reference == 0.5


def documents(rights: Sequence[bool], tasks: Sequence[str] = ("colours",)) -> tuple[DocumentOutcome, ...]:
    """One outcome per document, the tasks in turn."""
    return tuple(
        DocumentOutcome(tasks[number % len(tasks)], number, f"{number:064x}", float(right))
        for number, right in enumerate(rights)
    )


def of_documents(rights: Sequence[bool], **changes: Any) -> Measurement:
    outcomes = documents(rights)
    score = sum(rights) / len(rights)
    return replace(measured(score), outcomes=outcomes, n=len(rights), **changes)


#: Of 100 documents the candidate loses 12 and wins none: 80 right against 68, 15 % of the reference.
BEFORE = [number < 80 for number in range(100)]
AFTER = [number < 68 for number in range(100)]


@pytest.mark.parametrize(
    ("policy", "limit", "passed", "warned"),
    [
        ("threshold", 0.10, False, False),
        ("threshold", 0.20, True, True),
        ("significant", 0.20, False, False),
        ("both", 0.20, True, True),
        ("either", 0.20, False, False),
        ("both", 0.10, False, False),
    ],
)
def test_the_policy_of_the_niche_decides(
    references: References, policy: RegressionPolicy, limit: float, passed: bool, warned: bool
) -> None:
    references.remember(item_of("reference"), of_documents(BEFORE), FIELDS)
    limits = Thresholds(hard_floor=0.3, max_relative_drop=limit)
    judgement = judge(
        item_of(thresholds=limits, regression_policy=policy), of_documents(AFTER), FIELDS, references
    )
    gate = regression_of(judgement)
    assert (gate.passed, gate.value, gate.reference) == (passed, pytest.approx(0.15), 0.8)
    assert gate.p_value == pytest.approx(2 * 0.5**12)  # exact McNemar: 12 lost, none won
    assert any("a significant drop within the limit" in text for text in judgement.warnings) is warned


def test_too_few_documents_claim_nothing(references: References) -> None:
    references.remember(item_of("reference"), of_documents(BEFORE), FIELDS)
    item = item_of(minimum_pairs=101)
    gate = regression_of(judge(item, of_documents(AFTER), FIELDS, references))
    assert (gate.passed, gate.p_value, gate.ci95) == (False, None, None)
    assert "insufficient data" in gate.detail
    significant = judge(
        replace(item, regression_policy="significant"), of_documents(AFTER), FIELDS, references
    )
    assert regression_of(significant).passed is None


def test_the_documents_of_a_record_are_compared_too(store: RecordStore, references: References) -> None:
    earlier = of_documents(BEFORE)
    path = store.write(
        build_record(
            item_of("reference"),
            "20260101T000000Z-deadbeef",
            "passed",
            measurement=earlier,
            identity=fingerprint(FIELDS, is_sgfp4=False),
        ),
        [outcome.to_record() for outcome in earlier.outcomes],
    )
    gate = regression_of(judge(item_of(), of_documents(AFTER), FIELDS, references))
    assert gate.p_value == pytest.approx(2 * 0.5**12)
    samples = next(path.parent.glob("*.samples.jsonl.gz"))
    samples.write_bytes(samples.read_bytes()[:-9])
    gate = regression_of(judge(item_of(), of_documents(AFTER), FIELDS, references))
    assert (gate.passed, gate.p_value) == (False, None)
    assert f"{samples.name} cannot be read" in gate.detail


def test_categories_that_fell_are_named_without_those_of_chance(references: References) -> None:
    tasks = ("colours_cold", "colours_warm")
    reference, candidate = [True] * 120, [number % 2 == 0 or number < 80 for number in range(120)]
    categories = {"colours_cold": 1.0, "colours_warm": 0.5}
    before = replace(measured(1.0), outcomes=documents(reference, tasks), per_category=categories)
    after = replace(
        measured(sum(candidate) / 120), outcomes=documents(candidate, tasks), per_category=categories
    )
    references.remember(item_of("reference"), before, FIELDS)
    warnings = judge(item_of(), after, FIELDS, references).warnings
    assert [text for text in warnings if " fell by " in text] == [
        "colours_warm fell by 0.3333 (p = 3.8e-06, Holm)"  # 20 of 60 lost: 2 * 0.5**20, times two
    ]
