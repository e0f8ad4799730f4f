"""What is wrong with a benchmark's file, its documents or its task's code is one sentence that says where."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_gnus.errors import (
    ConfigError,
    DataAbsentError,
    DataError,
    EvaluationError,
    foreign_place,
    nearest,
)
from pytest_gnus.evaluation import measure, prepare
from pytest_gnus.models.demo_models import ConstantModel
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.plan import BenchmarkItem, Planner
from pytest_gnus.records.store import RecordStore
from pytest_gnus.run import Run
from pytest_gnus.schema import Benchmark, Niche, NicheBenchmarks
from pytest_gnus.settings import Settings
from pytest_gnus.tasks.answers import choice_fault, gold_fault, target_fault
from pytest_gnus.tasks.local_data import LocalData
from pytest_gnus.workspace import FunctionReference, Workspace, load_workspace
from tests.conftest import choice_documents, choice_task


def item_of(root: Path, task: Any, num_fewshot: int = 0, **splits: list[dict[str, Any]]) -> BenchmarkItem:
    """An item of the benchmark `colours` with these documents in its local data."""
    folder = root / "data" / "benchmarks" / "colours"
    folder.mkdir(parents=True, exist_ok=True)
    for split, documents in splits.items():
        text = "".join(json.dumps(document) + "\n" for document in documents)
        (folder / f"{split}.jsonl").write_text(text)
    benchmark = Benchmark(name="colours", task=task, num_fewshot=num_fewshot)
    niche = Niche(niche="toy", benchmarks=NicheBenchmarks(blocking=["colours"]))
    workspace = Workspace(root, benchmarks={"colours": benchmark}, niches={"toy": niche})
    (item,) = Planner(workspace, Settings(niches=("toy",), source="local"), root).items()
    return item


def said(item: BenchmarkItem) -> str:
    """The sentence that an item's faults end in, before a model is loaded."""
    with pytest.raises((DataError, EvaluationError)) as raised:
        prepare(item)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_more_shots_than_examples_are_asked_and_available(tmp_path: Path) -> None:
    task = choice_task("colours", fewshot_split="train")
    documents = choice_documents([0, 1, 2])
    item = item_of(tmp_path, task, 5, test=documents, train=choice_documents([3, 2, 1]))
    assert said(item).startswith(
        "colours: num_fewshot asks for 5 examples for each document, and of the 3 documents that they are "
        "taken from 3 are other than the document itself; lower num_fewshot"
    )
    prepare(item_of(tmp_path, task, 3, test=documents, train=choice_documents([3, 2, 1])))


def test_a_list_valued_answer_is_no_few_shot_example(tmp_path: Path) -> None:
    train = [document | {"answer": [1, 2]} for document in choice_documents([0, 1])]
    test = [document | {"answer": [0, 3]} for document in choice_documents([0, 1])]
    item = item_of(tmp_path, choice_task("colours", fewshot_split="train"), 1, test=test, train=train)
    with pytest.raises(
        DataError, match=r"few-shot example needs one right answer.*found \[1, 2\].*num_fewshot: 0"
    ):
        measure(item, prepare(item), LoadedModel(ModelSpec("demo", "test"), ConstantModel()))


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (4, "gives 4, which is none of its 4 choices; allowed: a whole number from 0 to 3"),
        (-1, "gives -1, which is none of its 4 choices"),
        (None, "needs answer, which is null or missing"),
    ],
)
def test_a_right_answer_that_is_none_names_its_document(tmp_path: Path, answer: Any, found: str) -> None:
    documents = choice_documents([0, 1, 2])
    documents[2]["answer"] = answer
    sentence = said(item_of(tmp_path, choice_task("colours"), test=documents))
    assert sentence.startswith(f"colours, document 2: doc_to_target {found}")


def test_a_right_answer_that_is_no_label_names_its_document(tmp_path: Path) -> None:
    documents = [document | {"answer": "green"} for document in choice_documents([1, 1])]
    documents[1]["answer"] = "mauve"
    sentence = said(item_of(tmp_path, choice_task("colours"), test=documents))
    assert sentence.startswith(
        "colours, document 1: doc_to_target gives 'mauve', which is none of its 4 choices"
    )


def test_a_right_answer_between_two_choices_is_named_where_it_stands(tmp_path: Path) -> None:
    documents = choice_documents([0, 1, 2])
    documents[1]["answer"] = 0.7
    sentence = said(item_of(tmp_path, choice_task("colours"), test=documents))
    assert "document 1: doc_to_target gives 0.7, which is none of its 4 choices" in sentence


def test_only_what_is_measured_has_to_be_right(tmp_path: Path) -> None:
    from dataclasses import replace

    item = item_of(tmp_path, choice_task("colours"), test=choice_documents([0, 1, 9]))
    prepare(replace(item, request=replace(item.request, limit=2)))
    assert "document 2" in said(item)


