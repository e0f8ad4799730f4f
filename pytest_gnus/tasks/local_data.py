"""A benchmark's documents from the workspace: `data/benchmarks/<name>/<split>.{jsonl,csv,parquet}`.

Field names are those of the data set on the hub; a group's tasks lie in sub-folders.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_gnus.errors import DataAbsentError, DataError, listed

FORMATS = (".jsonl", ".csv", ".parquet")


@dataclass(frozen=True)
class LocalData:
    """The folder of a benchmark's local data, inside the workspace's data folder."""

    folder: Path
    root: Path

    def check_present(self, benchmark: str) -> None:
        """Raise where there is nothing at all, without reading anything.

        Raises:
            DataAbsentError: no folder, or no data file in it.
            DataError: the folder leads out of the workspace's data folder.
        """
        self._inside(self.folder)
        if not any(path.suffix in FORMATS for path in self.folder.rglob("*")):
            raise DataAbsentError(
                f"no local data for {benchmark}: put <split>.jsonl, .csv or .parquet files, with the fields "
                f"of the data set on the hub, in {self._shown(self.folder)}/, or use "
                "--gnus-source=huggingface"
            )

    def splits(self, subfolder: str | None = None) -> dict[str, Path]:
        """The files of a task by split name.

        Raises:
            DataError: no such sub-folder, two files of one split, or a file outside the data folder.
        """
        folder = self.folder / subfolder if subfolder else self.folder
        self._inside(folder)
        found: dict[str, Path] = {}
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.suffix not in FORMATS or not path.is_file():
                continue
            self._inside(path)
            if path.stem in found:
                raise DataError(
                    f"two files for the split {path.stem!r} in {self._shown(folder)}/: "
                    f"{found[path.stem].name} and {path.name}; keep one"
                )
            found[path.stem] = path
        return found

    def subfolder(self, candidates: Sequence[str], task: str) -> str:
        """The first of the candidates that exists.

        Raises:
            DataError: none does.
        """
        for name in candidates:
            self._inside(self.folder / name)
            if (self.folder / name).is_dir():
                return name
        raise DataError(
            f"no local data for {task}: expected the folder {self._shown(self.folder / candidates[0])}/; "
            "to measure a part of the group, list it under `subtasks:` in the benchmark's file"
        )

    def rows(self, split: str, files: dict[str, Path], task: str) -> list[dict[str, Any]]:
        """The documents of one split.

        Raises:
            DataError: no such split, an empty file, a file that cannot be read.
        """
        if split not in files:
            where = self._shown(next(iter(files.values())).parent if files else self.folder)
            raise DataError(
                f"{task} needs the split {split!r}, which {where}/ has not; "
                f"found: {listed(sorted(path.name for path in files.values()))}"
            )
        path = files[split]
        try:
            rows = _READERS[path.suffix](path)
        except DataError:
            raise
        except Exception as error:
            raise DataError(f"cannot read {self._shown(path)}: {error}") from error
        if not rows:
            raise DataError(f"{self._shown(path)} is empty: no documents for {task}")
        return rows

    def _inside(self, path: Path) -> None:
        if not path.resolve().is_relative_to(self.root.resolve()):
            raise DataError(
                f"{path} leads out of {self.root} (to {path.resolve()}); local data must lie in it"
            )

    def _shown(self, path: Path) -> str:
        base = self.root.parent.parent
        return path.relative_to(base).as_posix() if path.is_relative_to(base) else str(path)


def digest(paths: Iterable[Path]) -> str:
    """A revision of local data: SHA-256 over the files' names and contents."""
    total = hashlib.sha256()
    for path in sorted(paths):
        total.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{total.hexdigest()}"


def _read_jsonl(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise DataError(f"{path}, line {number}: not JSON: {error}") from error
            if not isinstance(row, dict):
                raise DataError(f"{path}, line {number}: expected a JSON object, found {line.strip()[:60]!r}")
            rows.append(row)
    # Every row gets every field, in the order of first sight: a data set is a table.
    fields = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in fields} for row in rows]


def _read_csv(path: Path) -> list[dict[str, Any]]:
    """Columns of whole numbers and of numbers become such; all else stays the text that it is."""
    import pyarrow
    import pyarrow.csv

    if not path.stat().st_size:
        return []
    parsing = pyarrow.csv.ParseOptions(newlines_in_values=True)
    with pyarrow.csv.open_csv(path, parse_options=parsing) as reader:
        names = reader.schema.names
    texts = pyarrow.csv.ConvertOptions(column_types={name: pyarrow.string() for name in names})
    table = pyarrow.csv.read_csv(path, parse_options=parsing, convert_options=texts)
    for index, name in enumerate(names):
        for kind in (pyarrow.int64(), pyarrow.float64()):
            try:
                table = table.set_column(index, name, table.column(index).cast(kind))
            except pyarrow.ArrowInvalid:
                continue
            break
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet

    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    return rows


_READERS = {".jsonl": _read_jsonl, ".csv": _read_csv, ".parquet": _read_parquet}
