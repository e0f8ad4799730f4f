"""`hf:` against `mlx:` on the same weights. Needs torch, which only the extra `hf` brings."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.instance import Instance

from pytest_gnus.errors import EvaluationError, ModelError
from pytest_gnus.models.compute import ComputeOptions
from pytest_gnus.models.registry import load
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.models.torch_loading import hub_identity

PAIRS = [
    ("Abstract: A pump for water with a valve and a rotor.\nCPC section:", " F"),
    ("Abstract: A pump for water with a valve and a rotor.\nCPC section:", " A"),
    ("Abstract: A loom with a shuttle.\nCPC section: ", "D"),
    ("Description: The present invention relates to", " a compressor and to a"),
    ("", "A device"),
    ("xyz", "xyz"),
    ("a valve and a pump " * 200, " F"),
    ("a context", ""),
]
PROMPTS = [
    "Description: The present invention relates to a pump with a valve.\n\nAbstract:",
    "Description: A loom with a shuttle.\n\nAbstract:",
    "a valve and a pump " * 200,
]

with_torch = pytest.mark.skipif(
    not all(find_spec(name) for name in ("torch", "accelerate", "peft")),
    reason="torch, accelerate and peft are not installed: pip install 'pytest-gnus[hf]'",
)


@pytest.fixture(scope="module")
def torch_model(reference_directory: Path) -> Any:
    return load(ModelSpec("hf", str(reference_directory)))


def requests(pairs: list[tuple[Any, ...]], kind: str = "loglikelihood") -> list[Instance]:
    return [Instance(kind, {}, pair, index) for index, pair in enumerate(pairs)]


@with_torch
def test_what_is_known_of_the_model(torch_model: Any, reference_directory: Path) -> None:
    assert torch_model.directories == {"model": reference_directory}
    assert torch_model.dtype == "float32"
    assert torch_model.abilities.gives_loglikelihood
    assert torch_model.quantization is None


@with_torch
def test_log_probabilities_and_counts_equal_those_of_mlx(torch_model: Any, embedded: Any) -> None:
    for model in (torch_model, embedded):
        model.lm.usage.reset()
    theirs = torch_model.lm.loglikelihood(requests(PAIRS))
    ours = embedded.lm.loglikelihood(requests(PAIRS))
    assert [a[0] for a in theirs] == pytest.approx([b[0] for b in ours], abs=1e-3)
    assert [a[1] for a in theirs] == [b[1] for b in ours]
    for count in ("requests", "truncated_prompts", "prompt_tokens"):
        assert getattr(torch_model.lm.usage, count) == getattr(embedded.lm.usage, count), count
    assert torch_model.lm.usage.truncated_prompts == 1


@with_torch
def test_rolling_log_likelihoods_equal_those_of_mlx(torch_model: Any, embedded: Any) -> None:
    texts = requests([("A pump comprises a housing. " * 60,), ("A loom",)], "loglikelihood_rolling")
    theirs = torch_model.lm.loglikelihood_rolling(texts)
    assert theirs == pytest.approx(embedded.lm.loglikelihood_rolling(texts), rel=1e-5)


@with_torch
@pytest.mark.parametrize("until", ["\n", ["e"], []])
def test_texts_and_counts_equal_those_of_mlx(torch_model: Any, embedded: Any, until: Any) -> None:
    settings = {"until": until, "max_gen_toks": 24, "do_sample": False, "temperature": 0.0}
    asked = requests([(prompt, dict(settings)) for prompt in PROMPTS], "generate_until")
    for model in (torch_model, embedded):
        model.lm.usage.reset()
    assert torch_model.lm.generate_until(asked) == embedded.lm.generate_until(asked)
    for count in ("requests", "truncated_prompts", "stopped_by_string", "stopped_by_limit", "prompt_tokens"):
        assert getattr(torch_model.lm.usage, count) == getattr(embedded.lm.usage, count), count
    assert torch_model.lm.usage.generated_tokens > 0


@with_torch
def test_decoding_that_a_model_recommends_is_not_canonical(
    embedded: Any, reference_directory: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "model"
    shutil.copytree(reference_directory, directory)
    recommended = {"repetition_penalty": 9.0, "do_sample": True, "temperature": 5.0, "eos_token_id": 0}
    (directory / "generation_config.json").write_text(json.dumps(recommended))
    model: Any = load(ModelSpec("hf", str(directory)))
    settings = {"until": ["\n"], "max_gen_toks": 24, "do_sample": False, "temperature": 0.0}
    asked = requests([(prompt, dict(settings)) for prompt in PROMPTS], "generate_until")
    assert model.lm.generate_until(asked) == embedded.lm.generate_until(asked)


@with_torch
def test_what_does_not_fit_is_an_error(torch_model: Any) -> None:
    with pytest.raises(EvaluationError, match="does not fit the model's context of 512 tokens"):
        torch_model.lm.loglikelihood(requests([("a", " a valve and a pump" * 200)]))
    with pytest.raises(EvaluationError, match="lower max_gen_toks"):
        torch_model.lm.generate_until(requests([("a", {"max_gen_toks": 600})], "generate_until"))


@with_torch
def test_number_format_and_batch_are_those_asked_for(reference_directory: Path) -> None:
    options = ComputeOptions(dtype="stored", batch_tokens=1100)
    model: Any = load(ModelSpec("hf", str(reference_directory)), options)
    assert model.dtype == "float16"
    assert model.lm.batch_size == 2
    model.lm.release()


@with_torch
def test_weights_that_only_mlx_can_run_are_refused(reference_directory: Path, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    shutil.copytree(reference_directory, directory)
    (directory / "sgfp4_manifest.json").write_text("{}")
    with pytest.raises(ModelError, match="is an SGFP4 package"):
        load(ModelSpec("hf", str(directory)))
    (directory / "sgfp4_manifest.json").unlink()
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"quantization": {"bits": 4}}))
    with pytest.raises(ModelError, match="that MLX has quantized"):
        load(ModelSpec("hf", str(directory)))


@with_torch
def test_an_adapter_changes_the_scores_and_is_part_of_the_weights(
    torch_model: Any, reference_directory: Path, tmp_path: Path
) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(reference_directory, dtype=torch.float32)
    tuned = get_peft_model(base, LoraConfig(r=2, init_lora_weights=False, target_modules=["q_proj"]))
    tuned.save_pretrained(tmp_path)
    model: Any = load(ModelSpec("hf", str(reference_directory), str(tmp_path)))
    assert set(model.directories) == {"model", "adapter"}
    assert model.lm.loglikelihood(requests(PAIRS[:1])) != torch_model.lm.loglikelihood(requests(PAIRS[:1]))
    (tmp_path / "adapter_config.json").unlink()
    with pytest.raises(ModelError, match="is none of PEFT's"):
        load(ModelSpec("hf", str(reference_directory), str(tmp_path)))


@with_torch
def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no model directory"):
        load(ModelSpec("hf", str(tmp_path / "none")))
    with pytest.raises(ModelError, match=r"has no config\.json"):
        load(ModelSpec("hf", str(tmp_path)))


@with_torch
def test_lm_evals_own_name_gives_the_same(torch_model: Any, reference_directory: Path) -> None:
    name = f"hf,pretrained={reference_directory},device=cpu,dtype=float32"
    model: Any = load(ModelSpec("lm_eval", name))
    assert model.directories == {"model": reference_directory}
    found = model.lm.loglikelihood(requests(PAIRS[:5]))
    expected = torch_model.lm.loglikelihood(requests(PAIRS[:5]))
    assert [a[0] for a in found] == pytest.approx([b[0] for b in expected], abs=1e-4)


def test_weights_of_the_hub_are_told_by_their_commit(tmp_path: Path) -> None:
    spec = ModelSpec("hf", "org/name")
    assert hub_identity(spec, None, None) is None
    assert hub_identity(spec, "abc123", None) == "hub:org/name@abc123"
    (tmp_path / "adapter_config.json").write_text("{}")
    with_adapter = str(hub_identity(spec, "abc123", tmp_path))
    assert with_adapter.startswith("hub:org/name@abc123+adapter:")
    (tmp_path / "adapter_config.json").write_text("{} ")
    assert hub_identity(spec, "abc123", tmp_path) != with_adapter


def test_without_torch_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, reference_directory: Path
) -> None:
    monkeypatch.setattr("pytest_gnus.models.torch_loading.find_spec", lambda _name: None)
    with pytest.raises(ModelError, match=r"needs torch, accelerate, peft: pip install 'pytest-gnus\[hf\]'"):
        load(ModelSpec("hf", str(reference_directory)))


def _without(path: Path, tail: str) -> str:
    """Take a tensor out of a safetensors file; its name."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(str(path))
    name = next(name for name in sorted(tensors) if name.endswith(tail))
    del tensors[name]
    save_file(tensors, str(path), metadata={"format": "pt"})
    return name


