"""The 11 fields that say what was measured, and the digests of model directories."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gnus.records.fingerprint import (
    FIELDS,
    canonical_sha256,
    directory_sha256,
    file_sha256,
    fingerprint,
    same_protocol,
)

VALUES: Mapping[str, Any] = {
    "harness_commit": "v0.4.13+sha256:abc",
    "task_name": "medmcqa",
    "task_revision": "1.0",
    "dataset_revision": "sha256:def",
    "prompt_hash": "a" * 64,
    "fewshot_seed": 1234,
    "chat_template_hash": "b" * 64,
    "answer_extraction": {"metric": "acc", "filter": "none", "steps": ["first"]},
    "generation_params": {"do_sample": False, "temperature": 0.0},
    "model_manifest_sha256": "c" * 64,
    "sgfp4_manifest_sha256": "d" * 64,
}
MAY_BE_NULL = {"task_revision", "dataset_revision"}
MANIFESTS = {"model_manifest_sha256", "sgfp4_manifest_sha256"}


def test_there_are_the_11_fields_of_d02() -> None:
    assert tuple(VALUES) == FIELDS
    assert len(FIELDS) == 11


def test_a_fingerprint_with_every_field_is_valid() -> None:
    found = fingerprint(VALUES, is_sgfp4=True)
    assert (found.valid, found.missing, dict(found.fields)) == (True, (), dict(VALUES))


def test_the_digest_is_sha256_over_canonical_json() -> None:
    text = json.dumps(VALUES, sort_keys=True, separators=(",", ":"))
    assert fingerprint(VALUES, is_sgfp4=True).digest == hashlib.sha256(text.encode()).hexdigest()


@given(st.permutations(list(VALUES)), st.permutations(list(VALUES["answer_extraction"])))
def test_the_digest_does_not_depend_on_the_order_of_keys(fields: list[str], inner: list[str]) -> None:
    shuffled = {name: VALUES[name] for name in fields}
    shuffled["answer_extraction"] = {name: VALUES["answer_extraction"][name] for name in inner}
    assert fingerprint(shuffled, is_sgfp4=True).digest == fingerprint(VALUES, is_sgfp4=True).digest


def test_what_is_no_field_does_not_count() -> None:
    found = fingerprint({**VALUES, "comment": "x"}, is_sgfp4=True)
    assert found.digest == fingerprint(VALUES, is_sgfp4=True).digest
    assert "comment" not in found.fields


@pytest.mark.parametrize("name", FIELDS)
def test_the_digest_changes_with_each_field(name: str) -> None:
    original = fingerprint(VALUES, is_sgfp4=True).digest
    for value in ("changed", None):
        assert fingerprint({**VALUES, name: value}, is_sgfp4=True).digest != original


def test_the_digest_changes_with_a_detail_of_a_nested_field() -> None:
    changed = {**VALUES, "generation_params": {"do_sample": False, "temperature": 0.1}}
    assert fingerprint(changed, is_sgfp4=True).digest != fingerprint(VALUES, is_sgfp4=True).digest


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("is_sgfp4", [True, False])
def test_only_revisions_and_what_cannot_exist_may_be_null(name: str, is_sgfp4: bool) -> None:
    found = fingerprint({**VALUES, name: None}, is_sgfp4=is_sgfp4)
    excused = name in MAY_BE_NULL or (name == "sgfp4_manifest_sha256" and not is_sgfp4)
    assert found.valid is excused
    assert found.missing == (() if excused else (name,))


@given(st.sets(st.sampled_from(FIELDS)), st.booleans())
def test_all_that_is_missing_is_named_in_order(nulls: set[str], is_sgfp4: bool) -> None:
    found = fingerprint({n: None if n in nulls else VALUES[n] for n in FIELDS}, is_sgfp4=is_sgfp4)
    excused = MAY_BE_NULL | (set() if is_sgfp4 else {"sgfp4_manifest_sha256"})
    assert list(found.missing) == [name for name in FIELDS if name in nulls - excused]
    assert found.valid is not bool(nulls - excused)


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_that_is_not_given_is_an_error_of_the_caller(name: str) -> None:
    fields = {key: value for key, value in VALUES.items() if key != name}
    with pytest.raises(KeyError, match=name):
        fingerprint(fields, is_sgfp4=False)


def test_falsy_values_are_values() -> None:
    assert fingerprint({**VALUES, "fewshot_seed": 0, "generation_params": {}}, is_sgfp4=True).valid


@pytest.mark.parametrize("name", FIELDS)
def test_two_protocols_differ_in_every_field_but_the_manifests(name: str) -> None:
    changed = {**VALUES, name: "changed"}
    assert same_protocol(VALUES, changed) == (() if name in MANIFESTS else (name,))
    assert same_protocol(changed, VALUES) == same_protocol(VALUES, changed)


@given(st.sets(st.sampled_from(FIELDS)))
def test_all_differences_of_two_protocols_are_named(changed: set[str]) -> None:
    other = {name: None if name in changed else VALUES[name] for name in FIELDS}
    assert set(same_protocol(VALUES, other)) == changed - MANIFESTS


def test_equal_protocols_on_other_weights_can_be_compared() -> None:
    other = {**VALUES, "model_manifest_sha256": "e" * 64, "sgfp4_manifest_sha256": None}
    assert same_protocol(VALUES, other) == ()


def test_canonical_json_by_hand() -> None:
    expected = hashlib.sha256('{"a":[1,2.5,null,true],"é":"ü"}'.encode()).hexdigest()
    assert canonical_sha256({"é": "ü", "a": [1, 2.5, None, True]}) == expected


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_json_has_no_digest(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical_sha256({"a": value})


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"\0" * 5000)
    (folder / "sub" / "extra.bin").write_bytes(b"x")
    return folder


def digest_of(folder: Path, label: str = "model") -> str:
    return directory_sha256({label: folder})


def test_a_files_digest_is_sha256_over_its_bytes(model: Path) -> None:
    assert file_sha256(model / "model.safetensors") == hashlib.sha256(b"\0" * 5000).hexdigest()


def test_a_directorys_digest_by_hand(model: Path) -> None:
    lines = [
        ("model/config.json", b"{}"),
        ("model/model.safetensors", b"\0" * 5000),
        ("model/sub/extra.bin", b"x"),
    ]
    text = "".join(f"{name}\0{hashlib.sha256(content).hexdigest()}\n" for name, content in lines)
    assert digest_of(model) == hashlib.sha256(text.encode()).hexdigest()


def test_renaming_the_directory_changes_nothing(model: Path) -> None:
    before = digest_of(model)
    assert digest_of(model.rename(model.with_name("renamed"))) == before


def test_renaming_a_file_changes_the_digest(model: Path) -> None:
    before = digest_of(model)
    (model / "config.json").rename(model / "config2.json")
    assert digest_of(model) != before


def test_moving_a_file_changes_the_digest(model: Path) -> None:
    before = digest_of(model)
    (model / "config.json").rename(model / "sub" / "config.json")
    assert digest_of(model) != before


def test_one_changed_byte_changes_the_digest(model: Path) -> None:
    before = digest_of(model)
    (model / "model.safetensors").write_bytes(b"\0" * 4999 + b"\1")
    assert digest_of(model) != before


def test_contents_that_change_places_change_the_digest(model: Path) -> None:
    before = digest_of(model)
    (model / "config.json").write_bytes(b"x")
    (model / "sub" / "extra.bin").write_bytes(b"{}")
    assert digest_of(model) != before


def test_an_adapter_is_part_of_the_digest_and_has_its_place(model: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapters.safetensors").write_bytes(b"y")
    both = directory_sha256({"model": model, "adapter": adapter})
    assert both == directory_sha256({"adapter": adapter, "model": model})
    assert both != digest_of(model)
    assert both != directory_sha256({"model": adapter, "adapter": model})


def test_the_label_is_part_of_the_digest(model: Path) -> None:
    assert digest_of(model, "model") != digest_of(model, "adapter")


@pytest.mark.parametrize("name", [".hidden", ".cache/blob.bin", "sub/.lock", "README.md", "sub/NOTES.md"])
def test_hidden_files_and_markdown_do_not_count(model: Path, name: str) -> None:
    before = digest_of(model)
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).write_text("anything")
    assert digest_of(model) == before


def test_an_empty_folder_does_not_count(model: Path) -> None:
    before = digest_of(model)
    (model / "empty").mkdir()
    assert digest_of(model) == before


def test_neither_times_nor_the_order_of_creation_count(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "sub").mkdir(parents=True)
    for name in ("sub/extra.bin", "model.safetensors", "config.json"):
        (other / name).write_bytes((model / name).read_bytes())
        os.utime(other / name, (1, 1))
    assert digest_of(other) == digest_of(model)


def test_a_hidden_folder_above_the_model_does_not_hide_it(model: Path, tmp_path: Path) -> None:
    before = digest_of(model)
    (tmp_path / ".cache").mkdir()
    assert digest_of(model.rename(tmp_path / ".cache" / "model")) == before


def test_a_linked_file_counts_as_what_it_points_to(model: Path, tmp_path: Path) -> None:
    """As in the hub's cache, where each file of a snapshot is a link."""
    before = digest_of(model)
    blob = (model / "model.safetensors").rename(tmp_path / "blob")
    (model / "model.safetensors").symlink_to(blob)
    assert digest_of(model) == before
    blob.write_bytes(b"changed")
    assert digest_of(model) != before


def test_a_linked_model_directory_counts_as_what_it_points_to(model: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(model, target_is_directory=True)
    assert digest_of(link) == digest_of(model)


def test_a_linked_folder_inside_counts_as_what_it_points_to(model: Path, tmp_path: Path) -> None:
    before = digest_of(model)
    elsewhere = (model / "sub").rename(tmp_path / "elsewhere")
    (model / "sub").symlink_to(elsewhere, target_is_directory=True)
    assert digest_of(model) == before


def test_a_link_in_a_circle_ends(model: Path) -> None:
    (model / "loop").symlink_to(model, target_is_directory=True)
    assert len(digest_of(model)) == 64
