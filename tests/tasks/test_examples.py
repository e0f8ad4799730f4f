"""No document is among its own few-shot examples, on any way that lm-eval takes examples."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.samplers import ContextSampler, FirstNSampler

from pytest_gnus.errors import DataError, EvaluationError
from pytest_gnus.evaluation import measure, prepare
from pytest_gnus.measurement import Measurement
from pytest_gnus.models.demo_models import ConstantModel
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.plan import BenchmarkItem, Planner
from pytest_gnus.schema import Benchmark, Niche, NicheBenchmarks
from pytest_gnus.settings import Settings
from pytest_gnus.tasks.examples import OtherExamples, around_turns
from pytest_gnus.workspace import FunctionReference, Workspace
from tests.conftest import choice_task

Document = dict[str, Any]


class Listening(ConstantModel):
    """Remembers every prompt."""

    def __init__(self) -> None:
        super().__init__()
        self.prompts: list[str] = []

    def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
        self.prompts += list(dict.fromkeys(request.args[0] for request in requests))
        return super().loglikelihood(requests)

    def generate_until(self, requests: list[Any]) -> list[str]:
        self.prompts += [request.args[0] for request in requests]
        return super().generate_until(requests)


def documents(count: int) -> list[Document]:
    return [
        {"id": place, "question": f"Who is <{place}>?", "choices": ["Ada", "Bob"], "answer": place % 2}
        for place in range(count)
    ]


def item_of(
    root: Path, splits: dict[str, list[Document]], shots: int, changes: dict[str, Any], **content: Any
) -> BenchmarkItem:
    folder = root / "data" / "benchmarks" / "people"
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in splits.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = choice_task("people", **changes)
    benchmark = Benchmark(name="people", task=task, num_fewshot=shots, **content)
    niche = Niche(niche="toy", benchmarks=NicheBenchmarks(blocking=["people"]))
    workspace = Workspace(root, benchmarks={"people": benchmark}, benchmark_files={}, niches={"toy": niche})
    (item,) = Planner(workspace, Settings(niches=("toy",), source="local"), root).items()
    return item


def asked(item: BenchmarkItem) -> tuple[Measurement, list[str]]:
    lm = Listening()
    return measure(item, prepare(item), LoadedModel(ModelSpec("demo", "test"), lm)), lm.prompts


def own_examples(prompts: Sequence[str]) -> int:
    """In how many prompts the question that is asked last stands before too."""
    return sum(prompt.count("<" + prompt.split("<")[-1].split(">")[0] + ">") > 1 for prompt in prompts)


def shots_in(prompts: Sequence[str]) -> set[int]:
    return {prompt.count("Who is ") - 1 for prompt in prompts}


GENERATING = {
    "output_type": "generate_until",
    "doc_to_choice": None,
    "doc_to_target": "{{ choices[answer] }}",
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"fewshot_split": "test"},
        {"fewshot_config": {"sampler": "first_n"}},
        {"fewshot_split": "test", "fewshot_config": {"sampler": "first_n"}},
        {"test_split": None, "validation_split": "test"},
        {"test_split": None, "validation_split": "test", "fewshot_split": "test"},
        {"training_split": "test"},
        GENERATING,
    ],
    ids=lambda changes: ",".join(changes) or "only a test split",
)
@pytest.mark.parametrize("chat", [False, True])
def test_the_evaluated_split_serves_others_and_never_itself(
    tmp_path: Path, changes: dict[str, Any], chat: bool
) -> None:
    measurement, prompts = asked(item_of(tmp_path, {"test": documents(16)}, 4, changes, chat_template=chat))
    assert len(prompts) == 16
    assert own_examples(prompts) == 0
    assert shots_in(prompts) == {4}
    assert measurement.counts.examples_of_evaluated_documents == 64


def test_lm_eval_alone_would_let_a_document_into_its_own_prompt(tmp_path: Path) -> None:
    """Why this is there; and that what is drawn for the other documents stays what it was."""
    item = item_of(tmp_path, {"test": documents(16)}, 4, {})
    prompts = asked(item)[1]
    rows = documents(16)
    sampler = ContextSampler(rows, rnd=item.request.fewshot_seed)
    affected = 0
    for document, prompt in zip(rows, prompts, strict=True):
        drawn = sampler.sample(4, eval_doc=None)
        if document in drawn:
            affected += 1
        else:
            places = [prompt.index(example["question"]) for example in drawn]
            assert places == sorted(places)
    assert affected == 3


def test_copies_are_the_document_too_whatever_their_id(tmp_path: Path) -> None:
    rows = documents(8)
    copies = [row | {"id": 100 + row["id"]} for row in rows]
    measurement, prompts = asked(item_of(tmp_path, {"test": [*rows, *copies]}, 5, {}))
    assert own_examples(prompts) == 0
    assert shots_in(prompts) == {5}
    assert measurement.counts.duplicates == 8


def test_a_training_split_that_holds_the_document_does_not_give_it(tmp_path: Path) -> None:
    rows = documents(6)
    train = [*documents(12)[6:], *({**row, "source": "copied"} for row in rows)]
    changes = {"training_split": "train"}
    prompts = asked(item_of(tmp_path, {"test": rows, "train": train}, 8, changes))[1]
    assert own_examples(prompts) == 0
    assert shots_in(prompts) == {8}


def test_examples_of_a_copied_split_are_counted(tmp_path: Path) -> None:
    splits = {"test": documents(6), "train": documents(6)}
    measurement, prompts = asked(item_of(tmp_path, splits, 2, {"training_split": "train"}))
    assert own_examples(prompts) == 0
    assert measurement.counts.examples_of_evaluated_documents == 12


def test_another_split_is_drawn_from_as_lm_eval_does(tmp_path: Path) -> None:
    train = documents(40)[20:]
    item = item_of(tmp_path, {"test": documents(20), "train": train}, 3, {"training_split": "train"})
    measurement, prompts = asked(item)
    sampler = ContextSampler(train, rnd=item.request.fewshot_seed)
    for prompt in prompts:
        drawn = sampler.sample(3)
        assert prompt.startswith(
            "".join(f"Q: {row['question']}\nA: {row['choices'][row['answer']]}\n\n" for row in drawn)
        )
    assert measurement.counts.examples_of_evaluated_documents == 0


def test_a_list_of_examples_in_the_task_counts(tmp_path: Path) -> None:
    rows = documents(6)
    changes = {"fewshot_config": {"sampler": "first_n", "samples": [rows[2], *documents(9)[6:]]}}
    measurement, prompts = asked(item_of(tmp_path, {"test": rows}, 3, changes))
    assert own_examples(prompts) == 0
    assert shots_in(prompts) == {3}
    # Of the six documents all but the one on the list are shown it.
    assert measurement.counts.examples_of_evaluated_documents == 5


def test_a_list_that_is_used_up_by_the_document_is_an_error(tmp_path: Path) -> None:
    rows = documents(6)
    changes = {"fewshot_config": {"sampler": "first_n", "samples": [rows[2], *documents(8)[6:]]}}
    item = item_of(tmp_path, {"test": rows}, 3, changes)
    with pytest.raises(DataError, match=r"asks for 3 examples .* of the 3 documents .* 2 are other than"):
        asked(item)


@pytest.mark.parametrize(
    ("splits", "changes", "message"),
    [
        ({"test": documents(4)}, {}, "asks for 4 examples .* of the 4 documents .* 3 are other than"),
        (
            {"test": documents(9), "train": documents(12)[9:]},
            {"training_split": "train"},
            "asks for 4 examples .* of the 3 documents .* 3 are other than",
        ),
    ],
)
def test_too_few_documents_are_an_error_before_a_model_is_loaded(
    tmp_path: Path, splits: dict[str, list[Document]], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        prepare(item_of(tmp_path, splits, 4, changes))


def test_as_many_other_documents_as_examples_are_enough(tmp_path: Path) -> None:
    for changes in ({}, {"fewshot_split": "test"}):
        prompts = asked(item_of(tmp_path, {"test": documents(5)}, 4, changes))[1]
        assert own_examples(prompts) == 0
        assert shots_in(prompts) == {4}


def test_copies_that_leave_too_few_are_an_error(tmp_path: Path) -> None:
    rows = [row | {"id": place} for place, row in enumerate(documents(3) * 4)]
    with pytest.raises(DataError, match=r"asks for 9 examples .* of the 12 documents .* 8 are other than"):
        asked(item_of(tmp_path, {"test": rows}, 9, {}))


SHUFFLING = """
import random

