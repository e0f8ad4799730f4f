"""Trains the demonstration model: ``python -m pytest_gnus.demo.train [--out DIR] [--data DIR] [--seed N]``.

A llama of 0.8 million parameters learns two tasks from the synthetic patents of
`pytest_gnus.demo.corpus`, in a few minutes on two CPU cores: to name the CPC section of an abstract, and to
write the abstract of a description. The script writes the test documents of both tasks and three models that
``mlx_lm`` opens: the trained one in float16, the same in 4 bit, and the untrained backbone.

MLX is imported inside the functions only: `load_fast_blas` has to run before its first import.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_gnus.demo import MODELS_DIRECTORY, VARIANTS
from pytest_gnus.demo.corpus import (
    benchmark_files,
    classification_patents,
    summarization_patents,
    training_patents,
)
from pytest_gnus.demo.texts import SECTIONS, Patent
from pytest_gnus.models.cpu import load_fast_blas

END_OF_TEXT = "<|endoftext|>"
VOCABULARY_SIZE = 1536
CONTEXT_LENGTH = 512
TOKENIZER_PATENTS = 2000
"""Enough to meet every word of the tables many times; more would only take longer."""

DEFAULT_STEPS = 300
SUMMARIES_PER_STEP = 16
CLASSIFICATIONS_PER_STEP = 16

PEAK_LEARNING_RATE = 3e-3
FINAL_LEARNING_RATE = 1e-4
WARMUP_SHARE = 0.08
WEIGHT_DECAY = 0.05
GRADIENT_NORM = 1.0


QUICK_CLASSIFICATIONS = 80
QUICK_SUMMARIES = 12
SUMMARY_TOKENS = 96


@dataclass(frozen=True)
class Options:
    """The command line."""

    out: Path
    data: Path
    seed: int
    steps: int
    scores: bool


@dataclass(frozen=True)
class Document:
    """One training text as token ids: ``prompt_length`` of them are given, the rest is the answer."""

    ids: list[int]
    prompt_length: int


@dataclass(frozen=True)
class Batch:
    """Documents padded on the right, and where their answers are.

    ``ids`` has the shape (documents, longest). ``positions`` are indices into ``ids`` without its last
    column, flattened; the model predicts ``targets[k]`` from ``positions[k]``. Only answer tokens are listed:
    they are what the benchmarks score, and the loss over all positions would cost more than the layers do.
    """

    ids: NDArray[np.int32]
    positions: NDArray[np.int32]
    targets: NDArray[np.int32]


def classification_prompt(text: str) -> str:
    """What the classification benchmark asks; the answer is a blank and the letter of the section."""
    return f"Abstract: {text}\nCPC section:"


def summarization_prompt(description: str) -> str:
    """What the summarization benchmark asks; the answer is a blank, the abstract and a newline."""
    return f"Description: {description}\n\nAbstract:"


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    _make_reproducible()
    blas = load_fast_blas()
    print(f"BLAS: {blas.name}; seed {options.seed}; {options.steps} steps", flush=True)
    started = time.monotonic()
    write_benchmarks(options.data, options.seed)
    with _replacing(options.out) as directory:
        build_models(directory, options.seed, options.steps)
        print(f"trained and written in {time.monotonic() - started:.0f} s", flush=True)
        report(directory, options.seed, options.scores)


def _parse(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m pytest_gnus.demo.train", description="Train the demo model."
    )
    repository = Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=Path, default=MODELS_DIRECTORY, help="directory of the three models")
    parser.add_argument(
        "--data",
        type=Path,
        default=repository / "data" / "benchmarks",
        help="directory of the test documents",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    parser.add_argument(
        "--scores", action=argparse.BooleanOptionalAction, default=True, help="print quick scores at the end"
    )
    return Options(**vars(parser.parse_args(arguments)))


def _make_reproducible() -> None:
    # MKL may sum in another order when a buffer happens to lie at another alignment; this forbids it.
    # It is read when the library is loaded, and ignored by every other BLAS.
    os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")


def write_benchmarks(directory: Path, seed: int) -> None:
    """Write the test documents of both tasks, each file in one rename."""
    for name, content in benchmark_files(seed).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.partial")
        temporary.write_text(content, encoding="utf-8", newline="\n")
        temporary.replace(path)


def build_models(directory: Path, seed: int, steps: int) -> None:
    """Train, and write ``reference``, ``quantized`` and ``baseline`` into an empty directory."""
    patents = training_patents(seed)
    tokenizer = train_tokenizer(patents[:TOKENIZER_PATENTS])
    write_baseline(directory / "baseline", tokenizer, seed)
    # Training starts from exactly the weights that the baseline is defined by.
    model = load(directory / "baseline")
    train(model, encode_patents(tokenizer, patents), seed, steps)
    write_reference(directory / "reference", directory / "baseline", model)
    write_quantized(directory / "quantized", directory / "reference")


def train_tokenizer(patents: Sequence[Patent]) -> Any:
    """A byte-level BPE without a beginning-of-text token; a prompt stays a prefix of prompt + answer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=[END_OF_TEXT],
        # Sorted: the library returns the 256 bytes in an order that changes from run to run.
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    documents = [_classification(patent) for patent in patents] + [
        _summarization(patent) for patent in patents
    ]
    tokenizer.train_from_iterator((prompt + answer for prompt, answer in documents), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT_LENGTH,
    )


