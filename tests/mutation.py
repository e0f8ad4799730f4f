"""A real workspace in miniature, and what may go wrong with the files of one.

Hypothesis chooses: which file, what kind of fault, where in the file.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

_COLOURS = ["red", "green", "blue", "grey"]
_TASK = {
    "task": "colours",
    "dataset_path": "nobody/nothing",
    "output_type": "multiple_choice",
    "test_split": "test",
    "fewshot_split": "train",
    "doc_to_text": "Q: {{ question }}\nA:",
    "doc_to_choice": "choices",
    "doc_to_target": "answer",
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    "metadata": {"version": 1.0},
}
_GENERATING_TASK = {
    "task": "words",
    "dataset_path": "csv",
    "output_type": "generate_until",
    "validation_split": "validation",
    "description": "Answer with one word.\n",
    "doc_to_text": "{{ text }}",
    "doc_to_target": "{{ label }}",
    "generation_kwargs": {"until": ["\n"], "max_gen_toks": 4},
    "filter_list": [{"name": "first", "filter": [{"function": "take_first"}]}],
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "ignore_case": True}],
}
_YAML: dict[str, Any] = {
    "benchmarks/colours.yaml": {
        "name": "colours",
        "description": "Which colour?",
        "task": _TASK,
        "num_fewshot": 2,
        "metric": "acc",
        "higher_is_better": True,
        "gates": {"hard_floor": 0.0, "regression_max_pct": 0.5, "category_floors": {}},
        "dataset": {"local": "colours"},
        "cluster": "question",
        "diagnostic": {
            "num_fewshot": 1,
            "fewshot_seed": 7,
            "limit": 3,
            "system_instruction": "Be brief.",
            "task": {"doc_to_text": "{{ question }}"},
        },
    },
    "benchmarks/words.yaml": {
        "name": "words",
        "task": _GENERATING_TASK,
        "num_fewshot": 0,
        "metric": "exact_match,first",
        "gates": {"hard_floor": 0.0},
        "limit": 3,
        "diagnostic": {"generation_kwargs": {"temperature": 0.5, "do_sample": True}},
    },
    "benchmarks/science.yaml": {
        "name": "science",
        "task": "arc_easy",
        "num_fewshot": 0,
        "metric": "acc_norm",
        "dataset": {"local": "science"},
    },
    "config/pipeline.yaml": {
        "source": "local",
        "gates": {"regression_max_pct": 0.5, "previous_run_max_pct": 0.5, "deviation_max_pct": 0.5},
        "sgfp4": {"fp4_mse": 0.01},
        "regression_policy": "threshold",
        "minimum_pairs": 5,
        "consecutive_failures_to_block": 3,
    },
    "config/specialists/toy.yaml": {
        "niche": "toy",
        "model": {"quantized": "demo:random", "reference": "demo:constant", "version": "1"},
        "benchmarks": {"blocking": ["colours", "words"], "diagnostic": ["science"]},
        "gates": {"per_benchmark": {"words": {"hard_floor": 0.0}}},
    },
    "config/experiments/trial.yaml": {
        "name": "trial",
        "niche": "toy",
        "benchmarks": ["colours"],
        "models": ["random", "demo:constant"],
        "default_provider": "demo",
        "repeat": 2,
        "prompt_bundle": "brief",
        "overrides": {"num_fewshot": 1, "limit": 3},
    },
    "config/prompts/brief.yaml": {
        "name": "brief",
        "system_prompt": "Be brief.",
        "generation": {"temperature": 0.0},
    },
}


def _questions(golds: list[int]) -> str:
    return "".join(
        json.dumps({"question": f"Which colour is {number}?", "choices": _COLOURS, "answer": gold}) + "\n"
        for number, gold in enumerate(golds)
    )


def _science(number: int, gold: str) -> str:
    choices = {"text": _COLOURS, "label": list("ABCD")}
    document = {"id": f"q{number}", "question": f"Colour {number}?", "choices": choices, "answerKey": gold}
    return json.dumps(document) + "\n"


_DATA: dict[str, str] = {
    "data/benchmarks/colours/test.jsonl": _questions([0, 1, 2, 3, 0, 1]),
    "data/benchmarks/colours/train.jsonl": _questions([3, 2, 1, 0, 0, 0, 1])[:].replace("Which", "What"),
    "data/benchmarks/words/validation.csv": "text,label\n" + "".join(f"word {n},{n % 2}\n" for n in range(5)),
    "data/benchmarks/science/test.jsonl": "".join(_science(n, gold) for n, gold in enumerate("ABCDA")),
}

#: What a value may be by mistake or by malice.
_VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    0.7,
    2,
    64,
    10**9,
    10**30,
    -(10**30),
    1e308,
    float("nan"),
    float("inf"),
    "",
    " ",
    "0.2",
    "null",
    "test",
    "answer",
    "no_such_thing",
    "mean",
    "../colours",
    "benchmarks/colours.yaml",
    "/etc",
    "a\0b",
    "\ud800",
    "\U0001f600\u202e",
    "{{",
    "{{ missing }}",
    "{{ question.__class__ }}",
    "{% for x in range(3) %}{{ x }}{% endfor %}",
    "{{ 1 / 0 }}",
    "{{ answer | no_such_filter }}",
    "[1, 2",
    "x" * 5000,
    "demo:no_such_model",
    "hf:",
    "generate_until",
    "loglikelihood",
    "loglikelihood_rolling",
    "multiple_choice",
    "first_n",
    "humaneval",
    "arc_easy",
    "mmlu",
    "colours",
    "acc",
    "f1",
    "perplexity",
    [],
    [None],
    ["a", 1, None],
    [[[]]],
    ["same", "same"],
    ["colours", "colours"],
    [""],
    {},
    {"a": None},
    {1: 2},
    {"metric": "acc"},
    {"task": "x"},
    [{"metric": "acc", "aggregation": "no_such_aggregation"}],
    [{"metric": "no_such_metric"}],
    [{"metric": "f1", "aggregation": "mean"}],
]

#: Pieces of text that YAML, JSON and CSV readers stumble over.
_TEXTS = [
    "!!python/object/apply:os.system ['true']",
    "!function uspto.nothing",
    "!function ../../etc.passwd",
    "&a [*a]",
    "&a {x: *a}",
    "*nothing",
    "<<: *x",
    "<<: [1, 2]",
    "? [a, b]\n: c",
    "{a: 1, a: 2}",
    "---\n---\n",
    "%YAML 9.9\n---",
    "\t",
    "- x",
    "key: value",
    "}",
    '"',
    "'",
    '{"question": "x", "answer": 1, "answer": 2}',
    "NaN",
    "[" * 3000,
    "{a: " * 3000,
    "1" * 6000,
    "2026-13-45",
    "2026-12-07 10:00:00+99:99",
    "0x_",
    "1:90:90",
    "!!binary x",
    "!!int x",
    "!!float ''",
    "!!set {a, b}",
    "!!omap [a: 1]",
    "!!timestamp x",
    "=",
    "a,b,c,d",
    ",,,,",
    "null",
    "\x00",
    "\x85\u2028",
    "\ufeff",
]
_LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
_BYTES = [b"\xff", b"\x00", b"\xc3\x28", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r", b"\x1b[31m", b"\xfe\xff"]


def write_workspace(root: Path) -> None:
    """The workspace as it should be: its gate holds."""
    for path, content in _YAML.items():
        _write(root / path, yaml.safe_dump(content, sort_keys=False))
    for path, text in _DATA.items():
        _write(root / path, text)
    _write(root / "pytest.ini", "[pytest]\n")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))


class Mutation:
    """One fault after the other, as hypothesis chooses."""

    def __init__(self, root: Path, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._root = root
        self._draw = draw
        #: What was done, for a person who has to find the cause.
        self.log: list[str] = []

    def apply(self) -> None:
        """One fault in one file."""
        path = self._draw(st.sampled_from([*_YAML, *_DATA, "config/specialists/toy.yaml"]))
        file = self._root / path
        kinds: list[Callable[[Path], str]] = [self._text, self._line, self._bytes, self._place]
        kinds += [self._structure] * 8
        self.log.append(f"{path}: {self._draw(st.sampled_from(kinds))(file)}")

    def arguments(self) -> list[str]:
        """How pytest is called."""
        calls = [["--niche=toy"]] * 6 + [
            ["--niche=toy", "--gnus-mode=diagnostic"],
            ["--niche=toy", "--gnus-mode=diagnostic"],
            ["--niche=all", "--gnus-variant=all"],
            ["--niche=toy", "--collect-only", "-q"],
            ["--niche=toy", "--gnus-limit=100000000000000000000000"],
            ["--gnus-experiment=trial"],
            ["--gnus-experiment=trial"],
            ["--gnus-experiment=config/experiments/trial.yaml", "--gnus-repeat=1"],
        ]
        return list(self._draw(st.sampled_from(calls)))

    def _value(self) -> Any:
        return self._draw(st.sampled_from(_VALUES) | st.text(max_size=8) | st.integers() | st.floats())

    def _structure(self, file: Path) -> str:
        """Change one value, key or entry of what the file says."""
        try:
            content = _loaded(file)
            list(_places(content))  # a circle of aliases has no end
        except Exception:  # noqa: BLE001 - an earlier mutation has made it unreadable
            return self._text(file)
        whole = content
        if isinstance(content, dict) and isinstance(content.get("task"), dict) and self._draw(st.booleans()):
            content = content["task"]  # where most of what can be wrong stands
        places = list(_places(content))
        if not places:
            return self._text(file)
        holder, key = self._draw(st.sampled_from(places))
        action = self._draw(
            st.sampled_from(["replace", "replace", "replace", "delete", "rename", "add", "copy"])
        )
        value: Any = None
        if action == "delete":
            del holder[key]
        elif action == "rename" and isinstance(holder, dict):
            value = self._value()
            holder[value if isinstance(value, (str, int, float, bool)) else str(value)] = holder.pop(key)
        elif action == "add":
            value = self._value()
            if isinstance(holder, dict):
                holder[self._draw(st.sampled_from(["task", "limit", "extra", "group", "tag", "repeats"]))] = (
                    value
                )
            else:
                holder.insert(key, value)
        elif action == "copy":
            other, where = self._draw(st.sampled_from(places))
            if not _holds(other[where], holder):
                value = other[where]
                holder[key] = value
        else:
            value = self._value()
            holder[key] = value
        _save(file, whole)
        return f"{action} {key!r} ({str(value)[:60]!r})"

    def _text(self, file: Path) -> str:
        """Put a piece of text somewhere, or cut the text."""
        data = _bytes_of(file)
        position = self._draw(st.integers(0, len(data)))
        kind = self._draw(st.sampled_from(["insert", "insert", "append", "cut", "empty", "laughs", "whole"]))
        text = self._draw(st.sampled_from(_TEXTS)) if kind in ("insert", "append", "whole") else ""
        piece = text.encode("utf-8", "surrogatepass")
        changed = {
            "insert": data[:position] + piece + data[position:],
            "append": data + b"\n" + piece + b"\n",
            "cut": data[:position],
            "empty": b"",
            "laughs": _LAUGHS.encode() + data,
            "whole": piece,
        }[kind]
        _replace(file, changed)
        return f"{kind} {text[:40]!r} at {position}"

    def _line(self, file: Path) -> str:
        lines = _bytes_of(file).splitlines(keepends=True)
        if not lines:
            return "no lines"
        kind = self._draw(st.sampled_from(["delete", "duplicate", "swap", "indent", "many"]))
        index = self._draw(st.integers(0, len(lines) - 1))
        other = self._draw(st.integers(0, len(lines) - 1))
        if kind == "delete":
            del lines[index]
        elif kind == "duplicate":
            lines.insert(other, lines[index])
        elif kind == "swap":
            lines[index], lines[other] = lines[other], lines[index]
        elif kind == "indent":
            lines[index] = b"   " + lines[index]
        else:
            lines[index:index] = [lines[index]] * 40
        _replace(file, b"".join(lines))
        return f"{kind} line {index} ({other})"

    def _bytes(self, file: Path) -> str:
        data = _bytes_of(file)
        kind = self._draw(st.sampled_from(["insert", "utf-16", "utf-32", "latin-1", "crlf", "random"]))
        position = self._draw(st.integers(0, len(data)))
        if kind == "insert":
            piece = self._draw(st.sampled_from(_BYTES))
            data = data[:position] + piece + data[position:]
        elif kind == "random":
            data = self._draw(st.binary(max_size=40))
        elif kind == "crlf":
            data = data.replace(b"\n", b"\r\n")
        elif kind == "latin-1":
            data = data.replace(b"colour", "c\u00f6lour".encode("latin-1"))
        else:
            data = data.decode("utf-8", "replace").encode(kind)
        _replace(file, data)
        return f"{kind} at {position}"

    def _place(self, file: Path) -> str:
        """Something else in the file's place."""
        kind = self._draw(
            st.sampled_from(
                [
                    "missing",
                    "folder",
                    "loop",
                    "dangling",
                    "outside",
                    "pipe",
                    "suffix",
                    "twice",
                    "no folder",
                    "file",
                ]
            )
        )
        data = _bytes_of(file)
        suffix = self._draw(
            st.sampled_from([".json", ".jsonl", ".csv", ".parquet", ".jsonl.gz", ".yml", ".txt"])
        )
        if kind in ("no-folder", "file"):
            folder = file.parent
            shutil.rmtree(folder, ignore_errors=True) if not folder.is_symlink() else folder.unlink()
            if kind == "file" and not folder.exists():
                folder.write_text("not a folder")
            return kind
        if kind == "twice":
            file.with_suffix(suffix).write_bytes(data)
            return f"{kind} as {suffix}"
        _remove(file)
        if kind == "folder":
            file.mkdir()
        elif kind == "loop":
            file.symlink_to(file.name)
        elif kind == "dangling":
            file.symlink_to("nowhere")
        elif kind == "outside":
            file.symlink_to("/etc/passwd")
        elif kind == "pipe":
            os.mkfifo(file)
        elif kind == "suffix":
            _replace(file.with_suffix(suffix), data)
        return f"{kind} {suffix if kind == 'suffix' else ''}"


