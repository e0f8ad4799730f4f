"""The record's JSON Schema, and records as `build_record` makes them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gnus.errors import RecordError
from pytest_gnus.gates.floors import hard_floor
from pytest_gnus.gates.regression import regression
from pytest_gnus.gates.result import GateResult
from pytest_gnus.gates.trust import ChanceLevels
from pytest_gnus.gates.verdict import Status
from pytest_gnus.measurement import Counts, DocumentOutcome, Measurement, Protocol
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.models.usage import Usage
from pytest_gnus.plan import BenchmarkItem, Request
from pytest_gnus.recording import Manifests, build_record, item_fingerprint, sample_records
from pytest_gnus.records import schema
from pytest_gnus.records.fingerprint import (
    FIELDS,
    Fingerprint,
    directory_sha256,
    file_sha256,
    fingerprint,
    record_digest,
)
from pytest_gnus.schema import Benchmark, Thresholds

SPEC = ModelSpec("mlx", "/models/toy", "/models/adapter")
PROTOCOL = Protocol(
    harness_commit="v0.4.13+sha256:abc",
    task_name="colours",
    task_revision="1.0",
    dataset_revision="sha256:def",
    prompt_hash="a" * 64,
    fewshot_seed=1234,
    chat_template_hash="b" * 64,
    answer_extraction={"output_type": "multiple_choice", "metric": "acc"},
    generation_params={"do_sample": False},
)
MEASUREMENT = Measurement(
    metric="acc,none",
    score=0.5,
    stderr=0.05,
    ci95=(0.4, 0.6),
    n=60,
    higher_is_better=True,
    num_fewshot=0,
    protocol=PROTOCOL,
    counts=Counts(documents=60, scored=60, requests=240, truncated_prompts=0),
    per_category={"colours_warm": 0.4},
    metrics={"acc,none": 0.5},
    outcomes=(
        DocumentOutcome("colours", 0, "e" * 64, 1.0),
        DocumentOutcome("colours", 1, "f" * 64, None, {"hypothesis": "red"}),
    ),
    chance=ChanceLevels(0.25, 0.5),
    flags=("no better than always the same choice (0.5000)",),
    subtasks=("warm",),
    evaluate_seconds=1.23456,
    prompt_tokens=1000,
)
GATES = (
    hard_floor(0.5, 0.3, ci95=(0.4, 0.6)),
    regression("quantization_regression", 0.5, 0.52, 0.1),
    regression("sgfp4_regression", 0.5, None, 0.1),
)
IDENTITY = fingerprint(
    {**PROTOCOL.__dict__, "model_manifest_sha256": "c" * 64, "sgfp4_manifest_sha256": "d" * 64},
    is_sgfp4=True,
)
PLACEHOLDERS = ("stub", "n/a", "N/A", "unknown", "none", "None", "TODO", "placeholder", "")
TEXT_FIELDS = ("harness_commit", "task_name", "task_revision", "dataset_revision")


class Silent:
    """A language model that is never asked."""

    def __init__(self) -> None:
        self.usage = Usage()

    def release(self) -> None:
        """Holds nothing."""


def item_of(**changes: Any) -> BenchmarkItem:
    request = Request(
        task="colours",
        mode=changes.pop("mode", "canonical"),
        source="local",
        num_fewshot=0,
        fewshot_seed=1234,
        chat_template=False,
        system_instruction=None,
        generation_kwargs={},
        task_overrides={},
        revision=None,
        force_download=False,
        local=None,
        subtasks=(),
        limit=None,
    )
    fields: dict[str, Any] = {
        "niche": "toy",
        "benchmark": Benchmark(name="colours", task="colours", metric="acc"),
        "variant": "quantized",
        "blocking": True,
        "model": SPEC,
        "thresholds": Thresholds(),
        "request": request,
    }
    return BenchmarkItem(**(fields | changes))


def model_of(**changes: Any) -> LoadedModel:
    fields: dict[str, Any] = {
        "spec": SPEC,
        "lm": Silent(),
        "dtype": "float16",
        "device": "cpu",
        "blas": "mkl",
        "version": "1.2",
        "quantization": {"format": "sgfp4", "bits": 4},
        "load_seconds": 0.98765,
    }
    return LoadedModel(**(fields | changes))


def sealed(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """A record as the store writes it, with its own digest."""
    record = build_record(*args, **kwargs)
    return record | {"record_sha256": record_digest(record)}


def measured_record(
    status: Status = "passed",
    *,
    item: BenchmarkItem | None = None,
    measurement: Measurement = MEASUREMENT,
    identity: Fingerprint = IDENTITY,
) -> dict[str, Any]:
    return sealed(
        item or item_of(),
        "20260101T000000Z-deadbeef",
        status,
        model=model_of(),
        measurement=measurement,
        identity=identity,
        gates=[gate for gate in GATES if gate is not None],
    )


def unmeasured_record(status: Status = "error") -> dict[str, Any]:
    return sealed(item_of(), "20260101T000000Z-deadbeef", status, reason="no such model")


RECORD = measured_record()
RESULT = RECORD["results"]["colours"]


def changed(path: str, value: Any, record: dict[str, Any] = RECORD) -> dict[str, Any]:
    """A copy of a record with one value replaced; the path's parts are separated by slashes."""
    content = copy.deepcopy(record)
    *parents, last = path.split("/")
    target: Any = content
    for part in parents:
        target = target[int(part) if isinstance(target, list) else part]
    target[last] = value
    return content


