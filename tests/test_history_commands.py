"""`gnus compare`, `trends`, `verify` and `accept` over records of known runs."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_gnus import cli
from pytest_gnus.comparing import compare_runs
from pytest_gnus.errors import RecordError
from pytest_gnus.gates.result import GateResult
from pytest_gnus.records.runs import RecordedRun, Runs
from pytest_gnus.records.store import RecordStore, StoredRecord
from tests.making_history import item_of, keep, rights, run_id


@pytest.fixture
def artifacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs: 80, 60 and 70 of 100 documents right, each of another build."""
    monkeypatch.chdir(tmp_path)
    for name, value in (("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig")), ("GIT_CONFIG_NOSYSTEM", "1")):
        monkeypatch.setenv(name, value)
    (tmp_path / "gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.org\n", encoding="utf-8")
    store = RecordStore(tmp_path / "artifacts")
    for number, right in enumerate((80, 60, 70)):
        keep(store, began=number * 60, build="abc"[number], right=rights(right))
    return store.artifacts


def test_runs_have_names(artifacts: Path) -> None:
    runs = Runs(RecordStore(artifacts))
    assert runs.named("latest").run_id == run_id(120)
    assert runs.named(run_id(60)).run_id == run_id(60)
    assert runs.named(run_id(60)[:15]).run_id == run_id(60)
    a, b = runs.pair("previous", "latest")
    assert (a.run_id, b.run_id) == (run_id(60), run_id(120))
    assert runs.pair(run_id(60), "previous")[1].run_id == run_id(0)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("2026", "latest"), "is the beginning of several runs"),
        (("2031", "latest"), "there is no run '2031'"),
        (("previous", "previous"), "name that one"),
        (("previous", run_id(0)), "there is no run before"),
    ],
)
def test_a_run_that_is_not_there_is_told(artifacts: Path, names: tuple[str, str], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        Runs(RecordStore(artifacts)).pair(*names)


def test_compare_gives_the_drop_its_interval_and_the_documents(
    artifacts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare", run_id(0), run_id(60), "--docs"]) == 0
    text = capsys.readouterr().out
    # 20 of 100 pairs turned wrong and none right: p = 2 * 0.5 ** 20, exact McNemar.
    assert "0.8000  0.6000  +0.2000" in text
    assert "+25.0%" in text
    assert "1.9e-06" in text
    assert "changed: model_manifest_sha256" in text
    assert "20 documents with another outcome" in text
    assert cli.main(["compare", run_id(0), run_id(60), "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["benchmarks"]
    assert entry["comparison"]["p_value"] == pytest.approx(2 * 0.5**20)
    assert [flip["doc_id"] for flip in entry["flipped"]] == list(range(60, 80))


def test_compare_of_files_and_of_another_protocol(
    artifacts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = RecordStore(artifacts)
    other = keep(store, began=500, right=rights(50), prompt_hash="9" * 64)
    first = store.folder / sorted(path.name for path in store.folder.glob("*.json"))[0]
    assert cli.main(["compare", str(first), str(other)]) == 0
    text = capsys.readouterr().out
    assert "measured in another way (prompt_hash)" in text
    assert "+0.3000" in text


def test_compare_without_anything_in_common(artifacts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(RecordStore(artifacts), began=500, item=item_of(benchmark="shapes"))
    assert cli.main(["compare", run_id(0), "latest"]) == 1
    assert "no benchmark in common" in capsys.readouterr().err


def test_trends_are_written_and_printed(artifacts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gate = GateResult("previous_run", False, severity="warn", consecutive_failures=2)
    keep(RecordStore(artifacts), began=180, build="d", right=rights(35), status="warned", gates=[gate])
    (artifacts / "benchmarks" / "toy_colours_quantized_20270101T000000.000000Z.json").write_text("{")
    assert cli.main(["trends", "toy"]) == 0
    text = capsys.readouterr().out
    assert "previous_run (2 in a row)" in text
    assert "cannot be read: toy_colours_quantized_20270101T000000.000000Z.json" in text
    (series,) = json.loads((artifacts / "trends" / "toy.json").read_text())["series"]
    assert [point["score"] for point in series["points"]] == [0.8, 0.6, 0.7, 0.35]
    assert [point["drop"] for point in series["points"]] == [
        None,
        pytest.approx(0.25),
        pytest.approx(-1 / 6),
        pytest.approx(0.5),
    ]
    assert cli.main(["trends", "nowhere"]) == 1
    assert "there is no record of the niche 'nowhere'" in capsys.readouterr().err


def test_verify_of_whole_records(artifacts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify"]) == 0
    assert "3 records, 3 files of outcomes, 0 decisions: all as they were written" in capsys.readouterr().out


@pytest.mark.parametrize(
    "what", ["score", "fingerprint", "outcomes", "truncated", "renamed", "foreign", "decision"]
)
def test_verify_finds_what_was_altered(
    artifacts: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sorted((artifacts / "benchmarks").glob("*.json"))[0]
    text = path.read_text(encoding="utf-8")
    named = path.name
    if what == "score":
        path.write_text(text.replace('"score": 0.8', '"score": 0.9'), encoding="utf-8")
    elif what == "fingerprint":
        path.write_text(text.replace('"fewshot_seed": 1234', '"fewshot_seed": 1'), encoding="utf-8")
    elif what == "truncated":
        path.write_text(text[:-10], encoding="utf-8")
    elif what == "outcomes":
        path.with_name(json.loads(text)["samples"]).write_bytes(b"other")
    elif what == "renamed":
        named = path.name.replace("2026", "2025")
        path.rename(path.with_name(named))
        path.with_name(json.loads(text)["samples"]).unlink()
    elif what == "foreign":
        named = "notes.json"
        path.with_name(named).write_text("{}", encoding="utf-8")
    else:
        assert cli.main(["accept", "latest", "--reason", "known"]) == 0
        (decision,) = (artifacts / "decisions").iterdir()
        named = decision.name
        decision.write_text(decision.read_text().replace("known", "other"), encoding="utf-8")
    assert cli.main(["verify"]) == 1
    out = capsys.readouterr().out
    assert named in out
    assert "1 fault" in out


def test_accept_names_the_author_and_is_appended(artifacts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for reason in ("first", "second"):
        assert cli.main(["accept", run_id(60), "--reason", reason]) == 0
    assert "colours[toy-quantized] 0.6000" in capsys.readouterr().out
    decisions = [json.loads(path.read_text()) for path in sorted((artifacts / "decisions").iterdir())]
    assert [(d["reason"], d["author"]) for d in decisions] == [
        ("first", "Ada <ada@example.org>"),
        ("second", "Ada <ada@example.org>"),
    ]
    assert cli.main(["verify"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--reason", " "], "a decision needs a reason"),
        (["--reason", "x", "--benchmark", "shapes"], "has no score of shapes; it has colours"),
    ],
)
def test_a_decision_that_cannot_be_made(
    artifacts: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["accept", "latest", *arguments]) == 1
    assert message in capsys.readouterr().err
    assert not (artifacts / "decisions").exists()


def test_without_an_author_nothing_is_accepted(
    artifacts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gitconfig").write_text("", encoding="utf-8")
    assert cli.main(["accept", "latest", "--reason", "x"]) == 1
    assert "git config user.name is not set" in capsys.readouterr().err


def test_a_reference_is_not_what_a_decision_is_about(
    artifacts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(RecordStore(artifacts), began=500, item=item_of("reference"))
    assert cli.main(["accept", "latest", "--reason", "x"]) == 1
    assert "no canonical score of a quantized variant" in capsys.readouterr().err


def test_the_folder_must_be_there(artifacts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", "--artifacts", "nowhere"]) == 1
    assert "there is no folder nowhere" in capsys.readouterr().err


def test_commands_read_a_remote_history(
    artifacts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = RecordStore(artifacts)
    from pytest_gnus.records.remote import RemoteHistory
    from pytest_gnus.records.store import read

    remote = RemoteHistory.open(f"file://{tmp_path}/remote")
    for path in sorted(store.folder.glob("*.json")):
        remote.add_record(path, read(path))
    assert cli.main(["compare", "previous", "latest", "--artifacts", "empty", "--history", "remote"]) == 0
    assert "0.6000  0.7000  -0.1000" in capsys.readouterr().out
    assert cli.main(["verify", "--artifacts", "empty", "--history", "remote"]) == 0


def test_verify_finds_outcomes_whose_record_is_gone(
    artifacts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sorted((artifacts / "benchmarks").glob("*.json"))[-1]
    path.unlink()
    assert cli.main(["verify"]) == 1
    samples = f"{path.name.removesuffix('.json')}.samples.jsonl.gz"
    assert f"{samples}: the record that it belongs to is gone" in capsys.readouterr().out


def test_verify_of_a_folder_without_records_is_no_success(
    artifacts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (artifacts.parent / "config").mkdir()
    assert cli.main(["verify", "--artifacts", "config"]) == 1
    assert "gnus: there is no record in config" in capsys.readouterr().err


def test_files_of_two_benchmarks_are_not_compared(
    artifacts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    item = item_of()
    other = replace(item, benchmark=item.benchmark.model_copy(update={"name": "shapes"}))
    path = keep(RecordStore(artifacts), began=300, item=other, right=rights(50))
    first = sorted((artifacts / "benchmarks").glob("*_colours_*.json"))[0]
    assert cli.main(["compare", str(first), path.name]) == 1  # by its bare name too
    assert "have no benchmark in common" in capsys.readouterr().err


def test_what_was_not_measured_has_not_changed_in_how_it_was(artifacts: Path) -> None:
    store = RecordStore(artifacts)
    latest = Runs(store).named("latest")
    content = copy.deepcopy(dict(latest.records[0].content))
    content["results"]["colours"]["score"] = None
    content["fingerprint"]["harness_commit"] = None
    failed = RecordedRun("failed", (StoredRecord(Path("failed.json"), content),))
    (entry,) = compare_runs(store, latest, failed).benchmarks
    assert (entry.score_b, entry.changed, entry.protocol_changed) == (None, (), ())


def test_a_record_of_another_folder_cannot_be_accepted(
    artifacts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = keep(RecordStore(tmp_path / "elsewhere"), began=300, right=rights(50))
    assert cli.main(["accept", str(path), "--reason", "x"]) == 1
    assert "no gate would find it there" in capsys.readouterr().err
    assert not (artifacts / "decisions").exists()


@pytest.mark.parametrize("text", ["x", "0", "-1", "1.5"])
def test_a_number_of_runs_that_is_none(
    artifacts: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main(["trends", "toy", f"--last={text}"])
    assert raised.value.code == 2
    assert f"{text} is not a whole number from 1 up" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error(artifacts: Path) -> None:
    command = f"{sys.executable} -m pytest_gnus.cli trends toy | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_a_history_without_a_value_is_no_history(artifacts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", "--history="]) == 1
    assert "--history has no value" in capsys.readouterr().err
