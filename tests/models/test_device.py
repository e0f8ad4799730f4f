"""Places on a device: real locks, real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pytest_gnus.errors import ModelError
from pytest_gnus.models import device as devices
from pytest_gnus.models.device import DeviceShare
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.models.pool import ModelPool
from pytest_gnus.models.spec import ModelSpec

LARGE = ModelSpec("mlx", "large")
SMALL = ModelSpec("mlx", "small")
SIZES = {LARGE: 6_000_000_000, SMALL: 1_000_000_000}


def share(
    folder: Path, device: str = "metal", limit: int = 1, told: list[str] | None = None, **of
) -> DeviceShare:
    of = {"size": SIZES.get, "free": lambda: 8_000_000_000, "folder": lambda: folder} | of
    tell = told.append if told is not None else lambda _text: None
    return DeviceShare(device, limit, of.pop("worker", "gw0"), tell, **of)


def places(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.place"))


def test_a_place_is_taken_once_and_given_back_with_the_last_model(tmp_path):
    one = share(tmp_path)
    one.take(LARGE)
    one.take(SMALL)
    assert len(places(tmp_path)) == 1
    one.give_back()
    assert len(places(tmp_path)) == 1
    one.give_back()
    assert places(tmp_path) == []
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".guard"]


def test_the_second_waits_until_the_first_gives_back_and_says_for_whom(tmp_path):
    first, told = share(tmp_path), []
    second = share(tmp_path, told=told, worker="gw1")
    first.take(LARGE)
    waited: list[float] = []
    waiting = threading.Thread(target=lambda: waited.append(second.take(SMALL)), daemon=True)
    waiting.start()
    waiting.join(0.6)
    assert waiting.is_alive()
    assert len(told) == 1
    assert told[0].startswith(
        "gw1 waits to load mlx:small: metal is taken (--gnus-workers-per-device=1); held by gw0 "
    )
    assert f"process {os.getpid()}, mlx:large, for" in told[0]
    first.give_back()
    waiting.join(10)
    assert waited
    assert waited[0] >= 0.5
    second.give_back()
    assert places(tmp_path) == []


def test_as_many_as_the_limit_says(tmp_path):
    holders = [share(tmp_path, limit=2, worker=f"gw{number}") for number in range(2)]
    for holder in holders:
        holder.take(SMALL)
    told: list[str] = []
    third = share(tmp_path, limit=2, told=told, worker="gw2")
    threading.Thread(target=third.take, args=(SMALL,), daemon=True).start()
    assert eventually(lambda: told)
    assert "--gnus-workers-per-device=2" in told[0]
    assert len(places(tmp_path)) == 2


def test_devices_are_apart(tmp_path):
    holders = [share(tmp_path, device="cuda-0"), share(tmp_path, device="cuda-1")]
    assert max(holder.take(LARGE) for holder in holders) < 1
    assert len(places(tmp_path)) == 2


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_ends_in_any_way_leaves_its_place(tmp_path, end):
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from pytest_gnus.models.device import DeviceShare\n"
        "from pytest_gnus.models.spec import ModelSpec\n"
        "share = DeviceShare('metal', folder=lambda: Path(sys.argv[1]), size=lambda _: 1)\n"
        "share.take(ModelSpec('mlx', 'm'))\n"
        "print('TAKEN', flush=True)\n"
        "time.sleep(120)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "TAKEN\n"
    told: list[str] = []
    second = share(tmp_path, told=told)
    waiting = threading.Thread(target=second.take, args=(SMALL,), daemon=True)
    waiting.start()
    assert eventually(lambda: told)
    assert f"process {process.pid}, mlx:m" in told[0]
    process.send_signal(end)
    process.wait()
    waiting.join(10)
    assert not waiting.is_alive()
    assert len(places(tmp_path)) == 1, "what the dead process left is removed"


def test_on_a_cpu_memory_decides(tmp_path):
    told: list[str] = []
    first = share(tmp_path, "cpu")
    first.take(LARGE)  # 6 of 8 GB promised
    second = share(tmp_path, "cpu", worker="gw1")
    second.take(SMALL)  # 7 of 8
    third = share(tmp_path, "cpu", told=told, worker="gw2")
    waiting = threading.Thread(target=third.take, args=(LARGE,), daemon=True)
    waiting.start()
    assert eventually(lambda: told)
    assert "it takes up to 6.0 GB of memory, 8.0 GB are free and 7.0 GB of them promised; held by" in told[0]
    first.loaded()  # now the 6 GB are no longer free, and no longer promised; here the free memory stays
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_second_model_of_one_process_is_promised_too(tmp_path):
    first, told = share(tmp_path, "cpu"), []
    first.take(SMALL)
    first.loaded()
    first.take(LARGE)
    second = share(tmp_path, "cpu", told=told, worker="gw1")
    waiting = threading.Thread(target=second.take, args=(LARGE,), daemon=True)
    waiting.start()
    assert eventually(lambda: told)
    assert "6.0 GB of them promised" in told[0]
    first.loaded()
    waiting.join(10)
    assert not waiting.is_alive()


def test_who_is_alone_on_a_cpu_may_try(tmp_path):
    assert share(tmp_path, "cpu", free=lambda: 1).take(LARGE) < 1


def test_where_nobody_says_what_is_free_nobody_waits(tmp_path):
    holders = [share(tmp_path, "cpu", free=lambda: None) for _ in range(2)]
    assert max(holder.take(LARGE) for holder in holders) < 1


def test_a_model_without_weights_takes_no_place(tmp_path):
    share(tmp_path, size=lambda _spec: 0).take(SMALL)
    assert places(tmp_path) == []


def test_a_model_of_unknown_size_takes_a_place_on_a_gpu(tmp_path):
    holder = share(tmp_path, size=lambda _spec: None)
    holder.take(SMALL)
    assert len(places(tmp_path)) == 1


def test_a_description_that_cannot_be_read_is_somebody(tmp_path):
    holder, told = share(tmp_path), []
    holder.take(SMALL)
    (place,) = places(tmp_path)
    place.with_suffix(".json").write_text(json.dumps({"process": 1}))
    threading.Thread(target=share(tmp_path, told=told).take, args=(SMALL,), daemon=True).start()
    assert eventually(lambda: told)
    assert "held by a process (process 0, a model" in told[0]


def test_files_that_cannot_be_locked_are_an_error_of_the_model(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match="the places of metal cannot be locked"):
        share(tmp_path / "file").take(SMALL)


class FakeModel:
    """Stands for the model's memory."""

    def release(self) -> None: ...