def refused(record: Any, *words: str) -> None:
    with pytest.raises(RecordError) as raised:
        schema.validate(record)
    for word in words:
        assert word in str(raised.value)


def plain(value: Any) -> bool:
    """Whether a value is made of JSON's own types and nothing that only looks like them."""
    if type(value) is dict:
        return all(type(key) is str and plain(entry) for key, entry in value.items())
    if type(value) is list:
        return all(plain(entry) for entry in value)
    return value is None or type(value) in (str, int, float, bool)


@pytest.mark.parametrize("status", ["passed", "failed", "warned"])
def test_a_measured_items_record_is_valid_and_says_all(status: Status) -> None:
    record = measured_record(status)
    schema.validate(record)
    assert (record["niche"], record["benchmark"], record["variant"]) == ("toy", "colours", "quantized")
    assert (record["status"], record["quantized"], record["blocking"]) == (status, True, True)
    assert record["model"] == {
        "provider": "mlx",
        "path": "/models/toy",
        "adapter": "/models/adapter",
        "dtype": "float16",
        "embedded_demonstration": False,
        "tokenizer": None,
    }
    assert record["quantization_config"] == {"format": "sgfp4", "bits": 4}
    assert record["fingerprint_hash"] == IDENTITY.digest
    assert (record["fingerprint_valid"], record["fingerprint_missing"]) == (True, [])
    assert record["results"] == {
        "colours": {
            "score": 0.5,
            "metric": "acc,none",
            "stderr": 0.05,
            "ci95": [0.4, 0.6],
            "n": 60,
            "higher_is_better": True,
            "num_fewshot": 0,
            "subtasks": ["warm"],
            "chance": {"random_choice": 0.25, "constant_choice": 0.5},
            "per_category": {"colours_warm": 0.4},
            "metrics": {"acc,none": 0.5},
        }
    }
    assert [(gate["name"], gate["passed"], gate["evaluated"]) for gate in record["gates"]] == [
        ("hard_floor", True, True),
        ("quantization_regression", True, True),
        ("sgfp4_regression", None, False),
    ]
    assert record["timing"] == {
        "load_s": 0.988,
        "evaluate_s": 1.235,
        "prompt_tokens": 1000,
        "generated_tokens": 0,
        "tokens_reused": 0,
        "wait_s": 0.0,
    }
    assert record["counts"] == {
        "documents": 60,
        "scored": 60,
        "unscored": 0,
        "failed": 0,
        "requests": 240,
        "truncated_prompts": 0,
        "stopped_by_string": 0,
        "stopped_by_limit": 0,
        "duplicates": 0,
        "examples_of_evaluated_documents": 0,
    }


