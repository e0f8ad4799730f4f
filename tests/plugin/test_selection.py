"""What is collected, in which order, under which names, and what a wrong command line says."""

from __future__ import annotations

import pytest

ARGUMENTS = ("--collect-only", "-q", "-p", "no:cacheprovider")


def node_ids(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "::" in line]


def test_without_niche_nothing_is_collected_from_benchmarks(toy):
    toy.pytester.makepyfile(test_own="def test_own(): pass")
    result = toy.run("-q")
    result.assert_outcomes(passed=1)
    assert not (toy.path / "artifacts").exists()
    result.stdout.no_fnmatch_line("*gnus*")


def test_with_niche_only_benchmarks_are_collected(toy):
    toy.pytester.makepyfile(test_own="def test_own(): pass")
    result = toy.run("--niche=toy", *ARGUMENTS)
    assert node_ids(result) == [
        "benchmarks/colours.yaml::colours[toy-reference]",
        "benchmarks/colours.yaml::colours[toy-quantized]",
    ]


def test_testpaths_do_not_widen_the_collection(toy):
    toy.pytester.makeini("[pytest]\ntestpaths = unit\n")
    (toy.path / "unit").mkdir()
    (toy.path / "unit" / "test_unit.py").write_text("def test_unit(): pass\n")
    assert "test_unit" not in "".join(node_ids(toy.run("--niche=toy", *ARGUMENTS)))


def test_paths_and_node_ids_select_as_usual(toy):
    toy.benchmark("shapes")
    toy.niche(blocking=["colours", "shapes"])
    by_path = node_ids(toy.run("benchmarks/shapes.yaml", "--niche=toy", *ARGUMENTS))
    assert by_path == [
        "benchmarks/shapes.yaml::shapes[toy-reference]",
        "benchmarks/shapes.yaml::shapes[toy-quantized]",
    ]
    one = "benchmarks/colours.yaml::colours[toy-quantized]"
    assert node_ids(toy.run(one, "--niche=toy", *ARGUMENTS)) == [one]


@pytest.mark.parametrize("word", ["reference", "quantized", "baseline"])
def test_each_variant_name_selects_itself_alone(toy, word):
    toy.niche(
        blocking=["colours"],
        model={"quantized": "demo:random", "reference": "demo:constant", "baseline": "demo:random"},
    )
    result = toy.run("--niche=toy", "--gnus-variant=all", "-k", word, *ARGUMENTS)
    assert node_ids(result) == [f"benchmarks/colours.yaml::colours[toy-{word}]"]


def test_markers_select_and_are_registered(toy):
    toy.benchmark("aside")
    toy.niche(blocking=["colours"], diagnostic=["aside"])
    blocking = node_ids(toy.run("--niche=toy", "-m", "blocking", "--strict-markers", *ARGUMENTS))
    assert [node.split("::")[1] for node in blocking] == ["colours[toy-reference]", "colours[toy-quantized]"]
    diagnostic = node_ids(toy.run("--niche=toy", "-m", "diagnostic", "--strict-markers", *ARGUMENTS))
    assert all("aside" in node for node in diagnostic)
    assert len(diagnostic) == 2
    expression = "gnus_variant(name='quantized') and gnus_benchmark(name='aside') and gnus_niche(name='toy')"
    named = node_ids(toy.run("--niche=toy", "-m", expression, *ARGUMENTS))
    assert [node.split("::")[1] for node in named] == ["aside[toy-quantized]"]


def test_items_stand_by_niche_and_model_and_the_reference_comes_first(toy):
    toy.benchmark("shapes")
    for niche in ("zebra", "ape"):
        toy.niche(
            niche,
            blocking=["shapes", "colours"],
            model={"quantized": "demo:random", "reference": "demo:constant"},
        )
    result = toy.run("--niche=zebra", "--niche=ape", *ARGUMENTS)
    names = [node.split("::")[1] for node in node_ids(result)]
    # Both niches name the same two models, so each model's items stand together over both niches.
    assert names == [
        "shapes[zebra-reference]",
        "colours[zebra-reference]",
        "shapes[ape-reference]",
        "colours[ape-reference]",
        "shapes[zebra-quantized]",
        "colours[zebra-quantized]",
        "shapes[ape-quantized]",
        "colours[ape-quantized]",
    ]


def test_other_tests_keep_their_places(toy):
    toy.pytester.makepyfile(test_own="def test_b(): pass\ndef test_a(): pass")
    result = toy.run("test_own.py", "benchmarks", "--niche=toy", *ARGUMENTS)
    assert node_ids(result)[:2] == ["test_own.py::test_b", "test_own.py::test_a"]
    assert len(node_ids(result)) == 4


def test_all_niches_and_default_variant_of_a_niche_without_reference(toy):
    toy.niche("lone", blocking=["colours"], model={"quantized": "demo:random"})
    result = toy.run("--niche=all", *ARGUMENTS)
    assert [node.split("::")[1] for node in node_ids(result)] == [
        # `lone` and `toy` name the same model, and of that the reference comes first.
        "colours[toy-reference]",
        "colours[lone-quantized]",
        "colours[toy-quantized]",
    ]


