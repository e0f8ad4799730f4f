"""A benchmark's documents from the workspace: `data/benchmarks/<name>/<split>` in one of `FORMATS`.

Field names are those of the data set on the hub; a group's tasks lie in sub-folders.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_gnus.errors import DataAbsentError, DataError, first_line, listed
from pytest_gnus.files import file_fault

#: As they end the name of a file; what stands before is the split.
FORMATS = (".jsonl", ".jsonl.gz", ".json", ".csv", ".parquet")
_MOST_NAMED = 5


@dataclass(frozen=True)
class LocalData:
    """The folder of a benchmark's local data, inside the workspace's data folder."""

    folder: Path
    root: Path

    def check_present(self, benchmark: str) -> None:
        """Raise where there is nothing at all, without reading anything.

        Raises:
            DataAbsentError: no folder, or no data file in it.
            DataError: the folder leads out of the workspace's data folder, or is none.
        """
        self._inside(self.folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise DataError(f"{self._shown(self.folder)} is no folder: local data of {benchmark} lie in one")
        if not any(split_of(path.name) for path in self.folder.rglob("*")):
            raise DataAbsentError(
                f"no local data for {benchmark}: put <split>.jsonl, {listed(FORMATS[1:])} files, with the "
                f"fields of the data set on the hub, in {self._shown(self.folder)}/, or use "
                f"--gnus-source=huggingface{self._unread(self.folder)}"
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
            split = split_of(path.name)
            if split is None or file_fault(path) is not None:
                continue
            self._inside(path)
            if split in found:
                raise DataError(
                    f"two files for the split {split!r} in {self._shown(folder)}/: "
                    f"{found[split].name} and {path.name}; keep one"
                )
            found[split] = path
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

    def rows(self, split: str, files: Mapping[str, Path], task: str) -> list[dict[str, Any]]:
        """The documents of one split.

        Raises:
            DataError: no such split, an empty file, a file that cannot be read.
        """
        if split not in files:
            folder = next(iter(files.values())).parent if files else self.folder
            raise DataError(
                f"{task} needs the split {split!r}, which {self._shown(folder)}/ has not; "
                f"found: {listed(sorted(path.name for path in files.values()))}{self._unread(folder)}"
            )
        path = files[split]
        try:
            rows = _READERS[path.name.removeprefix(split)](path)
        except _Fault as fault:
            raise DataError(f"{self._shown(path)}{fault}") from fault
        except UnicodeDecodeError as error:
            raise DataError(
                f"cannot read {self._shown(path)}: bytes that are not UTF-8, from byte {error.start} on"
            ) from error
        except Exception as error:
            reason = str(error).strip().split("\n")[0] or type(error).__name__
            raise DataError(f"cannot read {self._shown(path)}: {reason}") from error
        if not rows:
            raise DataError(f"{self._shown(path)} is empty: no documents for {task}")
        if not rows[0]:
            raise DataError(f"{self._shown(path)}: its documents have no fields")
        return rows

    def data_set(self, split: str, files: Mapping[str, Path], task: str) -> Any:
        """The documents of one split as a `datasets.Dataset`, which is a table: a field has one type.

        Raises:
            DataError: as `rows`; or a field has several types, or a value that no table can hold.
        """
        import datasets

        rows = self.rows(split, files, task)
        try:
            return datasets.Dataset.from_list(rows)
        except Exception as error:
            fault = _table_fault(rows) or first_line(error)
            raise DataError(f"{self._shown(files[split])}: {fault}") from error

    def _unread(self, folder: Path) -> str:
        """A part of a sentence that names what lies in a folder and is not read."""
        if not folder.is_dir():
            return ""
        names = [
            path.name if (fault := file_fault(path)) is None else f"{path.name} ({fault})"
            for path in sorted(folder.iterdir())
            if (split_of(path.name) is None or file_fault(path) is not None) and not _is_aside(path)
        ]
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return f"; not read: {listed(names[:_MOST_NAMED])}{more}" if names else ""

    def _inside(self, path: Path) -> None:
        try:
            resolved, root = path.resolve(), self.root.resolve()
            path.exists()
        except (OSError, RuntimeError, ValueError) as error:  # a circle of links, a name that is too long
            raise DataError(f"{str(path)!r} is no path that can be read: {error}") from error
        if not resolved.is_relative_to(root):
            raise DataError(f"{path} leads out of {self.root} (to {resolved}); local data must lie in it")

    def _shown(self, path: Path) -> str:
        base = self.root.parent.parent
        return path.relative_to(base).as_posix() if path.is_relative_to(base) else str(path)


def split_of(name: str) -> str | None:
    """The split that a file holds, by its name; None where it is not read."""
    return next((name.removesuffix(suffix) for suffix in FORMATS if name.endswith(suffix)), None) or None


def digest(paths: Iterable[Path]) -> str:
    """A revision of local data: SHA-256 over the files' names and contents."""
    total = hashlib.sha256()
    for path in sorted(paths):
        total.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{total.hexdigest()}"


