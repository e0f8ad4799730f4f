"""Which earlier record stands for an item that a run has not measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_gnus.gates.verdict import Missing, Status
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.plan import ArtifactItem, BenchmarkItem, Weights
from pytest_gnus.records.store import RecordStore, write_json
from pytest_gnus.release.evidence import KEY, Identities, missing_item, sealed
from pytest_gnus.schema import Benchmark, Thresholds
from pytest_gnus.tasks.local_data import LocalData
from pytest_gnus.workspace import FunctionReference
from tests import making_history as history

RUN = history.run_id(1000)


@pytest.fixture
def item(tmp_path: Path) -> BenchmarkItem:
    """A quantized item over local data, with reference weights beside it."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "test.jsonl").write_text('{"question": 1}\n')
    reference = Weights(ModelSpec("mlx", "/models/reference"))
    return replace(
        history.item_of(),
        request=replace(history.REQUEST, local=LocalData(folder, tmp_path)),
        counterparts={"reference": reference},
    )


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(tmp_path / "artifacts")


def identities(**changes: str | None) -> Identities:
    """Weights whose digest is their name, or what `changes` says of it."""
    return Identities(lambda spec: changes.get(Path(spec.name).name, spec.name))


def keep(
    store: RecordStore,
    item: BenchmarkItem,
    status: Status = "passed",
    began: float = 0,
    known: Identities | None = None,
) -> Path:
    return history.keep(
        store,
        item=item,
        status=status,
        began=began,
        build_and_settings=(known or identities()).of(item),
    )