@pytest.mark.parametrize(
    ("choices", "found"), [([], "gives no choices"), (["red", ""], "gives choice 1 as an empty text")]
)
def test_choices_that_cannot_be_scored_name_their_document(
    tmp_path: Path, choices: list[str], found: str
) -> None:
    documents = choice_documents([0, 1])
    documents[1]["choices"] = choices
    sentence = said(item_of(tmp_path, choice_task("colours"), test=documents))
    assert f"colours, document 1: doc_to_choice {found}" in sentence


@pytest.mark.parametrize(
    ("choices", "fault"),
    [
        (["a", "b"], None),
        ("ab", "gives 'ab', where a list of texts is needed"),
        ([1], "gives choice 0 as 1, where a text is needed"),
    ],
)
def test_what_choices_may_be(choices: Any, fault: str | None) -> None:
    assert choice_fault(choices) == fault


@pytest.mark.parametrize(
    ("gold", "several", "faulty"),
    [
        (0, False, False),
        ("b", False, False),
        (2, False, True),
        (1.0, False, True),
        ([0, 1], True, False),
        ([0, 2], True, True),
        (["a"], True, True),
        ([], True, True),
        ([0], False, True),
        (0, True, True),
    ],
)
def test_what_a_right_answer_may_be(gold: Any, several: bool, faulty: bool) -> None:
    assert (gold_fault(gold, ["a", "b"], several=several) is not None) is faulty


@pytest.mark.parametrize(
    ("target", "several", "faulty"),
    [("a", False, False), (0.7, False, False), (["a"], False, True), (["a"], True, False), ([], True, True)],
)
def test_what_a_target_may_be(target: Any, several: bool, faulty: bool) -> None:
    assert (target_fault(target, several=several) is not None) is faulty


def test_a_field_of_several_types_names_two_documents(tmp_path: Path) -> None:
    documents = choice_documents([0, 1, 2])
    documents[2]["answer"] = "two"
    sentence = said(item_of(tmp_path, choice_task("colours"), test=documents))
    assert sentence == (
        "data/benchmarks/colours/test.jsonl: the field 'answer' is of several types, a whole number in "
        "document 0 and text in document 2; give it one type"
    )


def test_a_number_that_no_table_holds_names_its_document(tmp_path: Path) -> None:
    documents = choice_documents([0, 1])
    documents[1]["answer"] = 10**30
    sentence = said(item_of(tmp_path, choice_task("colours"), test=documents))
    assert "the field 'answer' of document 1 holds what no table can: '1000" in sentence


def test_an_aggregation_that_does_not_exist_is_named_with_those_that_do(tmp_path: Path) -> None:
    metrics = [{"metric": "acc", "aggregation": "maen", "higher_is_better": True}]
    sentence = said(
        item_of(tmp_path, choice_task("colours", metric_list=metrics), test=choice_documents([0]))
    )
    assert "the aggregation of acc is 'maen', which lm-eval does not have; allowed: " in sentence
    assert sentence.endswith("Did you mean 'mean'?")


def test_a_task_that_lm_eval_does_not_have_is_told_before_its_data_are_asked_for(tmp_path: Path) -> None:
    item = item_of(tmp_path, "arc_esay")
    with pytest.raises(
        EvaluationError, match=r"task: lm-eval has no task 'arc_esay'. Did you mean .*'arc_easy'"
    ):
        Run(RecordStore(tmp_path / "artifacts")).skip(item)
    with pytest.raises(DataAbsentError):
        Run(RecordStore(tmp_path / "artifacts")).skip(item_of(tmp_path, "arc_easy"))


def test_a_task_that_runs_programs_is_refused_before_its_code_is_imported(tmp_path: Path) -> None:
    sentence = said(item_of(tmp_path, "humaneval", test=[{"prompt": "def f():"}]))
    assert sentence.startswith("colours: humaneval runs the programs that a model writes (`unsafe_code`)")
    assert "status: not_implemented" in sentence
    inline = choice_task("colours", unsafe_code=True)
    assert "`unsafe_code`" in said(item_of(tmp_path, inline, test=choice_documents([0])))


def test_a_function_of_a_task_that_raises_is_a_sentence_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def documents(rows):\n    return rows[0]['nothing'][1]\n")
    task = choice_task("colours", process_results=None)
    task["process_docs"] = FunctionReference("own.documents", tmp_path)
    (tmp_path / "own.py").write_text("def documents(rows):\n    return 1 / 0\n")
    item = item_of(tmp_path, task, test=choice_documents([0]))
    with pytest.raises(EvaluationError) as raised:
        prepare(item)
    assert str(raised.value) == (
        "colours: making its task failed: ZeroDivisionError: division by zero (own.py, line 2); --full-trace "
        "shows where"
    )
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_an_error_of_the_products_own_code_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_gnus.tasks.benchmark_task import BenchmarkTask

    monkeypatch.setattr(BenchmarkTask, "_answer_fault", lambda _self, _doc: foreign_place(None))  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        prepare(item_of(tmp_path, choice_task("colours"), test=choice_documents([0])))


