"""The product's own hooks: from a conftest and from a plugin, in one process and under xdist."""

from __future__ import annotations

import json

import pytest

from pytest_gnus.records.schema import validate
from tests.conftest import choice_documents

PROVIDER = """
from pytest_gnus import Abilities, LoadedModel, Provider

class Mine(Provider):
    name = {name!r}
    def load(self, spec, options):
        from pytest_gnus.models.demo_models import ConstantModel
        return LoadedModel(spec=spec, lm=ConstantModel(), identity=f"mine:{{spec.name}}")
    def abilities(self, name):
        return Abilities(generates=False)

def pytest_gnus_providers():
    return [Mine()]
"""

GATE = """
from pytest_gnus import GateResult

def pytest_gnus_gates(item, measurement, model, fingerprint, reference, config):
    assert model.spec == item.model and fingerprint.valid and config.option.gnus_niche
    assert (reference is None) == (item.variant != "quantized")
    return {answer}
"""


def conftest(toy, text, folder=""):
    (toy.path / folder / "conftest.py").write_text(text)


def not_implemented(toy):
    toy.yaml("benchmarks/later.yaml", {"name": "later", "status": "not_implemented", "reason": "no sandbox"})


def use(toy, model):
    toy.niche(blocking=["colours"], model={"quantized": model, "reference": model})


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_provider_of_a_conftest_is_known_everywhere(toy, workers):
    conftest(toy, PROVIDER.format(name="mine"))
    use(toy, "mine:anything")
    toy.run("--niche=toy", *workers).assert_outcomes(passed=2)
    assert toy.record("colours")["results"]["colours"]["score"] == 0.5
    assert toy.record("colours")["model"]["provider"] == "mine"
    assert toy.record("colours")["fingerprint_valid"] is True
    toy.run("benchmarks/colours.yaml", "--niche=toy", *workers).assert_outcomes(passed=2)
    toy.run("--niche=toy", "--gnus-model=mine:other", *workers).assert_outcomes(passed=2)


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_provider_and_a_gate_of_a_plugin(toy, workers):
    toy.pytester.makepyfile(
        of_others=PROVIDER.format(name="mine") + GATE.format(answer="GateResult('x', True)")
    )
    use(toy, "mine:anything")
    toy.run("-p", "of_others", "--niche=toy", *workers).assert_outcomes(passed=2)
    assert [gate["name"] for gate in toy.record("colours")["gates"]][-1] == "x"


def test_an_unknown_provider_names_all_that_are_known(toy):
    conftest(toy, PROVIDER.format(name="mine"))
    use(toy, "mien:x")
    result = toy.run("--niche=toy", "--gnus-model=other:x")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = result.stderr.str()
    assert text.count("a provider of mlx, hf, openai, lm_eval, demo, mine") == 3
    assert "config/specialists/toy.yaml: model.quantized: found the provider 'mien'" in text
    assert "--gnus-model: found the provider 'other'" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            PROVIDER.format(name="mlx"),
            "provider of conftest.py: name: found 'mlx'; allowed: a name that is not",
        ),
        (PROVIDER.format(name="my-own"), "provider of conftest.py: name: found 'my-own'; allowed: a letter"),
        ("def pytest_gnus_providers(): return ['mine']", "conftest.py gave 'mine': an instance of"),
        (
            "def pytest_gnus_providers():\n    raise RuntimeError('no licence')",
            "pytest_gnus_providers of conftest.py raised RuntimeError: no licence (conftest.py, line 2)",
        ),
    ],
)
def test_a_provider_that_cannot_be_used_is_a_usage_error(toy, text, expected):
    conftest(toy, text)
    result = toy.run("--niche=toy")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert expected in result.stderr.str()


def test_without_niche_no_hook_is_called(toy):
    conftest(toy, "def pytest_gnus_providers(): raise RuntimeError")
    toy.pytester.makepyfile(test_own="def test_own(): pass")
    toy.run().assert_outcomes(passed=1)


@pytest.mark.parametrize("folder", ["", "benchmarks"])
def test_a_gate_counts_in_outcome_record_and_verdict(toy, folder):
    conftest(toy, GATE.format(answer="GateResult('mine', False, 1.0, 2.0, detail='1 < 2')"), folder)
    result = toy.run("--niche=toy")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*mine failed: 1 < 2*"])
    record = toy.record("colours")
    validate(record)
    assert record["status"] == "failed"
    gate = record["gates"][-1]
    assert (gate["name"], gate["passed"], gate["value"], gate["threshold"]) == ("mine", False, 1.0, 2.0)
    assert "mine: 1 < 2" in str(toy.verdict()["reasons"])


