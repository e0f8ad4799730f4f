"""SGFP4 packages: made from a model, loaded as a model, measured from their containers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from lm_eval.api.instance import Instance
from mlx.utils import tree_flatten

from pytest_gnus.errors import GnusError, ModelError
from pytest_gnus.models.loading import load
from pytest_gnus.models.sgfp4_package import is_package, measure, quantize
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.records.fingerprint import directory_sha256
from pytest_gnus.sgfp4 import EncodeOptions, SGFP4Error, decode
from pytest_gnus.sgfp4.manifest import MANIFEST_NAME, read_manifest
from tests.models.architectures import build

PAIR = ("Abstract: A pump for water with a valve.\nCPC section:", " F")


def logprob(model: Any) -> float:
    ((value, _),) = model.lm.loglikelihood([Instance("loglikelihood", {}, PAIR, 0)])
    return float(value)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory, reference_directory: Path) -> Path:
    """The embedded reference in SGFP4."""
    target = tmp_path_factory.mktemp("sgfp4") / "package"
    quantize(reference_directory, target, EncodeOptions(), niche="patents")
    return target


@pytest.fixture
def copied(package: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(package, tmp_path / "package"))


def rewritten(package: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    path = package / MANIFEST_NAME
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return package


def test_the_loaded_weights_are_exactly_what_the_containers_decode_to(package: Path) -> None:
    model: Any = load(ModelSpec("mlx", str(package))).lm
    loaded = dict(tree_flatten(model._generator._model.parameters()))
    manifest = read_manifest(package / MANIFEST_NAME)
    assert len(manifest.tensors) == 21
    for entry in manifest.tensors:
        assert np.array_equal(np.array(loaded[entry.name]), decode(entry.read(), entry.shape))


def test_what_stays_unquantized_is_as_it_was(package: Path, reference_directory: Path) -> None:
    stored = mx.load(str(reference_directory / "model.safetensors"))
    kept = mx.load(str(package / "model.safetensors"))
    names = {entry.name for entry in read_manifest(package / MANIFEST_NAME).tensors}
    assert set(kept) | names == set(stored)
    assert not set(kept) & names
    assert all("norm" in name or "embed" in name for name in kept)
    assert all(mx.array_equal(kept[name], stored[name]).item() for name in kept)
    assert (package / "tokenizer.json").read_bytes() == (reference_directory / "tokenizer.json").read_bytes()


def test_the_model_says_that_it_is_sgfp4(package: Path, embedded: Any) -> None:
    model = load(ModelSpec("mlx", str(package)))
    assert model.quantization is not None
    assert model.quantization["format"] == "sgfp4"
    assert (model.quantization["version"], model.quantization["encoder_version"]) == (2, "0.1.0")
    assert 4.0 < model.quantization["bits_per_weight"] <= 4.25
    assert abs(logprob(model) - logprob(embedded)) < 1.5
    assert logprob(model) != pytest.approx(logprob(embedded), abs=1e-6)


def test_the_same_model_and_options_give_the_same_bytes(
    package: Path, reference_directory: Path, tmp_path: Path
) -> None:
    quantize(reference_directory, tmp_path / "again", EncodeOptions(), niche="patents")
    assert directory_sha256({"package": tmp_path / "again"}) == directory_sha256({"package": package})


def test_the_report_and_the_manifest_and_the_measurement_agree(
    reference_directory: Path, tmp_path: Path
) -> None:
    seen: list[int] = []
    report = quantize(
        reference_directory,
        tmp_path / "new",
        EncodeOptions(target_bpw=4.5),
        begin=seen.append,
        advance=lambda weights: seen.append(-weights),
    )
    numbers = measure(tmp_path / "new", reference_directory)
    stats = read_manifest(tmp_path / "new" / MANIFEST_NAME).content["stats"]
    assert seen[0] == report.weights == numbers.weights == -sum(seen[1:])
    assert numbers.mse == pytest.approx(stats["mse"], rel=1e-12)
    assert numbers.relative_mse == pytest.approx(stats["relative_mse"], rel=1e-12)
    assert numbers.bits_per_weight == stats["effective_bpw"] <= 4.5
    assert numbers.ternary_ratio == stats["t158_ratio"]


def test_errors_are_weighted_by_elements(package: Path, reference_directory: Path) -> None:
    stored: Any = mx.load(str(reference_directory / "model.safetensors"))
    error = energy = weights = 0.0
    for entry in read_manifest(package / MANIFEST_NAME).tensors:
        original = np.array(stored[entry.name].astype(mx.float32)).astype(np.float64)
        error += ((original - decode(entry.read(), entry.shape)) ** 2).sum()
        energy += (original**2).sum()
        weights += original.size
    numbers = measure(package, reference_directory)
    assert numbers.mse == pytest.approx(error / weights, rel=1e-9)
    assert numbers.relative_mse == pytest.approx(error / energy, rel=1e-9)


def test_without_a_reference_errors_are_not_guessed(package: Path) -> None:
    numbers = measure(package, None, "there is none")
    assert (numbers.mse, numbers.relative_mse, numbers.missing) == (None, None, "there is none")
    assert numbers.bits_per_weight > 4.0


def test_an_adapter_goes_over_the_decoded_weights(package: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    parameters = {"rank": 2, "scale": 4.0, "dropout": 0.0, "keys": ["self_attn.q_proj"]}
    (adapter / "adapter_config.json").write_text(
        json.dumps({"fine_tune_type": "lora", "num_layers": 1, "lora_parameters": parameters})
    )
    config = json.loads((package / "config.json").read_text())
    name = f"model.layers.{config['num_hidden_layers'] - 1}.self_attn.q_proj"
    mx.random.seed(1)
    lora = {
        f"{name}.lora_a": mx.random.normal((config["hidden_size"], 2)),
        f"{name}.lora_b": mx.random.normal((2, config["hidden_size"])),
    }
    mx.save_safetensors(str(adapter / "adapters.safetensors"), lora)
    plain = load(ModelSpec("mlx", str(package)))
    assert abs(logprob(load(ModelSpec("mlx", str(package), str(adapter)))) - logprob(plain)) > 1e-3


def _first(content: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = content["tensors"][0]
    return entry


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (
            lambda p: next((p / "sgfp4").glob("*down_proj*")).write_bytes(b"SGF4"),
            r"layers\.\d\.mlp\.down_proj\.weight: the file's SHA-256 is",
        ),
        (lambda p: next((p / "sgfp4").glob("*q_proj*")).unlink(), r"q_proj\.weight: cannot be read"),
        (
            lambda p: rewritten(p, lambda c: c["tensors"].pop(0)),
            r"does not fit its config\.json: model\.layers\.0\.mlp\.down_proj\.weight is missing",
        ),
        (
            lambda p: rewritten(p, lambda c: _first(c).update(name="model.other.weight")),
            r"down_proj\.weight is missing; model\.other\.weight is not expected",
        ),
        (
            lambda p: rewritten(p, lambda c: _first(c).update(shape=[384, 128])),
            r"down_proj\.weight is \[384, 128\], expected \[128, 384\]",
        ),
        (lambda p: rewritten(p, lambda c: _first(c).update(shape=[64, 64])), r"down_proj\.weight, byte"),
        (
            lambda p: rewritten(p, lambda c: _first(c).update(name="model.norm.weight")),
            r"model\.norm\.weight is in model\.safetensors and in the manifest",
        ),
    ],
    ids=["altered", "no file", "missing", "unexpected", "shape", "container", "twice"],
)
def test_a_broken_package_names_the_tensor(
    copied: Path, break_it: Callable[[Path], object], message: str
) -> None:
    break_it(copied)
    with pytest.raises(GnusError, match=message):
        load(ModelSpec("mlx", str(copied)))


def test_a_reference_that_does_not_fit_is_named(
    package: Path, reference_directory: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(reference_directory, tmp_path / "other"))
    weights = dict(mx.load(str(other / "model.safetensors")))
    name = "model.layers.0.mlp.up_proj.weight"
    mx.eval(weights)
    mx.save_safetensors(str(other / "model.safetensors"), {**weights, name: weights[name].T})
    with pytest.raises(ModelError, match=r"up_proj\.weight is \[384, 128\] in the package, but \[128, 384\]"):
        measure(package, other)
    del weights[name]
    mx.save_safetensors(str(other / "model.safetensors"), weights)
    with pytest.raises(ModelError, match=r"has no tensor model\.layers\.0\.mlp\.up_proj\.weight"):
        measure(package, other)


def test_what_cannot_be_quantized_leaves_nothing_behind(
    package: Path, reference_directory: Path, tmp_path: Path
) -> None:
    source = Path(shutil.copytree(reference_directory, tmp_path / "source"))
    target = tmp_path / "out" / "package"
    weights = dict(mx.load(str(source / "model.safetensors")))
    name = "model.layers.1.mlp.up_proj.weight"
    mx.eval(weights)
    weights[name] = weights[name] + mx.array(np.nan, weights[name].dtype)
    mx.save_safetensors(str(source / "model.safetensors"), weights)
    with pytest.raises(
        SGFP4Error, match=r"tensor model\.layers\.1\.mlp\.up_proj\.weight: weights are finite"
    ):
        quantize(source, target, EncodeOptions())
    assert list(target.parent.iterdir()) == []
    (tmp_path / "there").mkdir()
    with pytest.raises(ModelError, match="there exists"):
        quantize(reference_directory, tmp_path / "there", EncodeOptions())
    with pytest.raises(ModelError, match=r"has no config\.json"):
        quantize(tmp_path / "there", target, EncodeOptions())
    with pytest.raises(ModelError, match="package is quantized already"):
        quantize(package, target, EncodeOptions())
    (source / "config.json").write_text('{"quantization": {"bits": 4}}')
    with pytest.raises(ModelError, match="is quantized already"):
        quantize(source, target, EncodeOptions())
    with pytest.raises(ModelError, match="has no matrix to quantize"):
        quantize(reference_directory, target, EncodeOptions(), keep=("*",))


def test_which_weights_stay_can_be_chosen(reference_directory: Path, tmp_path: Path) -> None:
    report = quantize(reference_directory, tmp_path / "p", EncodeOptions(), keep=("*embed*", "*.mlp.*"))
    assert {tensor.name.split(".")[-2] for tensor in report.tensors} == {
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
    }
    assert is_package(tmp_path / "p")
    load(ModelSpec("mlx", str(tmp_path / "p")))


@pytest.mark.parametrize("name", ["llama", "llama tied", "gemma3", "mamba", "mixture of experts"])
def test_other_architectures_go_through(name: str, reference_directory: Path, tmp_path: Path) -> None:
    """Names and shapes are those of the weight files, whatever the architecture makes of them."""
    model = build(name)
    source = tmp_path / "source"
    shutil.copytree(
        reference_directory, source, ignore=shutil.ignore_patterns("*.safetensors", "config.json")
    )
    arguments = {key: value for key, value in vars(model.args).items() if value is not None}
    (source / "config.json").write_text(json.dumps(arguments))
    mx.save_safetensors(str(source / "model.safetensors"), dict(tree_flatten(model.parameters())))
    report = quantize(source, tmp_path / "package", EncodeOptions(target_bpw=8.0))
    loaded: Any = load(ModelSpec("mlx", str(tmp_path / "package"))).lm
    found = dict(tree_flatten(loaded._generator._model.parameters()))
    for entry in read_manifest(tmp_path / "package" / MANIFEST_NAME).tensors:
        assert np.array_equal(np.array(found[entry.name]), decode(entry.read(), entry.shape))
    assert not any("embed" in tensor.name for tensor in report.tensors)
    assert ("lm_head.weight" in {tensor.name for tensor in report.tensors}) is (
        name in ("llama", "gemma3", "mixture of experts")
    )
