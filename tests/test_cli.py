"""The command line: exit statuses, and one message for each fault."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from pytest_gnus import cli, quantizing
from pytest_gnus.demo import model_directory

REFERENCE = str(model_directory("reference"))


def test_the_command_is_installed() -> None:
    (script,) = entry_points(group="console_scripts", name="gnus")
    assert script.load() is cli.main


@pytest.mark.parametrize("arguments", [[], [REFERENCE], ["-o", "x"]], ids=["none", "model", "output"])
def test_a_missing_argument_is_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["quantize", *arguments])
    assert stopped.value.code == 2
    assert "quantize needs MODEL_DIR and -o OUT, or --inspect PATH" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "-o", "x"], "nowhere is no model directory"),
        ([REFERENCE, "-o", "x", "--target-bpw", "nan"], "target_bpw: a number above 0"),
        ([REFERENCE, "-o", "file/x"], "file"),
        (["--inspect", "nowhere"], "nowhere: cannot be read: No such file"),
        (["--inspect", REFERENCE], "the directory has no sgfp4_manifest.json"),
        (["--inspect", f"{REFERENCE}/model.safetensors"], "magic"),
        (["--inspect", f"{REFERENCE}/config.json"], "allowed: a key `tensors` or `fp4_binary`"),
    ],
)
def test_a_fault_is_one_message_and_exit_status_1(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("no directory")
    assert cli.main(["quantize", *arguments]) == 1
    seen = capsys.readouterr()
    assert seen.err.startswith("gnus: ")
    assert message in seen.err
    assert seen.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_interruption_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_options: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(quantizing, "run", interrupted)
    assert cli.main(["quantize", REFERENCE, "-o", "x"]) == 130
    assert capsys.readouterr().err == "gnus: interrupted; nothing was left behind\n"


def test_a_budget_that_cannot_be_kept_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "package"
    assert cli.main(["quantize", REFERENCE, "-o", str(target), "--layout", "4"]) == 0
    told = capsys.readouterr().out
    assert "21 tensors are above --target-bpw 4.25" in told
    assert told.splitlines()[-1] == str(target)
