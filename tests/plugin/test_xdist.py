"""Under pytest-xdist: which worker each item really ran on, and who writes."""

from __future__ import annotations

import json
import uuid

import pytest

from pytest_gnus.models.cpu import cores
from tests.conftest import choice_documents

CONFTEST = """
import json, os, pytest

@pytest.fixture(autouse=True)
def where(request, worker_id, gnus_models):
    yield
    line = json.dumps([worker_id, request.node.name, len(gnus_models.loads)])
    with open("where.jsonl", "a") as file:
        file.write(line + "\\n")
"""


def workspace(toy, niches=("ape", "bee")):
    for name in ("colours", "shapes", "sizes"):
        toy.benchmark(name)
        toy.data(f"{name}/test.jsonl", choice_documents([0, 1, 2, 3]))
    for niche in niches:
        toy.niche(
            niche,
            blocking=["colours", "shapes", "sizes"],
            model={"quantized": "demo:random", "reference": "demo:random"},
        )
    (toy.path / "benchmarks" / "conftest.py").write_text(CONFTEST)


def seen(toy):
    return [json.loads(line) for line in (toy.path / "where.jsonl").read_text().splitlines()]


def test_a_niche_stays_on_one_worker_and_the_controller_writes(toy):
    workspace(toy)
    result = toy.run("--niche=ape", "--niche=bee", "-n", "2")
    result.assert_outcomes(passed=12)
    workers = {}
    for worker, name, _ in seen(toy):
        workers.setdefault(name.split("[")[1].split("-")[0], set()).add(worker)
    assert {niche: len(used) for niche, used in workers.items()} == {"ape": 1, "bee": 1}
    assert workers["ape"] != workers["bee"]
    assert all(loads == 1 for _, _, loads in seen(toy))
    records = toy.records()
    assert len(records) == 12
    assert len({record["run_id"] for record in records}) == 1
    assert toy.verdict("ape")["verdict"] == toy.verdict("bee")["verdict"] == "promote"
    result.stdout.fnmatch_lines(["*benchmark summary*", "ape: PROMOTE", "bee: PROMOTE"])
    assert result.stdout.str().count("benchmark summary") == 1


def test_an_explicit_distribution_wins_with_a_warning(toy):
    workspace(toy)
    result = toy.run("--niche=ape", "-n", "2", "--dist=load", "--gnus-variant=reference")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*GnusWarning: --dist=load may spread a niche over several workers*"])
    assert len(toy.records()) == 3
    assert len({worker for worker, _, _ in seen(toy)}) == 2


def test_failures_and_errors_cross_over_with_their_text(toy):
    workspace(toy, ("ape",))
    toy.niche("bee", blocking=["colours"], model={"quantized": "models/none"})
    toy.benchmark("shapes", gates={"hard_floor": 0.99})
    result = toy.run("--niche=ape", "--niche=bee", "-n", "2")
    result.assert_outcomes(passed=4, failed=2, errors=2)
    result.stdout.fnmatch_lines(["*hard_floor failed: * < 0.9900*"])
    result.stdout.fnmatch_lines(["*ModelError: *models/none*"])
    assert sorted(record["status"] for record in toy.records()) == ["error", *["failed"] * 2, *["passed"] * 4]


# --- workers that die ---

DYING = """
import os, pytest, signal

@pytest.fixture(autouse=True)
def dies(request):
    if request.node.name == "{name}" and {before}:
        {how}
    yield
    if request.node.name == "{name}" and not {before}:
        {how}
"""


def dying(toy, name, how="os.kill(os.getpid(), signal.SIGKILL)", before=True):
    text = CONFTEST + DYING.format(name=name, how=how, before=before)
    (toy.path / "benchmarks" / "conftest.py").write_text(text)


def reasons(toy):
    return {
        (record["benchmark"], record["variant"]): record["reason"]
        for record in toy.records()
        if record["status"] == "error"
    }


