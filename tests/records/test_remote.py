"""A history behind a URL: on a disk, in memory, and on an S3 server of its own."""

from __future__ import annotations

import json
import logging
import multiprocessing
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest

from pytest_gnus.errors import RecordError
from pytest_gnus.records.decisions import accept, read_decisions
from pytest_gnus.records.remote import RemoteHistory, history_url
from pytest_gnus.records.store import RecordStore, StoredRecord, UnreadableRecord, open_store, read, score
from tests.making_history import KEY, item_of, keep, rights

BUCKET = "gnus-history"
FOLDER = "toy/colours/quantized"


@pytest.fixture(scope="module")
def s3_environment() -> Iterator[Mapping[str, str]]:
    """A real S3-compatible server on loopback, and what a client needs to know of it."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        fresh_file_system("s3").mkdir(BUCKET)
        yield environment
    server.stop()


def fresh_file_system(protocol: str) -> Any:
    return fsspec.filesystem(protocol, skip_instance_cache=True)


@pytest.fixture(params=["file", "memory", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty history of each kind."""
    if request.param == "file":
        return f"file://{tmp_path / 'the history'}"
    if request.param == "memory":
        return f"memory://history-{uuid.uuid4().hex}"
    request.getfixturevalue("s3_environment")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def s3_url(s3_environment: Mapping[str, str]) -> str:
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


def machine(tmp_path: Path, name: str, url: str) -> RecordStore:
    """A runner with a disk of its own that is empty, as CI gives."""
    return open_store(tmp_path / name, url)


def upload(store: RecordStore, path: Path) -> None:
    assert store.remote is not None
    store.remote.add_record(path, read(path))


def seen(store: RecordStore, key: tuple[str, str, str] = KEY) -> list[Any]:
    return [
        score(record.content) if isinstance(record, StoredRecord) else str(record)
        for record in store.read_all(*key)
    ]


def put(url: str, name: str, content: bytes) -> None:
    """Something that another hand put into the history."""
    filesystem, root = fsspec.core.url_to_fs(url)
    filesystem.makedirs(f"{root}/{name.rpartition('/')[0]}", exist_ok=True)
    filesystem.pipe_file(f"{root}/{name}", content)


def get(url: str, name: str) -> bytes:
    filesystem, root = fsspec.core.url_to_fs(url)
    return bytes(filesystem.cat_file(f"{root}/{name}"))


def files(url: str) -> list[str]:
    return sorted("/".join((*folder, name)) for folder, name in RemoteHistory.open(url).everything())


def test_an_empty_history_is_empty(tmp_path: Path, url: str) -> None:
    store = machine(tmp_path, "one", url)
    assert seen(store) == []
    assert list(read_decisions(store)) == []
    assert files(url) == []


def test_what_one_machine_uploads_another_compares_with(tmp_path: Path, url: str) -> None:
    one = machine(tmp_path, "one", url)
    path = keep(one, right=rights(40), began=1)
    upload(one, path)
    stem = path.stem
    assert files(url) == [f"{FOLDER}/{stem}.json", f"{FOLDER}/{stem}.samples.jsonl.gz"]
    other = machine(tmp_path, "other", url)
    (record,) = other.read_all(*KEY)
    assert isinstance(record, StoredRecord)
    assert record.content == read(path)
    assert other.read_samples(record) == one.read_samples(StoredRecord(path, read(path)))
    assert other.get(KEY, path.name).content == record.content


def test_local_and_remote_records_are_one_history_in_order(tmp_path: Path, url: str) -> None:
    one, other = machine(tmp_path, "one", url), machine(tmp_path, "other", url)
    for second in (1, 3):
        upload(one, keep(one, second / 10, began=second))
    for second in (2, 4):
        keep(other, second / 10, began=second)
    assert seen(other) == [0.4, 0.3, 0.2, 0.1]
    assert seen(machine(tmp_path, "third", url)) == [0.3, 0.1]


