"""Multiple-choice scoring: this product's model class against others, on the same requests.

    python bench/scoring.py --model DIR [--against mlx_lm,hf,mlx_lm-as-installed] [--questions 48]
    python bench/scoring.py --model DIR --against ours-mkl,ours-openblas      # one BLAS against the other

Each side in turn, in a process of its own, after a warm-up request; medians of three pairs, their ratio, and
the largest difference of a log-probability. `mlx_lm` is given the same BLAS; as installed it is given two
questions, which cost it as much each as any other. Below that: the share of the machine's limit, how the cost
grows, and the memory.

The limit is what the tokens of the prefix tree must cost: 2 floating-point operations per weight and token,
the embeddings aside, and the output layer where a token is scored, at the machine's speed for large products.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import sides

FEW = 2


def requests(count: int, shots: int) -> list[Any]:
    pairs = [(prompt, f" {letter}") for prompt in sides.questions(count, shots) for letter in sides.LETTERS]
    return sides.instances("loglikelihood", pairs)


def one_side(side: str, directory: Path, count: int, shots: int) -> None:
    lm = sides.language_model(side, directory)
    lm.loglikelihood(sides.instances("loglikelihood", [("A pump for", " water"), ("A pump for", " ink")]))
    asked = requests(FEW if side == "mlx_lm-as-installed" else count, shots)
    seconds, answers = sides.timed(lambda: lm.loglikelihood(asked))
    more: dict[str, Any] = {}
    if side.startswith("ours"):
        more = _limit(lm, asked)
    sides.report(seconds, [logprob for logprob, _ in answers], **more)


def _limit(lm: Any, asked: list[Any]) -> dict[str, Any]:
    """The seconds that this work must take at least, and what it was."""
    from mlx.utils import tree_flatten

    from pytest_gnus.models.prefix_tree import TokenSequence, prefix_tree

    pairs = [lm._encode_pair(*request.args) for request in asked]
    tree = prefix_tree([TokenSequence((*context, *more), len(more)) for context, more in pairs])
    positions = len({tuple(context) for context, _ in pairs})
    model = lm._scoring._model
    parameters = {name: value for name, value in tree_flatten(model.parameters()) if value.ndim > 1}
    embedding = max(value.size for name, value in parameters.items() if "embed" in name or "lm_head" in name)
    trunk = sum(v.size for n, v in parameters.items() if "embed" not in n and "lm_head" not in n)
    flops = 2 * trunk * tree.tokens + 2 * embedding * positions
    speed = sides.matmul_flops()
    return {"limit": flops / speed, "tokens": tree.tokens, "requested": tree.requested, "speed": speed}


def main() -> None:
    parser = sides.parser(__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=48)
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--brief", action="store_true", help="leave out how the cost grows, and the memory")
    options = parser.parse_args()
    if options.side:
        one_side(options.side, options.model, options.questions, options.shots)
        return
    with sides.readable_by_all(options.model) as directory:
        compare(directory, options)


def compare(directory: Path, options: Any) -> None:
    def run(side: str, count: int = options.questions, shots: int = options.shots) -> dict[str, Any]:
        return sides.run_side(__file__, side, directory, "--questions", str(count), "--shots", str(shots))

    against = options.against.split(",")
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in ("ours", *against)}
    for number in range(options.pairs):
        # Every other time the other way round, so that no side always has the warmer machine.
        for side in list(runs)[:: 1 if number % 2 == 0 else -1]:
            runs[side].append(run(side))
    ours, first = sides.medians(runs["ours"]), runs["ours"][0]
    print(
        f"{options.questions} questions, {options.shots}-shot: {first['requested']} tokens asked for, "
        f"{first['tokens']} distinct; ours {ours:.2f} s"
    )
    for side in against:
        theirs = sides.medians(runs[side])
        scale = options.questions / FEW if side == "mlx_lm-as-installed" else 1.0
        values = runs[side][0]["values"]
        worst = max(abs(a - b) for a, b in zip(first["values"][: len(values)], values, strict=True))
        note = f" ({FEW} questions, times {scale:.0f})" if scale != 1.0 else ""
        print(
            f"{side:20} {theirs * scale:8.2f} s{note}, ratio {theirs * scale / ours:6.2f}, "
            f"largest difference of a log-probability {worst:.1e}"
        )
    if "ours-mkl" in runs and "ours-openblas" in runs:
        ratios = [
            openblas["seconds"] / mkl["seconds"]
            for openblas, mkl in zip(runs["ours-openblas"], runs["ours-mkl"], strict=True)
        ]
        shown = ", ".join(f"{ratio:.3f}" for ratio in ratios)
        print(f"OpenBLAS takes {statistics.median(ratios):.3f} times as long as MKL, the median of {shown}")
    limit = sorted(one["limit"] for one in runs["ours"])[len(runs["ours"]) // 2]
    print(f"limit {limit:.2f} s at {first['speed'] / 1e9:.0f} GFLOP/s: {limit / ours:.0%} of it reached")
    if options.brief:
        return
    for name, (count, shots) in {
        "twice the questions": (2 * options.questions, options.shots),
        "0-shot": (options.questions, 0),
    }.items():
        other = sides.medians([run("ours", count, shots) for _ in range(options.pairs)])
        ratio = other / ours if shots else ours / other
        print(f"{name}: {other:.2f} s, ratio {ratio:.2f}")
    weights = sum(path.stat().st_size for path in directory.glob("model*.safetensors"))
    print(f"peak memory {first['peak_bytes'] / 1e9:.2f} GB, weight files {weights / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
