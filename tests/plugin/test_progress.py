"""The progress display: shown to a person at a terminal, and to nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ToyWorkspace

pty = pytest.importorskip("pty")

MODEL = {"quantized": "demo:patents", "reference": "demo:patents-reference"}


def at_a_terminal(folder: Path, *arguments: str) -> str:
    """What a person sees who runs pytest there."""
    controller, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    command = [sys.executable, "-m", "pytest", "--niche=toy", "-k", "reference", *arguments]
    with subprocess.Popen(
        command, cwd=folder, stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    ) as process:
        os.close(terminal)
        seen = bytearray()
        while True:
            try:
                piece = os.read(controller, 65536)
            except OSError:  # Linux says so when the other end is closed
                break
            if not piece:
                break
            seen += piece
    os.close(controller)
    assert process.returncode in (0, 1)
    return seen.decode(errors="replace")


def test_a_terminal_shows_item_requests_and_speed_past_the_capture(toy: ToyWorkspace) -> None:
    toy.niche(blocking=["colours"], model=MODEL)
    seen = at_a_terminal(toy.path)
    assert "colours[toy-reference]:   0%" in seen
    assert "/240 " in seen  # 60 documents of 4 choices
    # Nothing of it is left when the item is done.
    assert "request/s" not in seen.split("benchmark summary")[1]
    bars = seen.split("benchmark summary")[0].split("\r")
    last = max(index for index, text in enumerate(bars) if "request/s" in text)
    assert bars[last + 1].strip() == ""


@pytest.mark.parametrize("arguments", [("-q",), ("-n", "1")], ids=" ".join)
def test_there_is_none_where_it_would_disturb(toy: ToyWorkspace, arguments: tuple[str, ...]) -> None:
    toy.niche(blocking=["colours"], model=MODEL)
    assert "colours[toy-reference]:  " not in at_a_terminal(toy.path, *arguments)


def test_there_is_none_where_the_output_is_no_terminal(toy: ToyWorkspace) -> None:
    toy.niche(blocking=["colours"], model=MODEL)
    result = toy.run_process("--niche=toy", "-k", "reference")
    assert "request/s" not in result.stdout.str() + result.stderr.str()
    assert toy.record("colours", "reference")["results"]["colours"]["n"] == 60
