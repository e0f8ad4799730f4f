"""The item of an SGFP4 artifact: first, of its own, and closed to what cannot be measured."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_gnus.demo import model_directory
from pytest_gnus.models.spec import SGFP4_MANIFEST
from tests.conftest import ToyWorkspace

#: As the script `gnus` does it, wherever that was installed.
GNUS = (sys.executable, "-m", "pytest_gnus.cli")
ITEM = "config/specialists/toy.yaml::sgfp4[toy-quantized]"


@pytest.fixture
def artifact(toy: ToyWorkspace) -> Path:
    """A package of the toy niche's own, with a reference."""
    package = toy.path / "models" / "package"
    shutil.copytree(model_directory("quantized"), package)
    shutil.copytree(model_directory("reference"), toy.path / "models" / "reference")
    niche(toy)
    return package


def niche(toy: ToyWorkspace, **content: Any) -> None:
    model = {"quantized": "models/package", "reference": "models/reference"}
    toy.niche(blocking=["colours"], **{"model": model, **content})


def report(toy: ToyWorkspace) -> dict[str, Any]:
    (path,) = (toy.path / "artifacts" / "sgfp4").glob("toy_sgfp4_quantized_*Z.json")
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def test_it_comes_first_and_is_selected_as_any_item(toy: ToyWorkspace, artifact: Path) -> None:
    result = toy.run("--niche=toy", "--collect-only", "-q")
    assert result.outlines[0] == ITEM
    result = toy.run(ITEM, "--niche=toy", "-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*toy*sgfp4*quantized*3/3*passed*"])
    found = report(toy)
    assert [gate["name"] for gate in found["gates"]] == [
        "fp4_mse",
        "fp4_relative_mse",
        "fp4_effective_bitrate",
    ]
    assert found["numbers"]["tensors"] == 21
    assert toy.verdict()["not_evaluated"] == [
        "colours (reference): was not run",
        "colours (quantized): was not run",
    ]


def test_a_gate_that_does_not_hold_fails_the_niche(toy: ToyWorkspace, artifact: Path) -> None:
    niche(toy, sgfp4={"fp4_t158_ratio": 0.05, "fp4_effective_bitrate": 4.0, "fp4_mse": None})
    result = toy.run(ITEM, "--niche=toy")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "fp4_effective_bitrate failed: 4.2* > 4; fp4_t158_ratio failed: 0 < 0.05",
            "*fp4_relative_mse*passed*",
        ]
    )
    assert toy.verdict()["verdict"] == "block"
    assert "fp4_effective_bitrate" in toy.verdict()["reasons"][0]


def test_every_gate_can_be_turned_off(toy: ToyWorkspace, artifact: Path) -> None:
    niche(toy, sgfp4=dict.fromkeys(("fp4_mse", "fp4_relative_mse", "fp4_effective_bitrate")))
    toy.run(ITEM, "--niche=toy").assert_outcomes(passed=1)
    assert report(toy)["gates"] == []


def test_an_altered_container_is_an_error_of_every_item_that_names_it(
    toy: ToyWorkspace, artifact: Path
) -> None:
    path = next((artifact / "sgfp4").glob("*layers.1*down_proj*"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    result = toy.run("--niche=toy", "-k", "quantized")
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(
        ["*SGFP4Error: *, tensor model.layers.1.mlp.down_proj.weight: the file's SHA-256*"]
    )
    assert toy.verdict()["verdict"] == "block"


def test_without_the_reference_the_errors_are_not_evaluated_and_it_fails(
    toy: ToyWorkspace, artifact: Path
) -> None:
    niche(toy, model={"quantized": "models/package"})
    result = toy.run(ITEM, "--niche=toy")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["fp4_mse not evaluated: the niche names no reference weights*"])


def test_a_limited_run_warns_and_gates_nothing(toy: ToyWorkspace, artifact: Path) -> None:
    niche(toy, sgfp4={"fp4_effective_bitrate": 4.0})
    result = toy.run(ITEM, "--niche=toy", "--gnus-limit=5")
    result.assert_outcomes(passed=1, warnings=1)
    assert result.ret == pytest.ExitCode.OK
    assert report(toy)["status"] == "warned"


def test_it_runs_on_the_worker_of_its_niche(toy: ToyWorkspace, artifact: Path) -> None:
    (toy.path / "conftest.py").write_text(
        "import os, pytest\n"
        "@pytest.hookimpl(trylast=True)\n"
        "def pytest_runtest_logreport(report):\n"
        "    if report.when == 'call' and hasattr(report, 'worker_id'):\n"
        "        open('workers', 'a').write(f'{report.worker_id} {report.nodeid}\\n')\n"
    )
    toy.run("--niche=toy", "-n", "2").assert_outcomes(passed=3)
    lines = set((toy.path / "workers").read_text().splitlines())
    assert len({line.split()[0] for line in lines}) == 1
    assert report(toy)["status"] == "passed"


def test_a_niche_without_sgfp4_says_so(toy: ToyWorkspace) -> None:
    toy.run("--niche=toy").assert_outcomes(passed=2)
    assert toy.verdict()["not_evaluated"][-1] == "sgfp4 (quantized): the weights are not in SGFP4"
    assert not (toy.path / "artifacts" / "sgfp4").exists()


def test_wrong_limits_are_usage_errors(toy: ToyWorkspace, artifact: Path) -> None:
    niche(toy, sgfp4={"fp4_mse": -1, "fp4_t158": 0.05})
    result = toy.run("--niche=toy")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*sgfp4.fp4_mse: found -1*", "*Did you mean 'fp4_t158_ratio'*"])


def test_gnus_quantize_makes_what_the_gate_takes(toy: ToyWorkspace, artifact: Path) -> None:
    shutil.rmtree(artifact)
    result = toy.pytester.run(*GNUS, "quantize", "models/reference", "-o", "models/package", "--niche", "toy")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["tensor*bits/weight", "total*4.2*", "8 tensors stay unquantized"])
    assert json.loads((artifact / SGFP4_MANIFEST).read_text())["niche"] == "toy"
    toy.run(ITEM, "--niche=toy").assert_outcomes(passed=1)
    inspected = toy.pytester.run(*GNUS, "quantize", "--inspect", "models/package")
    inspected.stdout.fnmatch_lines(
        ["base model*reference", "*model.layers.0.mlp.down_proj.weight*128x384*v2*"]
    )
    container = next((artifact / "sgfp4").iterdir())
    toy.pytester.run(*GNUS, "quantize", "--inspect", str(container)).stdout.fnmatch_lines(
        ["*macroblocks*v2*"]
    )
    again = toy.pytester.run(*GNUS, "quantize", "models/reference", "-o", "models/package")
    assert again.ret == 1
    again.stderr.fnmatch_lines(["gnus: *package exists; choose another place, or remove it"])
