"""Which processes of this machine hold a model on a device, and who waits for whom.

A process takes a place before it loads its first model and gives it back when it has freed its last. On a
GPU there are so many places; on a CPU the free memory decides. A place is a locked file: the system unlocks
it when the process ends, however it ends. Nobody waits while it holds a place, so that nobody waits forever.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from filelock import FileLock, Timeout

from pytest_gnus.errors import ModelError
from pytest_gnus.models.main_memory import free_main_memory
from pytest_gnus.models.room import size_in_memory
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.versions import package_versions

_CUDA = ("mlx-cuda", "mlx-cuda-12", "mlx-cuda-13")
#: Seconds between two looks at a device that is taken.
_PAUSE = 0.2


def expected_device() -> str:
    """Where MLX will run, as far as can be told without importing it: metal, cuda or cpu."""
    if sys.platform == "darwin":
        return "metal"
    return "cuda" if any(name.startswith("mlx-cuda") for name in package_versions(_CUDA)) else "cpu"


def device_of_this_process() -> str:
    """The device by the name that all processes which share it give it."""
    device = expected_device()
    if device != "cuda":
        return device
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    return f"cuda-{re.sub('[^A-Za-z0-9]', '-', first or '0')}"


def places_folder() -> Path:
    """Where the processes of one user on this machine find each other.

    Raises:
        ModelError: the folder cannot be made, or is somebody else's.
    """
    folder = Path(tempfile.gettempdir()) / f"pytest-gnus-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        owner = folder.lstat().st_uid
    except OSError as error:
        raise ModelError(f"no folder for the locks of devices: {error}; TMPDIR names another") from error
    if folder.is_symlink() or owner != os.getuid():
        raise ModelError(f"{folder} is not this user's: no place for the locks of devices; remove it")
    return folder


@dataclass(frozen=True)
class Holder:
    """A process that holds a model, or is loading it. `since` is in seconds since 1970."""

    process: int
    worker: str
    model: str
    since: float
    size: int
    loaded: bool = False

    def __str__(self) -> str:
        seconds = max(0, round(time.time() - self.since))
        return f"{self.worker} (process {self.process}, {self.model}, for {seconds} s)"


class _Place:
    """A held place: a locked file, and beside it who holds it."""

    def __init__(self, folder: Path, device: str, holder: Holder) -> None:
        self._path = folder / f"{device}.{holder.process}-{secrets.token_hex(4)}.place"
        self._lock = _lock(self._path)
        self._lock.acquire(timeout=0)
        self.note(holder)

    def note(self, holder: Holder) -> None:
        self.holder = holder
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(holder)), encoding="utf-8")
        temporary.replace(_description(self._path))

    def leave(self) -> None:
        self._lock.release()
        for path in (self._path, _description(self._path)):
            path.unlink(missing_ok=True)


class DeviceShare:
    """What one process holds of a device: at most one place, for however many models.

    Args:
        device: its name, the same in all processes; `cpu` for one without a limit but its memory.
        limit: how many processes may hold models on it; of no account on a CPU.
        worker: who this process is, for those who wait for it.
        tell: is given a sentence when this process has to wait.
        folder, free, size: where the locks are, the bytes that are free, the bytes that a model takes.
    """

    def __init__(
        self,
        device: str,
        limit: int = 1,
        worker: str = "pytest",
        tell: Callable[[str], None] = lambda _text: None,
        *,
        folder: Callable[[], Path] = places_folder,
        free: Callable[[], int | None] = free_main_memory,
        size: Callable[[ModelSpec], int | None] = size_in_memory,
    ) -> None:
        self._device = device
        self._limit = limit
        self._worker = worker
        self._tell = tell
        self._folder = folder
        self._free = free
        self._size = size
        self._place: _Place | None = None
        self._models = 0

    def take(self, spec: ModelSpec) -> float:
        """Have a place for a model that is to be loaded; returns the seconds that it was waited for.

        Raises:
            ModelError: files cannot be locked here.
        """
        size = self._size(spec)
        self._models += 1
        if size == 0:  # a model without weights takes no room
            return 0.0
        holder = Holder(os.getpid(), self._worker, str(spec), time.time(), size or 0)
        if self._place is not None:
            self._place.note(replace(holder, since=self._place.holder.since))
            return 0.0
        try:
            self._place, waited = self._waited_for(holder)
        except BaseException:
            self._models -= 1
            raise
        return waited

    def loaded(self) -> None:
        """The model is in memory: what it takes is no longer to be counted on top of what is used."""
        if self._place is not None:
            self._place.note(replace(self._place.holder, loaded=True))

    def give_back(self) -> None:
        """A model is freed, or could not be loaded."""
        self._models -= 1
        if self._models == 0 and self._place is not None:
            self._place.leave()
            self._place = None

    def _waited_for(self, holder: Holder) -> tuple[_Place, float]:
        """A place, and the seconds until there was one; 0.0 where there was one at once."""
        folder = self._folder()
        started: float | None = None
        while True:
            with self._guarded(folder):
                others = list(self._holders(folder))
                obstacle = self._obstacle(others, holder.size)
                if obstacle is None:
                    waited = time.monotonic() - started if started is not None else 0.0
                    return _Place(folder, self._device, replace(holder, since=time.time())), waited
            if started is None:
                started = time.monotonic()
                held = "; ".join(map(str, others))
                self._tell(f"{self._worker} waits to load {holder.model}: {obstacle}; held by {held}")
            time.sleep(_PAUSE)

    def _obstacle(self, others: list[Holder], size: int) -> str | None:
        """Why there is no place, if there is none."""
        if self._device != "cpu":
            if len(others) < self._limit:
                return None
            return f"{self._device} is taken (--gnus-workers-per-device={self._limit})"
        free = self._free()
        if not others or free is None:
            return None  # alone, it may try: nobody would make room for it
        promised = sum(other.size for other in others if not other.loaded)
        if size + promised <= free:
            return None
        return f"it takes up to {_gigabytes(size)} of memory, {_gigabytes(free)} are free" + (
            f" and {_gigabytes(promised)} of them promised" if promised else ""
        )

    def _holders(self, folder: Path) -> Iterator[Holder]:
        """Who holds a place; what a dead process has left is removed. Only inside `_guarded`."""
        for path in sorted(folder.glob(f"{self._device}.*.place")):
            lock = _lock(path)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                yield _read(_description(path))
            else:
                lock.release()
                path.unlink(missing_ok=True)
                _description(path).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _guarded(self, folder: Path) -> Iterator[None]:
        """One process at a time looks at the places, and takes one."""
        try:
            with _lock(folder / f"{self._device}.guard"):
                yield
        except (OSError, NotImplementedError) as error:
            raise ModelError(f"the places of {self._device} cannot be locked: {error}") from error


def _lock(path: Path) -> FileLock:
    return FileLock(path, thread_local=False)


def _description(path: Path) -> Path:
    return path.with_suffix(".json")


def _read(path: Path) -> Holder:
    try:
        return Holder(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):  # locked, so somebody holds it, whoever that is
        return Holder(0, "a process", "a model", time.time(), 0)


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
