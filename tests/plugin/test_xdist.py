"""Under pytest-xdist: which worker each item really ran on, and who writes."""

from __future__ import annotations

import json

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