def test_a_gate_that_was_not_evaluated_has_not_passed(toy):
    conftest(toy, GATE.format(answer="[GateResult('mine', None, detail='no data')]"))
    toy.run("--niche=toy").assert_outcomes(failed=2)
    assert "mine not evaluated: no data" in str(toy.verdict()["reasons"])


@pytest.mark.parametrize(
    "answer", ["None", "[]", "(GateResult('a', True), GateResult('b', True, p_value=0.5))"]
)
def test_nothing_one_or_several_gates(toy, answer):
    conftest(toy, GATE.format(answer=answer))
    toy.run("--niche=toy").assert_outcomes(passed=2)
    built_in = [
        "hard_floor",
        "truncated_share",
        "quantization_regression",
        "previous_run",
        "baseline_deviation",
    ]
    names = [gate["name"] for gate in toy.record("colours")["gates"]]
    assert names == [*built_in, *(["a", "b"] if "GateResult" in answer else [])]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("1 / 0", "HookError: pytest_gnus_gates of conftest.py raised ZeroDivisionError: division by zero"),
        ("__import__('pytest').skip('not today')", "HookError: * raised Skipped: not today"),
        ("True", "HookError: pytest_gnus_gates of conftest.py gave True: a pytest_gnus.GateResult is needed"),
        ("{'passed': True}", "HookError: * gave {'passed': True}*"),
        ("GateResult('mine', 1)", "HookError: * passed=1: True, False or None is needed"),
        ("GateResult('mine', True, float('nan'))", "HookError: * value=nan: a finite number is needed"),
        ("GateResult('mine', True, ci95=(0.0, None))", "HookError: * ci95=* two finite numbers are needed"),
        (
            "GateResult('mine', True, significant='yes')",
            "HookError: * significant='yes': True, False or None is needed",
        ),
        ("GateResult('', True)", "HookError: * gave a gate with the name ''*"),
    ],
)
def test_a_gate_that_cannot_be_had_is_an_error_and_never_a_pass(toy, answer, expected):
    conftest(toy, GATE.format(answer=answer))
    result = toy.run("--niche=toy")
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines([f"*{expected.replace('[', '[[]')}*"])
    record = toy.record("colours")
    validate(record)
    assert (record["status"], record["results"]["colours"]["score"]) == ("error", None)
    assert record["reason"].startswith("HookError")
    assert toy.verdict()["verdict"] == "block"


def test_a_gate_that_raises_is_an_error_under_xdist_too(toy):
    conftest(toy, GATE.format(answer="1 / 0"))
    toy.run("--niche=toy", "-n", "2").assert_outcomes(errors=2)
    assert toy.record("colours")["reason"].startswith("HookError")
    assert toy.verdict()["verdict"] == "block"


def test_a_conftest_that_pytest_has_not_loaded_cannot_be_left_out_silently(toy, monkeypatch):
    toy.run("--niche=toy").assert_outcomes(passed=2)
    monkeypatch.chdir(toy.path / "benchmarks")
    toy.run("--niche=toy").assert_outcomes(passed=2)
    conftest(toy, GATE.format(answer="GateResult('mine', False)"))
    result = toy.run("--niche=toy")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{toy.path}/conftest.py*--rootdir={toy.path}*"])
    toy.run("--niche=toy", f"--rootdir={toy.path}").assert_outcomes(failed=2)
    toy.run("--niche=toy", "--noconftest").assert_outcomes(passed=2)


@pytest.mark.parametrize("answer", ["GateResult('hard_floor', True)", "[GateResult('twice', True)] * 2"])
def test_two_gates_of_one_name_do_not_pass(toy, answer):
    conftest(toy, GATE.format(answer=answer))
    result = toy.run("--niche=toy")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*HookError: *stands for more than one gate*"])
    assert toy.record("colours")["status"] == "error"


def test_a_gate_is_not_asked_of_what_was_not_measured(toy):
    conftest(toy, "def pytest_gnus_gates(): raise RuntimeError('EVALUATED')")
    not_implemented(toy)
    toy.niche(blocking=["later"])
    result = toy.run("--niche=toy")
    result.assert_outcomes(skipped=2, failed=1)  # the verdict: nothing was measured
    assert "EVALUATED" not in result.stdout.str()


def test_a_diagnostic_benchmark_below_a_gate_of_others_warns(toy):
    conftest(toy, GATE.format(answer="GateResult('mine', False, detail='too low')"))
    toy.niche(diagnostic=["colours"])
    result = toy.run("--niche=toy")
    result.assert_outcomes(passed=2, failed=1, warnings=10)  # failed is the verdict: nothing blocks the niche
    result.stdout.fnmatch_lines(["*colours[[]toy-quantized[]]: mine failed: too low*"])
    assert toy.record("colours")["status"] == "warned"