def test_a_worker_that_dies_makes_its_item_an_error_and_the_others_finish(toy):
    workspace(toy)
    dying(toy, "shapes[ape-reference]")
    result = toy.run("--niche=ape", "--niche=bee", "-n", "2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert [record["status"] for record in toy.records()].count("error") >= 1
    told = reasons(toy)
    assert told[("shapes", "reference")] == (
        "the worker gw0 died while it ran shapes[ape-reference]: its process was killed (SIGKILL), as the "
        "system does where memory runs out"
    ) or told[("shapes", "reference")].startswith("the worker gw1 died while it ran shapes[ape-reference]")
    # The quantized model still ran; its gate says that it has no reference in this run.
    (quantized,) = [
        record
        for record in toy.records()
        if (record["niche"], record["benchmark"], record["variant"]) == ("ape", "shapes", "quantized")
    ]
    (gate,) = [gate for gate in quantized["gates"] if gate["name"] == "quantization_regression"]
    assert gate["passed"] is None
    assert "the reference has no score in this run: its status is error" in gate["detail"]
    names = [(record["niche"], record["benchmark"], record["variant"]) for record in toy.records()]
    assert len(names) == len(set(names)) == 12, "nothing is lost, nothing is written twice"
    assert toy.verdict("ape")["verdict"] == "block"
    assert "the worker gw" in str(toy.verdict("ape")["reasons"])
    assert toy.verdict("bee")["verdict"] == "promote"
    result.stdout.fnmatch_lines(["ERROR benchmarks/shapes.yaml::shapes[[]ape-reference[]]*"])


def test_a_worker_that_exits_says_with_which_status(toy):
    workspace(toy, ("ape",))
    dying(toy, "sizes[ape-quantized]", how="os._exit(7)")
    toy.run("--niche=ape", "-n", "1").assert_outcomes(passed=5, errors=1)
    (reason,) = reasons(toy).values()
    assert reason == "the worker gw0 died while it ran sizes[ape-quantized]: its process exited with status 7"


def test_what_a_dead_worker_had_measured_is_not_written_twice(toy):
    workspace(toy, ("ape",))
    dying(toy, "colours[ape-quantized]", how="os._exit(1)", before=False)
    result = toy.run("--niche=ape", "-n", "1")
    result.assert_outcomes(passed=6, errors=1)  # as pytest counts a teardown that fails
    names = [(record["benchmark"], record["variant"]) for record in toy.records()]
    assert len(names) == len(set(names)) == 6
    assert {record["status"] for record in toy.records()} == {"passed"}
    assert toy.verdict("ape")["verdict"] == "block"
    assert "died after it had measured colours[ape-quantized]" in str(toy.verdict("ape")["reasons"])


def test_every_item_kills_its_worker(toy):
    workspace(toy, ("ape",))
    text = CONFTEST + DYING.format(name="", how="os._exit(1)", before=True).replace('== ""', '!= ""')
    (toy.path / "benchmarks" / "conftest.py").write_text(text)
    result = toy.run("--niche=ape", "-n", "1", "--max-worker-restart=9")
    result.assert_outcomes(errors=6)
    assert [record["status"] for record in toy.records()] == ["error"] * 6
    assert toy.verdict("ape")["verdict"] == "block"


def test_the_limit_of_restarts_is_reached_and_nothing_looks_like_a_pass(toy):
    workspace(toy, ("ape",))
    dying(toy, "colours[ape-reference]", how="os._exit(1)")
    result = toy.run("--niche=ape", "-n", "1", "--max-worker-restart=0")
    assert result.ret != pytest.ExitCode.OK
    assert list(reasons(toy)) == [("colours", "reference")]
    verdict = toy.verdict("ape")
    assert verdict["verdict"] == "block"
    assert verdict["reasons"][:5] == [
        f"not evaluated: {name}: was not run"
        for name in (
            "shapes (reference)",
            "sizes (reference)",
            "colours (quantized)",
            "shapes (quantized)",
            "sizes (quantized)",
        )
    ]
    result.stdout.fnmatch_lines(["*ERROR at setup of colours[[]ape-reference[]]*"])


def test_a_worker_dies_in_an_ordinary_test(toy):
    workspace(toy, ("ape",))
    (toy.path / "test_other.py").write_text(
        "import os\ndef test_dies(): os._exit(1)\ndef test_lives(): pass\n"
    )
    result = toy.run("--niche=ape", "-n", "2", "benchmarks", "test_other.py")
    result.assert_outcomes(passed=7, failed=1)
    assert toy.verdict("ape")["verdict"] == "promote"


# --- how many workers, and what each may use ---


def workers_of(toy):
    return {worker for worker, *_ in seen(toy)}


def test_auto_starts_a_worker_for_each_niche(toy, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS", raising=False)
    workspace(toy, ("ape",))
    result = toy.run("--niche=ape", "-n", "auto")
    result.assert_outcomes(passed=6)
    assert workers_of(toy) == {"gw0"}


def test_auto_is_what_the_environment_says(toy, monkeypatch):
    monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", "3")
    workspace(toy, ("ape",))
    toy.run("--niche=ape", "-n", "auto", "-v").stdout.fnmatch_lines(["created: 3/3 workers"])


def test_workers_share_the_cores(toy, monkeypatch):
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    workspace(toy)
    (toy.path / "benchmarks" / "conftest.py").write_text(
        "import os, pytest\n"
        "from pytest_gnus.models import cpu\n"
        "@pytest.fixture(autouse=True)\n"
        "def told(request):\n"
        "    yield\n"
        "    open('threads', 'a').write(f\"{os.environ['OMP_NUM_THREADS']} {cpu.compute_threads()}\\n\")\n"
    )
    toy.run("--niche=ape", "--niche=bee", "-n", "2").assert_outcomes(passed=12)
    part = max(1, cores() // 2)
    assert set((toy.path / "threads").read_text().splitlines()) == {f"{part} {part}"}


def test_what_the_environment_says_of_threads_stays(toy, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    workspace(toy, ("ape",))
    (toy.path / "benchmarks" / "conftest.py").write_text(
        "import os, pytest\n"
        "@pytest.fixture(autouse=True)\n"
        "def told():\n"
        "    yield\n"
        "    open('threads', 'a').write(os.environ['OMP_NUM_THREADS'] + '\\n')\n"
    )
    toy.run("--niche=ape", "-n", "1")
    assert set((toy.path / "threads").read_text().splitlines()) == {"5"}


# --- one device, several workers ---

ON_A_GPU = """
import json, os, time, pytest
from pytest_gnus.models import device, pool

device.expected_device = lambda: "cuda"
device.device_of_this_process = lambda: "cuda-of-this-test-{token}"
# The demonstrations take no room; here they do.
original = device.DeviceShare.__init__
def known_size(self, *arguments, **of):
    original(self, *arguments, **{{**of, "size": lambda spec: 1}})
device.DeviceShare.__init__ = known_size

def note(event):
    with open("device.jsonl", "a") as file:
        file.write(json.dumps([time.time(), os.getpid(), event]) + "\\n")

loaded, free = pool.ModelPool._loaded, pool.ModelPool._free
def noted_load(self, spec):
    model = loaded(self, spec)
    note("loaded")
    time.sleep(0.3)
    return model
def noted_free(self, spec):
    note("freed")
    free(self, spec)
pool.ModelPool._loaded, pool.ModelPool._free = noted_load, noted_free
"""


def on_a_gpu(toy):
    workspace(toy)
    (toy.path / "conftest.py").write_text(ON_A_GPU.format(token=uuid.uuid4().hex))


def most_at_once(toy):
    """The most processes that held models at one time."""
    lines = (toy.path / "device.jsonl").read_text().splitlines()
    held, most = {}, 0
    for _, process, event in sorted(json.loads(line) for line in lines):
        held[process] = held.get(process, 0) + (1 if event == "loaded" else -1)
        most = max(most, sum(count > 0 for count in held.values()))
    assert set(held.values()) == {0}, "every model is freed in the end"
    return len(held), most


def test_no_two_workers_hold_a_model_on_one_device(toy):
    on_a_gpu(toy)
    result = toy.run("--niche=ape", "--niche=bee", "-n", "2")
    result.assert_outcomes(passed=12)
    assert most_at_once(toy) == (2, 1)
    result.stdout.fnmatch_lines(
        [
            "gnus: gw? waits to load demo:random: cuda-of-this-test-* is taken "
            "(--gnus-workers-per-device=1); held by gw? (process *, demo:random, for * s)"
        ]
    )
    waits = [record["timing"]["wait_s"] for record in toy.records()]
    assert max(waits) > 0
    assert min(waits) == 0


def test_waiting_fails_nothing_where_warnings_are_errors(toy):
    on_a_gpu(toy)
    result = toy.run(
        "--niche=ape", "--niche=bee", "-n", "2", "-W", "error::pytest_gnus.advice.WaitWarning", "-q"
    )
    result.assert_outcomes(passed=12)
    assert most_at_once(toy) == (2, 1)


def test_as_many_workers_as_the_option_says(toy):
    on_a_gpu(toy)
    result = toy.run("--niche=ape", "--niche=bee", "-n", "2", "--gnus-workers-per-device=2")
    result.assert_outcomes(passed=12)
    assert most_at_once(toy) == (2, 2)
    assert "waits to load" not in result.stdout.str()


def test_a_worker_that_dies_leaves_its_place_to_the_other(toy):
    on_a_gpu(toy)
    (toy.path / "benchmarks" / "conftest.py").write_text(
        DYING.format(name="shapes[ape-quantized]", how="os.kill(os.getpid(), signal.SIGKILL)", before=False)
    )
    result = toy.run("--niche=ape", "--niche=bee", "-n", "2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert len({(r["niche"], r["benchmark"], r["variant"]) for r in toy.records()}) == 12
    assert toy.verdict("bee")["verdict"] == "promote"


@pytest.mark.parametrize("value", ["0", "-1", "two"])
def test_a_number_of_workers_that_is_none(toy, value):
    workspace(toy, ("ape",))
    result = toy.run("--niche=ape", f"--gnus-workers-per-device={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--gnus-workers-per-device*{value}*"])


def test_each_item_on_each_worker_is_refused(toy):
    workspace(toy, ("ape",))
    result = toy.run("--niche=ape", "-n", "2", "--dist=each")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--dist=each measures every item on each worker" in result.stdout.str() + result.stderr.str()
    assert toy.records() == []
