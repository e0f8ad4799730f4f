"""Two variants that were not measured alike: what differs is named, and another tokenizer is an error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_gnus.errors import ModelError
from pytest_gnus.judging import References
from pytest_gnus.measurement import Measurement
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.models.usage import Usage
from pytest_gnus.recording import build_record
from pytest_gnus.records.fingerprint import fingerprint, told_differences
from pytest_gnus.records.store import RecordStore, read
from pytest_gnus.run import ItemState, Run
from tests.test_judging import FIELDS, RUN, item_of, judge, measured

EARLIER = "20260101T000000Z-deadbeef"
TOKENIZER = {"size": 1536, "tokens": "a", "vocabulary": "b", "merges": "c", "begin": None, "end": 0}
PERMUTED = {**TOKENIZER, "vocabulary": "z"}
GENERATING = {"do_sample": False, "until": ["\n"], "end_tokens": [0]}


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ({}, {}, ""),
        ({"prompt_hash": "a"}, {"prompt_hash": "b"}, "prompt_hash"),
        (
            {"generation_params": GENERATING},
            {"generation_params": {**GENERATING, "end_tokens": [0, 5]}},
            "generation_params (end_tokens [0], here [0, 5])",
        ),
        (
            {"generation_params": {"do_sample": False, "until": ["\n"]}, "fewshot_seed": 1},
            {"generation_params": GENERATING, "fewshot_seed": 2},
            "fewshot_seed, generation_params (end_tokens not known, here [0])",
        ),
        (
            {"generation_params": {"one": {"end_tokens": [1]}, "two": {"end_tokens": [1], "x": 1}}},
            {"generation_params": {"one": {"end_tokens": [2]}, "two": {"end_tokens": [1]}}},
            "generation_params (one.end_tokens [1], here [2]; two.x 1, here not known)",
        ),
        (
            {"generation_params": {"until": "u" * 200}},
            {"generation_params": {"until": "v"}},
            f'generation_params (until "{"u" * 99}…, here "v")',
        ),
        ({"generation_params": None}, {"generation_params": {}}, "generation_params"),
        ({"model_manifest_sha256": "a"}, {"model_manifest_sha256": "b"}, ""),
    ],
)
def test_what_differs_between_two_fingerprints_is_told(
    one: dict[str, Any], other: dict[str, Any], told: str
) -> None:
    assert told_differences(one, other) == told


def regression(references: References, fields: dict[str, Any]) -> str:
    gates = judge(item_of(), measured(0.5), fields, references).gates
    (gate,) = [gate for gate in gates if gate.name.endswith("_regression")]
    assert gate.passed is None
    return gate.detail


def test_the_gate_names_the_end_tokens_of_both_variants(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    references = References(store, RUN)
    listed = {**FIELDS, "generation_params": {**GENERATING, "end_tokens": [0, 5]}}
    short = {**FIELDS, "generation_params": GENERATING}
    references.remember(item_of("reference"), measured(0.5), listed)
    assert regression(references, short) == (
        "the reference was measured differently: generation_params (end_tokens [0, 5], here [0]) differ; "
        "check both models"
    )
    # So does the record of a reference that was measured earlier.
    earlier = measured(0.5)
    store.write(
        build_record(
            item_of("reference"),
            EARLIER,
            "passed",
            measurement=earlier,
            identity=fingerprint(listed, is_sgfp4=False),
        )
    )
    assert "differs in generation_params (end_tokens [0, 5], here [0])" in regression(
        References(store, RUN), short
    )


class _Model:
    """A language model that is never asked: the measurement is given."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.progress: Any = None

    def release(self) -> None:
        """There are no weights."""


def loaded(tokenizer: dict[str, Any] | None) -> LoadedModel:
    return LoadedModel(ModelSpec("mlx", "/models/x"), _Model(), tokenizer=tokenizer, identity="x")


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The variants that lm-eval was run on."""
    asked: list[str] = []

    def measure(item: Any, _built: Any, _model: Any) -> Measurement:
        asked.append(item.variant)
        return measured(0.5)

    monkeypatch.setattr("pytest_gnus.evaluation.measure", measure)
    monkeypatch.setattr("pytest_gnus.run._check_abilities", lambda *_arguments: None)
    return asked


def test_a_quantized_variant_with_another_tokenizer_is_an_error_before_it_is_measured(
    tmp_path: Path, evaluated: list[str]
) -> None:
    run = Run(RecordStore(tmp_path))
    built: Any = None
    reference = ItemState(item_of("reference"))
    run.measure(reference, built, loaded(TOKENIZER))
    quantized = ItemState(item_of())
    with pytest.raises(
        ModelError, match="is not the reference's: the same tokens under other ids; give both"
    ):
        run.measure(quantized, built, loaded(PERMUTED))
    assert evaluated == ["reference"]
    assert quantized.measurement is None
    for tokenizer in (TOKENIZER, None):
        run.measure(ItemState(item_of()), built, loaded(tokenizer))
    assert evaluated == ["reference", "quantized", "quantized"]


@pytest.mark.parametrize("run_id", [EARLIER, None], ids=["earlier run", "this run"])
def test_the_tokenizer_of_a_reference_in_the_records_counts_too(
    tmp_path: Path, evaluated: list[str], run_id: str | None
) -> None:
    run = Run(RecordStore(tmp_path))
    state = ItemState(item_of("reference"))
    built: Any = None
    Run(RecordStore(tmp_path / "elsewhere")).measure(state, built, loaded(TOKENIZER))
    record = build_record(
        state.item,
        run_id or run.run_id,
        "passed",
        model=state.model,
        measurement=state.measurement,
        identity=state.identity,
    )
    path = run.store.write(record)
    assert read(path)["model"]["tokenizer"] == TOKENIZER
    with pytest.raises(ModelError, match="the same tokens under other ids"):
        run.measure(ItemState(item_of()), built, loaded(PERMUTED))
    run.measure(ItemState(item_of()), built, loaded(TOKENIZER))


def test_records_of_earlier_releases_say_nothing_of_tokenizers(tmp_path: Path, evaluated: list[str]) -> None:
    store = RecordStore(tmp_path)
    record = build_record(
        item_of("reference"),
        EARLIER,
        "passed",
        measurement=measured(0.5),
        identity=fingerprint(FIELDS, is_sgfp4=False),
    )
    del record["model"]["tokenizer"], record["notes"]
    store.write(record)
    built: Any = None
    Run(store).measure(ItemState(item_of()), built, loaded(PERMUTED))
    assert evaluated == ["quantized"]


def test_what_was_done_to_the_prompts_stands_in_the_record() -> None:
    measurement = replace(measured(), notes=("a doubt",), adjustments=("a block was closed",))
    record = build_record(
        item_of(), RUN, "passed", measurement=measurement, identity=fingerprint(FIELDS, is_sgfp4=False)
    )
    assert record["notes"] == ["a block was closed", "a doubt"]
    state = ItemState(item_of(), measurement=measurement)
    assert state.warnings == [f"{item_of().name}: a doubt"]