REPORTER = """
import json

def pytest_gnus_item_finished(niche, outcome, record, path, config):
    with open(config.rootpath / "told.jsonl", "a") as file:
        stored = json.loads(path.read_text()) if path else None
        assert record is None or stored["fingerprint"] == record["fingerprint"]
        told = [niche, outcome.benchmark, outcome.variant, outcome.status, path and path.name]
        file.write(json.dumps(told) + "\\n")
    if record:
        record.clear()  # a copy: nobody else's

def pytest_gnus_run_finished(run_id, verdicts, artifacts):
    stored = [(artifacts / "verdicts" / f"{v.niche}.json").is_file() for v in verdicts]
    with open(artifacts.parent / "told.jsonl", "a") as file:
        file.write(f'["{run_id}", {len(verdicts)}, "{verdicts[0].verdict}", {str(all(stored)).lower()}]\\n')
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_reporter_hears_of_each_item_once_and_of_the_end(toy, workers):
    conftest(toy, REPORTER)
    toy.benchmark("shapes")
    toy.data("shapes/test.jsonl", choice_documents([0, 1, 2, 3]))
    not_implemented(toy)
    toy.niche(blocking=["colours"], diagnostic=["shapes", "later"])
    (toy.path / "data" / "benchmarks" / "shapes" / "test.jsonl").write_text("")
    toy.run("--niche=toy", *workers).assert_outcomes(passed=2, errors=2, skipped=2)
    *items, end = [json.loads(line) for line in (toy.path / "told.jsonl").read_text().splitlines()]
    statuses = {(benchmark, variant): status for _, benchmark, variant, status, _ in items}
    assert len(items) == len(statuses) == 6
    assert {benchmark: statuses[benchmark, "quantized"] for benchmark in ("colours", "shapes", "later")} == {
        "colours": "passed",
        "shapes": "error",
        "later": "not_implemented",
    }
    assert all((toy.path / "artifacts" / "benchmarks" / name).is_file() for *_, name in items)
    assert end == [toy.record("colours")["run_id"], 1, "promote", True]


def test_a_reporter_that_fails_is_said_and_changes_nothing(toy):
    conftest(toy, "def pytest_gnus_item_finished(outcome): raise OSError('disk full')")
    toy.pytester.makepyfile(
        other="def pytest_gnus_item_finished(outcome): print('HEARD', outcome.name)\n"
        "def pytest_gnus_run_finished(verdicts): raise ValueError(verdicts[0].niche)\n"
    )
    result = toy.run("-p", "other", "--niche=toy", "-s")
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "a reporter failed: pytest_gnus_item_finished of conftest.py raised OSError: disk full (*",
            "a reporter failed: pytest_gnus_run_finished of other raised ValueError: toy (other.py, line 2)",
        ]
    )
    assert result.stdout.str().count("HEARD") == 2
    assert toy.verdict()["verdict"] == "promote"


def test_a_hook_with_an_argument_that_there_is_not_is_refused_by_name(toy):
    conftest(toy, "def pytest_gnus_gates(item, mesurement): pass")
    result = toy.run_process("--niche=toy")
    assert result.ret != pytest.ExitCode.OK
    assert "mesurement" in result.stdout.str() + result.stderr.str()


def test_a_reporter_that_fails_where_nothing_ran_is_said_too(toy):
    conftest(toy, "def pytest_gnus_run_finished(verdicts): raise ValueError(len(verdicts))")
    result = toy.run("--niche=toy", "-k", "nothing")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["a reporter failed: *raised ValueError: 1*"])


@pytest.mark.parametrize("hook", ["pytest_gnus_run_finished(verdicts)", "pytest_gnus_item_finished(outcome)"])
def test_a_reporter_does_not_decide_the_exit_status(toy, hook):
    conftest(toy, f"import sys\ndef {hook}: sys.exit(0)")
    toy.benchmark("colours", gates={"hard_floor": 0.99})
    result = toy.run("--niche=toy")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert toy.verdict()["verdict"] == "block"
    result.stdout.fnmatch_lines(["a reporter failed: *raised SystemExit: 0*"])


def test_a_provider_that_gives_no_model_is_told(toy):
    conftest(
        toy,
        "from pytest_gnus import Provider\n"
        "class Mine(Provider):\n"
        "    name = 'mine'\n"
        "    def load(self, spec, options): return 1\n"
        "def pytest_gnus_providers(): return Mine()\n",
    )
    result = toy.run("--niche=toy", "--gnus-model=mine:x", "--gnus-variant=quantized")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["ModelError: the provider of mine:x gave 1: a pytest_gnus.LoadedModel *"])