def _classification(patent: Patent) -> tuple[str, str]:
    return classification_prompt(patent.abstract), f" {patent.section}\n"


def _summarization(patent: Patent) -> tuple[str, str]:
    return summarization_prompt(patent.description), f" {patent.abstract}\n"


def model_config(end_of_text_id: int) -> dict[str, Any]:
    """The ``config.json`` of the untrained and the reference model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": None,
        "eos_token_id": end_of_text_id,
        "hidden_act": "silu",
        "hidden_size": 128,
        "intermediate_size": 384,
        "max_position_embeddings": CONTEXT_LENGTH,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "num_key_value_heads": 4,
        "pad_token_id": end_of_text_id,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
        "vocab_size": VOCABULARY_SIZE,
    }


def write_baseline(directory: Path, tokenizer: Any, seed: int) -> None:
    """The backbone without its weights: the seed takes their place, which saves 4 MB of random numbers."""
    tokenizer.save_pretrained(str(directory))
    _write_json(directory / "config.json", model_config(tokenizer.eos_token_id))
    _write_json(
        directory / "initialization.json",
        {
            "seed": seed,
            "explanation": "The weights of this untrained backbone are not stored. They are what"
            " mlx_lm.utils.load_model(directory, strict=False) gives after mlx.core.random.seed(seed).",
        },
    )


def load(directory: Path) -> Any:
    """The model of a directory; without stored weights, the float32 weights that its seed stands for."""
    import mlx.core as mx
    from mlx_lm.utils import load_model

    initialization = directory / "initialization.json"
    if initialization.exists():
        mx.random.seed(json.loads(initialization.read_text(encoding="utf-8"))["seed"])
    model, _ = load_model(directory, strict=not initialization.exists())
    return model


def encode_patents(tokenizer: Any, patents: Sequence[Patent]) -> tuple[list[Document], list[Document]]:
    """The training documents of both tasks: classification, summarization."""
    return (
        _encode(tokenizer, [_classification(patent) for patent in patents]),
        _encode(tokenizer, [_summarization(patent) for patent in patents]),
    )


def _encode(tokenizer: Any, pairs: Sequence[tuple[str, str]]) -> list[Document]:
    prompts = tokenizer([prompt for prompt, _ in pairs])["input_ids"]
    answers = tokenizer([answer + END_OF_TEXT for _, answer in pairs])["input_ids"]
    return [Document(prompt + answer, len(prompt)) for prompt, answer in zip(prompts, answers, strict=True)]


def batches(documents: Sequence[Document], size: int, random: Random) -> Iterator[Batch]:
    """Endless batches of ``size`` documents, in a new order each time all have been seen."""
    order: list[int] = []
    while True:
        while len(order) < size:
            order = random.sample(range(len(documents)), len(documents)) + order
        chosen, order = order[-size:], order[:-size]
        yield pad([documents[index] for index in chosen])


def pad(documents: Sequence[Document]) -> Batch:
    """Pad on the right, which causal attention never looks at from a real token."""
    longest = max(len(document.ids) for document in documents)
    ids = np.zeros((len(documents), longest), dtype=np.int32)
    is_answer = np.zeros(ids.shape, dtype=bool)
    for row, document in enumerate(documents):
        ids[row, : len(document.ids)] = document.ids
        is_answer[row, document.prompt_length : len(document.ids)] = True
    # Column j of the inputs predicts column j + 1 of the ids.
    positions = np.flatnonzero(is_answer[:, 1:]).astype(np.int32)
    return Batch(ids, positions, ids[:, 1:].reshape(-1)[positions])


def train(model: Any, documents: tuple[list[Document], list[Document]], seed: int, steps: int) -> None:
    """AdamW over one batch of each task per step; changes ``model`` in place."""
    import mlx.core as mx
    import mlx.nn as nn
    import mlx.optimizers as optimizers

    classifications = batches(documents[0], CLASSIFICATIONS_PER_STEP, Random(seed))
    summaries = batches(documents[1], SUMMARIES_PER_STEP, Random(seed + 1))
    optimizer = optimizers.AdamW(_learning_rate(steps), betas=[0.9, 0.98], weight_decay=WEIGHT_DECAY)
    loss_and_gradient = nn.value_and_grad(model, _loss(model))
    progress = Progress(steps)
    for step in range(1, steps + 1):
        pair = (next(classifications), next(summaries))
        (_, losses), gradients = loss_and_gradient(
            [(mx.array(one.ids), mx.array(one.positions), mx.array(one.targets)) for one in pair]
        )
        gradients, _ = optimizers.clip_grad_norm(gradients, GRADIENT_NORM)
        optimizer.update(model, gradients)
        mx.eval(model.parameters(), optimizer.state, losses)
        progress.report(step, losses.tolist(), sum(one.ids.size for one in pair))


def _learning_rate(steps: int) -> Callable[..., Any]:
    import mlx.optimizers as optimizers

    warmup = max(1, round(WARMUP_SHARE * steps))
    return optimizers.join_schedules(  # type: ignore[no-any-return]
        [
            optimizers.linear_schedule(PEAK_LEARNING_RATE / warmup, PEAK_LEARNING_RATE, warmup),
            optimizers.cosine_decay(PEAK_LEARNING_RATE, max(1, steps - warmup), FINAL_LEARNING_RATE),
        ],
        [warmup],
    )


def _loss(model: Any) -> Callable[[list[tuple[Any, Any, Any]]], tuple[Any, Any]]:
    """The sum of the tasks' losses and the losses themselves; a loss is the mean over the answer tokens.

    The logits are computed at the answers only, from the hidden states of the inner model.
    """
    import mlx.core as mx
    import mlx.nn as nn

    def task_loss(ids: Any, positions: Any, targets: Any) -> Any:
        hidden = model.model(ids[:, :-1])
        answers = hidden.reshape(-1, hidden.shape[-1])[positions]
        return nn.losses.cross_entropy(model.model.embed_tokens.as_linear(answers), targets, reduction="mean")

    def loss(batches_of_tasks: list[tuple[Any, Any, Any]]) -> tuple[Any, Any]:
        losses = mx.stack([task_loss(*batch) for batch in batches_of_tasks])
        return losses.sum(), losses

    return loss


class Progress:
    """Prints the mean losses (classification, summarization) and the speed about twenty times in a run."""

    def __init__(self, steps: int) -> None:
        self._interval = max(1, steps // 20)
        self._steps = steps
        self._started = time.monotonic()
        self._losses: list[list[float]] = []
        self._tokens = 0

    def report(self, step: int, losses: list[float], tokens: int) -> None:
        """Take note of one step; ``tokens`` counts padding too, as the time does."""
        self._losses.append(losses)
        self._tokens += tokens
        if step % self._interval and step != self._steps:
            return
        classification, summarization = np.mean(self._losses, axis=0)
        speed = self._tokens / (time.monotonic() - self._started)
        print(
            f"step {step}/{self._steps} loss {classification + summarization:.4f}"
            f" (classification {classification:.4f}, summarization {summarization:.4f}) {speed:.0f} tokens/s",
            flush=True,
        )
        self._losses = []


def write_reference(directory: Path, baseline: Path, model: Any) -> None:
    """The trained model in float16, with the tokenizer and the configuration of the baseline."""
    import mlx.core as mx

    model.set_dtype(mx.float16)
    _copy_without(baseline, directory, "initialization.json")
    _save_weights(directory, model)


def write_quantized(directory: Path, reference: Path) -> None:
    """The reference model as an SGFP4 package, made from its float16 weights as a release would be."""
    from pytest_gnus.models.sgfp4_package import quantize
    from pytest_gnus.sgfp4 import EncodeOptions

    quantize(reference, directory, EncodeOptions(), niche="patents")


def _save_weights(directory: Path, model: Any) -> None:
    import mlx.core as mx
    from mlx.utils import tree_flatten

    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(directory / "model.safetensors"), weights, metadata={"format": "mlx"})


def _copy_without(source: Path, target: Path, excluded: str) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(excluded))


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A directory yet to be made, which takes the place of ``target`` if the block ends without an error.

    It lies beside the target, so that the rename stays within one file system.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as temporary:
        new, old = Path(temporary, "new"), Path(temporary, "old")
        yield new
        if target.exists():
            target.rename(old)
        new.rename(target)


def report(directory: Path, seed: int, scores: bool) -> None:
    """Print the sizes and, on request, quick scores on a part of the test documents."""
    for variant in VARIANTS:
        size = sum(path.stat().st_size for path in (directory / variant).iterdir())
        print(f"{variant}: {size} bytes", flush=True)
        if scores:
            accuracy, rouge = quick_scores(directory / variant, seed)
            print(f"{variant}: accuracy {accuracy:.3f}, rouge1 {rouge:.3f}", flush=True)


def quick_scores(directory: Path, seed: int) -> tuple[float, float]:
    """Accuracy and mean ROUGE-1 on the first test documents; the product's own tasks do this in full."""
    import mlx.core as mx
    from mlx_lm.utils import load_tokenizer

    model = load(directory)
    model.set_dtype(mx.float32)  # the CPU has no fast half-precision product
    tokenizer = load_tokenizer(directory)
    return _accuracy(model, tokenizer, seed), _rouge(model, tokenizer, seed)


def _accuracy(model: Any, tokenizer: Any, seed: int) -> float:
    import mlx.core as mx

    letters = [tokenizer.encode(f" {section}")[0] for section in SECTIONS]
    patents = classification_patents(seed)[:QUICK_CLASSIFICATIONS]
    right = 0
    for patent in patents:
        logits = model(mx.array([tokenizer.encode(classification_prompt(patent.abstract))]))
        scores = np.array(logits[0, -1])[letters]
        right += SECTIONS[int(scores.argmax())] == patent.section
    return right / len(patents)


def _rouge(model: Any, tokenizer: Any, seed: int) -> float:
    from mlx_lm import generate
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rouge1"], use_stemmer=True)
    scores = []
    for patent in summarization_patents(seed)[:QUICK_SUMMARIES]:
        prompt = summarization_prompt(patent.description)
        text = generate(model, tokenizer, prompt, max_tokens=SUMMARY_TOKENS)
        scores.append(scorer.score(patent.abstract, text.split("\n")[0])["rouge1"].fmeasure)
    return float(np.mean(scores))


if __name__ == "__main__":
    main()