@pytest.mark.parametrize("status", ["error", "not_implemented"])
def test_an_item_that_was_not_measured_has_a_valid_record_without_a_score(status: Status) -> None:
    record = unmeasured_record(status)
    schema.validate(record)
    assert record["reason"] == "no such model"
    result = record["results"]["colours"]
    assert (result["score"], result["n"], result["stderr"], result["ci95"]) == (None, None, None, None)
    assert record["counts"] is None
    assert record["gates"] == []
    assert record["fingerprint_valid"] is False
    assert record["fingerprint_missing"] == [
        "harness_commit",
        "prompt_hash",
        "chat_template_hash",
        "answer_extraction",
        "generation_params",
        "model_manifest_sha256",
    ]


def test_a_record_without_an_inline_tasks_name_takes_the_benchmarks() -> None:
    item = item_of(benchmark=Benchmark(name="colours", status="not_implemented", reason="later"))
    record = sealed(item, "20260101T000000Z-deadbeef", "not_implemented", reason="later")
    schema.validate(record)
    assert record["fingerprint"]["task_name"] == "colours"


@pytest.mark.parametrize(
    "record", [RECORD, unmeasured_record(), measured_record(item=item_of(run_limit=5, mode="diagnostic"))]
)
def test_a_record_is_plain_json(record: dict[str, Any]) -> None:
    assert plain(record)
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_per_document_outcomes_are_plain_json_and_name_their_documents() -> None:
    samples = [dict(sample) for sample in sample_records(MEASUREMENT)]
    assert samples == [
        {"task": "colours", "doc_id": 0, "doc_hash": "e" * 64, "score": 1.0},
        {"task": "colours", "doc_id": 1, "doc_hash": "f" * 64, "score": None, "value": {"hypothesis": "red"}},
    ]
    assert plain(samples)


def test_the_environment_holds_no_user_host_or_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    environment = measured_record()["environment"]
    assert set(environment) == {"python", "platform", "device", "blas", "packages", "untested"}
    assert "hf_secret" not in json.dumps(measured_record())


#: What records of earlier releases do not have.
LATER_KEYS = frozenset({"build_and_settings_sha256", "notes", "reruns"})


@pytest.mark.parametrize("key", [key for key in RECORD if key not in LATER_KEYS])
def test_a_record_without_any_of_its_keys_is_refused(key: str) -> None:
    record = copy.deepcopy(RECORD)
    del record[key]
    refused(record, f'"{key}"', "required")


@pytest.mark.parametrize(
    ("path", "key"),
    [
        *(("fingerprint", key) for key in FIELDS),
        *(("model", key) for key in RECORD["model"] if key != "tokenizer"),
        # Records that were made before a model was waited for have no `wait_s`.
        *(("timing", key) for key in RECORD["timing"] if key != "wait_s"),
        # Nor have older ones what came to be counted, or said of a gate, later.
        *(
            ("counts", key)
            for key in RECORD["counts"]
            if key not in ("duplicates", "examples_of_evaluated_documents")
        ),
        *(("gates/0", key) for key in RECORD["gates"][0] if key != "significant"),
        *(("results/colours", key) for key in ("score", "metric", "n", "stderr", "ci95", "per_category")),
        *(("environment", key) for key in ("python", "platform", "device", "packages")),
        ("quantization_config", "format"),
    ],
)
def test_a_record_without_a_nested_key_is_refused(path: str, key: str) -> None:
    record = copy.deepcopy(RECORD)
    target: Any = record
    for part in path.split("/"):
        target = target[int(part) if isinstance(target, list) else part]
    del target[key]
    refused(record, f'"{key}"')


@pytest.mark.parametrize("path", ["", "fingerprint/", "model/", "timing/", "counts/", "results/colours/"])
def test_a_key_that_nobody_knows_is_refused(path: str) -> None:
    refused(changed(f"{path}surprise", 1), "'surprise' was unexpected")


@pytest.mark.parametrize("word", PLACEHOLDERS)
@pytest.mark.parametrize("field", TEXT_FIELDS)
def test_a_placeholder_is_refused_in_the_fingerprint(field: str, word: str) -> None:
    refused(changed(f"fingerprint/{field}", word), f"fingerprint.{field}")


@pytest.mark.parametrize("word", ["Stub", "STUB", "Unknown", "UNKNOWN", "NONE", "todo", "Placeholder", " "])
def test_a_placeholder_is_refused_however_it_is_spelled(word: str) -> None:
    refused(changed("fingerprint/harness_commit", word), "fingerprint.harness_commit")