@pytest.mark.parametrize(
    "name", ["benchmarks/colours.yaml", "../benchmarks/colours", "/tmp/colours.yaml", "a\0b", ""]
)
def test_a_benchmark_named_by_a_path_is_a_usage_error(tmp_path: Path, name: str) -> None:
    for folder in ("benchmarks", "config/specialists"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "benchmarks/colours.yaml").write_text("name: colours\ntask: arc_easy\n")
    niche = {"niche": "toy", "benchmarks": {"blocking": [name]}}
    (tmp_path / "config/specialists/toy.yaml").write_text(json.dumps(niche))
    with pytest.raises(ConfigError) as raised:
        load_workspace(tmp_path)
    (problem,) = raised.value.problems
    assert (problem.key, problem.found) == ("benchmarks.blocking[0]", repr(name))
    assert problem.allowed == "the name of a benchmark, which is no path"
    assert problem.hint == ("Write 'colours'." if "colours" in name else "")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "name: colours\ntask: `t`\n",
            "broken YAML: character that cannot start any token (line 2, column 7)",
        ),
        ("name: colours\nlimit: !!int x\n", "'x', which is no int (line 2, column 8)"),
        ("name: colours\n? [a]\n: b\n", "a list or a mapping as a key (line 2, column 3)"),
        ("&a [*a]", "values nested more than 100 deep"),
    ],
)
def test_broken_yaml_is_said_once_and_with_its_line(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / "config/specialists").mkdir(parents=True)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks/colours.yaml").write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_workspace(tmp_path)
    assert [problem.found for problem in raised.value.problems] == [found]
    assert "found found" not in str(raised.value)


def test_aliases_that_multiply_are_refused_before_they_are_written_out(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    (tmp_path / "config/pipeline.yaml").write_text("\n".join(lines))
    with pytest.raises(ConfigError, match="aliases that repeat each other"):
        load_workspace(tmp_path)


def test_a_link_that_leads_nowhere_is_no_file_left_out(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/pipeline.yaml").symlink_to("nowhere")
    with pytest.raises(ConfigError, match="found a link that leads nowhere"):
        load_workspace(tmp_path)


@pytest.fixture
def data(tmp_path: Path) -> LocalData:
    root = tmp_path / "data" / "benchmarks"
    (root / "colours").mkdir(parents=True)
    return LocalData(root / "colours", root)


@pytest.mark.parametrize(
    ("name", "place"), [("test.jsonl", ", line 2"), ("test.jsonl.gz", ", line 2"), ("test.json", "")]
)
def test_a_key_that_stands_twice_is_an_error_with_its_place(data: LocalData, name: str, place: str) -> None:
    twice = '{"question": "q", "answer": 1, "answer": 2}'
    text = f'[{{"answer": 0}},\n{twice}]' if name.endswith(".json") else f'{{"answer": 0}}\n{twice}\n'
    content = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
    (data.folder / name).write_bytes(content)
    with pytest.raises(DataError) as raised:
        data.rows("test", data.splits(), "colours")
    assert str(raised.value) == (
        f"data/benchmarks/colours/{name}{place}: the key 'answer' stands twice; keep one"
    )


def test_what_lies_there_unread_is_named(data: LocalData) -> None:
    (data.folder / "test.tsv").write_text("a\tb\n")
    (data.folder / "test.jsonl.zst").write_bytes(b"x")
    (data.folder / "README.md").write_text("about")
    with pytest.raises(DataAbsentError, match=r"no local data.*; not read: test\.jsonl\.zst, test\.tsv$"):
        data.check_present("colours")
    (data.folder / "train.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(DataError, match=r"found: train\.jsonl; not read: test\.jsonl\.zst, test\.tsv$"):
        data.rows("test", data.splits(), "colours")


def test_columns_of_one_name_are_refused(data: LocalData) -> None:
    (data.folder / "test.csv").write_text("text,answer,answer\na,1,2\n")
    with pytest.raises(DataError, match=r"test\.csv: 2 columns have the name 'answer'"):
        data.rows("test", data.splits(), "colours")


@pytest.mark.parametrize("key", ["limit", "num_fewshot"])
def test_a_number_too_large_to_count_to_is_a_usage_error(key: str) -> None:
    with pytest.raises(ValueError, match="less than or equal to 2147483647"):
        Benchmark(**{"name": "colours", "task": "arc_easy", key: 10**30})


def test_nearest_words() -> None:
    assert nearest("colour", ["colours", "colou", "science"]) == "Did you mean 'colours' or 'colou'?"
    assert nearest("x", ["colours"]) == ""
