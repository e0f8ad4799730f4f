"""Builds of other weights one after the other, each measured in a session of its own."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_gnus.records.decisions import accept
from pytest_gnus.records.fingerprint import canonical_sha256, directory_sha256, record_digest
from pytest_gnus.records.store import RecordStore, StoredRecord, open_store, read
from tests.conftest import ToyWorkspace, choice_documents

#: The specialist knows the answers to the first documents, as many as its file says.
CONFTEST = """
import json, re
from pathlib import Path
from pytest_gnus.models.demo_models import ConstantModel, RandomModel

FOLDER = Path(__file__).parent.parent / "weights"

def knowing(name):
    known = int((FOLDER / name).read_text()) if (FOLDER / name).exists() else 0

    def logprob(self, context, continuation):
        number = int(re.findall(r"number (\\d+)", context)[-1])
        right = ["red", "green", "blue", "grey"][(number + (number >= known)) % 4]
        return 0.0 if continuation.strip() == right else -1.0

    return logprob

ConstantModel._logprob = knowing("quantized")
RandomModel._logprob = knowing("reference")
"""


@dataclass(frozen=True)
class Builds:
    """A niche of 60 documents, and builds of it that know so many of them."""

    toy: ToyWorkspace

    def write(self, known: int, name: str | None = None, reference: int | None = None) -> None:
        """A build; of the same name, it is the same one. Its reference knows as much unless told."""
        folder = self.toy.path / "weights"
        folder.mkdir(exist_ok=True)
        (folder / "quantized").write_text(str(known))
        (folder / "reference").write_text(str(known if reference is None else reference))
        (folder / "manifest.json").write_text(json.dumps(name or f"knows {known}"))

    def run(self, known: int, *options: str, name: str | None = None, reference: int | None = None) -> Any:
        self.write(known, name, reference)
        return self.toy.run("--niche=toy", *options)

    def gates(self, record: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
        """Of the newest build."""
        record = record or json.loads(self.newest().read_text())
        return {gate["name"]: gate for gate in record["gates"]}

    @property
    def store(self) -> RecordStore:
        return RecordStore(self.toy.path / "artifacts")

    def newest(self) -> Path:
        paths = self.store.folder.glob("toy_colours_quantized_*.json")
        return max(paths, key=lambda path: path.stem.rsplit("_", 1)[-1])


@pytest.fixture
def builds(toy: ToyWorkspace) -> Builds:
    toy.data("colours/test.jsonl", choice_documents(number % 4 for number in range(60)))
    toy.niche(
        blocking=["colours"],
        model={"quantized": "demo:constant", "reference": "demo:random", "baseline": "demo:random"}
        | {"sgfp4_manifest": "weights/manifest.json"},
    )
    (toy.path / "benchmarks" / "conftest.py").write_text(CONFTEST)
    return Builds(toy)


def test_builds_that_fall_warn_twice_and_then_block(builds: Builds) -> None:
    assert builds.run(58).ret == 0
    assert all("is reached by guessing" in text for text in builds.toy.verdict()["warnings"])
    for known, count in ((50, 1), (43, 2)):
        result = builds.run(known)
        result.assert_outcomes(passed=2)
        assert result.ret == 0
        gate = builds.gates()["previous_run"]
        assert (gate["passed"], gate["severity"], gate["consecutive_failures"]) == (False, "warn", count)
        verdict = builds.toy.verdict()
        assert (verdict["verdict"], verdict["reasons"]) == ("promote", [])
        assert any(text.startswith("colours (quantized): previous_run: drop") for text in verdict["warnings"])
        result.stdout.fnmatch_lines(["*previous_run warns* * warned", "toy: PROMOTE", "*warning: colours*"])
        assert builds.toy.records()[-1]["status"] == "warned"
    result = builds.run(36)
    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == 1
    gate = builds.gates()["previous_run"]
    assert (gate["severity"], gate["consecutive_failures"]) == ("block", 3)
    verdict = builds.toy.verdict()
    assert verdict["verdict"] == "block"
    assert any("previous_run: drop +37.93% from 0.9667" in text for text in verdict["reasons"])
    result.stdout.fnmatch_lines(
        [
            "*previous_run failed: drop +37.93%*; against run *, 2 newer did not hold; "
            "not held on 3 or more builds in a row, blocks from 3*",
            "toy: BLOCK",
        ]
    )
    # The composite is in the verdict, with its own row: floors hold, nothing else does.
    (composite,) = verdict["gates"]
    assert (composite["name"], composite["passed"], composite["value"]) == ("composite", False, 1.0)
    assert (composite["severity"], composite["consecutive_failures"]) == ("block", 3)


def test_a_build_that_is_run_again_counts_once_and_is_compared_with_the_one_before(builds: Builds) -> None:
    builds.run(58)
    for _ in range(3):
        assert builds.run(50).ret == 0
        gate = builds.gates()["previous_run"]
        assert (gate["severity"], gate["consecutive_failures"]) == ("warn", 1)
        assert gate["reference"] == pytest.approx(58 / 60)
    assert len(list(builds.store.folder.glob("toy_colours_quantized_*.json"))) == 4


def test_the_row_of_one_niche_is_counted_under_xdist_too(builds: Builds) -> None:
    for known, workers in ((58, ()), (50, ()), (43, ("-n", "2"))):
        assert builds.run(known, *workers).ret == 0
    result = builds.run(36, "-n", "2")
    assert result.ret == 1
    assert builds.gates()["previous_run"]["consecutive_failures"] == 3
    assert builds.toy.verdict()["gates"][0]["severity"] == "block"


def test_the_number_of_builds_is_set_in_the_pipeline_and_in_the_niche(builds: Builds) -> None:
    builds.toy.yaml("config/pipeline.yaml", {"source": "local", "consecutive_failures_to_block": 1})
    builds.run(58)
    assert builds.run(50).ret == 1
    assert builds.toy.verdict()["verdict"] == "block"


def test_a_build_below_the_baseline_warns_and_blocks_as_the_others(builds: Builds) -> None:
    builds.run(58, "--gnus-variant=baseline")
    for number, (known, ret) in enumerate(((40, 0), (41, 0), (42, 1)), 1):
        assert builds.run(known).ret == ret
        gates = builds.gates()
        gate = gates["baseline_deviation"]
        assert (gate["passed"], gate["consecutive_failures"]) == (False, number)
        assert gate["reference"] == pytest.approx(58 / 60)
        if number > 1:
            assert gates["previous_run"]["passed"] is True
    # Two of three hold: the composite does, and the gate blocks by itself.
    (composite,) = builds.toy.verdict()["gates"]
    assert (composite["passed"], composite["value"]) == (True, 2.0)


def test_a_drop_that_was_accepted_is_told_in_the_verdict_that_relies_on_it(builds: Builds) -> None:
    builds.run(58, reference=58)
    assert builds.run(46, reference=58).ret == 1  # the mandatory check
    path = builds.newest()
    accept(builds.store, [StoredRecord(path, read(path))], "Ann", "half the size")
    result = builds.run(45, reference=58)
    result.assert_outcomes(passed=2)
    assert result.ret == 0
    gate = builds.gates()["quantization_regression"]
    assert (gate["passed"], gate["reference"]) == (True, pytest.approx(46 / 60))
    told = builds.toy.verdict()["accepted"]
    assert [text.rpartition(" accepted by Ann on ")[0] for text in told] == [
        "colours (quantized) quantization_regression",
        "colours (quantized) previous_run",
    ]
    result.stdout.fnmatch_lines(
        [
            "toy: PROMOTE",
            "*relies on a decision: colours (quantized) quantization_regression accepted by Ann on *",
        ]
    )
    result = builds.run(40, reference=58)  # lower than what was accepted
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*lower than what was accepted by Ann*"])
    (decision,) = (builds.store.artifacts / "decisions").glob("*.json")
    decision.write_text(decision.read_text().replace("half", "twice"))
    result = builds.run(45, reference=58)
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"*a decision is not counted: {decision.name}: it does not fit its own*"])
    verdict = builds.toy.verdict()
    assert verdict["accepted"] == []
    assert any(text.startswith("a decision is not counted: ") for text in verdict["warnings"])


def test_a_decision_counts_until_a_build_holds_without_it(builds: Builds) -> None:
    builds.run(58, reference=58)
    builds.run(46, reference=58)
    path = builds.newest()
    accept(builds.store, [StoredRecord(path, read(path))], "Ann", "half the size")
    assert builds.run(45, reference=58).ret == 0
    assert builds.run(57, reference=58).ret == 0
    assert builds.toy.verdict()["accepted"] == []
    result = builds.run(46, reference=58, name="another of 46")
    assert result.ret == 1
    assert builds.toy.verdict()["accepted"] == []
    result.stdout.fnmatch_lines(["*accepted by Ann on * counts no longer: run * held without it*"])


def test_a_blocked_build_is_no_measure_for_the_next(builds: Builds) -> None:
    """A trifle that changes the manifest must not make a build of one that was blocked ship."""
    for known in (58, 50, 43, 36):
        result = builds.run(known)
    assert result.ret == 1
    result = builds.run(36, name="the same weights with a note")
    assert result.ret == 1
    assert builds.gates()["previous_run"]["reference"] == pytest.approx(58 / 60)


def test_a_clock_that_was_set_back_hides_nothing(builds: Builds) -> None:
    for known in (58, 50, 43):
        builds.run(known)
    for path in sorted(builds.store.folder.glob("*_colours_*.json")):
        shift(path, year="2099")
    result = builds.run(36)
    assert result.ret == 1
    (failed,) = [record for record in builds.toy.records() if record["status"] == "failed"]
    gate = builds.gates(failed)["previous_run"]
    assert (gate["reference"], gate["consecutive_failures"]) == (pytest.approx(58 / 60), 3)
    assert "which by its id began after this one: a clock is wrong" in gate["detail"]


def shift(path: Path, year: str) -> None:
    """A record as a machine with another clock would have written it."""
    record = json.loads(path.read_text())
    now = record["timestamp_utc"][:4]
    record["run_id"] = record["run_id"].replace(now, year, 1)
    record["timestamp_utc"] = record["timestamp_utc"].replace(now, year, 1)
    if record["samples"] is not None:
        samples = record["samples"].replace(f"_{now}", f"_{year}")
        (path.parent / record["samples"]).rename(path.parent / samples)
        record["samples"] = samples
    record["record_sha256"] = record_digest(record)
    path.unlink()
    (path.parent / path.name.replace(f"_{now}", f"_{year}")).write_text(json.dumps(record))


def test_a_reference_whose_weights_were_changed_is_measured_again(builds: Builds) -> None:
    """Of the record that is there, the reference has other weights now."""
    folder = builds.toy.path / "models" / "reference"
    folder.mkdir(parents=True)
    (folder / "weights").write_text("one")
    builds.run(50, reference=50)
    (reference,) = builds.store.folder.glob("toy_colours_reference_*.json")
    record = json.loads(reference.read_text())
    record["fingerprint"]["model_manifest_sha256"] = directory_sha256({"model": folder})
    record["fingerprint_hash"] = canonical_sha256(record["fingerprint"])
    record["record_sha256"] = record_digest(record)
    reference.write_text(json.dumps(record))
    builds.toy.niche(
        blocking=["colours"], model={"quantized": "demo:constant", "reference": "mlx:models/reference"}
    )
    assert builds.run(50, "--gnus-variant=quantized").ret == 0
    assert record["run_id"] in builds.gates()["quantization_regression"]["detail"]
    (folder / "weights").write_text("another")
    result = builds.run(50, "--gnus-variant=quantized")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "*quantization_regression not evaluated: no comparable record of the reference "
            f"({reference.name}: of other weights than the model has now); run `pytest --niche=toy *"
        ]
    )


@pytest.mark.parametrize("spoil", ["truncated", "altered"])
def test_a_record_that_cannot_be_read_is_named_and_counts_as_a_failure(builds: Builds, spoil: str) -> None:
    builds.run(40)
    builds.run(58)
    path = builds.newest()
    text = path.read_text()
    content = {
        "truncated": text[: len(text) // 2],
        "altered": text.replace('"score": 0.96', '"score": 0.36'),
    }[spoil]
    assert content != text
    path.write_text(content)
    result = builds.run(41)
    assert result.ret == 0  # the first failure
    gate = builds.gates()["previous_run"]
    assert (gate["passed"], gate["severity"]) == (None, "warn")
    assert path.name in gate["detail"]
    verdict = builds.toy.verdict()
    assert any(path.name in text for text in verdict["warnings"])
    result.stdout.fnmatch_lines([f"*warning: colours (quantized): previous_run not evaluated: *{path.name}*"])
    # The build that it failed on is no measure either: what cannot be read helps no later build.
    assert builds.run(42).ret == 1
    gate = builds.gates()["previous_run"]
    assert (gate["passed"], gate["consecutive_failures"]) == (None, 3)
    assert "restore or remove it" in gate["detail"]
    path.unlink()
    assert builds.run(42, name="another").ret == 0
    gate = builds.gates()["previous_run"]
    assert (gate["passed"], gate["reference"]) == (True, pytest.approx(40 / 60))


def test_a_reference_that_cannot_be_read_fails_the_mandatory_check(builds: Builds) -> None:
    builds.run(58)
    (reference,) = builds.store.folder.glob("toy_colours_reference_*.json")
    reference.write_text("{}")
    result = builds.run(58, "--gnus-variant=quantized")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [f"*quantization_regression not evaluated: a newer record cannot be read: {reference.name}*"]
    )


def test_runs_that_are_not_gated_have_no_trend_and_count_for_none(builds: Builds) -> None:
    builds.run(58)
    builds.run(10, "--gnus-limit=30")
    assert "previous_run" not in builds.gates()
    builds.run(10, "--gnus-mode=diagnostic")
    assert "previous_run" not in builds.gates()
    assert builds.toy.verdict()["gates"] == []
    assert builds.run(57).ret == 0
    assert builds.gates()["previous_run"]["reference"] == pytest.approx(58 / 60)


def test_data_that_changed_are_not_compared_with_and_named(builds: Builds) -> None:
    builds.run(58)
    builds.toy.data("colours/test.jsonl", choice_documents(number % 4 for number in range(56)))
    assert builds.run(20).ret == 0
    gate = builds.gates()["previous_run"]
    assert (gate["passed"], gate["severity"]) == (None, "note")
    assert "differs in dataset_revision, prompt_hash" in gate["detail"]
    assert any("differs in dataset_revision" in text for text in builds.toy.verdict()["not_evaluated"])


def test_without_a_disk_the_history_is_what_was_uploaded(builds: Builds) -> None:
    """Each run starts on an empty machine."""
    for number, (known, ret) in enumerate(((58, 0), (50, 0), (43, 0), (36, 1))):
        options = (
            "--gnus-history=file://" + str(builds.toy.path / "my history"),
            f"--gnus-artifacts=m{number}",
        )
        assert builds.run(known, *options, *(["-n", "2"] if number % 2 else [])).ret == ret
        records = (builds.toy.path / f"m{number}" / "benchmarks").glob("toy_colours_quantized_*.json")
        (record,) = [json.loads(path.read_text()) for path in records]
        gate = builds.gates(record)["previous_run"]
        assert gate["consecutive_failures"] == (number or None)
    folder = builds.toy.path / "my history" / "toy" / "colours"
    assert len(list((folder / "quantized").glob("*.json"))) == 4
    assert len(list((folder / "quantized").glob("*.samples.jsonl.gz"))) == 4
    assert len(list((folder / "reference").glob("*.json"))) == 4


def test_the_history_may_be_set_in_the_ini_file(builds: Builds) -> None:
    builds.toy.pytester.makeini("[pytest]\ngnus_history = kept\n")
    assert builds.run(58).ret == 0
    assert len(list((builds.toy.path / "kept").rglob("*.json"))) == 2


def test_an_upload_that_fails_is_not_a_pass(builds: Builds) -> None:
    """Everything held, but the next run would not know of it."""
    folder = builds.toy.path / "kept" / "toy" / "colours"
    folder.mkdir(parents=True)
    (folder / "quantized").write_text("a file in the way of the folder")
    builds.toy.benchmark("colours", gates={"hard_floor": 0.1})
    result = builds.run(58, "--gnus-history=kept", "--gnus-variant=reference")
    assert result.ret == 0
    (folder / "quantized").unlink()
    (folder / "quantized").symlink_to("/proc")
    result = builds.run(58, "--gnus-history=kept")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*could not be written: history: toy_colours_quantized_*"])
    assert builds.gates()["previous_run"]["severity"] == "note"


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A bucket on a server in a process of its own."""
    port = closed_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "AKIATESTING",
        "AWS_SECRET_ACCESS_KEY": "sEcRet",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        import s3fs

        bucket = f"bucket-{uuid.uuid4().hex}"
        s3fs.S3FileSystem(skip_instance_cache=True).mkdir(bucket)
        yield f"s3://{bucket}/nightly"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def test_a_history_on_s3_from_empty_machines_and_with_two_runs_at_once(
    builds: Builds, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = builds.toy.run_process  # a machine's connection to a server is its process's
    builds.write(58)
    assert run("--niche=toy", f"--gnus-history={s3}", "--gnus-artifacts=m0").ret == 0
    builds.write(50)
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "pytest", "--niche=toy", f"--gnus-history={s3}", f"--gnus-artifacts=m{n}"],
            cwd=builds.toy.path,
            stdout=subprocess.DEVNULL,
        )
        for n in (1, 2)
    ]
    assert [run.wait() for run in runs] == [0, 0]
    store = open_store(builds.toy.path / "reader", s3)
    records = list(store.read_all("toy", "colours", "quantized"))
    assert len(records) == 3
    assert all(isinstance(record, StoredRecord) for record in records)
    builds.write(43)
    result = run("--niche=toy", f"--gnus-history={s3}", "--gnus-artifacts=m3")
    assert result.ret == 0
    said = json.loads((builds.toy.path / "m3" / "verdicts" / "toy.json").read_text())
    assert any("not held on 2 builds in a row" in text for text in said["warnings"])
    assert "sEcRet" not in result.stdout.str()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    builds.write(58)
    result = run("--niche=toy", f"--gnus-history={s3}", "--gnus-artifacts=m4")
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"*the history {s3} cannot be listed: EndpointConnectionError: *"])
    assert (builds.toy.path / "m4" / "verdicts" / "toy.json").exists()
    assert not [key for key in result.stdout.lines if "INTERNALERROR" in key]


def test_credentials_in_the_url_are_not_shown(builds: Builds) -> None:
    url = "s3://AKIA:sEcRet@no.such.bucket/x"
    result = builds.run(58, f"--gnus-history={url}", "-vv")
    assert result.ret == 1
    assert "sEcRet" not in result.stdout.str() + result.stderr.str()
    assert "s3://no.such.bucket/x" in result.stdout.str()
    for path in (builds.toy.path / "artifacts").rglob("*.json"):
        assert "sEcRet" not in path.read_text()