def test_only_what_is_asked_for_is_fetched(tmp_path: Path, url: str) -> None:
    one = machine(tmp_path, "one", url)
    for benchmark in ("colours", "shapes"):
        upload(one, keep(one, item=item_of(benchmark=benchmark), right=rights(40)))
    other = machine(tmp_path, "other", url)
    assert seen(other) == [0.4]
    fetched = [path.name for path in other.artifacts.rglob("*") if path.is_file()]
    assert len(fetched) == 1
    assert fetched[0].startswith("toy_colours_quantized_")
    records = iter(other.read_all("toy", "shapes", "quantized"))
    next(records)
    assert not any("samples" in path.name for path in other.artifacts.rglob("*"))


def test_what_was_fetched_is_not_a_record_of_this_machine(tmp_path: Path, url: str) -> None:
    one = machine(tmp_path, "one", url)
    upload(one, keep(one))
    other = machine(tmp_path, "other", url)
    assert seen(other) == [0.5]
    assert seen(RecordStore(other.artifacts)) == []


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "cannot be read"),
        (b'{"schema_version": 1, "run_id": "2026', "cannot be read"),
        (b'{"schema_version": 2}', "newer than 1"),
        (b"<html>sign in</html>", "cannot be read"),
        (b"\xff\xfe\x00", "cannot be read"),
    ],
)
def test_a_remote_record_that_is_not_whole_is_named_and_not_kept(
    tmp_path: Path, url: str, content: bytes, told: str
) -> None:
    one = machine(tmp_path, "one", url)
    upload(one, keep(one, 0.5, began=1))
    path = keep(one, 0.9, began=2)
    put(url, f"{FOLDER}/{path.name}", content)
    other = machine(tmp_path, "other", url)
    broken, whole = other.read_all(*KEY)
    assert isinstance(broken, UnreadableRecord)
    assert broken.name == path.name
    assert told in str(broken)
    assert isinstance(whole, StoredRecord)
    assert path.name not in [found.name for found in other.artifacts.rglob("*")]
    put(url, f"{FOLDER}/{path.name}", path.read_bytes())  # mended
    assert seen(machine(tmp_path, "other", url)) == [0.9, 0.5]


def test_a_remote_record_that_was_altered_is_named(tmp_path: Path, url: str) -> None:
    one = machine(tmp_path, "one", url)
    path = keep(one, 0.5)
    content = json.loads(path.read_text())
    content["results"]["colours"]["score"] = 0.1
    put(url, f"{FOLDER}/{path.name}", json.dumps(content).encode())
    assert seen(machine(tmp_path, "other", url)) == [
        f"{path.name}: it does not fit its own digest: it was altered"
    ]


def test_another_record_under_the_name_is_named(tmp_path: Path, url: str) -> None:
    one = machine(tmp_path, "one", url)
    low, high = keep(one, 0.1, began=1), keep(one, 0.9, began=2)
    put(url, f"{FOLDER}/{high.name}", low.read_bytes())
    (told,) = seen(machine(tmp_path, "other", url))
    assert told == f"{high.name}: another record, {low.stem}, stands in its place"


def test_outcomes_that_were_altered_there_are_refused_and_not_kept(tmp_path: Path, url: str) -> None:
    one = machine(tmp_path, "one", url)
    path = keep(one, right=rights(40))
    upload(one, path)
    name = read(path)["samples"]
    put(url, f"{FOLDER}/{name}", b"other")
    other = machine(tmp_path, "other", url)
    (record,) = other.read_all(*KEY)
    assert isinstance(record, StoredRecord)
    with pytest.raises(RecordError, match=f"{name} cannot be read: it was altered"):
        other.read_samples(record)
    assert name not in [found.name for found in other.artifacts.rglob("*")]


def test_outcomes_that_are_gone_are_named(tmp_path: Path, url: str) -> None:
    one = machine(tmp_path, "one", url)
    path = keep(one, right=rights(40))
    put(url, f"{FOLDER}/{path.name}", path.read_bytes())
    other = machine(tmp_path, "other", url)
    (record,) = other.read_all(*KEY)
    assert isinstance(record, StoredRecord)
    with pytest.raises(RecordError, match=f"{read(path)['samples']} cannot be had from "):
        other.read_samples(record)


