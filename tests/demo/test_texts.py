"""The synthetic patents: reproducible by seed, well formed, and free of overlap with the training texts."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from rouge_score.rouge_scorer import RougeScorer

from pytest_gnus.demo.corpus import (
    SUMMARIZATION_COUNT,
    benchmark_files,
    classification_patents,
    summarization_patents,
    training_patents,
)
from pytest_gnus.demo.texts import SECTIONS, VOCABULARIES, Patent, write_patents

DATA = Path(__file__).resolve().parents[2] / "data" / "benchmarks"
SHIPPED_SEED = 0
FUNCTION_WORDS = (
    "the of and to a in is that for it as was with be by on not he his but at are this have from or had an"
    " they which one you were all her she there would their we him been has when who will no more if out so"
)


def rows(name: str) -> list[dict[str, str | int]]:
    return [
        json.loads(line) for line in (DATA / name / "test.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def test_same_seed_writes_the_same_patents() -> None:
    assert write_patents(50, 7) == write_patents(50, 7)


def test_a_smaller_count_writes_a_prefix() -> None:
    assert write_patents(10, 7) == write_patents(50, 7)[:10]


def test_another_seed_writes_other_patents() -> None:
    first = {patent.description for patent in write_patents(50, 7)}
    second = {patent.description for patent in write_patents(50, 8)}
    assert not first & second


def test_known_patent() -> None:
    """Pins the texts themselves: a change of tables or wording makes the shipped model out of date."""
    assert write_patents(1, 1) == [
        Patent(
            title="Stackable separator for sorting parcels",
            description=(
                "The present invention relates to a stackable separator for sorting parcels. It is known "
                "to employ a detergent having a crucible, which however cannot be adjusted. According to "
                "the invention, the separator comprises a stirrer, a hook and a roller made of glass. "
                "During use, the stirrer turns the hook, thereby increasing speed. Optionally, a layer of"
                " platinum lies between the roller and a crucible."
            ),
            abstract=(
                "Stackable separator for sorting parcels, comprising stirrer, hook, glass roller;"
                " stirrer turns hook, increasing speed."
            ),
            section="C",
        )
    ]


def test_no_patents() -> None:
    assert write_patents(0, 1) == []


def test_texts_have_the_length_and_the_form_that_the_prompts_need() -> None:
    for patent in write_patents(1000, 3):
        assert 55 <= len(patent.description.split()) <= 110
        assert 10 <= len(patent.abstract.split()) <= 25
        for text in (patent.title, patent.description, patent.abstract):
            assert text == " ".join(text.split())
            assert text[0].isupper()
            assert "{" not in text
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", patent.description)


def test_abstract_says_only_what_the_description_says() -> None:
    for patent in write_patents(1000, 3):
        assert set(words(patent.abstract)) <= set(words(patent.description)) | {"comprising"}


def test_description_names_content_that_the_abstract_leaves_out() -> None:
    """Otherwise copying every word of the tables would be a perfect summary."""
    content = {
        word for table in VOCABULARIES.values() for word in (*table.devices, *table.parts, *table.materials)
    }
    for patent in write_patents(1000, 3):
        assert content & (set(words(patent.description)) - set(words(patent.abstract)))


def test_every_table_has_enough_distinct_words_and_neighbours_share_some() -> None:
    sections = [VOCABULARIES[section] for section in SECTIONS]
    for table in sections:
        for entries in (table.devices, table.parts, table.materials, table.purposes):
            assert len(set(entries)) == len(entries) >= 12
    for table, neighbour in zip(sections, sections[1:] + sections[:1], strict=True):
        shared = set(table.devices + table.parts + table.materials + table.purposes)
        shared &= set(neighbour.devices + neighbour.parts + neighbour.materials + neighbour.purposes)
        assert shared


@pytest.mark.parametrize("name", sorted(benchmark_files(SHIPPED_SEED)))
def test_shipped_files_are_what_the_seed_writes(name: str) -> None:
    assert (DATA / name).read_bytes() == benchmark_files(SHIPPED_SEED)[name].encode()


def test_shipped_classification_is_balanced_and_shuffled() -> None:
    labels = [row["label"] for row in rows("uspto_classification")]
    assert Counter(labels) == dict.fromkeys(range(8), 20)
    assert labels != sorted(labels, key=int)


def test_shipped_labels_name_the_sections_of_their_texts() -> None:
    expected = [(patent.abstract, patent.section) for patent in classification_patents(SHIPPED_SEED)]
    assert [(row["text"], SECTIONS[int(row["label"])]) for row in rows("uspto_classification")] == expected


def test_shipped_summarization_has_distinct_documents() -> None:
    shipped = rows("bigpatent")
    assert len(shipped) == SUMMARIZATION_COUNT == 48
    assert len({row["description"] for row in shipped}) == len({row["abstract"] for row in shipped}) == 48


@pytest.mark.parametrize("seed", [SHIPPED_SEED, 1])
def test_test_documents_are_disjoint_from_the_training_documents(seed: int) -> None:
    training = training_patents(seed)
    tests = summarization_patents(seed) + classification_patents(seed)
    assert not {one.abstract for one in training} & {one.abstract for one in tests}
    assert not {one.description for one in training} & {one.description for one in tests}


def test_shipped_texts_are_disjoint_from_the_training_texts() -> None:
    training = training_patents(SHIPPED_SEED)
    seen = {text for patent in training for text in (patent.abstract, patent.description)}
    shipped = [row[field] for row in rows("bigpatent") for field in ("description", "abstract")]
    shipped += [row["text"] for row in rows("uspto_classification")]
    assert not seen & set(shipped)


@pytest.mark.parametrize("text", ["", "The", "A device.", "for", FUNCTION_WORDS])
def test_fixed_text_shares_almost_nothing_with_the_abstracts(text: str) -> None:
    scorer = RougeScorer(["rouge1"], use_stemmer=True)
    scores = [scorer.score(str(row["abstract"]), text)["rouge1"].fmeasure for row in rows("bigpatent")]
    assert sum(scores) / len(scores) < 0.15
