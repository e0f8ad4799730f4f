"""A gate needs nothing of what a project's unit tests need: not their conftest, not their packages."""

from __future__ import annotations

import json

import pytest

BROKEN = "import a_package_that_only_the_unit_tests_need\n"


@pytest.fixture
def project(toy):
    """A workspace whose unit tests cannot be collected, with conftests that say when they are loaded."""
    toy.pytester.makeini("[pytest]\ntestpaths = tests/unit tests\n")
    for folder in ("tests", "tests/unit", "unit_tests"):
        (toy.path / folder).mkdir()
        (toy.path / folder / "conftest.py").write_text(BROKEN)
        (toy.path / folder / f"test_{folder[-4:]}.py").write_text(BROKEN)
    for folder in (".", "benchmarks"):
        (toy.path / folder / "conftest.py").write_text(
            "def pytest_report_header(config):\n"
            f"    kind = 'worker' if hasattr(config, 'workerinput') else 'session'\n"
            f"    return f'LOADED {folder} by the {{kind}}'\n"
        )
    return toy


def assert_gated(project, result) -> None:
    assert result.ret == 0, result.stdout.str() + result.stderr.str()
    assert project.verdict()["verdict"] == "promote"
    assert len(project.records()) == 2


def test_a_broken_conftest_of_the_unit_tests_is_not_loaded(project):
    result = project.run("--niche=toy")
    assert_gated(project, result)
    result.stdout.no_fnmatch_line("testpaths: *")
    result.stdout.fnmatch_lines_random(["LOADED . by the session", "LOADED benchmarks by the session"])


def test_nor_by_workers(project):
    assert_gated(project, project.run("--niche=toy", "-n", "2"))


def test_nor_where_an_ini_setting_names_the_niche(project):
    project.pytester.makeini("[pytest]\ntestpaths = tests\ngnus_niche = toy\n")
    assert_gated(project, project.run())


@pytest.mark.parametrize("where", ["addopts", "PYTEST_ADDOPTS"])
def test_nor_where_more_options_name_it(project, where, monkeypatch):
    if where == "addopts":
        project.pytester.makeini("[pytest]\ntestpaths = tests\naddopts = --niche=toy\n")
    else:
        monkeypatch.setenv("PYTEST_ADDOPTS", "--niche=toy")
    result = project.run("--collect-only", "-q")
    assert result.ret == 0, result.stderr.str()
    assert [line for line in result.outlines if "::" in line] == [
        "benchmarks/colours.yaml::colours[toy-reference]",
        "benchmarks/colours.yaml::colours[toy-quantized]",
    ]


def test_nor_by_an_experiment(project):
    project.yaml(
        "config/experiments/two.yaml",
        {"name": "two", "niche": "toy", "models": ["demo:random", "demo:constant"], "output": "out.jsonl"},
    )
    result = project.run("--gnus-experiment=two")
    assert result.ret == 0, result.stdout.str() + result.stderr.str()
    lines = (project.path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["status"] for line in lines] == ["measured", "measured"]


def test_the_value_of_an_option_of_the_root_conftest_is_no_path(project):
    (project.path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--release')\n"
        "def pytest_report_header(config):\n    return f\"RELEASE {config.getoption('--release')}\"\n"
    )
    result = project.run("--niche=toy", "--release", "march")
    assert_gated(project, result)
    result.stdout.fnmatch_lines(["RELEASE march"])


def test_nor_where_the_session_starts_in_a_folder_of_the_project(project, monkeypatch):
    for folder in ("src", "src/tests"):
        (project.path / folder).mkdir()
    (project.path / "src" / "tests" / "conftest.py").write_text(BROKEN)
    monkeypatch.chdir(project.path / "src")
    assert project.run("--niche=toy", "--collect-only", "-q").ret == 0


def test_a_path_to_the_unit_tests_still_loads_them(project):
    result = project.run("--niche=toy", "tests")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*No module named 'a_package_that_only_the_unit_tests_need'"])


def test_without_a_niche_they_are_loaded_as_ever(project):
    assert project.run().ret == 4