def test_files_that_are_no_records_are_left_alone(tmp_path: Path, url: str) -> None:
    one = machine(tmp_path, "one", url)
    upload(one, keep(one, 0.5))
    put(url, f"{FOLDER}/README.md", b"ours")
    put(url, f"{FOLDER}/notes.json", b"{}")
    put(url, f"{FOLDER}/deeper/x_20260101T000000.000000Z.json", b"{}")
    assert seen(machine(tmp_path, "other", url)) == [0.5]


def test_uploading_again_is_nothing_new(tmp_path: Path, url: str) -> None:
    one = machine(tmp_path, "one", url)
    path = keep(one, right=rights(40))
    upload(one, path)
    before = files(url)
    upload(one, path)
    assert files(url) == before


@pytest.mark.parametrize("which", ["record", "outcomes"])
def test_nothing_is_ever_overwritten(tmp_path: Path, url: str, which: str) -> None:
    one = machine(tmp_path, "one", url)
    path = keep(one, right=rights(40))
    name = path.name if which == "record" else read(path)["samples"]
    put(url, f"{FOLDER}/{name}", b"another run's")
    with pytest.raises(RecordError, match=rf"{name} is in .* already, with other content; nothing is over"):
        upload(one, path)
    assert get(url, f"{FOLDER}/{name}") == b"another run's"


def test_a_record_is_there_only_with_its_outcomes(tmp_path: Path, url: str) -> None:
    """They are uploaded first: an upload that is cut off leaves no record that lacks them."""
    one = machine(tmp_path, "one", url)
    path = keep(one, right=rights(40))
    put(url, f"{FOLDER}/{read(path)['samples']}", b"in the way")
    with pytest.raises(RecordError):
        upload(one, path)
    assert files(url) == [f"{FOLDER}/{read(path)['samples']}"]


def test_two_runs_at_once_of_different_names_both_arrive(tmp_path: Path, url: str) -> None:
    stores = [machine(tmp_path, f"m{number}", url) for number in range(6)]
    paths = [keep(store, number / 10, began=number, right=rights(40)) for number, store in enumerate(stores)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(upload, stores, paths))
    assert len(files(url)) == 12
    assert seen(machine(tmp_path, "reader", url)) == [0.4] * 6


def test_of_two_runs_at_once_of_one_name_one_wins_and_the_other_is_told(tmp_path: Path, url: str) -> None:
    stores = [machine(tmp_path, f"m{number}", url) for number in range(6)]
    paths = [keep(store, number / 10) for number, store in enumerate(stores)]
    assert len({path.name for path in paths}) == 1
    start = threading.Barrier(6)
    told: list[str] = []

    def attempt(number: int) -> bool:
        start.wait()
        try:
            upload(stores[number], paths[number])
        except RecordError as error:
            told.append(str(error))
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        won = list(pool.map(attempt, range(6)))
    assert all("already, with other content; nothing is overwritten" in text for text in told)
    if url.startswith("memory"):  # of one process only, and its check is not one step
        assert any(won)
    else:
        assert sum(won) == 1
        assert get(url, f"{FOLDER}/{paths[0].name}") == paths[won.index(True)].read_bytes()
    assert len(seen(machine(tmp_path, "reader", url))) == 1


def _upload_in_a_process(url: str, artifacts: str, names: list[str]) -> None:
    store = open_store(Path(artifacts), url)
    for name in names:
        upload(store, store.folder / name)


@pytest.mark.parametrize("kind", ["file", "s3"])
def test_two_processes_at_once(tmp_path: Path, kind: str, s3_url: str) -> None:
    url = s3_url if kind == "s3" else f"file://{tmp_path / 'history'}"
    context = multiprocessing.get_context("spawn")
    processes = []
    for number in range(2):
        store = RecordStore(tmp_path / f"m{number}")
        names = [keep(store, 0.5, began=10 * n + number, right=rights(40)).name for n in range(5)]
        processes.append(
            context.Process(target=_upload_in_a_process, args=(url, str(store.artifacts), names))
        )
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert seen(machine(tmp_path, "reader", url)) == [0.4] * 10


def test_the_history_is_listed_once_in_a_run(tmp_path: Path, url: str) -> None:
    """What another run adds meanwhile does not change what this one compares with."""
    one = machine(tmp_path, "one", url)
    upload(one, keep(one, 0.5, began=1))
    other = machine(tmp_path, "other", url)
    assert seen(other) == [0.5]
    upload(one, keep(one, 0.6, began=2))
    assert seen(other) == [0.5]
    assert seen(machine(tmp_path, "third", url)) == [0.6, 0.5]