@with_torch
def test_weights_that_transformers_or_peft_miss_are_refused(
    reference_directory: Path, tmp_path: Path
) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from safetensors.torch import load_file, save_file
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(reference_directory, dtype=torch.float32)
    tuned = get_peft_model(base, LoraConfig(r=2, init_lora_weights=False, target_modules=["q_proj"]))
    adapter = tmp_path / "adapter"
    tuned.save_pretrained(adapter)
    file = adapter / "adapter_model.safetensors"
    whole = load_file(str(file))
    name = _without(file, "lora_B.weight").removesuffix(".weight")
    with pytest.raises(ModelError, match=rf"does not fit its configuration: {name}\S* is missing$"):
        load(ModelSpec("hf", str(reference_directory), str(adapter)))
    surplus = {**whole, f"{name}.other.weight": torch.zeros(2)}
    save_file(surplus, str(file), metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"is unexpected$"):
        load(ModelSpec("hf", str(reference_directory), str(adapter)))
    directory = Path(shutil.copytree(reference_directory, tmp_path / "model"))
    name = _without(directory / "model.safetensors", "up_proj.weight")
    with pytest.raises(ModelError, match=rf"does not fit its configuration: {name} is missing$"):
        load(ModelSpec("hf", str(directory)))


@with_torch
def test_an_id_without_a_row_is_an_error(reference_directory: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(reference_directory, tmp_path / "model"))
    content = json.loads((directory / "tokenizer.json").read_text())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    content["added_tokens"].append({"id": 1536, "content": "<extra>", **flags})
    (directory / "tokenizer.json").write_text(json.dumps(content))
    lm: Any = load(ModelSpec("hf", str(directory))).lm
    settings = {"until": ["\n"], "max_gen_toks": 4, "do_sample": False}
    for ask, asked in (
        (lm.loglikelihood, requests([("a <extra> pump", " A")])),
        (lm.loglikelihood, requests([("a pump", " <extra>")])),
        (lm.loglikelihood_rolling, requests([("a <extra> pump",)], "loglikelihood_rolling")),
        (lm.generate_until, requests([("a <extra>", settings)], "generate_until")),
    ):
        with pytest.raises(ModelError, match=r"the token id 1536, but the model's embedding has 1536 rows"):
            ask(asked)
