"""How fast SGFP4 containers are read and written on one core, and what is lost at equal bits.

    OMP_NUM_THREADS=1 python bench/sgfp4.py [--model DIR] [--repeats 9] [--all-matrices]

Reading stands beside a plain copy of the decoded float32 matrix into new memory, which no reader can beat.
Rates are medians, in millions of weights per second. Without a model (a directory with `model.safetensors`)
the weights are random, of uneven spread; `--all-matrices` encodes every matrix of the model once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pytest_gnus.sgfp4 import EncodeOptions, EncodeReport, decode, describe, encode

Matrix = npt.NDArray[np.float32]
DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
LAYOUTS = {
    "64": EncodeOptions(layout=64),
    "32": EncodeOptions(layout=32),
    "16": EncodeOptions(layout=16),
    "8": EncodeOptions(layout=8, target_bpw=12),
    "4": EncodeOptions(layout=4, target_bpw=12),
    "64, a third ternary": EncodeOptions(layout=64, target_bpw=3.4),
    "8, a third ternary": EncodeOptions(layout=8, target_bpw=3.9),
    "mixed, 4.25 bits": EncodeOptions(),
    "mixed, 3.5 bits": EncodeOptions(target_bpw=3.5),
    "mixed, 6 bits": EncodeOptions(target_bpw=6.0),
    "version 1": EncodeOptions(version=1),
}


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    work()
    samples = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        samples.append(time.perf_counter() - started)
    return statistics.median(samples)


def uneven(rows: int, columns: int) -> Matrix:
    """Weights whose spread differs from place to place."""
    source = np.random.default_rng(1)
    weights = source.normal(0, 0.03, (rows, columns)).astype(np.float32)
    for step in (64, 16):
        spread = np.exp(source.normal(0, 0.4, (rows // step, columns // step))).astype(np.float32)
        weights *= np.repeat(np.repeat(spread, step, 0), step, 1)
    return weights


def matrices(directory: Path) -> Iterator[tuple[str, Matrix]]:
    """The matrices of a model, but for the embeddings."""
    path = directory / "model.safetensors"
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    content = np.memmap(path, np.uint8, "r", offset=8 + length)
    for name, entry in sorted(header.items()):
        if len(entry["shape"]) != 2 or "embed" in name or "lm_head" in name:
            continue
        begin, end = entry["data_offsets"]
        stored = content[begin:end].view(DTYPES[entry["dtype"]])
        if entry["dtype"] == "BF16":
            stored = (stored.astype(np.uint32) << 16).view(np.float32)
        yield name, stored.astype(np.float32).reshape(entry["shape"])


def show_reading(rows: int, columns: int, repeats: int) -> None:
    weights = uneven(rows, columns)
    copy = median_seconds(weights.copy, repeats)
    print(f"reading {rows} × {columns}, million weights per second")
    print(f"  {'a copy of the matrix':22} {weights.size / copy / 1e6:8.0f}")
    for name, options in LAYOUTS.items():
        data, _ = encode(weights, options)
        info = describe(data, weights.shape)
        seconds = median_seconds(partial(decode, data, weights.shape), repeats)
        print(
            f"  {name:22} {weights.size / seconds / 1e6:8.0f}   {copy / seconds:4.0%} of a copy"
            f"   {info.bits_per_weight:6.3f} bits, {info.ternary_share:4.0%} ternary, "
            f"{_layouts(info.layout_shares)}"
        )


def _layouts(shares: dict[str, float]) -> str:
    return " ".join(f"{name}:{share:.0%}" for name, share in shares.items())


def show_writing(name: str, weights: Matrix) -> None:
    """The published rules with each layout, and rate–distortion at the same bits."""
    print(f"writing {name} {weights.shape[0]} × {weights.shape[1]}")
    print(f"  {'':26} {'bits':>7} {'relative MSE':>13} {'ternary':>8} {'million/s':>10}")
    for layout in (None, 64, 32, 16, 8):
        label = "adaptive" if layout is None else str(layout)
        published = timed(f"exemplary, {label}", weights, EncodeOptions(policy="exemplary", layout=layout))
        timed("  at most as many bits", weights, EncodeOptions(target_bpw=published.bits_per_weight))
    timed("rate-distortion, default", weights, EncodeOptions())


def timed(label: str, weights: Matrix, options: EncodeOptions) -> EncodeReport:
    started = time.perf_counter()
    _, report = encode(weights, options)
    rate = weights.size / (time.perf_counter() - started) / 1e6
    print(
        f"  {label:26} {report.bits_per_weight:7.4f} {report.relative_mse:13.6f} {report.ternary_share:8.1%}"
        f" {rate:10.2f}"
    )
    return report


def show_model(directory: Path, options: EncodeOptions, label: str) -> None:
    """Every matrix of a model once."""
    weights = total_bytes = 0
    error = squares = 0.0
    started = time.perf_counter()
    for _, matrix in matrices(directory):
        data, report = encode(matrix, options)
        weights, total_bytes = weights + matrix.size, total_bytes + len(data)
        error, squares = error + report.squared_error, squares + report.squared_weights
    seconds = time.perf_counter() - started
    print(
        f"  {label:28} {weights / 1e6:.1f} million weights in {seconds:.1f} s, "
        f"{8 * total_bytes / weights:.4f} bits, MSE {error / weights:.3e}, relative {error / squares:.6f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--all-matrices", action="store_true")
    arguments = parser.parse_args()
    for rows, columns in ((2048, 4096), (576, 1536)):
        show_reading(rows, columns, arguments.repeats)
    if arguments.model is None:
        show_writing("random weights", uneven(1024, 1024))
        return
    found = list(matrices(arguments.model))
    for name, weights in found[:: max(1, len(found) // 4)]:
        show_writing(name, weights)
    if arguments.all_matrices:
        print("the whole model")
        published = EncodeOptions(policy="exemplary")
        show_model(arguments.model, published, "exemplary")
        show_model(arguments.model, EncodeOptions(policy="exemplary", layout=16), "exemplary, 16")
        show_model(arguments.model, EncodeOptions(target_bpw=4.0398), "rate-distortion at 4.04")
        show_model(arguments.model, EncodeOptions(target_bpw=4.1643), "rate-distortion at 4.164")
        show_model(arguments.model, EncodeOptions(), "rate-distortion, default")


if __name__ == "__main__":
    main()