def test_decisions_travel_too(tmp_path: Path, url: str) -> None:
    one = machine(tmp_path, "one", url)
    path = keep(one, 0.4, began=1)
    upload(one, path)
    decision = accept(one, [StoredRecord(path, read(path))], "Ann", "smaller")
    assert f"decisions/{decision.name}" in files(url)
    ((here,),) = read_decisions(one)  # here and there, once
    ((there,),) = read_decisions(machine(tmp_path, "other", url))
    assert here == there
    put(url, "decisions/accept_20200101T000000.000000Z.json", b"{}")
    error, whole = read_decisions(machine(tmp_path, "other", url))
    assert isinstance(error, RecordError)
    assert str(error).startswith("accept_20200101T000000.000000Z.json: not a decision")
    assert whole == [there]


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_server_that_is_not_there_is_told_once_it_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3_environment: Mapping[str, str]
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed_port()}")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    store = machine(tmp_path, "one", f"s3://{BUCKET}/history")
    with pytest.raises(RecordError, match=f"the history s3://{BUCKET}/history cannot be listed: Endpoint"):
        seen(store)
    began = time.monotonic()
    with pytest.raises(RecordError, match="cannot be listed"):
        seen(store)
    assert time.monotonic() - began < 0.5  # every gate asks, and each attempt takes seconds
    path = keep(store)
    with pytest.raises(RecordError, match=rf"{path.name} could not be written to s3://{BUCKET}/history: "):
        upload(store, path)
    fsspec.get_filesystem_class("s3").clear_instance_cache()


@pytest.mark.usefixtures("s3_url")
def test_a_bucket_that_is_not_there_is_told(tmp_path: Path) -> None:
    store = machine(tmp_path, "one", f"s3://no-such-bucket-{uuid.uuid4().hex}/history")
    path = keep(store)
    with pytest.raises(RecordError, match=r"could not be written to s3://no-such-bucket-.*: FileNotFound"):
        upload(store, path)


def test_a_server_that_goes_away_between_listing_and_fetching_is_told(tmp_path: Path, url: str) -> None:
    one = machine(tmp_path, "one", url)
    path = keep(one)
    upload(one, path)
    other = machine(tmp_path, "other", url)
    assert other.remote is not None
    other.remote.names(*KEY)
    filesystem, root = fsspec.core.url_to_fs(url)
    filesystem.rm(f"{root}/{FOLDER}/{path.name}")
    (told,) = seen(other)
    assert told.startswith(f"{path.name} cannot be had from {url}: ")


