"""`gnus doctor` and the command around it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_gnus import cli
from pytest_gnus.doctor import Report, examine
from pytest_gnus.models import cpu


def test_it_names_the_machine_and_the_workspace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config" / "specialists").mkdir(parents=True)
    (tmp_path / "config" / "specialists" / "patents.yaml").write_text(
        "niche: patents\nbenchmarks: {blocking: []}\n"
    )
    monkeypatch.chdir(tmp_path)
    status = cli.main(["doctor"])
    lines = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines() if line[:1].isalpha())
    assert lines["workspace"] == str(tmp_path)
    assert lines["niches"] == "patents"
    assert float(lines["matrix"].removeprefix("products").split()[0]) > 0
    assert status == (1 if cpu.missing_blas() else 0)


def test_a_broken_workspace_is_told_and_is_not_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config" / "specialists").mkdir(parents=True)
    (tmp_path / "config" / "specialists" / "patents.yaml").write_text("niche: patents\nbenchmark: {}\n")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["doctor"]) == 1
    assert "Did you mean 'benchmarks'" in capsys.readouterr().out


def test_no_workspace_is_no_fault(tmp_path: Path) -> None:
    facts = dict(examine(tmp_path).facts)
    assert facts["workspace"].startswith("none: no folder config/specialists/")


def test_advice_makes_it_not_well() -> None:
    report = Report((("a", "1"),), ("do this",))
    assert not report.is_well
    assert report.text() == "a  1\n! do this"


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux is there anything to load")
def test_a_missing_blas_is_told_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "blas_candidates", lambda: iter(()))
    monkeypatch.setattr(cpu, "loaded_blas", lambda: None)
    assert cpu.expected_blas() == cpu.REFERENCE_BLAS
    monkeypatch.setattr(cpu.platform, "machine", lambda: "x86_64")
    assert "pip install 'pytest-gnus[mkl]'" in (cpu.missing_blas() or "")
    monkeypatch.setattr(cpu.platform, "machine", lambda: "aarch64")
    assert "OpenBLAS" in (cpu.missing_blas() or "")


def test_an_unknown_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["docter"])
    assert stopped.value.code == 2
    assert "doctor" in capsys.readouterr().err
