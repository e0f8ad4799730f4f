"""The training script, in short runs; and the models that it left in the package."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_gnus.demo import MODELS_DIRECTORY, VARIANTS, model_directory
from pytest_gnus.demo.corpus import benchmark_files, classification_patents, summarization_patents
from pytest_gnus.demo.train import Document, classification_prompt, pad, summarization_prompt
from pytest_gnus.models.cpu import load_fast_blas
from pytest_gnus.models.registry import load as load_model
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.records.fingerprint import directory_sha256
from pytest_gnus.sgfp4.manifest import MANIFEST_NAME, read_manifest

STEPS = 10


@dataclass(frozen=True)
class Run:
    """One finished training run."""

    out: Path
    data: Path
    output: str


def train(directory: Path, seed: int) -> Run:
    out, data = directory / "models", directory / "data"
    command = [sys.executable, "-m", "pytest_gnus.demo.train"]
    command += [
        "--out",
        str(out),
        "--data",
        str(data),
        "--seed",
        str(seed),
        "--steps",
        str(STEPS),
        "--no-scores",
    ]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert finished.returncode == 0, finished.stderr
    return Run(out, data, finished.stdout)


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tmp_path_factory.mktemp("run"), seed=5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_model_directory_is_shipped(variant: str) -> None:
    assert model_directory(variant) == MODELS_DIRECTORY / variant
    assert (model_directory(variant) / "config.json").is_file()


def test_unknown_variant_names_the_valid_ones() -> None:
    with pytest.raises(ValueError, match="'float64'; valid ones are quantized, reference, baseline"):
        model_directory("float64")


def test_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, pytest_gnus.demo, pytest_gnus.demo.corpus;"
        "print(sorted({'mlx', 'mlx_lm', 'numpy', 'transformers'} & set(sys.modules)))"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout == "[]\n"


def test_importing_the_script_leaves_mlx_for_later() -> None:
    """The fast BLAS only takes effect ahead of the first import of MLX."""
    code = "import sys, pytest_gnus.demo.train; print('mlx' in sys.modules)"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout == "False\n"


def test_shipped_models_fit_the_repository() -> None:
    shipped = contents(MODELS_DIRECTORY)
    assert {name.split("/")[0] for name in shipped} == set(VARIANTS)
    assert sum(map(len, shipped.values())) < 3_000_000
    assert sum(len(content) for name, content in shipped.items() if name.startswith("quantized/")) < 900_000


def test_baseline_ships_a_seed_instead_of_weights() -> None:
    baseline = model_directory("baseline")
    assert not list(baseline.glob("*.safetensors"))
    assert json.loads((baseline / "initialization.json").read_text(encoding="utf-8"))["seed"] == 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_shipped_tokenizer_keeps_prompts_as_prefixes(variant: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_directory(variant))
    assert tokenizer.eos_token == tokenizer.pad_token == "<|endoftext|>"
    assert tokenizer.bos_token is None
    for patent in classification_patents(0):
        prompt = tokenizer.encode(classification_prompt(patent.abstract))
        for letter in "ABCDEFGH":
            both = tokenizer.encode(classification_prompt(patent.abstract) + f" {letter}")
            assert both[: len(prompt)] == prompt
            assert len(both) == len(prompt) + 1
    for patent in summarization_patents(0):
        prompt = tokenizer.encode(summarization_prompt(patent.description))
        both = tokenizer.encode(summarization_prompt(patent.description) + f" {patent.abstract}\n")
        assert both[: len(prompt)] == prompt
        assert len(both) - len(prompt) <= 96
        assert len(both) < 512
        assert tokenizer.decode(both).endswith(f"Abstract: {patent.abstract}\n")


def test_pad_lists_the_answer_tokens_only() -> None:
    batch = pad([Document([5, 6, 7, 8, 9], prompt_length=3), Document([1, 2, 3], prompt_length=2)])
    assert batch.ids.tolist() == [[5, 6, 7, 8, 9], [1, 2, 3, 0, 0]]
    # The inputs are the first four columns: the model predicts 8 at column 2 and 9 at column 3 of the first
    # document, and 3 at column 1 of the second, which is 4 + 1 when flattened.
    assert batch.positions.tolist() == [2, 3, 5]
    assert batch.targets.tolist() == [8, 9, 3]


def test_run_writes_the_benchmarks_of_its_seed(run: Run) -> None:
    expected = {name: content.encode() for name, content in benchmark_files(5).items()}
    assert contents(run.data) == expected


def test_run_writes_the_three_variants_and_leaves_nothing_else(run: Run) -> None:
    assert {path.name for path in run.out.iterdir()} == set(VARIANTS)
    assert {path.name for path in run.out.parent.iterdir()} == {"models", "data"}
    assert json.loads((run.out / "baseline" / "initialization.json").read_text(encoding="utf-8"))["seed"] == 5


def test_loss_falls(run: Run) -> None:
    losses = [float(loss) for loss in re.findall(r"^step \d+/10 loss ([0-9.]+)", run.output, re.MULTILINE)]
    assert len(losses) == STEPS
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("variant", ["reference", "quantized"])
def test_run_writes_models_that_mlx_lm_opens(run: Run, variant: str) -> None:
    load_fast_blas()
    import mlx.core as mx
    from mlx_lm import load

    if variant == "quantized":
        loaded: Any = load_model(ModelSpec("mlx", str(run.out / variant))).lm
        model, tokenizer = loaded._generator._model, loaded.tokenizer
    else:
        model, tokenizer = load(str(run.out / variant))
    assert tokenizer.eos_token_ids == {tokenizer.encode("<|endoftext|>")[0]}
    assert model.args.rope_theta == json.loads((run.out / variant / "config.json").read_text())["rope_theta"]
    logits = model(mx.array([tokenizer.encode("Abstract: Portable pump")]))
    assert logits.shape[-1] == model.args.vocab_size
    assert mx.isfinite(logits.astype(mx.float32)).all().item()


def test_only_the_quantized_model_is_quantized(run: Run) -> None:
    configs = [json.loads((run.out / one / "config.json").read_text()) for one in VARIANTS]
    assert configs[0] == configs[1] == configs[2]
    assert "quantization" not in configs[0]
    assert [(run.out / one / MANIFEST_NAME).is_file() for one in VARIANTS] == [True, False, False]
    manifest = read_manifest(run.out / "quantized" / MANIFEST_NAME)
    assert manifest.content["niche"] == "patents"
    assert manifest.content["base_model_sha256"] == directory_sha256({"model": run.out / "reference"})


def test_same_seed_writes_identical_bytes(run: Run, tmp_path: Path) -> None:
    again = train(tmp_path, seed=5)
    assert contents(again.data) == contents(run.data)
    assert contents(again.out) == contents(run.out)
