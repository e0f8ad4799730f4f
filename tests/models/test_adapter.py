"""Adapters of mlx-lm: saved as training saves them, and with tensors taken away or added."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm.tuner.utils import linear_to_lora_layers

from pytest_gnus.errors import ModelError
from pytest_gnus.models.adapter import unused_files, with_adapter
from pytest_gnus.models.loading import load
from pytest_gnus.models.spec import ModelSpec
from tests.models.architectures import build

LORA = {"rank": 2, "scale": 4.0, "dropout": 0.0}


def trained(directory: Path, name: str, kind: str = "lora", layers: int = 1, **parameters: Any) -> Path:
    """What mlx-lm's training of an architecture would leave: its trainable parameters, and their settings."""
    model = build(name)
    model.freeze()
    settings = {"fine_tune_type": kind, "num_layers": layers, "lora_parameters": {**LORA, **parameters}}
    if kind == "full":
        for layer in model.layers[-max(layers, 0) :]:
            layer.unfreeze()
    else:
        linear_to_lora_layers(model, layers, settings["lora_parameters"], use_dora=kind == "dora")
    directory.mkdir()
    weights = {key: value + 0.01 for key, value in tree_flatten(model.trainable_parameters())}
    mx.save_safetensors(str(directory / "adapters.safetensors"), weights)
    (directory / "adapter_config.json").write_text(json.dumps(settings))
    return directory


def rewritten(directory: Path, drop: int = 0, **added: mx.array) -> list[str]:
    """Take away the last `drop` tensors and add others; the names of what was taken."""
    path = str(directory / "adapters.safetensors")
    weights = dict(sorted(mx.load(path).items()))
    mx.eval(weights)
    gone = list(weights)[len(weights) - drop :]
    for name in gone:
        del weights[name]
    mx.save_safetensors(path, {**weights, **added})
    return gone


KINDS = [
    ("llama", "lora", {}),
    ("llama tied", "lora", {"keys": ["self_attn.q_proj", "model.embed_tokens"]}),
    ("llama", "dora", {"keys": ["self_attn.q_proj", "mlp.up_proj"]}),
    ("llama", "full", {}),
    ("gemma3", "lora", {}),
    ("mixture of experts", "lora", {}),
    ("mamba", "lora", {}),
    ("gpt2", "full", {}),
    ("deepseek_v3", "lora", {}),
]


@pytest.mark.parametrize(("name", "kind", "parameters"), KINDS, ids=lambda value: str(value)[:20])
def test_whole_adapters_load_and_halves_are_refused(
    tmp_path: Path, name: str, kind: str, parameters: dict[str, Any]
) -> None:
    directory = trained(tmp_path / "adapter", name, kind, **parameters)
    held = mx.load(str(directory / "adapters.safetensors"))
    model, warnings = with_adapter(build(name), directory)
    loaded = dict(tree_flatten(model.parameters()))
    assert all(mx.array_equal(loaded[key], value).item() for key, value in held.items())
    assert warnings == ()
    (gone,) = rewritten(directory, drop=1)
    with pytest.raises(ModelError, match=f"lacks 1 of {len(held)} tensors") as told:
        with_adapter(build(name), directory)
    assert gone in str(told.value)


@pytest.mark.parametrize("layers", [-1, 0, 2, 99])
def test_the_number_of_layers_is_read_as_mlx_lm_reads_it(tmp_path: Path, layers: int) -> None:
    directory = trained(tmp_path / "adapter", "llama", layers=layers)
    with_adapter(build("llama"), directory)


def test_five_of_many_missing_tensors_are_named(tmp_path: Path) -> None:
    directory = trained(tmp_path / "adapter", "llama", layers=2)
    gone = rewritten(directory, drop=14)
    with pytest.raises(ModelError, match=r"lacks 14 of 28 tensors .*; and 9 more; take the whole") as told:
        with_adapter(build("llama"), directory)
    assert sum(name in str(told.value) for name in gone) == 5


def test_an_adapter_trained_on_fewer_layers_than_its_configuration_says_is_refused(tmp_path: Path) -> None:
    directory = trained(tmp_path / "adapter", "llama", layers=1)
    settings = json.loads((directory / "adapter_config.json").read_text())
    (directory / "adapter_config.json").write_text(json.dumps(settings | {"num_layers": 3}))
    with pytest.raises(ModelError, match="lacks 28 of 42 tensors"):
        with_adapter(build("llama"), directory)


def test_an_adapter_without_any_layer_of_the_model_is_refused(tmp_path: Path) -> None:
    directory = trained(tmp_path / "adapter", "llama", keys=["attention.wq"])
    with pytest.raises(ModelError, match=r"changes nothing: its adapter_config\.json names no layer"):
        with_adapter(build("llama"), directory)


def test_a_layer_that_the_model_lacks_is_told(tmp_path: Path) -> None:
    directory = trained(tmp_path / "adapter", "llama", keys=["self_attn.q_proj", "attention.wq"])
    _, warnings = with_adapter(build("llama"), directory)
    assert warnings == (
        "adapter_config.json: lora_parameters.keys: no layer that the adapter changes is called attention.wq",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "adapter_config.json is not JSON"),
        ("[]", "adapter_config.json holds no JSON object"),
        ('{"fine_tune_type": "lorra"}', "fine_tune_type: found 'lorra'; allowed: lora, dora, full"),
    ],
)
def test_a_broken_configuration_is_told(tmp_path: Path, text: str, message: str) -> None:
    directory = trained(tmp_path / "adapter", "llama")
    (directory / "adapter_config.json").write_text(text)
    with pytest.raises(ModelError, match=message):
        with_adapter(build("llama"), directory)


def test_half_an_adapter_is_refused_by_the_models_provider(reference_directory: Path, tmp_path: Path) -> None:
    """And what has no place in the model is, in one line."""
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    parameters = {**LORA, "keys": ["self_attn.q_proj"]}
    (adapter / "adapter_config.json").write_text(
        json.dumps({"fine_tune_type": "lora", "num_layers": 1, "lora_parameters": parameters})
    )
    config = json.loads((reference_directory / "config.json").read_text())
    name = f"model.layers.{config['num_hidden_layers'] - 1}.self_attn.q_proj"
    down = mx.zeros((config["hidden_size"], 2))
    mx.save_safetensors(str(adapter / "adapters.safetensors"), {f"{name}.lora_a": down})
    with pytest.raises(ModelError, match=rf"lacks 1 of 2 tensors .*{name}\.lora_b"):
        load(ModelSpec("mlx", str(reference_directory), str(adapter)))
    surplus = {f"surplus.{number}": down for number in range(8)}
    rewritten(adapter, **surplus)
    with pytest.raises(ModelError, match=r"incompatible tensors: surplus\.\d: .*; and 3 more$") as told:
        load(ModelSpec("mlx", str(reference_directory), str(adapter)))
    assert str(told.value).count("surplus") == 5


def test_settings_of_texts_that_an_adapter_brings_are_told(reference_directory: Path, tmp_path: Path) -> None:
    assert unused_files(tmp_path, reference_directory) == ()
    (tmp_path / "tokenizer.json").write_bytes((reference_directory / "tokenizer.json").read_bytes())
    assert unused_files(tmp_path, reference_directory) == ()
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    (warning,) = unused_files(tmp_path, reference_directory)
    assert "a chat_template.jinja of its own, which is not used" in warning
