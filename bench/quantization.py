"""SGFP4 against MLX's own 4-bit quantization of the same model: error, size, score, seconds to load.

    python bench/quantization.py --model DIR [--questions 100] [--target-bpw 4.25]

Both are made from the same weights: every matrix but embeddings, norms and a tied output head, so that the
bits per weight and the errors are of the same weights. MLX's groups of 64 with a float16 scale and bias cost
4.5 bits. Each model is loaded and scored in a process of its own: 5-shot multiple-choice questions out of the
project's own texts; the score's error is binomial, and the difference from the reference is paired.
"""

from __future__ import annotations

import json
import math
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import sides
from tabulate import tabulate


def main() -> None:
    parser = sides.parser(__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--target-bpw", type=float, default=4.25)
    options = parser.parse_args()
    if options.side:
        one_side(options.model, options.questions)
        return
    with sides.readable_by_all(options.model) as directory, tempfile.TemporaryDirectory() as folder:
        compare(directory, Path(folder), options)


def one_side(directory: Path, questions: int) -> None:
    from pytest_gnus.models.registry import load
    from pytest_gnus.models.spec import ModelSpec

    model: Any = load(ModelSpec("mlx", str(directory)))
    pairs = [(prompt, f" {letter}") for prompt in sides.questions(questions, 5) for letter in sides.LETTERS]
    answers = model.lm.loglikelihood(sides.instances("loglikelihood", pairs))
    sides.report(model.load_seconds, [logprob for logprob, _ in answers])


def compare(directory: Path, folder: Path, options: Any) -> None:
    made = {
        "reference": (directory, None),
        f"sgfp4 {options.target_bpw}": make_sgfp4(directory, folder / "sgfp4", options.target_bpw),
        "mlx 4-bit": make_mlx(directory, folder / "mlx"),
    }
    rows = []
    rights = right_letters(options.questions)
    reference: list[bool] = []
    for name, (path, lost) in made.items():
        runs = [
            sides.run_side(__file__, "ours", path, "--questions", str(options.questions))
            for _ in range(options.pairs)
        ]
        correct = right_or_wrong(runs[0]["values"], rights)
        reference = reference or correct
        score = statistics.mean(correct)
        error = math.sqrt(score * (1 - score) / len(correct))
        differences = np.subtract(np.array(reference, dtype=float), np.array(correct, dtype=float))
        half = 1.96 * differences.std(ddof=1) / math.sqrt(len(differences))
        rows.append(
            [
                name,
                f"{score:.3f} ± {error:.3f}",
                f"{differences.mean():+.3f} ± {half:.3f}",
                "-" if lost is None else f"{lost['mse']:.3e}",
                "-" if lost is None else f"{lost['relative']:.4f}",
                "-" if lost is None else f"{lost['bits']:.3f}",
                "-" if lost is None else f"{lost['seconds']:.0f}",
                f"{sides.medians(runs):.2f}",
            ]
        )
    headers = ["model", "score", "drop, 95 %", "mse", "relative", "bits/weight", "made in s", "loaded in s"]
    print(tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True))


def right_letters(count: int, seed: int = 7, shots: int = 5) -> list[int]:
    """The right choices of `sides.questions`, drawn as there."""
    from random import Random

    draw = Random(seed)
    return [draw.randrange(4) for _ in range(count + shots)][shots:]


def right_or_wrong(logprobs: list[float], rights: list[int]) -> list[bool]:
    return [
        int(np.argmax(logprobs[4 * index : 4 * index + 4])) == right for index, right in enumerate(rights)
    ]


def make_sgfp4(source: Path, target: Path, target_bpw: float) -> tuple[Path, dict[str, float]]:
    from pytest_gnus.models.sgfp4_package import quantize
    from pytest_gnus.sgfp4 import EncodeOptions

    started = time.perf_counter()
    stats = quantize(source, target, EncodeOptions(target_bpw=target_bpw)).stats()
    return target, {
        "mse": stats["mse"],
        "relative": stats["relative_mse"],
        "bits": stats["effective_bpw"],
        "seconds": time.perf_counter() - started,
    }


def make_mlx(source: Path, target: Path) -> tuple[Path, dict[str, float]]:
    """MLX's 4 bits in groups of 64, of the same matrices."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.utils import load_model, quantize_model

    from pytest_gnus.models.sgfp4_package import UNQUANTIZED, _is_quantizable

    model, config = load_model(source)
    model.set_dtype(mx.float16)  # scales and biases of 16 bits, as a release has them
    before = {name: value.astype(mx.float32) for name, value in tree_flatten(model.parameters())}
    mx.eval(before)
    started = time.perf_counter()
    model, config = quantize_model(
        model,
        config,
        64,
        4,
        quant_predicate=lambda path, _module: _is_quantizable(
            f"{path}.weight", before[f"{path}.weight"], UNQUANTIZED
        ),
    )
    after = dict(tree_flatten(model.parameters()))
    mx.eval(after)
    seconds = time.perf_counter() - started
    target.mkdir()
    for path in source.iterdir():
        if path.suffix != ".safetensors" and path.name != "config.json":
            shutil.copyfile(path, target / path.name)
    (target / "config.json").write_text(json.dumps(config))
    mx.save_safetensors(str(target / "model.safetensors"), after, metadata={"format": "mlx"})
    error = energy = weights = bits = 0.0
    for name in (name.removesuffix(".scales") for name in after if name.endswith(".scales")):
        parts = [after[f"{name}.{part}"] for part in ("weight", "scales", "biases")]
        original = before[f"{name}.weight"]
        difference = mx.dequantize(*parts, group_size=64, bits=4).astype(mx.float32) - original
        error += mx.sum(difference * difference).item()
        energy += mx.sum(original * original).item()
        weights += original.size
        bits += 8 * sum(part.nbytes for part in parts)
    return target, {
        "mse": error / weights,
        "relative": error / energy,
        "bits": bits / weights,
        "seconds": seconds,
    }


if __name__ == "__main__":
    main()