@pytest.mark.parametrize("word", PLACEHOLDERS)
@pytest.mark.parametrize(
    "field",
    [
        "prompt_hash",
        "chat_template_hash",
        "model_manifest_sha256",
        "sgfp4_manifest_sha256",
        "fewshot_seed",
        "answer_extraction",
        "generation_params",
    ],
)
def test_a_placeholder_is_no_digest_seed_or_mapping(field: str, word: str) -> None:
    refused(changed(f"fingerprint/{field}", word), f"fingerprint.{field}")


@pytest.mark.parametrize("field", [f for f in FIELDS if f not in ("task_revision", "dataset_revision")])
def test_a_record_that_calls_itself_valid_may_not_lack_a_field(field: str) -> None:
    refused(changed(f"fingerprint/{field}", None), f"fingerprint.{field}")
    honest = changed(f"fingerprint/{field}", None)
    honest |= {"fingerprint_valid": False, "fingerprint_missing": [field]}
    schema.validate(honest)


@pytest.mark.parametrize("field", ["task_revision", "dataset_revision"])
def test_a_revision_may_be_null_in_a_valid_record(field: str) -> None:
    schema.validate(changed(f"fingerprint/{field}", None))


@pytest.mark.parametrize("quantization", [None, {"format": "mlx", "bits": 4}])
def test_a_missing_sgfp4_manifest_is_valid_where_there_is_no_sgfp4(quantization: Any) -> None:
    schema.validate(
        changed("quantization_config", quantization, changed("fingerprint/sgfp4_manifest_sha256", None))
    )


@pytest.mark.parametrize(("valid", "missing"), [(True, ["prompt_hash"]), (False, [])])
def test_validity_and_what_is_missing_may_not_contradict(valid: bool, missing: list[str]) -> None:
    refused(changed("fingerprint_missing", missing) | {"fingerprint_valid": valid}, "fingerprint_missing")


@pytest.mark.parametrize(
    "digest", ["a" * 63, "a" * 65, "A" * 64, "g" * 64, "a" * 64 + "\n", "sha256:" + "a" * 57]
)
def test_a_digest_is_64_small_hexadecimal_digits(digest: str) -> None:
    refused(changed("fingerprint_hash", digest), "fingerprint_hash")


@pytest.mark.parametrize("status", ["passed", "failed", "warned"])
@pytest.mark.parametrize(("key", "value"), [("score", None), ("n", None), ("n", 0), ("score", "0.5")])
def test_a_measured_status_needs_a_score_and_its_documents(status: str, key: str, value: Any) -> None:
    refused(changed(f"results/colours/{key}", value) | {"status": status}, f"results.colours.{key}")


def test_a_measured_status_needs_its_counts() -> None:
    refused(changed("counts", None), "counts")


@pytest.mark.parametrize("status", ["error", "not_implemented"])
@pytest.mark.parametrize("score", [0.0, 0.5])
def test_what_was_not_measured_has_no_score_not_even_zero(status: str, score: float) -> None:
    record = changed("results/colours/score", score, unmeasured_record()) | {"status": status}
    refused(record, "results.colours.score")


@pytest.mark.parametrize("reason", [None, ""])
def test_what_was_not_measured_says_why(reason: str | None) -> None:
    refused(changed("reason", reason, unmeasured_record()), "reason")


@pytest.mark.parametrize("score", [float("nan"), float("inf"), float("-inf")])
def test_a_score_that_is_not_finite_is_refused(score: float) -> None:
    refused(changed("results/colours/score", score), "results.colours.score")


@pytest.mark.parametrize(
    ("evaluated", "passed"), [(True, None), (False, True), (False, False), (None, None), (1, True)]
)
def test_a_gate_passed_or_failed_exactly_where_it_was_evaluated(evaluated: Any, passed: Any) -> None:
    gate = GateResult("g", True).to_record() | {"evaluated": evaluated, "passed": passed}
    refused(changed("gates", [gate]), "gates.0")


