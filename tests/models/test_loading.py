"""What can be loaded, how it is made fit for the device, and what is refused."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from lm_eval.api.instance import Instance
from mlx.utils import tree_flatten

from pytest_gnus.demo import model_directory
from pytest_gnus.errors import ModelError
from pytest_gnus.models.compute import ComputeOptions
from pytest_gnus.models.loading import load
from pytest_gnus.models.pool import ModelPool
from pytest_gnus.models.registry import load as load_any
from pytest_gnus.models.spec import ModelSpec, parse

PAIR = ("Abstract: A pump for water with a valve.\nCPC section:", " F")


def logprob(model: Any) -> float:
    ((value, _),) = model.lm.loglikelihood([Instance("loglikelihood", {}, PAIR, 0)])
    return float(value)


def copied(directory: Path, to: Path, dtype: Any = None) -> Path:
    shutil.copytree(directory, to)
    if dtype is not None:
        weights = {k: v.astype(dtype) for k, v in mx.load(str(to / "model.safetensors")).items()}
        mx.eval(weights)  # it is read lazily, and about to be overwritten
        mx.save_safetensors(str(to / "model.safetensors"), weights)
    return to


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(mx.float32, 0.0), (mx.float16, 1e-6), (mx.bfloat16, 0.3)], ids=str
)
def test_every_floating_point_format_loads(
    embedded: Any, reference_directory: Path, tmp_path: Path, dtype: Any, tolerance: float
) -> None:
    directory = copied(reference_directory, tmp_path / "model", dtype)
    model = load(ModelSpec("mlx", str(directory)))
    assert logprob(model) == pytest.approx(logprob(embedded), abs=tolerance + 1e-5)
    if mx.default_device() == mx.Device(mx.cpu):
        assert (model.dtype, model.device) == ("float32", "cpu")


@pytest.fixture(scope="module")
def mlx_quantized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded reference in MLX's own 4-bit format."""
    from mlx_lm.utils import load_model, quantize_model

    reference = model_directory("reference")
    directory = tmp_path_factory.mktemp("mlx") / "quantized"
    shutil.copytree(reference, directory, ignore=shutil.ignore_patterns("*.safetensors"))
    model, config = quantize_model(*load_model(reference), 64, 4)
    (directory / "config.json").write_text(json.dumps(config))
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(directory / "model.safetensors"), weights, metadata={"format": "mlx"})
    return directory


def test_quantized_weights_load_and_are_said_to_be_quantized(embedded: Any, mlx_quantized: Path) -> None:
    model = load(ModelSpec("mlx", str(mlx_quantized)))
    assert model.quantization is not None
    assert (model.quantization["format"], model.quantization["bits"]) == ("mlx", 4)
    assert logprob(model) == pytest.approx(logprob(embedded), abs=1.5)
    assert logprob(model) != pytest.approx(logprob(embedded), abs=1e-6)


def test_on_a_cpu_quantized_layers_give_what_quantized_matmul_gives(mlx_quantized: Path) -> None:
    from mlx_lm import load as load_plain

    plain, tokenizer = load_plain(str(mlx_quantized))
    plain.set_dtype(mx.float32)
    tokens = mx.array([tokenizer.encode(PAIR[0])])
    ours: Any = load(ModelSpec("mlx", str(mlx_quantized))).lm
    assert mx.allclose(ours._generator._model(tokens), plain(tokens), atol=2e-2).item()


