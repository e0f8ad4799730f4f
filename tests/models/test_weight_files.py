"""Shards and their index; what an architecture drops itself is no fault."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from pytest_gnus.errors import ModelError
from pytest_gnus.models.embedding import embedding_rows
from pytest_gnus.models.loading import load
from pytest_gnus.models.sgfp4_package import quantize
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.models.weight_files import check_weight_files, few, tensor_names
from pytest_gnus.sgfp4 import EncodeOptions
from tests.models.architectures import ARCHITECTURES, VOCABULARY, build

INDEX = "model.safetensors.index.json"


@pytest.fixture
def sharded(reference_directory: Path, tmp_path: Path) -> Path:
    """The embedded reference in two files with an index, as transformers and mlx-lm write large models."""
    directory = Path(shutil.copytree(reference_directory, tmp_path / "model"))
    weights = dict(sorted(mx.load(str(directory / "model.safetensors")).items()))
    mx.eval(weights)
    (directory / "model.safetensors").unlink()
    names = list(weights)
    promised = {}
    for number, part in enumerate((names[:10], names[10:]), start=1):
        file = f"model-0000{number}-of-00002.safetensors"
        mx.save_safetensors(str(directory / file), {name: weights[name] for name in part})
        promised |= dict.fromkeys(part, file)
    (directory / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": promised}))
    return directory


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("model-*.safetensors"))


def without(path: Path, count: int) -> None:
    weights = dict(mx.load(str(path)))
    mx.eval(weights)
    for name in sorted(weights)[:count]:
        del weights[name]
    mx.save_safetensors(str(path), weights)


def test_shards_load_as_the_model_they_are_of(sharded: Path, reference_directory: Path) -> None:
    found: Any = load(ModelSpec("mlx", str(sharded))).lm
    whole: Any = load(ModelSpec("mlx", str(reference_directory))).lm
    ours, theirs = (dict(tree_flatten(lm._generator._model.parameters())) for lm in (found, whole))
    assert ours.keys() == theirs.keys()
    assert all(mx.array_equal(ours[name], theirs[name]).item() for name in ours)


def misplaced(directory: Path) -> None:
    content = json.loads((directory / INDEX).read_text())
    name = next(iter(content["weight_map"]))
    content["weight_map"][name] = files(directory)[1].name
    (directory / INDEX).write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda d: files(d)[1].unlink(), r"lacks files that .* names: model-00002-of-00002\.safetensors$"),
        (
            lambda d: without(files(d)[0], 1),
            r"lacks tensors that .* promises: \S+ \(model-00001-of-00002\S+\)$",
        ),
        (lambda d: without(files(d)[0], 8), r"lacks tensors that .* promises: (\S+ \S+; ){5}and 3 more$"),
        (misplaced, r"lacks tensors that .* promises: \S+ \(model-00002-of-00002\.safetensors\)$"),
        (
            lambda d: shutil.copy(files(d)[0], d / "model.safetensors"),
            r"tensors in two files.*\(model-00001-of-\S+ and model\.safetensors\); .*and 5 more",
        ),
        (lambda d: (d / INDEX).write_text("{"), "index.json is not JSON"),
        (lambda d: (d / INDEX).write_text("{}"), "found no weight_map"),
        (lambda d: files(d)[0].write_bytes(files(d)[0].read_bytes()[:100]), "is no safetensors file"),
    ],
    ids=["no file", "no tensor", "no tensors", "elsewhere", "twice", "no JSON", "no map", "cut short"],
)
def test_broken_shards_are_named(sharded: Path, break_it: Callable[[Path], object], message: str) -> None:
    break_it(sharded)
    with pytest.raises(ModelError, match=message):
        load(ModelSpec("mlx", str(sharded)))


@pytest.mark.parametrize("change", ["fewer", "more"])
def test_tensors_that_do_not_fit_the_configuration_are_named_up_to_five(
    reference_directory: Path, tmp_path: Path, change: str
) -> None:
    directory = Path(shutil.copytree(reference_directory, tmp_path / "model"))
    path = directory / "model.safetensors"
    if change == "fewer":
        without(path, 7)
    else:
        weights = dict(mx.load(str(path)))
        mx.eval(weights)
        surplus = {f"model.surplus.{number}": mx.zeros((2,)) for number in range(7)}
        mx.save_safetensors(str(path), {**weights, **surplus})
    expected = "Missing 7 parameters" if change == "fewer" else "Received 7 parameters not in model"
    with pytest.raises(ModelError, match=rf"{expected}: ([\w.]+; ){{5}}and 2 more$"):
        load(ModelSpec("mlx", str(directory)))


def test_five_names_and_how_many_more() -> None:
    assert few("abc") == "a; b; c"
    assert few("abcdefg") == "a; b; c; d; e; and 2 more"


def saved(name: str, reference: Path, directory: Path, **surplus: mx.array) -> Path:
    """An architecture's random weights with the embedded tokenizer."""
    model = build(name)
    shutil.copytree(reference, directory, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    architecture, arguments = ARCHITECTURES[name]
    endless = {key: value for key, value in arguments.items() if key != "time_step_limit"}
    (directory / "config.json").write_text(json.dumps({"model_type": architecture, **endless}))
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(directory / "model.safetensors"), {**weights, **surplus})
    return directory


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if "wide" not in name])
def test_the_rows_of_the_embedding_are_found_whatever_it_is_called(name: str) -> None:
    assert embedding_rows(build(name)) == VOCABULARY


@pytest.mark.parametrize(
    "name",
    [
        "llama",
        "llama tied",
        "qwen3",
        "gemma2",
        "gemma3",
        "cohere",
        "phi3",
        "olmo2",
        "gpt_neox",
        "mamba",
        "rwkv7",
    ],
)
def test_whole_models_are_not_refused(name: str, reference_directory: Path, tmp_path: Path) -> None:
    directory = saved(name, reference_directory, tmp_path / "model")
    check_weight_files(directory)
    load(ModelSpec("mlx", str(directory)))


def test_what_the_architecture_drops_itself_is_no_fault(reference_directory: Path, tmp_path: Path) -> None:
    """Old checkpoints hold the frequencies of rotary embeddings, and tied ones their head again."""
    surplus = {"model.layers.0.self_attn.rotary_emb.inv_freq": mx.zeros((4,))}
    directory = saved("llama", reference_directory, tmp_path / "model", **surplus)
    load(ModelSpec("mlx", str(directory)))
    quantize(directory, tmp_path / "package", EncodeOptions(target_bpw=8.0))
    assert set(surplus) < set(tensor_names(tmp_path / "package" / "model.safetensors"))
    load(ModelSpec("mlx", str(tmp_path / "package")))
    tied = saved("llama tied", reference_directory, tmp_path / "tied")
    weights = dict(mx.load(str(tied / "model.safetensors")))
    mx.eval(weights)
    again = {**weights, "lm_head.weight": weights["model.embed_tokens.weight"]}
    mx.save_safetensors(str(tied / "model.safetensors"), again)
    load(ModelSpec("mlx", str(tied)))