def shuffled(rows):
    def change(row):
        choices = list(row["choices"])
        random.shuffle(choices)
        right = row["choices"][row["answer"]]
        lines = "\\n".join(f"{letter}. {choice}" for letter, choice in zip("AB", choices))
        return {"shown": f"{row['question']}\\n{lines}", "letter": "AB"[choices.index(right)]}
    return rows.map(change)
"""


def test_choices_shuffled_apart_hide_no_document(tmp_path: Path) -> None:
    """Examples and documents go through `process_docs` apart from each other; GPQA's task does this."""
    (tmp_path / "people.py").write_text(SHUFFLING)
    changes = {
        "training_split": "test",
        "test_split": None,
        "validation_split": "test",
        "process_docs": FunctionReference("people.shuffled", tmp_path),
        "doc_to_text": "{{ shown }}\nA:",
        "doc_to_choice": ["A", "B"],
        "doc_to_target": "letter",
    }
    measurement, prompts = asked(item_of(tmp_path, {"test": documents(16)}, 4, changes))
    assert own_examples(prompts) == 0
    assert shots_in(prompts) == {4}
    assert measurement.counts.examples_of_evaluated_documents == 64


@pytest.mark.parametrize("chat", [False, True])
def test_a_document_in_its_own_prompt_by_another_way_is_an_error(tmp_path: Path, chat: bool) -> None:
    """The prompts that were really sent are looked at, not only the sampler: here a description holds one."""
    description = "Q: Who is <3>?\nA: Bob\n\n"
    changes = {"training_split": "train", "description": description}
    splits = {"test": documents(6), "train": documents(12)[6:]}
    item = item_of(tmp_path, splits, 2, changes, chat_template=chat)
    with pytest.raises(EvaluationError, match=r"people: 1 of 6 prompts hold their own document.* document 3"):
        asked(item)
    harmless = {**changes, "description": "Q: Who is <3>?\nA: Ada\n\n"}
    assert asked(item_of(tmp_path, splits, 2, harmless, chat_template=chat))[0].n == 6


