"""What the plugin costs a session that does not use it, and what collecting costs one that does.

    python bench/startup.py [--pairs 15]

Each side in turn, in a process of its own; processor time, and wall time beside it.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def seconds(folder: Path, *arguments: str) -> tuple[float, float]:
    """(processor seconds, wall seconds) of one pytest session."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    # Without byte code on disk, the rewriting of plugins would be all that is measured.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    if done.returncode not in (0, 5):  # 5: nothing was collected
        raise SystemExit(done.stderr.decode())
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime), wall


def compare(name: str, folder: Path, with_it: tuple[str, ...], without: tuple[str, ...], pairs: int) -> None:
    """Run pairs, print the medians and the least of each side, their difference and ratio.

    What else the machine does only ever adds time, so the least says most where it is noisy.
    """
    for arguments in (with_it, without):  # once each, so that both find their byte code on disk
        seconds(folder, *arguments)
    samples = [(seconds(folder, *with_it), seconds(folder, *without)) for _ in range(pairs)]
    for index, kind in enumerate(("processor", "wall")):
        for how, choose in (("median", statistics.median), ("least", min)):
            one = choose(pair[0][index] for pair in samples)
            other = choose(pair[1][index] for pair in samples)
            print(
                f"{name:40} {kind:9} {how:6} {one * 1e3:7.1f} ms against {other * 1e3:7.1f} ms: "
                f"{(one - other) * 1e3:+6.1f} ms, ratio {one / other:.3f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=15)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as folder:
        unrelated = Path(folder)
        (unrelated / "test_one.py").write_text("def test_one(): pass\n")
        compare("an unrelated session, plugin installed", unrelated, (), ("-p", "no:gnus"), pairs)
        (unrelated / "empty").mkdir()
        compare(
            "collecting all niches, none",
            REPOSITORY,
            ("--niche=all", "--collect-only"),
            ("--collect-only", str(unrelated / "empty")),
            pairs,
        )


if __name__ == "__main__":
    main()
