"""Time and memory of a gate over two niches, on two workers of pytest-xdist and in one process.

    python bench/xdist.py --model DIR [--documents 120] [--repeats 3]

Each side in turn, in processes of its own: `-n 0`, then `-n 2`. Wall time of the whole session, and the most
memory that its processes held together at one time (proportional set size, which counts shared pages once;
Linux only). The documents are generated multiple-choice questions; each niche has a copy of the model of its
own, for both of its variants, so that a niche loads one model.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from random import Random

import yaml
from tabulate import tabulate

NICHES = ("first", "second")
BENCHMARKS = ("one", "two")
WORDS = (
    "river stone amber signal copper winter garden engine letter mirror planet thread silver meadow".split()
)


def make_workspace(root: Path, model: str, documents: int) -> None:
    random = Random(0)
    for name in BENCHMARKS:
        rows = [
            {
                "question": " ".join(random.choices(WORDS, k=random.randint(20, 120))),
                "choices": [" ".join(random.choices(WORDS, k=random.randint(1, 8))) for _ in range(4)],
                "answer": random.randrange(4),
            }
            for _ in range(documents)
        ]
        folder = root / "data" / "benchmarks" / name
        folder.mkdir(parents=True)
        (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        task = {
            "task": name,
            "dataset_path": "nobody/nothing",
            "output_type": "multiple_choice",
            "test_split": "test",
            "doc_to_text": "Q: {{ question }}\nA:",
            "doc_to_choice": "choices",
            "doc_to_target": "answer",
            "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
            "metadata": {"version": 1.0},
        }
        write(
            root / "benchmarks" / f"{name}.yaml",
            {"name": name, "task": task, "num_fewshot": 0, "metric": "acc", "gates": {"hard_floor": 0.0}},
        )
    for niche in NICHES:
        own = root / "models" / niche
        shutil.copytree(model, own)
        write(
            root / "config" / "specialists" / f"{niche}.yaml",
            {
                "niche": niche,
                "model": {"quantized": str(own), "reference": str(own)},
                "benchmarks": {"blocking": list(BENCHMARKS), "diagnostic": []},
            },
        )


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content, sort_keys=False))


def memory_of_group(group: int) -> int:
    """Bytes that the processes of a group hold together; 0 where nobody says."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
            if os.getpgid(int(folder.name)) == group:
                lines = (folder / "smaps_rollup").read_text().splitlines()
                total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def measure(root: Path, workers: int) -> tuple[float, int]:
    """(wall seconds, the most bytes at one time) of one session."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"-n{workers}"]
    command += ["--gnus-source=local", *(f"--niche={niche}" for niche in NICHES)]
    started = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=root, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    most = 0
    ended = threading.Event()

    def watch() -> None:
        nonlocal most
        while not ended.wait(0.25):
            most = max(most, memory_of_group(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    seconds = time.perf_counter() - started
    ended.set()
    watcher.join()
    if process.returncode != 0:
        raise SystemExit(output)
    return seconds, most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="directory of an MLX model")
    parser.add_argument("--documents", type=int, default=120)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    model = str(Path(arguments.model).resolve())
    sides: dict[int, list[tuple[float, int]]] = {0: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_workspace(root, model, arguments.documents)
        measure(root, 0)  # once, so that both sides find their byte code and the data's copies on disk
        for _ in range(arguments.repeats):
            for workers, samples in sides.items():
                samples.append(measure(root, workers))
    rows = []
    for workers, samples in sides.items():
        seconds = statistics.median(sample[0] for sample in samples)
        memory = statistics.median(sample[1] for sample in samples)
        rows.append([f"-n {workers}", f"{seconds:.1f}", f"{memory / 1e9:.2f}"])
    times, memories = (
        statistics.median(
            two[index] / one[index] if one[index] else 0.0
            for one, two in zip(sides[0], sides[2], strict=True)
        )
        for index in (0, 1)
    )
    rows.append(["ratio of pairs", f"{times:.2f}", f"{memories:.2f}"])
    print(tabulate(rows, headers=["", "wall seconds", "memory, GB"]))


if __name__ == "__main__":
    main()