def test_an_adapter_changes_the_model(embedded: Any, reference_directory: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(
        json.dumps(
            {
                "fine_tune_type": "lora",
                "num_layers": 1,
                "lora_parameters": {"rank": 2, "scale": 4.0, "dropout": 0.0, "keys": ["self_attn.q_proj"]},
            }
        )
    )
    config = json.loads((reference_directory / "config.json").read_text())
    layer, hidden = config["num_hidden_layers"] - 1, config["hidden_size"]
    mx.random.seed(1)
    name = f"model.layers.{layer}.self_attn.q_proj"
    lora = {f"{name}.lora_a": mx.random.normal((hidden, 2)), f"{name}.lora_b": mx.random.normal((2, hidden))}
    mx.save_safetensors(str(adapter / "adapters.safetensors"), lora)
    adapted = load(ModelSpec("mlx", str(reference_directory), str(adapter)))
    assert set(adapted.directories) == {"model", "adapter"}
    assert abs(logprob(adapted) - logprob(embedded)) > 1e-3


def test_the_baseline_is_made_from_its_seed_the_same_each_time() -> None:
    first = load_any(ModelSpec("demo", "patents-baseline"))
    second = load_any(ModelSpec("demo", "patents-baseline"))
    weights = [dict(tree_flatten(m.lm._generator._model.parameters())) for m in (first, second)]  # type: ignore[attr-defined]
    assert all(mx.array_equal(weights[0][name], weights[1][name]).item() for name in weights[0])
    assert first.demonstration is True


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda d: shutil.rmtree(d), "there is no model directory"),
        (lambda d: (d / "config.json").unlink(), "it has no config.json"),
        (lambda d: (d / "config.json").write_text("{"), "config.json is not JSON"),
        (lambda d: (d / "model.safetensors").unlink(), "holds no weights"),
        (lambda d: (d / "model.safetensors").write_bytes(b"garbage"), "cannot load mlx:"),
        (lambda d: (d / "config.json").write_text('{"model_type": "no_such"}'), "no_such"),
    ],
    ids=[
        "no directory",
        "no config",
        "broken config",
        "no weights",
        "broken weights",
        "unknown architecture",
    ],
)
def test_what_cannot_be_loaded_says_why(
    reference_directory: Path, tmp_path: Path, break_it: Callable[[Path], None], message: str
) -> None:
    directory = copied(reference_directory, tmp_path / "model")
    break_it(directory)
    with pytest.raises(ModelError, match=message):
        load(ModelSpec("mlx", str(directory)))


def test_an_incomplete_adapter_is_refused(reference_directory: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no adapter_config\.json"):
        load(ModelSpec("mlx", str(reference_directory), str(tmp_path)))


def test_an_unknown_demonstration_lists_those_there_are() -> None:
    with pytest.raises(
        ModelError, match=r"there is no demo:patent; there are patents, .*Did you mean 'patents'"
    ):
        load_any(ModelSpec("demo", "patent"))


def test_a_hub_id_goes_to_the_hub_and_its_refusal_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    spec = parse("mlx:some-org/some-model", tmp_path)
    assert spec.name == "some-org/some-model"
    with pytest.raises(
        ModelError, match="some-org/some-model is no directory here, and the hub has not given it"
    ):
        load(spec)


def test_a_hub_snapshot_is_loaded_like_a_directory(
    embedded: Any, monkeypatch: pytest.MonkeyPatch, reference_directory: Path
) -> None:
    """The hub's client is the only thing replaced: it hands back a snapshot's folder."""
    asked: list[str] = []

    def snapshot(name: str, allow_patterns: list[str]) -> str:
        asked.append(name)
        return str(reference_directory)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    model = load(ModelSpec("mlx", "some-org/some-model"))
    assert asked == ["some-org/some-model"]
    assert logprob(model) == pytest.approx(logprob(embedded), abs=1e-5)


def test_rope_theta_is_found_where_transformers_5_puts_it(
    embedded: Any, reference_directory: Path, tmp_path: Path
) -> None:
    directory = copied(reference_directory, tmp_path / "model")
    config = json.loads((directory / "config.json").read_text())
    config["rope_theta"] = 50_000.0
    (directory / "config.json").write_text(json.dumps(config))
    top = load(ModelSpec("mlx", str(directory)))
    del config["rope_theta"]
    config["rope_parameters"] = {"rope_theta": 50_000.0, "rope_type": "default"}
    (directory / "config.json").write_text(json.dumps(config))
    nested = load(ModelSpec("mlx", str(directory)))
    assert logprob(nested) == pytest.approx(logprob(top), abs=1e-6)
    assert abs(logprob(nested) - logprob(embedded)) > 1e-4
    assert len(nested.warnings) == 1
    assert "rope_theta only inside rope_parameters" in nested.warnings[0]


def test_a_pool_holds_one_model_and_frees_it_before_the_next() -> None:
    pool = ModelPool()
    quantized, reference = (ModelSpec("demo", name) for name in ("patents", "patents-reference"))
    first: Any = pool.get(reference).lm
    assert pool.get(reference).lm is first
    pool.get(quantized)
    # The weights are gone although this test still holds the object.
    assert not hasattr(first, "_generator")
    assert pool.loads == [reference, quantized]
    pool.release()


def test_memory_does_not_grow_from_load_to_load() -> None:
    pool = ModelPool()
    specs = [ModelSpec("demo", name) for name in ("patents", "patents-reference")]
    pool.get(specs[0])
    pool.get(specs[1])
    after_two = mx.get_active_memory()
    for _ in range(3):
        for spec in specs:
            pool.get(spec)
    assert mx.get_active_memory() <= after_two * 1.05


def small_llama(directory: Path, reference: Path, **changes: Any) -> Path:
    """A random model with an output head of its own, and the tokenizer of the embedded one.

    A change of None takes a key away.
    """
    shutil.copytree(reference, directory, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    config = {
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "vocab_size": json.loads((reference / "config.json").read_text())["vocab_size"],
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "eos_token_id": 0,
        **changes,
    }
    config = {key: value for key, value in config.items() if value is not None}
    (directory / "config.json").write_text(json.dumps(config))
    model = importlib.import_module("mlx_lm.models.llama")
    mx.random.seed(2)
    whole = model.Model(model.ModelArgs.from_dict({**config, "tie_word_embeddings": False}))
    weights = {name: 4.0 * value for name, value in tree_flatten(whole.parameters())}
    mx.save_safetensors(str(directory / "model.safetensors"), weights)
    return directory


LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            {"rope_theta": 500.0},
            {"rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}},
        ),
        (
            {"rope_theta": 500.0, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
            {"rope_parameters": {"rope_theta": 500.0, "rope_type": "llama3", **LLAMA3}},
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 4.0}},
            {"rope_parameters": {"rope_type": "linear", "factor": 4.0}},
        ),
        ({"tie_word_embeddings": False}, {"tie_word_embeddings": None}),
    ],
    ids=["rope_theta", "llama3 scaling", "linear scaling", "output head"],
)
def test_both_spellings_of_a_setting_give_equal_log_probabilities(
    reference_directory: Path, tmp_path: Path, one: dict[str, Any], other: dict[str, Any]
) -> None:
    first = load(ModelSpec("mlx", str(small_llama(tmp_path / "one", reference_directory, **one))))
    directory = small_llama(tmp_path / "other", reference_directory, **other)
    second = load(ModelSpec("mlx", str(directory)))
    assert logprob(second) == pytest.approx(logprob(first), abs=1e-6)
    assert first.warnings == ()
    assert second.warnings
    # mlx-lm by itself would read the second file as something else.
    from mlx_lm import load as load_plain

    plain, tokenizer = load_plain(str(directory))
    tokens = mx.array([tokenizer.encode("".join(PAIR))])
    ours: Any = second.lm
    assert not mx.allclose(ours._generator._model(tokens), plain(tokens), atol=1e-2).item()


