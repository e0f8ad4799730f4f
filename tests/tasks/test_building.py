"""lm-eval's task objects from benchmark files, and what they are made of."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from pytest_gnus.errors import DataError, EvaluationError
from pytest_gnus.harness import quiet_harness
from pytest_gnus.tasks.benchmark_task import TaskData, _printed_fields
from pytest_gnus.tasks.building import _full_manager, _leaves, _manager_for, build
from pytest_gnus.tasks.local_data import LocalData
from pytest_gnus.workspace import FunctionReference, load_yaml
from tests.conftest import choice_documents, choice_task

REPOSITORY = Path(__file__).parents[2]


def written(root: Path, path: str, documents: list[dict[str, Any]]) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(document) + "\n" for document in documents))


def local(root: Path, name: str, **keywords: Any) -> TaskData:
    return TaskData(local=LocalData(root / name, root), **keywords)


def mmlu_rows(count: int) -> list[dict[str, Any]]:
    return [
        {"question": f"Q{n}?", "subject": "s", "choices": ["w", "x", "y", "z"], "answer": n % 4}
        for n in range(count)
    ]


def test_mmlu_has_its_57_subjects_and_finds_them_without_indexing_every_task() -> None:
    manager = _manager_for("mmlu")
    assert len(set(_leaves("mmlu", manager))) == 57
    assert len(manager.all_tasks) < 1000


def test_the_narrow_index_says_what_the_whole_one_says() -> None:
    whole = _full_manager()
    assert list(_leaves("mmlu", _manager_for("mmlu"))) == list(_leaves("mmlu", whole))
    for task in ("medmcqa", "gpqa_main_zeroshot", "humaneval"):
        assert _manager_for(task).task_index[task].yaml_path == whole.task_index[task].yaml_path


def test_a_group_over_local_data_keeps_its_structure(tmp_path: Path) -> None:
    subjects = [leaf.removeprefix("mmlu_") for leaf in _leaves("mmlu", _manager_for("mmlu"))]
    for subject in subjects:
        written(tmp_path, f"mmlu/{subject}/test.jsonl", mmlu_rows(2))
        written(tmp_path, f"mmlu/{subject}/dev.jsonl", mmlu_rows(5))
    with quiet_harness(1):
        built = build("mmlu", "mmlu", local(tmp_path, "mmlu", num_fewshot=5), {}, [])
    assert len(built.leaves) == 57
    assert built.is_group
    assert [child.name for child in built.task] == [
        "mmlu_stem",
        "mmlu_other",
        "mmlu_social_sciences",
        "mmlu_humanities",
    ]
    assert built.dataset_revision is not None
    assert built.dataset_revision.startswith("sha256:")


def test_subtasks_narrow_a_group_by_full_or_short_name(tmp_path: Path) -> None:
    for subject in ("anatomy", "virology"):
        written(tmp_path, f"mmlu/{subject}/test.jsonl", mmlu_rows(2))
        written(tmp_path, f"mmlu/{subject}/dev.jsonl", mmlu_rows(5))
    with quiet_harness(1):
        built = build("mmlu", "mmlu", local(tmp_path, "mmlu"), {}, ["virology", "mmlu_anatomy"])
    assert sorted(built.leaves) == ["mmlu_anatomy", "mmlu_virology"]
    assert built.task.has_aggregation
    with pytest.raises(EvaluationError, match=r"mmlu has no subtask alchemy; it has .*"), quiet_harness(1):
        build("mmlu", "mmlu", local(tmp_path, "mmlu"), {}, ["alchemy"])


def test_a_subject_without_data_names_its_folder_and_the_way_out(tmp_path: Path) -> None:
    written(tmp_path, "mmlu/anatomy/test.jsonl", mmlu_rows(2))
    with pytest.raises(DataError, match=r"mmlu/abstract_algebra/.*`subtasks:`"), quiet_harness(1):
        build("mmlu", "mmlu", local(tmp_path, "mmlu"), {}, [])


def test_without_shots_only_the_measured_split_has_to_be_there(tmp_path: Path) -> None:
    rows = [
        {"question": "?", "opa": "1", "opb": "2", "opc": "3", "opd": "4", "cop": n % 4, "id": str(n)}
        for n in range(8)
    ]
    written(tmp_path, "medmcqa/validation.jsonl", rows)
    with quiet_harness(1):
        built = build("medmcqa", "medmcqa", local(tmp_path, "medmcqa", num_fewshot=0), {}, [])
    assert len(built.leaves["medmcqa"].eval_docs) == 8
    with (
        pytest.raises(DataError, match=r"needs the split 'train'.*found: validation\.jsonl"),
        quiet_harness(1),
    ):
        build("medmcqa", "medmcqa", local(tmp_path, "medmcqa", num_fewshot=5), {}, [])


def test_an_unknown_task_suggests_one() -> None:
    with pytest.raises(EvaluationError, match=r"lm-eval has no task 'medmcqaa'\. Did you mean 'medmcqa'"):
        build("x", "medmcqaa", TaskData(), {}, [])


def test_choices_that_are_shuffled_stay_as_they_were_asked(tmp_path: Path) -> None:
    """lm-eval's GPQA shuffles with the global generator, each time its documents are read."""
    rows = [
        {
            "Question": f"Q{n}",
            "Correct Answer": f"right {n}",
            **{f"Incorrect Answer {i}": f"wrong {n} {i}" for i in (1, 2, 3)},
        }
        for n in range(20)
    ]
    written(tmp_path, "gpqa/train.jsonl", rows)
    answers = []
    for _ in range(2):
        random.seed(None)
        with quiet_harness(1234):
            built = build("gpqa", "gpqa_main_zeroshot", local(tmp_path, "gpqa", num_fewshot=0), {}, [])
            (leaf,) = built.leaves.values()
            first = [doc["answer"] for doc in leaf.eval_docs]
            assert [doc["answer"] for doc in leaf.eval_docs] == first
            for doc in leaf.eval_docs:
                number = doc["Question"].removeprefix("Q")
                assert doc[f"choice{'ABCD'.index(doc['answer'][1]) + 1}"] == f"right {number}"
        answers.append(first)
    assert answers[0] == answers[1]
    assert len(set(answers[0])) > 1