def _remove(file: Path) -> None:
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)
    elif file.is_symlink() or file.exists():
        file.unlink()


def _replace(file: Path, data: bytes) -> None:
    if file.parent.exists() and not file.parent.is_dir():
        file.parent.unlink()
    file.parent.mkdir(parents=True, exist_ok=True)
    _remove(file)
    file.write_bytes(data)


def _bytes_of(file: Path) -> bytes:
    return file.read_bytes() if file.is_file() else b""


def _loaded(file: Path) -> Any:
    text = _bytes_of(file).decode("utf-8")
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    if file.suffix == ".csv":
        return list(csv.reader(io.StringIO(text)))
    return yaml.safe_load(text)


def _save(file: Path, content: Any) -> None:
    if file.suffix == ".jsonl":
        text = "".join(json.dumps(line) + "\n" for line in content)
    elif file.suffix == ".csv":
        stream = io.StringIO()
        csv.writer(stream).writerows(row if isinstance(row, list) else [row] for row in content)
        text = stream.getvalue()
    else:
        text = yaml.safe_dump(content, sort_keys=False)
    _replace(file, text.encode("utf-8", "surrogatepass"))


def _places(content: Any) -> list[tuple[Any, Any]]:
    """Every holder and key of a tree of mappings and lists."""
    if isinstance(content, dict):
        found = [(content, key) for key in content]
        inner = list(content.values())
    elif isinstance(content, list):
        found = [(content, index) for index in range(len(content))]
        inner = list(content)
    else:
        return []
    for entry in inner:
        found.extend(_places(entry))
    return found


def _holds(value: Any, holder: Any) -> bool:
    """Whether a tree contains a holder, so that copying it there would make a circle."""
    return value is holder or any(
        _holds(place[0], holder) for place in _places(value) if place[0] is not value
    )