def test_collecting_imports_nothing_heavy(toy):
    (toy.path / "conftest.py").write_text(
        "import sys\n"
        "def pytest_collection_finish(session):\n"
        "    heavy = {'lm_eval', 'mlx', 'mlx_lm', 'transformers', 'datasets', 'torch', 'scipy', 'numpy'}\n"
        "    print('HEAVY', sorted(heavy & set(sys.modules)), len(session.items))\n"
    )
    result = toy.run_process("--niche=all", "--collect-only", "-q", "-s")
    result.stdout.fnmatch_lines(["HEAVY [[][]] 2"])


def test_unknown_niche_lists_the_niches(toy):
    result = toy.run("--niche=toi")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--niche: found 'toi'; allowed: toy, all. Did you mean 'toy'?*"])


def test_all_problems_of_options_and_files_come_at_once(toy):
    toy.benchmark("colours", gates={"hard_flour": 0.1}, num_fewshot="five")
    toy.yaml("benchmarks/broken.yaml", "name: [unclosed\n")
    toy.niche(blocking=["colors"])
    result = toy.run(
        "--niche=toy",
        "--gnus-mode=fast",
        "--gnus-limit=-3",
        "--gnus-model=mlx:",
        "--gnus-dtype=float64",
        "--gnus-batch-tokens=0",
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = result.stderr.str()
    for expected in (
        "benchmarks/colours.yaml: gates.hard_flour: found an unknown key",
        "Did you mean 'hard_floor'?",
        "benchmarks/colours.yaml: num_fewshot: found 'five'; allowed: a valid integer",
        "benchmarks/broken.yaml: found",
        "config/specialists/toy.yaml: benchmarks.blocking[0]: found 'colors', which has no file",
        "--gnus-mode: found 'fast'; allowed: canonical, diagnostic",
        "--gnus-limit: found '-3'; allowed: a whole number from 1 up",
        "--gnus-model: found 'mlx:'",
        "--gnus-dtype: found 'float64'; allowed: float32, bfloat16, float16, stored",
        "--gnus-batch-tokens: found '0'; allowed: a whole number from 1 up",
    ):
        assert expected in text


def test_api_source_is_refused_as_judge_only(toy):
    result = toy.run("--niche=toy", "--gnus-source=api")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--gnus-source: found 'api'*judge-only (D-01)*"])


def test_variant_that_a_niche_has_not_names_the_key(toy):
    result = toy.run("--niche=toy", "--gnus-variant=baseline")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no model.baseline in config/specialists/toy.yaml*"])


def test_no_workspace_is_a_usage_error(pytester):
    result = pytester.runpytest_subprocess("--niche=toy")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*needs a workspace*config/specialists/*"])


def test_nothing_selected_is_exit_five(toy):
    assert toy.run("--niche=toy", "-k", "nothing").ret == pytest.ExitCode.NO_TESTS_COLLECTED


NATIVE_TABLE = pytest.mark.skipif(pytest.version_tuple < (9, 0), reason="[tool.pytest] is new in pytest 9.0")


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(
            '[tool.pytest.ini_options]\ngnus_niche = "toy"\ngnus_variant = "quantized"\ngnus_limit = "7"\n',
            id="ini_options",
        ),
        pytest.param(
            '[tool.pytest]\ngnus_niche = ["toy"]\ngnus_variant = "quantized"\ngnus_limit = 7\n',
            id="native",
            marks=NATIVE_TABLE,
        ),
    ],
)
def test_ini_settings_work_like_the_options(toy, table):
    toy.pytester.makepyprojecttoml(table)
    result = toy.run("--collect-only")
    result.stdout.fnmatch_lines(["gnus: niche=toy, *limit=7*", "*colours[[]toy-quantized[]]*"])
    result.stdout.no_fnmatch_line("*toy-reference*")


def test_an_option_wins_over_its_ini_setting(toy):
    toy.pytester.makeini("[pytest]\ngnus_variant = reference\ngnus_mode = nonsense\n")
    result = toy.run("--niche=toy", "--gnus-variant=quantized", "--gnus-mode=diagnostic", *ARGUMENTS)
    assert node_ids(result) == ["benchmarks/colours.yaml::colours[toy-quantized]"]


def test_a_wrong_ini_setting_is_named_as_such(toy):
    toy.pytester.makeini("[pytest]\ngnus_mode = nonsense\n")
    toy.run("--niche=toy").stderr.fnmatch_lines(["*ini setting gnus_mode: found 'nonsense'*"])


@pytest.mark.parametrize(
    "option", ["model", "history", "artifacts", "source", "variant", "experiment", "dtype"]
)
@pytest.mark.parametrize("value", ["", " "])
def test_an_option_without_a_value_is_not_as_good_as_none(toy, option, value):
    """An unset variable of a CI: `--gnus-model=$MODEL`."""
    result = toy.run("--niche=toy", f"--gnus-{option}={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--gnus-{option}*"])


@pytest.mark.parametrize(
    "options", [("--gnus-limit=5",), ("--gnus-mode=diagnostic",), ("-k", "reference"), ("test_other.py",)]
)
def test_a_pass_of_a_part_is_not_taken_for_the_niche(toy, options):
    (toy.path / "test_other.py").write_text("def test_other(): pass\n")
    result = toy.run("--niche=toy", *options)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["exit status 0 says nothing of toy: a part was not measured, or nothing *"])
    assert "exit status 0 says nothing" not in toy.run("--niche=toy").stdout.str()
