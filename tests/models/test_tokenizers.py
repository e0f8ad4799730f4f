"""Token ids within the embedding, and tokenizers that are not each other's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.instance import Instance
from transformers import AutoTokenizer

from pytest_gnus.errors import ModelError
from pytest_gnus.models.registry import load
from pytest_gnus.models.sgfp4_package import quantize
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.models.tokenizer_identity import tokenizer_differences, tokenizer_identity
from pytest_gnus.sgfp4 import EncodeOptions


@pytest.fixture
def directory(reference_directory: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(reference_directory, tmp_path / "model"))


def rewrite(
    directory: Path, change: Callable[[dict[str, Any]], object], name: str = "tokenizer.json"
) -> None:
    content = json.loads((directory / name).read_text())
    change(content)
    (directory / name).write_text(json.dumps(content))


def with_more_tokens(content: dict[str, Any]) -> None:
    rows = len(content["model"]["vocab"])
    for number in range(3):
        token = {"id": rows + number, "content": f"<extra{number}>", "special": False}
        rest = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        content["added_tokens"].append({**token, **rest})


def asked(kind: str, *arguments: Any) -> list[Instance]:
    return [Instance(kind, {}, arguments, 0)]


TOO_LARGE = r"the tokenizer gives the token id (\d+), but the model's embedding has (\d+) rows, for ids up to"


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "sgfp4"])
def test_an_id_without_a_row_is_an_error_before_the_model_is_run(
    directory: Path, tmp_path: Path, packed: bool
) -> None:
    rewrite(directory, with_more_tokens)
    if packed:
        quantize(directory, tmp_path / "package", EncodeOptions())
        directory = tmp_path / "package"
    lm: Any = load(ModelSpec("mlx", str(directory))).lm
    settings = {"until": ["\n"], "max_gen_toks": 4, "do_sample": False}
    rows = json.loads((directory / "config.json").read_text())["vocab_size"]
    for ask, request in (
        (lm.loglikelihood, asked("loglikelihood", "a <extra1> pump", " A")),
        (lm.loglikelihood, asked("loglikelihood", "a pump", " <extra1>")),
        (lm.loglikelihood_rolling, asked("loglikelihood_rolling", "a <extra1> pump")),
        (lm.generate_until, asked("generate_until", "a <extra1>", settings)),
    ):
        with pytest.raises(ModelError, match=TOO_LARGE) as told:
            ask(request)
        assert f"token id {rows + 1}, but the model's embedding has {rows} rows" in str(told.value)
    # What stays within the rows is answered.
    assert lm.loglikelihood(asked("loglikelihood", "a pump", " A"))[0][0] < 0


def test_a_model_that_can_say_none_of_its_end_tokens_is_refused(directory: Path) -> None:
    (directory / "generation_config.json").write_text('{"eos_token_id": [0, 90000]}')
    lm: Any = load(ModelSpec("mlx", str(directory))).lm
    lm.generate_until(asked("generate_until", "a pump", {"max_gen_toks": 2}))
    assert lm.usage.notes == ["the end tokens 90000 have no row in the model's embedding"]
    lm.tokenizer.eos_token_ids = {90000}
    with pytest.raises(ModelError, match="none of the end tokens 90000 is among the 1536 rows"):
        lm.generate_until(asked("generate_until", "a pump", {"max_gen_toks": 2}))


def swapped(content: dict[str, Any]) -> None:
    """Two common tokens change places."""
    vocabulary = content["model"]["vocab"]
    vocabulary["a"], vocabulary["e"] = vocabulary["e"], vocabulary["a"]


def renamed(content: dict[str, Any]) -> None:
    vocabulary = content["model"]["vocab"]
    last = max(vocabulary, key=lambda token: vocabulary[token])
    vocabulary["qqqq"] = vocabulary.pop(last)
    merges = content["model"]["merges"]
    content["model"]["merges"] = [
        m for m in merges if "".join(m if isinstance(m, list) else m.split()) != last
    ]


def made_special(content: dict[str, Any]) -> None:
    """A token of the vocabulary is left out of texts from now on."""
    rest = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    token = {"id": content["model"]["vocab"]["Q"], "content": "Q", "special": True}
    content["added_tokens"].append({**token, **rest})


def identity(directory: Path) -> dict[str, Any]:
    return tokenizer_identity(AutoTokenizer.from_pretrained(directory))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (with_more_tokens, ["1539 tokens instead of 1536", "other added or special tokens"]),
        (swapped, ["the same tokens under other ids"]),
        (renamed, ["other tokens in its vocabulary", "other merges"]),
        (lambda c: c["model"]["merges"].reverse(), ["other merges"]),
        (made_special, ["other added or special tokens"]),
        (lambda c: c.update(normalizer={"type": "Lowercase"}), ["texts normalized or split in another way"]),
        (
            lambda c: c.update(decoder={"type": "Replace", "pattern": {"String": "a"}, "content": "b"}),
            ["tokens decoded in another way"],
        ),
    ],
    ids=["larger", "permuted", "renamed", "merges", "special", "normalizer", "decoder"],
)
def test_a_difference_that_matters_is_said(
    directory: Path,
    reference_directory: Path,
    change: Callable[[dict[str, Any]], object],
    expected: list[str],
) -> None:
    rewrite(directory, change)
    assert tokenizer_differences(identity(directory), identity(reference_directory)) == expected


def test_another_beginning_or_end_is_said(directory: Path, reference_directory: Path) -> None:
    """A token that is in the vocabulary already becomes BOS."""
    rewrite(directory, lambda c: c.update(bos_token=c["eos_token"]), "tokenizer_config.json")
    found = tokenizer_differences(identity(directory), identity(reference_directory))
    assert found == ["the begin of text token 0 instead of None"]


def reordered(content: dict[str, Any]) -> None:
    vocabulary = content["model"]["vocab"]
    content["model"]["vocab"] = dict(sorted(vocabulary.items(), reverse=True))


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.update(
            truncation={"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
        ),
        lambda c: c.update(padding=None),
        reordered,
    ],
    ids=["truncation", "padding", "order"],
)
def test_a_difference_that_does_not_matter_is_none(
    directory: Path, reference_directory: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    rewrite(directory, change)
    assert tokenizer_differences(identity(directory), identity(reference_directory)) == []


def test_settings_that_change_no_token_are_no_difference(directory: Path, reference_directory: Path) -> None:
    rewrite(directory, lambda c: c.update(padding_side="left", model_max_length=99), "tokenizer_config.json")
    assert tokenizer_differences(identity(directory), identity(reference_directory)) == []


def test_a_tokenizer_that_was_loaded_and_saved_again_is_the_same(
    reference_directory: Path, tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(reference_directory)
    tokenizer.save_pretrained(tmp_path)
    assert identity(tmp_path) == tokenizer_identity(tokenizer)
    tokenizer(["a text"] * 2, padding=True, truncation=True, max_length=4)
    assert identity(tmp_path) == tokenizer_identity(tokenizer)


def test_what_only_one_release_knows_is_not_compared() -> None:
    assert tokenizer_differences({"size": 3, "merges": "a"}, {"size": 3, "later": "b"}) == []
    probed = {"probe": "one", "encoding": "a", "decoding": "a"}
    assert tokenizer_differences(probed, {**probed, "encoding": "b"}) != []
    assert tokenizer_differences(probed, {"probe": "two", "encoding": "b", "decoding": "b"}) == []