@pytest.mark.parametrize(("passed", "evaluated"), [(True, True), (False, True), (None, False)])
def test_every_gate_result_makes_a_consistent_entry(passed: bool | None, evaluated: bool) -> None:
    entry = GateResult("g", passed).to_record()
    assert entry["evaluated"] is evaluated
    schema.validate(changed("gates", [entry]))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("status", "skipped"),
        ("status", "PASSED"),
        ("variant", "unquantized"),
        ("mode", "frozen"),
        ("source", "api"),
        ("quantized", None),
        ("limit", 0),
        ("limit", 2.5),
        ("run_id", "short"),
        ("niche", "../evil"),
        ("niche", ""),
        ("benchmark", "a/b"),
        ("timestamp_utc", "2026-01-01T00:00:00+00:00"),
        ("timestamp_utc", "2026-01-01T00:00:00.000000Z"),
        ("timestamp_utc", "2026-01-01T00:00:00.000000+02:00"),
        ("results", {}),
        ("results/other", RESULT),
        ("results/colours/ci95", [0.1]),
        ("results/colours/per_category", {"a": None}),
        ("flags", [1]),
        ("counts/documents", -1),
        ("timing/load_s", -0.1),
        ("gates/0/p_value", 1.5),
        ("schema_version", 0),
        ("schema_version", None),
    ],
)
def test_a_value_out_of_its_range_is_refused_by_its_place(path: str, value: Any) -> None:
    refused(changed(path, value), path.split("/")[0])


@pytest.mark.parametrize("record", [None, [], "record", 1, [RECORD], {}])
def test_what_is_no_record_at_all_is_refused(record: Any) -> None:
    refused(record, "not a valid record")


def test_a_newer_schema_version_says_to_upgrade() -> None:
    refused(changed("schema_version", schema.SCHEMA_VERSION + 1), "newer than 1", "upgrade pytest-gnus")


def test_every_fault_is_named_at_once() -> None:
    record = changed("niche", "", changed("counts/scored", -1, changed("variant", "other")))
    refused(record, "niche:", "counts.scored:", "variant:")


def test_the_schema_itself_is_valid_and_asks_for_every_key_of_a_record() -> None:
    assert jsonschema_rs.meta.is_valid(schema.load_schema())
    assert set(schema.load_schema()["required"]) == set(RECORD) - LATER_KEYS
    assert set(schema.load_schema()["properties"]["fingerprint"]["required"]) == set(FIELDS)


@given(
    st.sampled_from(sorted(RECORD)),
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.text(max_size=20),
        st.lists(st.integers(), max_size=3),
        st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
    ),
)
def test_whatever_stands_in_a_record_it_is_valid_or_a_record_error(key: str, value: Any) -> None:
    said = ""
    try:
        schema.validate({**RECORD, key: value})
    except RecordError as error:
        said = str(error)
    assert said == "" or said.startswith(("not a valid record: ", "written with schema version"))


def test_the_models_digest_is_over_its_directories(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    model = model_of(directories={"model": tmp_path}, quantization={"format": "mlx"})
    found = item_fingerprint(item_of(), MEASUREMENT, model, Manifests())
    assert found.fields["model_manifest_sha256"] == directory_sha256({"model": tmp_path})
    assert found.fields["sgfp4_manifest_sha256"] is None
    assert found.valid


def test_sgfp4_weights_without_their_manifest_have_no_valid_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    found = item_fingerprint(item_of(), MEASUREMENT, model_of(directories={"model": tmp_path}), Manifests())
    assert found.missing == ("sgfp4_manifest_sha256",)


def test_manifest_files_that_a_niche_names_are_what_is_digested(tmp_path: Path) -> None:
    model_file, sgfp4_file = tmp_path / "model.json", tmp_path / "sgfp4.json"
    model_file.write_text("weights")
    sgfp4_file.write_text("blocks")
    item = item_of(model_manifest=model_file, sgfp4_manifest=sgfp4_file)
    found = item_fingerprint(item, MEASUREMENT, model_of(), Manifests())
    assert found.fields["model_manifest_sha256"] == file_sha256(model_file)
    assert found.fields["sgfp4_manifest_sha256"] == file_sha256(sgfp4_file)
    assert found.valid


def test_a_model_that_cannot_be_identified_has_no_valid_fingerprint() -> None:
    found = item_fingerprint(item_of(), MEASUREMENT, model_of(quantization=None), Manifests())
    assert found.missing == ("model_manifest_sha256",)
