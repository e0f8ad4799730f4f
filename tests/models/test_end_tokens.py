"""Which tokens end a text: the same set on every path that loads a model directory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from lm_eval.api.instance import Instance
from mlx.utils import tree_flatten

from pytest_gnus.errors import ModelError
from pytest_gnus.models.end_tokens import declared_end_tokens, end_tokens, read_generation_config
from pytest_gnus.models.registry import load
from pytest_gnus.models.sgfp4_package import quantize
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.sgfp4 import EncodeOptions

PROMPT = "Description: The present invention relates to a pump with a valve.\n\nAbstract:"


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        ({}, {}, None),
        ({}, {"eos_token_id": 7}, (7,)),
        ({}, {"text_config": {"eos_token_id": [7, 8]}}, (7, 8)),
        ({}, {"eos_token_id": None, "text_config": {"eos_token_id": 8}}, (8,)),
        ({"eos_token_id": [9, 3, 9]}, {"eos_token_id": 7}, (3, 9)),
        ({"eos_token_id": 0}, {"eos_token_id": 7}, (0,)),
        ({"eos_token_id": None}, {"eos_token_id": 7}, (7,)),
        ({"eos_token_id": []}, {"eos_token_id": 7}, (7,)),
    ],
)
def test_the_generation_config_comes_before_the_config(
    generation: Mapping[str, Any], config: Mapping[str, Any], expected: tuple[int, ...] | None
) -> None:
    assert declared_end_tokens(generation, config) == expected


@pytest.mark.parametrize("value", ["</s>", [1, "2"], True, -1, 1.5, {"id": 1}])
def test_what_is_no_token_id_is_refused(value: Any) -> None:
    with pytest.raises(
        ModelError, match=r"generation_config\.json: eos_token_id: found .*; allowed: a token id"
    ):
        declared_end_tokens({"eos_token_id": value}, {})


def test_the_tokenizers_own_end_is_one_too() -> None:
    class Tokenizer:
        eos_token_id: int | None = 4

    assert end_tokens((9, 3), Tokenizer()) == (3, 4, 9)
    assert end_tokens(None, Tokenizer()) == (4,)
    Tokenizer.eos_token_id = None
    assert end_tokens((3,), Tokenizer()) == (3,)


@pytest.mark.parametrize(("text", "message"), [("{", "is not JSON"), ("[1]", "holds no JSON object")])
def test_a_broken_generation_config_is_no_empty_one(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "generation_config.json").write_text(text)
    with pytest.raises(ModelError, match=rf"generation_config\.json {message}"):
        read_generation_config(tmp_path)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, reference_directory: Path) -> Path:
    """The embedded reference with two end tokens, the second one a common word, and two chat templates."""
    directory = tmp_path_factory.mktemp("source") / "model"
    shutil.copytree(reference_directory, directory)
    lm: Any = load(ModelSpec("mlx", str(reference_directory))).lm
    usual = answered(lm)
    word = lm.tokenizer.encode(usual)[4]
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, word]}))
    (directory / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    (directory / "additional_chat_templates").mkdir()
    (directory / "additional_chat_templates" / "tool.jinja").write_text("{{ messages[0].content }}?")
    return directory


def answered(lm: Any) -> str:
    settings = {"until": [], "max_gen_toks": 24, "do_sample": False, "temperature": 0.0}
    (text,) = lm.generate_until([Instance("generate_until", {}, (PROMPT, settings), 0)])
    return str(text)


@pytest.fixture(scope="module")
def paths(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelSpec]:
    """The directory as it is, quantized by MLX, in SGFP4, and with an adapter that changes nothing."""
    from mlx_lm.utils import load_model, quantize_model

    folder = tmp_path_factory.mktemp("paths")
    quantize(source, folder / "package", EncodeOptions())
    shutil.copytree(source, folder / "mlx", ignore=shutil.ignore_patterns("*.safetensors"))
    model, config = quantize_model(*load_model(source), 64, 8)
    (folder / "mlx" / "config.json").write_text(json.dumps(config))
    mx.save_safetensors(str(folder / "mlx" / "model.safetensors"), dict(tree_flatten(model.parameters())))
    (folder / "adapter").mkdir()
    parameters = {"rank": 2, "scale": 4.0, "dropout": 0.0, "keys": ["self_attn.q_proj"]}
    (folder / "adapter" / "adapter_config.json").write_text(
        json.dumps({"fine_tune_type": "lora", "num_layers": 1, "lora_parameters": parameters})
    )
    width, layers = (config[key] for key in ("hidden_size", "num_hidden_layers"))
    name = f"model.layers.{layers - 1}.self_attn.q_proj"
    nothing = {f"{name}.lora_a": mx.zeros((width, 2)), f"{name}.lora_b": mx.zeros((2, width))}
    mx.save_safetensors(str(folder / "adapter" / "adapters.safetensors"), nothing)
    return {
        "plain": ModelSpec("mlx", str(source)),
        "mlx": ModelSpec("mlx", str(folder / "mlx")),
        "sgfp4": ModelSpec("mlx", str(folder / "package")),
        "adapter": ModelSpec("mlx", str(source), str(folder / "adapter")),
        "adapter over sgfp4": ModelSpec("mlx", str(folder / "package"), str(folder / "adapter")),
        "hf": ModelSpec("hf", str(source)),
    }


@pytest.mark.parametrize("path", ["plain", "mlx", "sgfp4", "adapter", "adapter over sgfp4", "hf"])
def test_every_path_has_the_same_end_tokens_templates_and_tokenizer(
    path: str, paths: dict[str, ModelSpec], source: Path, embedded: Any
) -> None:
    if path == "hf" and not all(find_spec(name) for name in ("torch", "accelerate", "peft")):
        pytest.skip("torch, accelerate and peft are not installed")
    model = load(paths[path])
    lm: Any = model.lm
    declared = json.loads((source / "generation_config.json").read_text())["eos_token_id"]
    assert list(lm.end_tokens) == sorted(declared)
    assert model.tokenizer == embedded.tokenizer
    assert lm.apply_chat_template([{"role": "user", "content": "Well"}]) == "Well!"
    assert set(lm.tokenizer.chat_template) == {"default", "tool"}
    text = answered(lm)
    tokens = lm.tokenizer.encode(text)
    assert not set(tokens) & set(declared)
    lm.usage.reset()
    answered(lm)
    assert (lm.usage.stopped_by_limit, lm.usage.stopped_by_string) == (0, 0)
    if path in ("plain", "adapter", "hf"):
        assert text == answered_up_to(embedded, declared[1])


def answered_up_to(embedded: Any, token: int) -> str:
    """What the model says without the second end token, up to it."""
    tokens = embedded.lm.tokenizer.encode(answered(embedded.lm))
    return str(embedded.lm.tokenizer.decode(tokens[: tokens.index(token)]))