CHANGES: dict[str, Callable[[BenchmarkItem], BenchmarkItem]] = {
    "a floor": lambda item: replace(item, thresholds=Thresholds(hard_floor=0.31)),
    "the policy": lambda item: replace(item, regression_policy="both"),
    "the fewest pairs": lambda item: replace(item, minimum_pairs=31),
    "builds in a row": lambda item: replace(item, failures_to_block=2),
    "the shots": lambda item: replace(item, request=replace(item.request, num_fewshot=1)),
    "the template": lambda item: replace(item, request=replace(item.request, chat_template=True)),
    "the task": lambda item: replace(item, request=replace(item.request, task={"doc_to_text": "x"})),
    "the metric": lambda item: replace(
        item, benchmark=Benchmark(name="colours", task="colours", metric="f1")
    ),
    "the weights": lambda item: replace(item, model=ModelSpec("mlx", "/models/other")),
    "the reference": lambda item: replace(
        item, counterparts={"reference": Weights(ModelSpec("mlx", "/models/other"))}
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_decides_an_outcome_changes_the_identity(
    item: BenchmarkItem, change: Callable[[BenchmarkItem], BenchmarkItem]
) -> None:
    known = identities()
    assert known.of(item) == known.of(replace(item))
    assert known.of(change(item)) != known.of(item)


def test_the_documents_and_the_functions_of_a_task_change_the_identity(
    item: BenchmarkItem, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "tools.py").write_text("def clean(documents): return documents\n")
    task = {"process_docs": FunctionReference("tools.clean", code)}
    item = replace(item, request=replace(item.request, task=task))
    before = identities().of(item)
    assert before is not None
    (code / "tools.py").write_text("def clean(documents): return documents[:1]\n")
    after = identities().of(item)
    assert after not in (before, None)
    (tmp_path / "data" / "test.jsonl").write_text('{"question": 2}\n')
    assert identities().of(item) not in (before, after, None)


def test_what_surrounds_all_items_changes_the_identity(item: BenchmarkItem) -> None:
    one, other = (Identities(lambda spec: spec.name, {"dtype": dtype}) for dtype in ("float32", None))
    assert one.of(item) != other.of(item)


def test_weights_and_data_that_may_change_unseen_have_no_identity(item: BenchmarkItem) -> None:
    assert identities(quantized=None).of(item) is None
    assert identities(reference=None).of(item) is None
    on_the_hub = replace(item, request=replace(item.request, local=None))
    assert identities().of(on_the_hub) is None
    pinned = replace(on_the_hub, request=replace(on_the_hub.request, revision="0123abc"))
    assert identities().of(pinned) is not None


@pytest.mark.parametrize("status", ["passed", "warned"])
def test_a_record_in_which_the_item_passed_stands_for_it(
    item: BenchmarkItem, store: RecordStore, status: Status
) -> None:
    path = keep(store, item, status)
    found = missing_item(item, store, RUN, identities())
    assert found.evidence == f"{status} in run {history.run_id(0)} ({path.name})"
    assert found.record is not None
    assert found.record["run_id"] == history.run_id(0)


@pytest.mark.parametrize("status", ["failed", "error", "not_implemented"])
def test_the_newest_record_of_the_build_counts(
    item: BenchmarkItem, store: RecordStore, status: Status
) -> None:
    keep(store, item, "passed", began=0)
    path = keep(store, item, status, began=10)
    keep(store, item, "passed", began=20, known=identities(quantized="another build"))
    found = missing_item(item, store, RUN, identities())
    where = f"in run {history.run_id(10)} ({path.name})"
    shown = status.replace("_", " ")
    told = f"was not run; its status was {shown!r} {where}, with the same build and settings"
    assert (found.evidence, found.problem) == (None, told)


def test_no_record_stands_for_an_item_where_none_can(item: BenchmarkItem, store: RecordStore) -> None:
    key = ("colours", "quantized")
    assert missing_item(item, store, RUN, identities()) == Missing(key)
    keep(store, item)
    told = "was not run; earlier records are of another build or other settings"
    assert missing_item(item, store, RUN, identities(quantized="new")) == Missing(key, problem=told)
    unknown = missing_item(item, store, RUN, identities(quantized=None))
    assert "its build and settings cannot be compared" in unknown.problem
    assert unknown.evidence is None


def test_a_record_that_cannot_be_read_may_have_been_a_failure(
    item: BenchmarkItem, store: RecordStore
) -> None:
    keep(store, item)
    path = keep(store, item, began=10)
    path.write_text("{")
    found = missing_item(item, store, RUN, identities())
    assert found.evidence is None
    assert path.name in found.problem


def artifact(store: RecordStore, item: ArtifactItem, status: str, second: int, **changes: Any) -> Path:
    name = f"toy_sgfp4_quantized_{history.stamp(second)}.json"
    content = {"run_id": history.run_id(second), "status": status, KEY: identities().of(item)}
    path = store.artifacts / "sgfp4" / name
    write_json(path, sealed(content) | changes)
    return path


def test_an_artifact_is_found_again_by_its_own_file(store: RecordStore) -> None:
    item = ArtifactItem("toy", ModelSpec("mlx", "/models/q"), ModelSpec("mlx", "/models/r"), {"fp4_mse": 0.1})
    key = ("sgfp4", "quantized")
    assert missing_item(item, store, RUN, identities()) == Missing(key)
    artifact(store, item, "passed", 0)
    evidence = missing_item(item, store, RUN, identities()).evidence
    assert evidence is not None
    assert evidence.startswith(f"passed in run {history.run_id(0)} (toy_sgfp4_")
    assert missing_item(replace(item, limits={"fp4_mse": 0.2}), store, RUN, identities()).evidence is None
    artifact(store, item, "failed", 10)
    assert "its status was 'failed' in run" in missing_item(item, store, RUN, identities()).problem
    artifact(store, item, "failed", 20, reason="none")
    assert "it was altered" in missing_item(item, store, RUN, identities()).problem


def test_an_artifact_of_an_older_version_stands_for_nothing(store: RecordStore) -> None:
    item = ArtifactItem("toy", ModelSpec("mlx", "/models/q"), None, {})
    path = artifact(store, item, "passed", 0)
    old = {key: value for key, value in json.loads(path.read_text()).items() if "sha256" not in key}
    path.write_text(json.dumps(old))
    found = missing_item(item, store, RUN, identities())
    assert (found.evidence, found.problem[:11]) == (None, "was not run")
