"""What other plugins do to a session: run items again, shuffle them, make errors of warnings."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest

from pytest_gnus import GateResult, hookspecs
from pytest_gnus.advice import GnusWarning, warnings_shown
from pytest_gnus.errors import HookError
from pytest_gnus.hooks import Hooks
from tests.conftest import ToyWorkspace

# As pytest-rerunfailures does it: what failed is reported as a rerun, and the same item is run again.
RERUNS = """
import pytest
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    for left in (2, 1, 0):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        failed = [report for report in reports if report.failed]
        if left:
            for report in failed:
                report.outcome = 'rerun'
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        if not failed:
            break
        if left:
            item._initrequest()
    return True

def pytest_report_teststatus(report):
    return ('rerun', 'R', 'RERUN') if report.outcome == 'rerun' else None
"""


def test_reruns_of_a_failed_gate_measure_nothing(toy: ToyWorkspace):
    toy.benchmark("colours", gates={"hard_floor": 0.9})
    counted = (
        "import pytest_gnus.evaluation as evaluation\n"
        "measure = evaluation.measure\n"
        "def count(item, *rest):\n"
        "    print('MEASURED', item.name)\n"
        "    return measure(item, *rest)\n"
        "evaluation.measure = count\n"
        "def pytest_runtest_logreport(report):\n"
        "    if report.when == 'call':\n"
        "        print('SCORES', [name for name, _ in report.user_properties].count('gnus_score'))\n"
    )
    (toy.path / "conftest.py").write_text(RERUNS + counted)
    result = toy.run("--niche=toy", "-s", "--gnus-variant=reference")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.stdout.str().count("MEASURED colours[toy-reference]") == 1
    (record,) = toy.records()
    assert (record["status"], record["reruns"]) == ("failed", 0)
    rows = [line for line in result.outlines if line.startswith("toy ")]
    assert len(rows) == 1
    assert rows[0].endswith("failed, 2 reruns")
    assert [outcome["reruns"] for outcome in toy.verdict()["outcomes"]] == [2]
    assert result.stdout.str().count("SCORES") == result.stdout.str().count("SCORES 1") == 3


def test_an_error_is_tried_again_and_both_are_recorded(toy: ToyWorkspace):
    once = (
        "raised = []\n"
        "@pytest.fixture(autouse=True)\n"
        "def unlucky(request):\n"
        "    if 'quantized' in request.node.name and not raised:\n"
        "        raised.append(1)\n"
        "        raise OSError('the disk was away')\n"
    )
    (toy.path / "conftest.py").write_text(RERUNS + once)
    result = toy.run("--niche=toy")
    assert result.ret == pytest.ExitCode.OK
    records = [(r["variant"], r["status"], r["reruns"]) for r in toy.records()]
    assert records == [("reference", "passed", 0), ("quantized", "error", 0), ("quantized", "passed", 1)]
    verdict = toy.verdict()
    assert verdict["verdict"] == "promote"
    assert [warning for warning in verdict["warnings"] if "rerun" in warning] == [
        "colours (quantized) was measured in rerun 1; before that: error: OSError: the disk was away"
    ]
    assert len([line for line in result.outlines if line.startswith("toy ")]) == 2


@pytest.mark.parametrize(
    "options", [("--gnus-limit=40",), ("--gnus-limit=40", "-n1", "--dist=load")], ids=["alone", "dist"]
)
def test_advice_is_no_error_whatever_the_filters_say(toy: ToyWorkspace, options):
    result = toy.run("--niche=toy", "-W", "error", *options)
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*GnusWarning: colours[[]toy-reference[]]: no better than a random choice*"])


def test_within_only_errors_are_changed():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "not this", GnusWarning)
        with warnings_shown():
            warnings.warn(GnusWarning("not this one"), stacklevel=1)
            warnings.warn(RuntimeWarning("but this"), stacklevel=1)
        assert [str(message.message) for message in seen] == ["but this"]
        with pytest.raises(RuntimeWarning, match="and now"):
            warnings.warn(RuntimeWarning("and now"), stacklevel=1)


def test_the_order_holds_against_a_plugin_that_shuffles_last(toy: ToyWorkspace):
    (toy.path / "conftest.py").write_text(
        "import pytest\n"
        "@pytest.hookimpl(wrapper=True)\n"
        "def pytest_collection_modifyitems(items):\n"
        "    yield\n"
        "    items.reverse()\n"
    )
    result = toy.run("--niche=toy", "--collect-only", "-q")
    assert [line for line in result.outlines if "::" in line] == [
        "benchmarks/colours.yaml::colours[toy-reference]",
        "benchmarks/colours.yaml::colours[toy-quantized]",
    ]


def test_markers_are_known_without_a_niche_and_none_is_another_plugins(pytester):
    pytester.makepyfile(
        "import pytest\n"
        "@pytest.mark.gnus_niche(name='a')\n"
        "@pytest.mark.gnus_round(index=0)\n"
        "@pytest.mark.blocking\n"
        "def test_one(): pass\n"
    )
    pytester.runpytest_subprocess("--strict-markers").assert_outcomes(passed=1)
    shown = pytester.runpytest_subprocess("--markers").stdout.str()
    for name in ("gnus_niche(name)", "gnus_benchmark(name)", "gnus_variant(name)", "gnus_model(name)"):
        assert f"@pytest.mark.{name}: " in shown
    assert "@pytest.mark.benchmark" not in shown


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("benchmarks/colours.yaml", "is a benchmark and is run for a niche: add --niche=toy"),
        (
            "benchmarks/colours.yaml::colours[toy-quantized]",
            "is a benchmark and is run for a niche: add --niche=toy",
        ),
        ("config/specialists/toy.yaml", "is a niche: add --niche=toy"),
        (
            "benchmarks/nobodys.yaml",
            "is a benchmark and is run for a niche: no niche has it; list it in config/specialists/NAME.yaml "
            "and add --niche=NAME",
        ),
    ],
)
def test_a_benchmark_that_is_named_without_its_niche(toy: ToyWorkspace, argument, told):
    toy.benchmark("nobodys")
    result = toy.run(argument)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    file = argument.partition("::")[0]
    assert result.errlines[0] == f"ERROR: pytest-gnus: {file} {told}"


def test_a_benchmark_of_another_niche_and_the_yaml_of_another_plugin(toy: ToyWorkspace):
    toy.benchmark("shapes")
    toy.niche("second", blocking=["shapes"])
    toy.niche("third", blocking=["shapes"])
    result = toy.run("benchmarks/shapes.yaml", "--niche=toy")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.errlines[0] == (
        "ERROR: pytest-gnus: benchmarks/shapes.yaml is no benchmark of toy: add --niche=NAME; the niches "
        "with it are second, third"
    )
    toy.yaml("benchmarks/other.yaml", "stages:\n  - request: {}\n")
    other = toy.run("benchmarks/other.yaml")
    assert "pytest-gnus" not in "".join(other.errlines)


class Answering:
    """A plugin with a gate of its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _gate(self) -> GateResult:
        return GateResult(self._name, True)