class _Fault(ValueError):
    """What is wrong in a file, to stand after its name."""


def _is_aside(path: Path) -> bool:
    """Whether a file is nobody's data: a text about them, or hidden. A group's folders are looked at too."""
    return path.suffix == ".md" or path.name.startswith(".") or (path.is_dir() and not split_of(path.name))


def _read_jsonl(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8-sig") as lines:
        return _of_lines(lines)


def _read_packed_jsonl(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8-sig") as lines:
        return _of_lines(lines)


def _of_lines(lines: Iterable[str]) -> list[dict[str, Any]]:
    return _filled(_parsed_lines(lines))


def _parsed_lines(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = _parsed(line, f", line {number}")
        if not isinstance(row, dict):
            raise _Fault(f", line {number}: expected a JSON object, found {line.strip()[:60]!r}")
        yield row


def _read_json(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8-sig")
    rows = _parsed(text, "") if text.strip() else []
    if not isinstance(rows, list):
        raise _Fault(f": expected a list of JSON objects, found {text.strip()[:60]!r}")
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise _Fault(f", document {number}: expected a JSON object, found {str(row)[:60]!r}")
    return _filled(rows)


def _parsed(text: str, place: str) -> Any:
    """JSON in which no key stands twice: the last would be taken, whatever the others say."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            (key, _), *_rest = Counter(key for key, _ in pairs).most_common(1)
            raise _Fault(f"{place}: the key {key!r} stands twice; keep one")
        return mapping

    try:
        return json.loads(text, object_pairs_hook=unique)
    except _Fault:
        raise
    except RecursionError as error:
        raise _Fault(f"{place}: values are nested too deep") from error
    except ValueError as error:
        raise _Fault(f"{place}: not JSON: {error}") from error


def _filled(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every row gets every field, in the order of first sight: a data set is a table."""
    rows = list(rows)
    fields = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in fields} for row in rows]


def _read_csv(path: Path) -> list[dict[str, Any]]:
    """Columns of whole numbers and of numbers become such; all else stays the text that it is."""
    import pyarrow
    import pyarrow.csv

    content = path.read_bytes()
    content.decode("utf-8")
    if not content.strip():
        return []
    parsing = pyarrow.csv.ParseOptions(newlines_in_values=True)
    with pyarrow.csv.open_csv(io.BytesIO(content), parse_options=parsing) as reader:
        names = reader.schema.names
    for name, count in Counter(names).items():
        if count > 1:
            raise _Fault(f": {count} columns have the name {name!r}; a column needs a name of its own")
    texts = pyarrow.csv.ConvertOptions(column_types={name: pyarrow.string() for name in names})
    table = pyarrow.csv.read_csv(io.BytesIO(content), parse_options=parsing, convert_options=texts)
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


_READERS: Mapping[str, Callable[[Path], list[dict[str, Any]]]] = {
    ".jsonl": _read_jsonl,
    ".jsonl.gz": _read_packed_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}


def _table_fault(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Which field keeps documents from being a table, and in which of them."""
    import pyarrow

    for name in rows[0]:
        values = [row[name] for row in rows]
        if _fits(pyarrow, values):
            continue
        for number, value in enumerate(values):
            if not _fits(pyarrow, [value]):
                return f"the field {name!r} of document {number} holds what no table can: {str(value)[:60]!r}"
        first = next(number for number, value in enumerate(values) if value is not None)
        other = next(
            (number for number in range(len(values)) if not _fits(pyarrow, [values[first], values[number]])),
            None,
        )
        if other is None:
            return f"the field {name!r} has no one type"
        kinds = [f"{_kind(values[number])} in document {number}" for number in (first, other)]
        return f"the field {name!r} is of several types, {' and '.join(kinds)}; give it one type"
    return None


def _fits(pyarrow: Any, values: list[Any]) -> bool:
    try:
        pyarrow.array(values)
    except (pyarrow.ArrowException, ValueError, TypeError, OverflowError):
        return False
    return True


def _kind(value: Any) -> str:
    kinds = {str: "text", bool: "true or false", int: "a whole number", float: "a number", list: "a list"}
    return kinds.get(type(value), "an object" if isinstance(value, dict) else type(value).__name__)