def test_an_output_head_that_tying_would_drop_is_refused(reference_directory: Path, tmp_path: Path) -> None:
    directory = small_llama(tmp_path / "model", reference_directory, tie_word_embeddings=True)
    with pytest.raises(ModelError, match="tie_word_embeddings: found True, which llama takes as leave"):
        load(ModelSpec("mlx", str(directory)))


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float32", "float32"), ("bfloat16", "bfloat16"), ("float16", "float16"), ("stored", "float16")],
)
def test_the_format_to_compute_in_can_be_chosen(
    embedded: Any, reference_directory: Path, dtype: str, expected: str
) -> None:
    model = load(ModelSpec("mlx", str(reference_directory)), ComputeOptions(dtype=dtype, batch_tokens=77))
    assert model.dtype == expected
    lm: Any = model.lm
    assert lm._scoring._budget.tokens == 77
    assert logprob(model) == pytest.approx(logprob(embedded), abs=0.3)


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux is a BLAS loaded ahead of MLX")
def test_mlx_imported_too_early_is_told(reference_directory: Path) -> None:
    program = (
        "import mlx.core\n"
        "from pytest_gnus.models.cpu import expected_blas\n"
        "from pytest_gnus.models.loading import load\n"
        "from pytest_gnus.models.spec import ModelSpec\n"
        f"model = load(ModelSpec('mlx', {str(reference_directory)!r}))\n"
        "print(expected_blas().name, model.blas, model.warnings)\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    if told.startswith("reference"):
        pytest.skip("there is no fast BLAS here to be late for")
    assert "reference ('MLX was imported before" in told


def test_memory_does_not_grow_from_item_to_item(embedded: Any) -> None:
    requests = [
        Instance("loglikelihood", {}, (f"{PAIR[0]} {number}", choice), number)
        for number in range(40)
        for choice in (" A", " B valve")
    ]
    embedded.lm.loglikelihood(requests)
    after_one = mx.get_active_memory()
    for _ in range(3):
        embedded.lm.loglikelihood(requests)
    assert mx.get_active_memory() <= after_one