def pool(tmp_path: Path, failing: bool = False, **of) -> tuple[ModelPool, DeviceShare]:
    def load(spec: ModelSpec) -> LoadedModel:
        if failing:
            raise ModelError("broken weights")
        assert len(places(tmp_path)) == 1, "a place is held before anything is loaded"
        return LoadedModel(spec, FakeModel(), "cpu", None, "float32")  # type: ignore[arg-type]

    mine = share(tmp_path)
    return ModelPool(load, share=mine, **of), mine


def test_a_pool_holds_its_place_while_it_holds_a_model(tmp_path):
    models, _ = pool(tmp_path)
    assert models.get(SMALL).wait_seconds < 1
    models.get(LARGE)  # frees the first
    assert len(places(tmp_path)) == 1
    models.release()
    assert places(tmp_path) == []


def test_a_pool_with_room_for_two_gives_its_place_back_with_the_last(tmp_path):
    models, _ = pool(tmp_path, fits=lambda _spec: True)
    models.get(SMALL)
    models.get(LARGE)
    assert models.loads == [SMALL, LARGE]
    models.release()
    assert places(tmp_path) == []


def test_a_model_that_cannot_be_loaded_leaves_no_place(tmp_path):
    models, _ = pool(tmp_path, failing=True)
    with pytest.raises(ModelError, match="broken weights"):
        models.get(SMALL)
    assert places(tmp_path) == []


def test_the_folder_of_the_locks_is_this_users_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(devices.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = devices.places_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert devices.places_folder() == folder
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(ModelError, match="is not this user's"):
        devices.places_folder()


@pytest.mark.parametrize(
    ("visible", "expected"),
    [("", "cuda-0"), ("1,0", "cuda-1"), ("GPU-ab/c", "cuda-GPU-ab-c"), (None, "cuda-0")],
)
def test_a_gpu_is_known_by_the_name_that_all_processes_give_it(monkeypatch, visible, expected):
    monkeypatch.setattr(devices, "expected_device", lambda: "cuda")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert devices.device_of_this_process() == expected


def eventually(holds, seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(holds())