def test_the_endpoint_may_come_from_the_configuration_of_fsspec(
    tmp_path: Path, s3_environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`~/.config/fsspec/*.json` is how a user names a server that is not Amazon's."""
    from fsspec.config import conf

    for name in s3_environment:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setitem(
        conf,
        "s3",
        {"key": "testing", "secret": "testing", "endpoint_url": s3_environment["AWS_ENDPOINT_URL"]},
    )
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    url = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    one = machine(tmp_path, "one", url)
    upload(one, keep(one, 0.5))
    assert seen(machine(tmp_path, "other", url)) == [0.5]
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def test_an_unknown_protocol_and_a_missing_package_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecordError, match=r"the history s4://bucket/x cannot be used: .*s4"):
        RemoteHistory.open("s4://bucket/x")
    from fsspec.registry import known_implementations as known

    monkeypatch.setitem(known, "elsewhere", {"class": "no_such_package.FS", "err": "Please install it"})
    with pytest.raises(RecordError, match=r"elsewhere://x needs a package that is not installed: .*Please"):
        RemoteHistory.open("elsewhere://x")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/path", "s3://bucket/path"),
        ("s3://AKIA:sEcRet@bucket/path", "s3://bucket/path"),
        ("s3://AKIA:sE/cRet@bucket/path", "s3://bucket/path"),
        ("sftp://user@host/path", "sftp://host/path"),
        ("https://sEcRet@host/path", "https://host/path"),
        ("https://user:sEc@Ret@host/path", "https://host/path"),
        ("https://host/path?X-Amz-Signature=sEcRet", "https://host/path"),
        ("hf://datasets/org/name@main/history", "hf://datasets/org/name@main/history"),
        ("hf://datasets/org/name@main", "hf://datasets/org/name@main"),
        ("file:///a/b@c/d", "file:///a/b@c/d"),
    ],
)
def test_credentials_in_a_url_are_never_shown(url: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Speaking:
        """A file system that says in its errors where it looked."""

        protocol = "speaking"

        def invalidate_cache(self) -> None:
            """Has none."""

        def ls(self, path: str, detail: bool) -> list[str]:
            raise PermissionError(f"403 for {path}")

        def find(self, path: str) -> list[str]:
            raise PermissionError(f"403 for {path}")

        def cat_file(self, path: str) -> bytes:
            raise PermissionError(f"403 for {path}")

        def exists(self, path: str) -> bool:
            raise PermissionError(f"403 for {path}")

    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda text: (Speaking(), text))
    history = RemoteHistory.open(url)
    assert history.shown == shown
    said = [repr(history)]
    for attempt in (
        lambda: history.names(*KEY),
        history.decisions,
        lambda: list(history.everything()),
        lambda: history.fetch(*KEY, "x.json"),
        lambda: history.fetch_decision("x.json"),
        lambda: history._add(("x.json",), b""),
    ):
        with pytest.raises(RecordError) as caught:
            attempt()
        said.append(str(caught.value))
        assert shown in said[-1]
        assert "403 for" in said[-1]
    assert not [text for text in said if "sEc" in text or "cRet" in text]


def test_nor_are_they_where_the_url_cannot_be_used() -> None:
    with pytest.raises(RecordError) as caught:
        RemoteHistory.open("s4://AKIA:sEcRet@bucket/x")
    assert "sEcRet" not in str(caught.value)
    assert "s4://bucket/x" in str(caught.value)


@pytest.mark.usefixtures("s3_url")
def test_what_an_error_says_stays_on_one_line() -> None:
    with pytest.raises(RecordError) as caught:
        RemoteHistory.open("s3://not:a bucket/x").names(*KEY)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("s3://bucket/x", "s3://bucket/x"),
        ("history", "file:///base/history"),
        ("a folder/with spaces", "file:///base/a folder/with spaces"),
        ("/mnt/ü", "file:///mnt/ü"),
        ("../up", "file:///up"),
    ],
)
def test_a_folder_is_a_history_of_this_machine(text: str, url: str) -> None:
    assert history_url(text, Path("/base")) == url


def test_a_folder_whose_name_has_spaces_and_signs_is_that_folder(tmp_path: Path) -> None:
    url = history_url("my history % #1 ü", tmp_path)
    one = machine(tmp_path, "one", url)
    upload(one, keep(one, 0.5))
    assert len(list((tmp_path / "my history % #1 ü" / FOLDER).iterdir())) == 1
    assert seen(machine(tmp_path, "other", url)) == [0.5]


def test_a_path_in_the_name_of_outcomes_leads_nowhere(tmp_path: Path, url: str) -> None:
    """A history may be written to by others: what it names is fetched, so it must be a name."""
    from pytest_gnus.records.fingerprint import record_digest

    one = machine(tmp_path, "one", url)
    path = keep(one, right=rights(40))
    content = read(path) | {"samples": "../../../evil.gz"}
    content |= {"record_sha256": record_digest(content)}
    put(url, f"{FOLDER}/{path.name}", json.dumps(content).encode())
    (told,) = seen(machine(tmp_path, "other", url))
    assert "samples: " in told
    assert not list(tmp_path.rglob("evil.gz"))


@pytest.mark.parametrize("form", ["file://", "file:///", "::::", "s3://"])
def test_a_place_that_is_none_is_refused(form: str) -> None:
    with pytest.raises(RecordError, match="cannot be used"):
        RemoteHistory.open(form)


def test_a_disk_that_is_not_there_is_no_empty_history(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"there is no folder .*/mnt"):
        RemoteHistory.open(f"file://{tmp_path}/mnt/history")
    RemoteHistory.open(f"file://{tmp_path}/history")