class Ordinary(Answering):
    def pytest_gnus_gates(self):
        return self._gate()


class First(Answering):
    @pytest.hookimpl(tryfirst=True)
    def pytest_gnus_gates(self):
        return self._gate()


class Last(Answering):
    @pytest.hookimpl(trylast=True)
    def pytest_gnus_gates(self):
        return self._gate()


class Wrapping:
    @pytest.hookimpl(wrapper=True)
    def pytest_gnus_gates(self):
        return (yield)


def hooks_of(*plugins, root):
    manager = pytest.PytestPluginManager()
    manager.add_hookspecs(hookspecs)
    for plugin in plugins:
        manager.register(plugin, getattr(plugin, "_name", "wrapping"))
    return Hooks(SimpleNamespace(pluginmanager=manager, rootpath=root)), manager


SUBJECT = dict.fromkeys(("item", "measurement", "model", "fingerprint"))


def test_gates_are_asked_in_the_order_of_pluggy(tmp_path):
    plugins = (Ordinary("a"), First("b"), Last("c"), Ordinary("d"))
    hooks, manager = hooks_of(*plugins, root=tmp_path)
    names = [gate.name for gate in hooks.gates(lambda: None, **SUBJECT)]
    assert names == ["b", "d", "a", "c"]
    whole = manager.hook.pytest_gnus_gates(**SUBJECT, reference=None, config=None)
    assert names == [gate.name for gate in whole]


def test_a_gate_that_wraps_others_is_refused(tmp_path):
    hooks, _ = hooks_of(Ordinary("a"), Wrapping(), root=tmp_path)
    with pytest.raises(HookError, match="pytest_gnus_gates of wrapping is a wrapper"):
        hooks.gates(lambda: None, **SUBJECT)
