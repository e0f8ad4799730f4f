"""A benchmark's documents from the workspace."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gnus.errors import DataAbsentError, DataError
from pytest_gnus.tasks.local_data import FORMATS, LocalData, digest

ROWS = [
    {"question": "Which, exactly?", "answer": 1, "weight": 0.5},
    {"question": 'A "quoted"\nquestion: ü', "answer": 0, "weight": 2.25},
]


def jsonl(rows: Iterable[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text(jsonl(rows), encoding="utf-8")
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(jsonl(rows).encode()))
    elif path.suffix == ".csv":
        pyarrow.csv.write_csv(pyarrow.Table.from_pylist(rows), path)
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


@pytest.fixture
def data(tmp_path: Path) -> LocalData:
    root = tmp_path / "project" / "data" / "benchmarks"
    (root / "colours").mkdir(parents=True)
    return LocalData(root / "colours", root)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with documents beside the project's data folder."""
    return write(tmp_path / "project" / "secret" / "test.jsonl", ROWS).parent


def rows_of(data: LocalData, split: str = "test", subfolder: str | None = None) -> list[dict[str, Any]]:
    return data.rows(split, data.splits(subfolder), "colours")


@pytest.mark.parametrize("suffix", FORMATS)
def test_each_format_gives_the_same_rows(data: LocalData, suffix: str) -> None:
    write(data.folder / f"test{suffix}", ROWS)
    assert rows_of(data) == ROWS


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("value", ["2020-01-31", "2020-01-31 12:00:00", "12:30:00", "yes", "A"])
def test_each_format_keeps_text_as_text(data: LocalData, suffix: str, value: str) -> None:
    rows = [{"text": value, "n": 1}, {"text": value, "n": 2}]
    write(data.folder / f"test{suffix}", rows)
    assert rows_of(data) == rows


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "text": st.text("ab ,;'\"\n{}äß\u2028", max_size=20).map("x".__add__),
                "n": st.integers(-(2**40), 2**40),
            }
        ),
        min_size=1,
        max_size=5,
    )
)
@settings(deadline=None, max_examples=30)
def test_all_formats_agree_on_any_table(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    root = tmp_path_factory.mktemp("data")
    for suffix in FORMATS:
        write(root / suffix[1:] / f"test{suffix}", rows)
        assert rows_of(LocalData(root / suffix[1:], root)) == rows


def test_rows_with_different_keys_are_filled(data: LocalData) -> None:
    write(data.folder / "test.jsonl", [{"a": 1}, {"b": 2}, {"c": None, "a": 3}])
    rows = rows_of(data)
    assert rows == [
        {"a": 1, "b": None, "c": None},
        {"a": None, "b": 2, "c": None},
        {"a": 3, "b": None, "c": None},
    ]
    assert [list(row) for row in rows] == [["a", "b", "c"]] * 3


def test_blank_lines_are_no_documents(data: LocalData) -> None:
    (data.folder / "test.jsonl").write_text('\n{"a": 1}\n   \n{"a": 2}\n\n')
    assert rows_of(data) == [{"a": 1}, {"a": 2}]


def test_a_last_line_without_an_end_counts(data: LocalData) -> None:
    (data.folder / "test.jsonl").write_text('{"a": 1}\n{"a": 2}')
    assert rows_of(data) == [{"a": 1}, {"a": 2}]


def test_a_line_separator_inside_a_string_is_no_end_of_a_line(data: LocalData) -> None:
    (data.folder / "test.jsonl").write_text('{"a": "x\u2028y\u0085z"}\n', encoding="utf-8")
    assert rows_of(data) == [{"a": "x\u2028y\u0085z"}]


def test_nested_values_are_kept(data: LocalData) -> None:
    rows: list[dict[str, Any]] = [{"context": {"contexts": ["a", "b"]}, "choices": ["x", "y"]}]
    write(data.folder / "test.jsonl", rows)
    write(data.folder / "train.parquet", rows)
    assert rows_of(data) == rows
    assert rows_of(data, "train") == rows


def test_splits_are_found_by_name_and_other_files_ignored(data: LocalData) -> None:
    for name in ("test.jsonl", "train.csv", "validation.parquet"):
        write(data.folder / name, ROWS)
    (data.folder / "README.md").write_text("about")
    (data.folder / "folder.jsonl").mkdir()
    assert {split: path.name for split, path in data.splits().items()} == {
        "test": "test.jsonl",
        "train": "train.csv",
        "validation": "validation.parquet",
    }


def test_a_missing_split_is_named_with_those_that_are_there(data: LocalData) -> None:
    write(data.folder / "train.jsonl", ROWS)
    write(data.folder / "dev.csv", ROWS)
    with pytest.raises(DataError) as raised:
        rows_of(data)
    assert str(raised.value) == (
        "colours needs the split 'test', which data/benchmarks/colours/ has not; found: dev.csv, train.jsonl"
    )


def test_a_missing_split_of_an_empty_folder_is_named(data: LocalData) -> None:
    with pytest.raises(DataError, match=r"'test', which data/benchmarks/colours/ has not; found: \(none\)"):
        rows_of(data)


@pytest.mark.parametrize(
    ("suffix", "content"), [(".jsonl", ""), (".jsonl", "\n \n"), (".csv", ""), (".csv", "a,b\n")]
)
def test_an_empty_file_is_an_error_that_names_it(data: LocalData, suffix: str, content: str) -> None:
    (data.folder / f"test{suffix}").write_text(content)
    with pytest.raises(DataError) as raised:
        rows_of(data)
    assert str(raised.value) == f"data/benchmarks/colours/test{suffix} is empty: no documents for colours"


def test_an_empty_table_is_an_error_that_names_it(data: LocalData) -> None:
    pyarrow.parquet.write_table(
        pyarrow.table({"a": pyarrow.array([], pyarrow.int64())}), data.folder / "test.parquet"
    )
    with pytest.raises(DataError, match=r"colours/test\.parquet is empty"):
        rows_of(data)


@pytest.mark.parametrize(
    ("one", "other"),
    [(".jsonl", ".csv"), (".csv", ".parquet"), (".jsonl", ".parquet"), (".json", ".jsonl.gz")],
)
def test_two_files_for_a_split_are_refused_by_name(data: LocalData, one: str, other: str) -> None:
    for suffix in (one, other):
        write(data.folder / f"test{suffix}", ROWS)
    with pytest.raises(DataError) as raised:
        data.splits()
    for words in ("the split 'test'", "data/benchmarks/colours/", f"test{one}", f"test{other}", "keep one"):
        assert words in str(raised.value)


@pytest.mark.parametrize("line", ['{"a": ', "{'a': 1}", "nonsense", '{"a": 1} {"b": 2}'])
def test_a_broken_line_is_named_by_its_number(data: LocalData, line: str) -> None:
    (data.folder / "test.jsonl").write_text(f'{{"a": 1}}\n\n{line}\n{{"a": 2}}\n')
    with pytest.raises(DataError, match=r"test\.jsonl, line 3: not JSON"):
        rows_of(data)


@pytest.mark.parametrize("line", ["[1, 2]", '"text"', "1", "null", "true"])
def test_a_line_that_is_no_object_is_named_by_its_number(data: LocalData, line: str) -> None:
    (data.folder / "test.jsonl").write_text(f'{{"a": 1}}\n{line}\n')
    with pytest.raises(DataError) as raised:
        rows_of(data)
    assert f"test.jsonl, line 2: expected a JSON object, found {line!r}" in str(raised.value)


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("content", [b"\xff\xfe\x00garbage\x81", b"PAR1", b'"', b"[" * 50_000])
def test_a_file_that_cannot_be_read_is_an_error_that_names_it(
    data: LocalData, suffix: str, content: bytes
) -> None:
    (data.folder / f"test{suffix}").write_bytes(content)
    with pytest.raises(DataError, match=f"colours/test{re.escape(suffix)}"):
        rows_of(data)


def test_a_csv_row_with_too_few_columns_is_an_error(data: LocalData) -> None:
    (data.folder / "test.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(DataError, match=r"cannot read data/benchmarks/colours/test\.csv"):
        rows_of(data)


@pytest.mark.parametrize("folder", ["..", "../..", "../../secret", "colours/../../../secret"])
def test_a_folder_that_climbs_out_is_refused(data: LocalData, outside: Path, folder: str) -> None:
    escaping = LocalData(data.root / folder, data.root)
    for use in (lambda: escaping.check_present("colours"), escaping.splits):
        with pytest.raises(DataError, match="leads out of") as raised:
            use()
        assert not isinstance(raised.value, DataAbsentError)


def test_an_absolute_folder_is_refused(data: LocalData, outside: Path) -> None:
    escaping = LocalData(data.root / outside, data.root)
    with pytest.raises(DataError, match="leads out of"):
        escaping.check_present("colours")
    with pytest.raises(DataError, match="leads out of"):
        escaping.splits()


def test_a_neighbour_whose_name_begins_like_the_root_is_outside(data: LocalData) -> None:
    neighbour = write(data.root.parent / "benchmarks_secret" / "test.jsonl", ROWS).parent
    with pytest.raises(DataError, match="leads out of"):
        LocalData(neighbour, data.root).splits()


def test_a_linked_folder_that_leads_out_is_refused(data: LocalData, outside: Path) -> None:
    (data.root / "linked").symlink_to(outside, target_is_directory=True)
    linked = LocalData(data.root / "linked", data.root)
    with pytest.raises(DataError, match="leads out of"):
        linked.check_present("colours")
    with pytest.raises(DataError, match="leads out of"):
        linked.splits()


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_linked_file_that_leads_out_is_refused(data: LocalData, tmp_path: Path, suffix: str) -> None:
    target = write(tmp_path / f"secret{suffix}", ROWS)
    (data.folder / f"test{suffix}").symlink_to(target)
    with pytest.raises(DataError, match=f"test{re.escape(suffix)} leads out of"):
        data.splits()


def test_a_linked_sub_folder_that_leads_out_is_refused(data: LocalData, outside: Path) -> None:
    (data.folder / "anatomy").symlink_to(outside, target_is_directory=True)
    with pytest.raises(DataError, match="leads out of"):
        data.splits("anatomy")
    with pytest.raises(DataError, match="leads out of"):
        data.subfolder(["anatomy"], "mmlu_anatomy")


def test_a_sub_folder_that_climbs_out_is_refused(data: LocalData, outside: Path) -> None:
    with pytest.raises(DataError, match="leads out of"):
        data.splits("../../../secret")
    with pytest.raises(DataError, match="leads out of"):
        data.subfolder(["../../../secret"], "mmlu_anatomy")


def test_links_within_the_data_folder_are_followed(data: LocalData) -> None:
    write(data.root / "shared" / "all.jsonl", ROWS)
    (data.folder / "test.jsonl").symlink_to(data.root / "shared" / "all.jsonl")
    (data.root / "linked").symlink_to(data.folder, target_is_directory=True)
    assert rows_of(LocalData(data.root / "linked", data.root)) == ROWS


def test_a_data_folder_that_is_itself_a_link_is_the_users_choice(data: LocalData, tmp_path: Path) -> None:
    write(data.folder / "test.jsonl", ROWS)
    (tmp_path / "link").symlink_to(data.root, target_is_directory=True)
    assert rows_of(LocalData(tmp_path / "link" / "colours", tmp_path / "link")) == ROWS


def test_absent_data_say_where_to_put_them(data: LocalData) -> None:
    (data.folder / "README.md").write_text("about")
    for absent in (data, LocalData(data.root / "nowhere", data.root)):
        with pytest.raises(DataAbsentError) as raised:
            absent.check_present("colours")
        assert f"data/benchmarks/{absent.folder.name}/" in str(raised.value)
        assert "--gnus-source=huggingface" in str(raised.value)


@pytest.mark.parametrize("name", ["test.jsonl", "anatomy/test.csv"])
def test_data_that_are_there_are_not_read_to_be_found(data: LocalData, name: str) -> None:
    """Broken content is an error only when it is read."""
    (data.folder / name).parent.mkdir(exist_ok=True)
    (data.folder / name).write_bytes(b"\xff")
    data.check_present("colours")
    with pytest.raises(DataError):
        rows_of(data, subfolder=str(Path(name).parent))


def test_a_groups_task_takes_the_first_sub_folder_that_is_there(data: LocalData) -> None:
    write(data.folder / "anatomy" / "test.jsonl", ROWS)
    assert data.subfolder(["mmlu_anatomy", "anatomy"], "mmlu_anatomy") == "anatomy"
    assert rows_of(data, subfolder="anatomy") == ROWS
    write(data.folder / "mmlu_anatomy" / "test.jsonl", ROWS[:1])
    assert data.subfolder(["mmlu_anatomy", "anatomy"], "mmlu_anatomy") == "mmlu_anatomy"


def test_a_groups_task_without_a_sub_folder_is_an_error_that_names_it(data: LocalData) -> None:
    with pytest.raises(DataError) as raised:
        data.subfolder(["mmlu_anatomy", "anatomy"], "mmlu_anatomy")
    assert "no local data for mmlu_anatomy" in str(raised.value)
    assert "data/benchmarks/colours/mmlu_anatomy/" in str(raised.value)
    assert "subtasks:" in str(raised.value)


@pytest.fixture
def files(tmp_path: Path) -> Mapping[str, Path]:
    return {name: write(tmp_path / f"{name}.jsonl", ROWS) for name in ("test", "train")}


def test_the_digest_is_of_this_form_and_repeats(files: Mapping[str, Path]) -> None:
    value = digest(files.values())
    assert value.startswith("sha256:")
    assert len(value) == 71
    assert digest(reversed(files.values())) == value  # type: ignore[call-overload]


def test_the_digest_changes_with_content(files: Mapping[str, Path]) -> None:
    before = digest(files.values())
    files["test"].write_text(files["test"].read_text().replace("0.5", "0.6"))
    assert digest(files.values()) != before


def test_the_digest_changes_with_a_name(files: Mapping[str, Path]) -> None:
    before = digest(files.values())
    renamed = files["test"].rename(files["test"].with_name("validation.jsonl"))
    assert digest([renamed, files["train"]]) != before


def test_the_digest_changes_where_two_files_change_their_contents(files: Mapping[str, Path]) -> None:
    files["train"].write_text(jsonl(ROWS[:1]))
    before = digest(files.values())
    one, other = files["test"].read_bytes(), files["train"].read_bytes()
    files["test"].write_bytes(other)
    files["train"].write_bytes(one)
    assert digest(files.values()) != before


def test_the_digest_does_not_depend_on_the_folder(files: Mapping[str, Path], tmp_path: Path) -> None:
    before = digest(files.values())
    (tmp_path / "moved").mkdir()
    moved = [path.rename(tmp_path / "moved" / path.name) for path in files.values()]
    assert digest(moved) == before


def test_the_digest_changes_with_each_file_more(files: Mapping[str, Path]) -> None:
    values = {digest([]), digest([files["test"]]), digest([files["train"]]), digest(files.values())}
    assert len(values) == 4


def test_a_byte_order_mark_is_no_part_of_the_data(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "benchmarks" / "marked"
    folder.mkdir(parents=True)
    (folder / "test.jsonl").write_bytes(b'\xef\xbb\xbf{"a": "x"}\r\n\r\n{"a": "y"}\r\n')
    (folder / "dev.csv").write_bytes(b"\xef\xbb\xbfa\r\nx\r\ny\r\n")
    data = LocalData(folder, folder.parent)
    files = data.splits()
    assert data.rows("test", files, "marked") == data.rows("dev", files, "marked") == [{"a": "x"}, {"a": "y"}]
