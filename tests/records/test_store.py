"""Records on disk: whole or not at all, and found again."""

from __future__ import annotations

import copy
import gzip
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gnus.errors import RecordError
from pytest_gnus.gates.verdict import Status
from pytest_gnus.measurement import Counts, Measurement, Protocol
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.plan import BenchmarkItem, Request
from pytest_gnus.recording import build_record
from pytest_gnus.records.earlier import Found, newest_comparable
from pytest_gnus.records.fingerprint import fingerprint, record_digest
from pytest_gnus.records.store import (
    RecordStore,
    StoredRecord,
    UnreadableRecord,
    read,
    score,
    write_atomically,
    write_json,
)
from pytest_gnus.schema import Benchmark, Thresholds, Variant

PROTOCOL = Protocol("v1", "colours", "1.0", "sha256:x", "a" * 64, 1234, "b" * 64, {"metric": "acc"}, {})
FIELDS: Mapping[str, Any] = {
    **PROTOCOL.__dict__,
    "model_manifest_sha256": "c" * 64,
    "sgfp4_manifest_sha256": None,
}
SAMPLES = [{"task": "colours", "doc_id": n, "doc_hash": "é" * 4, "score": n / 3} for n in range(5)]


def record_of(
    niche: str = "toy",
    benchmark: str = "colours",
    variant: Variant = "reference",
    *,
    stamp: str = "2026-01-02T03:04:05.000006+00:00",
    status: Status = "passed",
    measured: float = 0.5,
    **changes: Any,
) -> dict[str, Any]:
    """A valid record made by the product; keys in `changes` replace those of the record."""
    record = copy.deepcopy(made_record(niche, benchmark, variant, status, measured))
    return sealed(record | {"timestamp_utc": stamp} | changes)


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record with its own digest; as it stands where it is none that could have one."""
    try:
        return dict(record) | {"record_sha256": record_digest(record)}
    except ValueError:
        return dict(record) | {"record_sha256": "0" * 64}


@cache
def made_record(
    niche: str, benchmark: str, variant: Variant, status: Status, measured: float
) -> dict[str, Any]:
    request = Request(
        "colours", "canonical", "local", 0, 1234, False, None, {}, {}, None, False, None, (), None
    )
    item = BenchmarkItem(
        niche=niche,
        benchmark=Benchmark(name=benchmark, task="colours"),
        variant=variant,
        blocking=True,
        model=ModelSpec("mlx", "/models/toy"),
        thresholds=Thresholds(),
        request=request,
    )
    measurement = Measurement(
        metric="acc,none",
        score=measured,
        stderr=None,
        ci95=None,
        n=60,
        higher_is_better=True,
        num_fewshot=0,
        protocol=PROTOCOL,
        counts=Counts(60, 60),
    )
    has_score = status in ("passed", "failed", "warned")
    return build_record(
        item,
        "20260101T000000Z-deadbeef",
        status,
        reason=None if has_score else "no such model",
        measurement=measurement if has_score else None,
        identity=fingerprint(FIELDS, is_sgfp4=False),
    )


def stamp_at(second: int) -> str:
    return f"2026-01-02T03:04:{second:02}.000000+00:00"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def found(records: Iterator[StoredRecord | UnreadableRecord]) -> list[Any]:
    """Scores of the records that can be read and texts of the errors, in order."""
    return [str(r) if isinstance(r, UnreadableRecord) else score(r.content) for r in records]


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(tmp_path / "artifacts")


def test_the_file_is_named_after_what_was_measured_and_when(store: RecordStore) -> None:
    path = store.write(record_of())
    assert path == store.artifacts / "benchmarks" / "toy_colours_reference_20260102T030405.000006Z.json"
    assert names(store.folder) == [path.name]


def test_a_record_round_trips(store: RecordStore) -> None:
    record = record_of(reason="Übergröße")
    path = store.write(record)
    assert read(path) == record
    assert read(store.write(record_of(stamp=stamp_at(9)), SAMPLES))["samples_sha256"] is not None
    assert path.read_text(encoding="utf-8").endswith("}\n")
    assert "Übergröße" in path.read_text(encoding="utf-8")


def test_writing_does_not_change_the_record_given(store: RecordStore) -> None:
    record = record_of()
    before = copy.deepcopy(record)
    store.write(record, SAMPLES)
    assert record == before


def test_per_document_outcomes_lie_in_a_sidecar_that_the_record_names(store: RecordStore) -> None:
    path = store.write(record_of(), SAMPLES)
    sidecar = path.parent / read(path)["samples"]
    assert sidecar.name == "toy_colours_reference_20260102T030405.000006Z.samples.jsonl.gz"
    lines = gzip.decompress(sidecar.read_bytes()).decode().splitlines()
    assert [json.loads(line) for line in lines] == SAMPLES
    assert names(store.folder) == [path.name, sidecar.name]


def test_without_outcomes_there_is_no_sidecar(store: RecordStore) -> None:
    path = store.write(record_of())
    assert read(path)["samples"] is None


def test_equal_outcomes_give_equal_bytes(tmp_path: Path) -> None:
    one, other = (RecordStore(tmp_path / name) for name in ("one", "other"))
    paths = [store.write(record_of(), SAMPLES) for store in (one, other)]
    one_bytes, other_bytes = ((path.parent / read(path)["samples"]).read_bytes() for path in paths)
    assert one_bytes == other_bytes


@pytest.mark.parametrize("key", sorted(set(record_of()) - {"build_and_settings_sha256", "notes", "reruns"}))
def test_a_record_that_lacks_a_key_is_refused_and_leaves_nothing(store: RecordStore, key: str) -> None:
    record = record_of()
    del record[key]
    if key in ("samples", "samples_sha256", "record_sha256"):  # written by the store itself
        record["extra"] = 1
    with pytest.raises(RecordError):
        store.write(record, SAMPLES)
    assert names(store.folder) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "skipped"},
        {"timestamp_utc": "yesterday"},
        {"timestamp_utc": None},
        {"niche": "../../evil"},
        {"fingerprint_valid": False},
        {"counts": None},
    ],
)
def test_an_invalid_record_is_refused_and_leaves_nothing(store: RecordStore, changes: dict[str, Any]) -> None:
    with pytest.raises(RecordError):
        store.write(record_of() | changes, SAMPLES)
    assert names(store.folder) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_score_that_is_not_finite_is_refused_and_leaves_nothing(store: RecordStore, value: float) -> None:
    with pytest.raises(RecordError):
        store.write(record_of(measured=value), SAMPLES)
    assert names(store.folder) == []


def test_outcomes_that_are_not_json_leave_nothing(store: RecordStore) -> None:
    with pytest.raises(ValueError, match="JSON"):
        store.write(record_of(), [{"score": float("nan")}])
    assert names(store.folder) == []


@pytest.mark.parametrize("suffix", [".json", ".samples.jsonl.gz"])
def test_a_name_that_is_taken_is_refused_and_leaves_nothing_new(store: RecordStore, suffix: str) -> None:
    record = record_of()
    blocker = store.folder / f"{store.stem(record)}{suffix}"
    blocker.parent.mkdir(parents=True)
    blocker.write_text("another run's")
    with pytest.raises(RecordError, match="is there already; records are never overwritten"):
        store.write(record, SAMPLES)
    assert names(store.folder) == [blocker.name]
    assert blocker.read_text() == "another run's"


def test_a_record_is_never_overwritten_nor_its_outcomes(store: RecordStore) -> None:
    path = store.write(record_of(measured=0.5), SAMPLES)
    before = {name: (store.folder / name).read_bytes() for name in names(store.folder)}
    with pytest.raises(RecordError, match=f"{path.name} is there already"):
        store.write(record_of(measured=0.9), SAMPLES[:2])
    assert {name: (store.folder / name).read_bytes() for name in names(store.folder)} == before


def test_of_two_writers_at_once_of_one_name_one_wins_whole(store: RecordStore) -> None:
    """Two runs on one disk: whoever loses is told, and the winner's outcomes fit the winner's record."""
    start = threading.Barrier(8)

    def write(number: int) -> bool:
        start.wait()
        try:
            store.write(record_of(measured=number / 10), (SAMPLES * 2)[: number + 1])
        except RecordError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(8)))
    (record,) = store.read_all("toy", "colours", "reference")
    assert isinstance(record, StoredRecord)
    assert sum(won) == 1
    assert len(store.read_samples(record)) == won.index(True) + 1
    assert score(record.content) == won.index(True) / 10
    assert len(names(store.folder)) == 2


def test_a_file_system_without_links_refuses_a_taken_name_too(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(_source: object, _target: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", no_links)
    path = store.write(record_of(measured=0.5), SAMPLES)
    before = path.read_bytes()
    assert read(path)["samples"] in names(store.folder)
    with pytest.raises(RecordError, match="is there already"):
        store.write(record_of(measured=0.9), SAMPLES)
    assert path.read_bytes() == before
    assert len(names(store.folder)) == 2


def test_a_disk_that_fails_leaves_neither_record_nor_temporary_file(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.write(record_of(), SAMPLES)
    assert names(store.folder) == []


def test_an_interrupt_while_writing_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file.json", b"new")
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_an_error_and_touches_nothing(tmp_path: Path) -> None:
    (tmp_path / "artifacts").write_text("a file")
    with pytest.raises(OSError, match="artifacts"):
        RecordStore(tmp_path / "artifacts").write(record_of(), SAMPLES)
    assert (tmp_path / "artifacts").read_text() == "a file"


def test_a_failed_replacement_leaves_the_old_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "verdicts" / "toy.json"
    write_json(file, {"verdict": "promote"})

    def broken(_source: object, _target: object) -> None:
        raise OSError("broken")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="broken"):
        write_json(file, {"verdict": "block"})
    monkeypatch.undo()
    assert json.loads(file.read_text()) == {"verdict": "promote"}
    assert names(file.parent) == ["toy.json"]
    write_json(file, {"verdict": "block"})
    assert json.loads(file.read_text()) == {"verdict": "block"}


def test_the_newest_comes_first_by_its_stamp_not_by_its_times(store: RecordStore) -> None:
    for second, measured, modified in ((3, 0.3, 100), (1, 0.1, 300), (2, 0.2, 200)):
        path = store.write(record_of(stamp=stamp_at(second), measured=measured))
        os.utime(path, (modified, modified))
    assert found(store.read_all("toy", "colours", "reference")) == [0.3, 0.2, 0.1]


def test_microseconds_decide_within_a_second(store: RecordStore) -> None:
    for micros in (5, 100000, 20):
        stamp = f"2026-01-02T03:04:05.{micros:06}+00:00"
        store.write(record_of(stamp=stamp, measured=micros / 1e6))
    assert found(store.read_all("toy", "colours", "reference")) == [0.1, 2e-05, 5e-06]


def test_other_niches_benchmarks_and_variants_are_not_found(store: RecordStore) -> None:
    store.write(record_of(niche="other"))
    store.write(record_of(benchmark="shapes"))
    store.write(record_of(variant="quantized"))
    store.write(record_of(measured=0.7))
    assert found(store.read_all("toy", "colours", "reference")) == [0.7]
    assert found(store.read_all("toy", "colours", "baseline")) == []


def test_names_with_underscores_are_not_confused(store: RecordStore) -> None:
    store.write(record_of("a", "b_c", measured=0.1, stamp=stamp_at(1)))
    store.write(record_of("a_b", "c", measured=0.2, stamp=stamp_at(2)))
    store.write(record_of("a", "b_c_reference", measured=0.3, stamp=stamp_at(3)))
    assert found(store.read_all("a", "b_c", "reference")) == [0.1]
    assert found(store.read_all("a_b", "c", "reference")) == [0.2]
    assert found(store.read_all("a", "b", "reference")) == []


def test_where_nothing_was_ever_written_nothing_is_found(store: RecordStore) -> None:
    assert found(store.read_all("toy", "colours", "reference")) == []
    assert newest_comparable(store.read_all("toy", "colours", "reference"), FIELDS) == Found(None)


def test_sidecars_and_temporary_files_are_no_records(store: RecordStore) -> None:
    path = store.write(record_of(measured=0.4), SAMPLES)
    (store.folder / f".{path.name}.0123.tmp").write_text("{")
    assert found(store.read_all("toy", "colours", "reference")) == [0.4]


CORRUPT: Mapping[str, bytes] = {
    "empty": b"",
    "half": json.dumps(record_of()).encode()[:700],
    "not text": b"\xff\xfe\x00\x01",
    "null": b"null",
    "a list": b"[]",
    "another object": b'{"score": 1.0}',
    "deep": b"[" * 100_000,
    "long number": b'{"schema_version": ' + b"9" * 5000 + b"}",
    "newer": json.dumps(record_of() | {"schema_version": 2, "surprise": 1}).encode(),
    "no text": json.dumps(record_of(reason="\ud800")).encode(),
    "deep inside": json.dumps(record_of())
    .replace('{"metric": "acc"}', '{"a": ' * 900 + "1" + "}" * 900)
    .encode(),
    "altered": json.dumps(record_of() | {"reason": "another"}).encode(),
    "altered fingerprint": json.dumps(
        sealed(record_of() | {"fingerprint": record_of()["fingerprint"] | {"fewshot_seed": 1}})
    ).encode(),
    "altered path": json.dumps(record_of(samples="../../evil.gz", samples_sha256="0" * 64)).encode(),
    "of another moment": json.dumps(
        record_of(measured=0.9, stamp="2025-01-02T03:04:05.000006+00:00")
    ).encode(),
    "of another benchmark": json.dumps(
        record_of(benchmark="shapes", stamp="2026-01-02T03:04:02.000000+00:00")
    ).encode(),
    "no such moment": json.dumps(record_of(stamp="2026-99-02T03:04:02.000000+00:00")).encode(),
    "nan": json.dumps(record_of(measured=float("nan"))).encode(),
    "infinite": json.dumps(record_of(measured=float("inf"))).encode(),
}


@pytest.mark.parametrize("content", CORRUPT.values(), ids=CORRUPT.keys())
def test_a_record_that_cannot_be_read_is_named_passed_over_and_kept(
    store: RecordStore, content: bytes
) -> None:
    good = store.write(record_of(measured=0.6, stamp=stamp_at(1)))
    bad = store.folder / f"{store.stem(record_of(stamp=stamp_at(2)))}.json"
    bad.write_bytes(content)
    found = newest_comparable(store.read_all("toy", "colours", "reference"), FIELDS)
    assert found.record is not None
    assert found.record.path == good
    assert [unreadable.name for unreadable in found.unreadable] == [bad.name]
    assert str(found.unreadable[0]).startswith(bad.name)
    assert found.passed_over == ()
    assert bad.read_bytes() == content


def test_a_newer_record_says_that_it_is_newer(store: RecordStore) -> None:
    path = store.folder / "toy_colours_reference_20260102T030405.000006Z.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(CORRUPT["newer"])
    with pytest.raises(RecordError, match=r"Z\.json: written with schema version 2, newer than 1: upgrade"):
        read(path)


def test_a_record_that_is_a_folder_or_a_dead_link_is_named(store: RecordStore) -> None:
    folder = store.folder / "toy_colours_reference_20260102T030405.000006Z.json"
    folder.mkdir(parents=True)
    link = store.folder / "toy_colours_reference_20260102T030405.000007Z.json"
    link.symlink_to(store.folder / "nowhere")
    texts = found(store.read_all("toy", "colours", "reference"))
    assert [text.split(" ")[0] for text in texts] == [link.name, folder.name]


@pytest.mark.parametrize(
    "alter",
    [
        lambda record: record.update(reason="x"),
        lambda record: record.update(record_sha256="0" * 64),
        lambda record: record.update(samples_sha256="0" * 64),
        lambda record: record["results"]["colours"].update(score=0.9),
        lambda record: record["results"]["colours"].update(n=61),
        lambda record: record["environment"]["packages"].update(pytest="1"),
    ],
)
def test_a_record_of_which_anything_was_altered_is_not_read(
    scratch: Path, alter: Callable[[dict[str, Any]], None]
) -> None:
    record = record_of()
    alter(record)
    write_json(scratch, record)
    with pytest.raises(RecordError, match=r"record\.json: it does not fit its own digest: it was altered"):
        read(scratch)


SAMPLES_BROKEN: Mapping[str, bytes | None] = {
    "gone": None,
    "empty": b"",
    "not packed": b"{}",
    "of another run": gzip.compress(b'{"task": "colours", "doc_id": 0, "doc_hash": "e", "score": 1.0}\n'),
}


@pytest.mark.parametrize("content", SAMPLES_BROKEN.values(), ids=SAMPLES_BROKEN.keys())
def test_outcomes_that_are_not_those_of_the_record_are_refused(
    store: RecordStore, content: bytes | None
) -> None:
    store.write(record_of(), SAMPLES)
    (record,) = store.read_all("toy", "colours", "reference")
    assert isinstance(record, StoredRecord)
    assert store.read_samples(record) == SAMPLES
    path = store.folder / record.content["samples"]
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(RecordError, match=rf"{path.name} cannot be read"):
        store.read_samples(record)


def test_a_record_without_outcomes_has_none(store: RecordStore) -> None:
    store.write(record_of())
    (record,) = store.read_all("toy", "colours", "reference")
    assert isinstance(record, StoredRecord)
    assert store.read_samples(record) == []


def test_records_made_in_a_hurry_are_all_listed(store: RecordStore) -> None:
    """The listing is kept from benchmark to benchmark, and what is written meanwhile is not missed."""
    for second in range(1, 5):
        store.write(record_of(stamp=stamp_at(second), measured=second / 10))
        assert len(found(store.read_all("toy", "colours", "reference"))) == second
    assert found(store.read_all("toy", "colours", "reference")) == [0.4, 0.3, 0.2, 0.1]


def test_a_name_is_got_whatever_else_is_there(store: RecordStore) -> None:
    path = store.write(record_of(measured=0.7))
    assert score(store.get(("toy", "colours", "reference"), path.name).content) == 0.7
    with pytest.raises(RecordError, match="a record of something else"):
        store.get(("toy", "colours", "quantized"), path.name)
    with pytest.raises(RecordError, match=r"none\.json cannot be read"):
        store.get(("toy", "colours", "reference"), "none.json")
    copy_of = path.with_name("toy_colours_reference_20300101T000000.000000Z.json")
    copy_of.write_bytes(path.read_bytes())
    with pytest.raises(
        RecordError, match=f"{copy_of.name}: another record, {path.stem}, stands in its place"
    ):
        store.get(("toy", "colours", "reference"), copy_of.name)


VALID_BYTES = json.dumps(record_of(), indent=2).encode()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records") / "record.json"


@given(length=st.integers(0, len(VALID_BYTES) - 1))
@settings(deadline=None)
def test_a_truncated_record_is_never_read(scratch: Path, length: int) -> None:
    scratch.write_bytes(VALID_BYTES[:length])
    with pytest.raises(RecordError, match=r"record\.json"):
        read(scratch)


@given(position=st.integers(0, len(VALID_BYTES) - 1), garbage=st.binary(min_size=1, max_size=6))
@settings(deadline=None)
def test_a_garbled_record_is_read_or_refused_by_name(scratch: Path, position: int, garbage: bytes) -> None:
    scratch.write_bytes(VALID_BYTES[:position] + garbage + VALID_BYTES[position + len(garbage) :])
    said = ""
    try:
        content = read(scratch)
    except RecordError as error:
        said = str(error)
    else:
        assert content == record_of()
    assert said == "" or said.startswith("record.json")


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@settings(deadline=None)
def test_garbage_is_refused_by_name(scratch: Path, content: bytes) -> None:
    scratch.write_bytes(content)
    with pytest.raises(RecordError, match=r"record\.json"):
        read(scratch)


def with_fingerprint(**changes: Any) -> dict[str, Any]:
    """Keys of a record whose fingerprint differs, and which says so itself."""
    other = fingerprint({**FIELDS, **changes}, is_sgfp4=False)
    return {
        "fingerprint": dict(other.fields),
        "fingerprint_hash": other.digest,
        "fingerprint_valid": other.valid,
        "fingerprint_missing": list(other.missing),
    }


NOT_REFERENCES: Mapping[str, tuple[dict[str, Any], str]] = {
    "limited": ({"limit": 5}, "is not canonical"),
    "diagnostic": ({"mode": "diagnostic"}, "is not canonical"),
    "error": ({"status": "error"}, "has no score (status error)"),
    "not implemented": ({"status": "not_implemented"}, "has no score (status not_implemented)"),
    "invalid": (with_fingerprint(model_manifest_sha256=None), "its fingerprint lacks model_manifest_sha256"),
    "other prompts": (with_fingerprint(prompt_hash="f" * 64), "differs in prompt_hash"),
    "other data and seed": (
        with_fingerprint(dataset_revision="y", fewshot_seed=1),
        "differs in dataset_revision, fewshot_seed",
    ),
}


@pytest.mark.parametrize(("changes", "why"), NOT_REFERENCES.values(), ids=NOT_REFERENCES.keys())
def test_what_cannot_be_compared_with_is_passed_over_with_the_reason(
    store: RecordStore, changes: dict[str, Any], why: str
) -> None:
    good = store.write(record_of(measured=0.6, stamp=stamp_at(1)))
    bad = store.write(record_of(stamp=stamp_at(2), **changes))
    found = newest_comparable(store.read_all("toy", "colours", "reference"), FIELDS)
    assert found.record is not None
    assert (found.record.path, score(found.record.content)) == (good, 0.6)
    assert (found.unreadable, found.passed_over) == ((), (f"{bad.name}: {why}",))


def test_where_nothing_can_be_compared_with_every_reason_is_given(store: RecordStore) -> None:
    for second, (changes, _) in enumerate(NOT_REFERENCES.values(), 1):
        store.write(record_of(stamp=stamp_at(second), **changes))
    found = newest_comparable(store.read_all("toy", "colours", "reference"), FIELDS)
    assert found.record is None
    assert [text.split(": ", 1)[1] for text in found.passed_over] == [
        why for _, why in reversed(list(NOT_REFERENCES.values()))
    ]


@pytest.mark.parametrize("status", ["passed", "failed", "warned"])
def test_a_measured_reference_counts_whatever_its_gates_said(store: RecordStore, status: Status) -> None:
    store.write(record_of(status=status, measured=0.2))
    found = newest_comparable(store.read_all("toy", "colours", "reference"), FIELDS)
    assert found.record is not None
    assert (score(found.record.content), found.passed_over) == (0.2, ())


def test_other_weights_can_be_compared_with(store: RecordStore) -> None:
    store.write(record_of(**with_fingerprint(model_manifest_sha256="9" * 64)))
    record = newest_comparable(store.read_all("toy", "colours", "reference"), FIELDS).record
    assert record is not None


def test_a_score_of_zero_is_a_score(store: RecordStore) -> None:
    store.write(record_of(measured=0.0))
    record = newest_comparable(store.read_all("toy", "colours", "reference"), FIELDS).record
    assert record is not None
    assert score(record.content) == 0.0