def test_the_hub_path_reads_a_repository_and_its_revision_is_null_without_a_commit(tmp_path: Path) -> None:
    """A local folder laid out as a data set repository goes through the same `load_dataset`."""
    written(tmp_path, "repository/test.jsonl", choice_documents([0, 1, 2]))
    task = choice_task("colours", dataset_path=str(tmp_path / "repository"))
    with quiet_harness(1):
        built = build("colours", task, TaskData(), {}, [])
    assert len(built.leaves["colours"].eval_docs) == 3
    assert built.dataset_revision is None


def test_the_hub_commit_is_read_from_the_addresses_of_the_files() -> None:
    from types import SimpleNamespace

    from pytest_gnus.tasks.benchmark_task import _hub_commit

    commit = "0123456789abcdef0123456789abcdef01234567"
    checksums = {f"hf://datasets/cais/mmlu@{commit}/anatomy/test.parquet": {}}
    split = SimpleNamespace(info=SimpleNamespace(download_checksums=checksums))
    assert _hub_commit({"test": split}) == commit
    assert _hub_commit({"test": SimpleNamespace(info=SimpleNamespace(download_checksums=None))}) is None


def test_revision_and_forced_download_reach_load_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    asked: dict[str, Any] = {}

    def load_dataset(**keywords: Any) -> Any:
        asked.update(keywords)
        return datasets.DatasetDict({"test": datasets.Dataset.from_list(choice_documents([0, 1]))})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    data = TaskData(revision="refs/convert/parquet", force_download=True)
    with quiet_harness(1):
        built = build("colours", choice_task("colours", dataset_name="part"), data, {}, [])
    assert asked == {
        "path": "nobody/nothing",
        "name": "part",
        "revision": "refs/convert/parquet",
        "download_mode": datasets.DownloadMode.FORCE_REDOWNLOAD,
    }
    assert built.dataset_revision == "refs/convert/parquet"


def test_a_data_set_that_cannot_be_loaded_says_which_and_what_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match=r"colours: the data set nobody/nothing cannot .*--gnus-source=local"):
        build("colours", choice_task("colours"), TaskData(), {}, [])