def test_a_chat_prompt_with_its_own_document_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OtherExamples, "_identities_of", lambda _self, _example: frozenset())
    item = item_of(tmp_path, {"test": documents(16)}, 4, {}, chat_template=True)
    with pytest.raises(EvaluationError, match=r"people: 3 of 16 prompts hold their own document"):
        asked(item)


def test_the_tasks_of_a_group_are_looked_at_too(tmp_path: Path) -> None:
    """MMLU takes the first five of `dev`, which here is a copy of `test` with one document more."""
    folder = tmp_path / "data" / "benchmarks" / "people" / "anatomy"
    folder.mkdir(parents=True)
    rows = [
        {"question": f"Who is <{place}>?", "subject": "anatomy", "choices": list("wxyz"), "answer": place % 4}
        for place in range(6)
    ]
    for split in ("test", "dev", "validation"):
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    item = item_of(tmp_path, {}, 5, {})
    request = replace(item.request, task="mmlu", subtasks=("anatomy",))
    measurement, prompts = asked(replace(item, request=request))
    assert len(prompts) == 6
    assert own_examples(prompts) == 0
    assert shots_in(prompts) == {5}
    assert measurement.counts.examples_of_evaluated_documents == 30


class Marked:
    """A chat template with a system prompt, marks around turns and stripped contents."""

    def __call__(self, turns: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        told = "".join(f"<|{turn['role']}|>\n{turn['content'].strip()}<|end|>\n" for turn in turns)
        return f"<|system|>\nBe kind.<|end|>\n{told}" + "<|assistant|>\n" * add_generation_prompt


def test_what_a_chat_template_writes_around_turns() -> None:
    assert around_turns(Marked()) == ("<|end|>\n<|user|>\n", "<|end|>\n<|assistant|>\n")
    assert around_turns(lambda turns, add_generation_prompt: str(len(turns))) is None


@pytest.mark.parametrize("sampler", [ContextSampler, FirstNSampler])
@pytest.mark.parametrize("leaves_out", [False, True])
def test_every_sampler_gives_as_many_others_from_one_stream(sampler: Any, leaves_out: bool) -> None:
    """Two samplers in step: after each document the generator stands where lm-eval's own would."""
    pool = [{"n": number % 9} for number in range(27)]
    ours = OtherExamples(sampler(pool), "task", lambda row: frozenset({str(row["n"])}))
    ours.set_rnd(7)
    theirs = sampler(pool, rnd=7)
    generator = random.Random(3)
    for _ in range(200):
        document = {"n": generator.randrange(12)}
        ours.document = document
        eval_doc = document if leaves_out else None
        found, plain = ours.sample(5, eval_doc=eval_doc), theirs.sample(5, eval_doc=eval_doc)
        assert len(found) == 5
        assert document not in found
        if document not in plain:
            assert found == plain
        assert ours.rnd.getstate() == theirs.rnd.getstate()
    assert len(ours.given) == 1000
    assert list(theirs.df) == list(ours.df) == pool


@pytest.mark.parametrize(("template", "times"), [("{{ question }}?", 1), ("{{ choices | random }}?", 2)])
def test_a_part_of_a_prompt_is_rendered_once_unless_it_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str, times: int
) -> None:
    item = item_of(tmp_path, {"test": documents(3)}, 0, {"doc_to_text": template})
    (leaf,) = prepare(item).leaves.values()
    rendered: list[str] = []

    def render(text: str, document: Document) -> str:
        rendered.append(text)
        return str(document["question"])

    monkeypatch.setattr("lm_eval.utils.apply_template", render)
    document = {**documents(9)[8], "note": "not seen before"}
    assert leaf.doc_to_text(document) == leaf.doc_to_text(document) == "Who is <8>?"
    assert rendered == [template] * times
