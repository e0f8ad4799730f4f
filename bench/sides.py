"""What the comparisons of this folder share: a workload, and each side run in a process of its own.

The workload is the project's own patent-like texts as multiple-choice questions, behind five examples.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

SIDES = ("ours", "ours-mkl", "ours-openblas", "mlx_lm", "mlx_lm-as-installed", "hf")
LETTERS = "ABCD"


def questions(count: int, shots: int, seed: int = 7) -> list[str]:
    """Prompts that end in `Answer:`, each behind the same block of examples."""
    from pytest_gnus.demo.texts import Patent, write_patents

    draw = Random(seed)
    patents: list[Patent] = write_patents(4 * (count + shots), seed)

    def asked(group: Sequence[Patent], right: int) -> str:
        listed = "".join(f"\n{letter}. {patent.title}" for letter, patent in zip(LETTERS, group, strict=True))
        return f"Which title belongs to this invention?\n{group[right].abstract}{listed}\nAnswer:"

    groups = [patents[4 * i : 4 * i + 4] for i in range(count + shots)]
    rights = [draw.randrange(4) for _ in groups]
    examples = "".join(
        f"{asked(group, right)} {LETTERS[right]}\n\n"
        for group, right in zip(groups[:shots], rights[:shots], strict=True)
    )
    return [
        examples + asked(group, right) for group, right in zip(groups[shots:], rights[shots:], strict=True)
    ]


def instances(kind: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    from lm_eval.api.instance import Instance

    return [Instance(kind, {}, one, index) for index, one in enumerate(arguments)]


def language_model(side: str, directory: Path) -> Any:
    """The lm-eval model of one side, loaded."""
    if side == "hf":
        from lm_eval.models.huggingface import HFLM

        return HFLM(pretrained=str(directory), device="cpu", dtype="float32", batch_size=8)
    if side != "mlx_lm-as-installed":
        from pytest_gnus.models.cpu import load_fast_blas

        name, _, blas = side.partition("-")
        load_one_blas(blas) if blas else load_fast_blas()
        side = name
    if side == "ours":
        from pytest_gnus.models.registry import load
        from pytest_gnus.models.spec import ModelSpec

        return load(ModelSpec("mlx", str(directory))).lm
    from mlx_lm.evaluate import MLXLM

    return MLXLM(str(directory), use_chat_template=False)


def load_one_blas(name: str) -> None:
    """Load the first BLAS of that name, whatever stands before it."""
    from pytest_gnus.models.cpu import blas_candidates, load_blas

    found = [candidate for candidate in blas_candidates() if candidate.name == name]
    if not found:
        raise SystemExit(f"there is no {name} here")
    load_blas(found[0])


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def report(seconds: float, values: Any, **more: Any) -> None:
    """What a side's process prints, for the process that started it."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print("RESULT " + json.dumps({"seconds": seconds, "values": values, "peak_bytes": peak, **more}))


def run_side(script: str, side: str, directory: Path, *arguments: str) -> dict[str, Any]:
    """Run one side of a script in a process of its own."""
    command = [sys.executable, script, "--model", str(directory), "--side", side, *arguments]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
            return result
    raise SystemExit(f"{side} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


def medians(runs: Sequence[dict[str, Any]]) -> float:
    return statistics.median(run["seconds"] for run in runs)


@contextmanager
def readable_by_all(directory: Path) -> Iterator[Path]:
    """The model with settings where every side reads them, so that all sides compute the same thing."""
    from pytest_gnus.models.loading import _inspected, _repaired

    weights = _repaired(_inspected(directory))
    with tempfile.TemporaryDirectory() as folder:
        for path in directory.iterdir():
            if path.name != "config.json":
                (Path(folder) / path.name).symlink_to(path.resolve())
        config = weights.config | weights.overrides
        (Path(folder) / "config.json").write_text(json.dumps(config))
        yield Path(folder)


def matmul_flops() -> float:
    """Floating-point operations per second of MLX's float32 matrix products, with the fast BLAS."""
    import mlx.core as mx

    size = 1536
    one, other = mx.random.normal((size, size)), mx.random.normal((size, size))
    mx.eval(one, other)
    seconds = [timed(lambda: mx.eval(one @ other))[0] for _ in range(9)]
    return 2 * size**3 / statistics.median(seconds)


def parser(description: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--model", type=Path, required=True, help="directory of an MLX model")
    made.add_argument("--against", default="mlx_lm", help="sides to compare with, of " + ", ".join(SIDES[1:]))
    made.add_argument("--pairs", type=int, default=3)
    made.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    return made
