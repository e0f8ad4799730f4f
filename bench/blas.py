"""OpenBLAS beside MKL in the matrix products of a 135M model, by the processor's time.

    python bench/blas.py [--pairs 5] [--threads 1]

Each in turn, in a process of its own. The processor's time of one thread says the same on a machine that
others use too; `bench/scoring.py --against ours-mkl,ours-openblas` has both for a whole model, by the clock.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

import sides

#: Rows of tokens, width of what goes in, width of what comes out: SmolLM2-135M's layers.
SHAPES = (
    (512, 576, 576),
    (512, 576, 1536),
    (512, 1536, 576),
    (64, 576, 1536),
    (4, 576, 1536),
    (16, 576, 49152),
)
REPEATS = {512: 5, 64: 25, 4: 80, 16: 2}


def one_side(name: str) -> None:
    sides.load_one_blas(name)
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    seconds = []
    for rows, width, out in SHAPES:
        one, other = mx.random.normal((rows, width)), mx.random.normal((width, out))
        mx.eval(one, other, one @ other)
        started = time.process_time()
        for _ in range(REPEATS[rows]):
            mx.eval(one @ other)
        seconds.append((time.process_time() - started) / REPEATS[rows])
    print(*seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--side", choices=("mkl", "openblas"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        one_side(options.side)
        return
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    runs: dict[str, list[list[float]]] = {"mkl": [], "openblas": []}
    for number in range(options.pairs):
        for side in list(runs)[:: 1 if number % 2 == 0 else -1]:
            command = [sys.executable, __file__, "--side", side]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            runs[side].append([float(value) for value in done.stdout.split()])
    for index, (rows, width, out) in enumerate(SHAPES):
        medians = {side: statistics.median(run[index] for run in found) for side, found in runs.items()}
        print(
            f"{rows:4} x {width:4} x {out:5}: MKL {1e3 * medians['mkl']:8.3f} ms, "
            f"OpenBLAS {1e3 * medians['openblas']:8.3f} ms, ratio {medians['openblas'] / medians['mkl']:.2f}"
        )
    ratios = [sum(ours) / sum(theirs) for ours, theirs in zip(runs["openblas"], runs["mkl"], strict=True)]
    shown = ", ".join(f"{ratio:.3f}" for ratio in ratios)
    print(f"OpenBLAS takes {statistics.median(ratios):.3f} times as long as MKL, the median of {shown}")


if __name__ == "__main__":
    main()