def test_an_unknown_key_of_a_task_config_is_named(tmp_path: Path) -> None:
    written(tmp_path, "colours/test.jsonl", choice_documents([0]))
    task = choice_task("colours", doc_to_txt="x")
    with pytest.raises(DataError, match=r"'colours' has a key lm-eval does not know: .*doc_to_txt"):
        build("colours", task, local(tmp_path, "colours"), {}, [])


@pytest.mark.parametrize(
    ("reference", "message"),
    [("../outside.f", "no such file"), ("missing.f", "no such file"), ("beside.g", "has no function 'g'")],
)
def test_functions_come_from_beside_the_yaml_file_only(tmp_path: Path, reference: str, message: str) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside.py").write_text("def f(doc): return 'x'\n")
    (tmp_path / "inside" / "beside.py").write_text("def f(doc): return 'x'\n")
    written(tmp_path, "colours/test.jsonl", choice_documents([0]))
    function = FunctionReference(reference, tmp_path / "inside")
    with pytest.raises(EvaluationError, match=message):
        build("colours", choice_task("colours", doc_to_text=function), local(tmp_path, "colours"), {}, [])


@pytest.mark.parametrize(
    ("template", "fields"),
    [
        ("{{ a }} and {{ b.c }}", ["a"]),
        ("{% if a %}{{ a }}{% endif %}{{ b }}", ["b"]),
        ("{{ a if a is defined else b.c }}", []),
        ("plain_field", ["plain_field"]),
        ("no template at all", []),
        ("{% set x = a %}{{ x }}", []),
    ],
)
def test_fields_that_a_template_prints(template: str, fields: list[str]) -> None:
    assert _printed_fields(template) == fields


@pytest.mark.parametrize("upper", [True, False], ids=["Parquet conversion", "original release"])
def test_pubmedqa_reads_the_fields_of_both_releases(tmp_path: Path, upper: bool) -> None:
    task = load_yaml(REPOSITORY / "benchmarks" / "pubmedqa.yaml")["task"]
    row: dict[str, Any] = {"final_decision": "maybe"}
    row |= (
        {"QUESTION": "Is it?", "CONTEXTS": ["One.", "Two."]}
        if upper
        else {"question": "Is it?", "context": {"contexts": ["One.", "Two."], "labels": ["A", "B"]}}
    )
    written(tmp_path, "pubmedqa/test.jsonl", [row, row])
    with quiet_harness(1):
        built = build("pubmedqa", task, local(tmp_path, "pubmedqa", num_fewshot=0), {}, [])
    leaf = built.leaves["pubmedqa"]
    # The prompt of lm-eval's own task.
    assert leaf.doc_to_text(leaf.eval_docs[0]) == "Abstract: One.\nTwo.\nQuestion: Is it?\nAnswer:"
    assert leaf.doc_to_target(leaf.eval_docs[0]) == "maybe"


def test_uspto_leaves_out_the_class_that_is_no_section(tmp_path: Path) -> None:
    task = load_yaml(REPOSITORY / "benchmarks" / "uspto_classification.yaml")["task"]
    written(tmp_path, "u/test.jsonl", [{"text": f"t{label}", "label": label} for label in range(9)])
    with quiet_harness(1):
        built = build("uspto_classification", task, local(tmp_path, "u", num_fewshot=0), {}, [])
    assert [doc["label"] for doc in built.leaves["uspto_classification"].eval_docs] == list(range(8))


def test_a_metric_that_lm_eval_does_not_know_is_told_before_anything_runs(tmp_path: Path) -> None:
    written(tmp_path, "colours/test.jsonl", choice_documents([0, 1]))
    metrics = [{"metric": "rouge9", "aggregation": "mean", "higher_is_better": True}]
    task = choice_task("colours", metric_list=metrics)
    with (
        pytest.raises(EvaluationError, match=r"colours: lm-eval has no metric 'rouge9'\. Did you mean"),
        quiet_harness(1),
    ):
        build("colours", task, local(tmp_path, "colours", num_fewshot=0), {}, [])
