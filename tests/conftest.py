"""Shared fixtures: a small workspace of its own for each test, run through the real plugin."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import pytest
import yaml

from pytest_gnus.models.cpu import load_fast_blas
from tests import inner_session

pytest_plugins = ["pytester"]

# Nothing here is to be fetched; what is not there is to be missing at once, not after a minute of retries.
# Read when huggingface_hub is imported, here and in every process that a test starts.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}

# Whichever test imports MLX first, its BLAS must be there before.
load_fast_blas()

CHOICES = ["red", "green", "blue", "grey"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--real-model", help="directory of the real 135M model (see .ci/run)")
    parser.addoption("--real-data", help="folder with real benchmark data (see .ci/run)")


def pytest_configure(config: pytest.Config) -> None:
    # For the tests alone: what other plugins warn of while they are set up is no fault of a release gate.
    config.addinivalue_line("filterwarnings", "error::pytest.PytestWarning")


# How long an example takes says more of the machine than of the product.
hypothesis.settings.register_profile("gnus", deadline=None)
hypothesis.settings.load_profile("gnus")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The real-model checks run only where they are given their model."""
    if collection_path.name == "real_model" and not config.getoption("--real-model"):
        return True
    return None


def choice_documents(golds: Iterable[int]) -> list[dict[str, Any]]:
    """Multiple-choice documents whose right choices stand at the given positions."""
    return [
        {"question": f"Which colour is number {number}?", "choices": CHOICES, "answer": gold}
        for number, gold in enumerate(golds)
    ]


def choice_task(name: str, **changes: Any) -> dict[str, Any]:
    """An inline multiple-choice task over `choice_documents`."""
    return {
        "task": name,
        "dataset_path": "nobody/nothing",
        "output_type": "multiple_choice",
        "test_split": "test",
        "doc_to_text": "Q: {{ question }}\nA:",
        "doc_to_choice": "choices",
        "doc_to_target": "answer",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": 1.0},
        **changes,
    }


@dataclass(frozen=True)
class ToyWorkspace:
    """Writes a workspace's files and runs pytest in it, in a process of its own."""

    pytester: pytest.Pytester

    @property
    def path(self) -> Path:
        return self.pytester.path

    def yaml(self, path: str, content: Mapping[str, Any] | str) -> Path:
        file = self.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else yaml.safe_dump(dict(content), sort_keys=False)
        file.write_text(text, encoding="utf-8")
        return file

    def benchmark(self, name: str, **content: Any) -> Path:
        default: dict[str, Any] = {"name": name, "task": choice_task(name), "num_fewshot": 0, "metric": "acc"}
        default["gates"] = {"hard_floor": 0.0}
        merged = {**default, **content}
        return self.yaml(f"benchmarks/{name}.yaml", {k: v for k, v in merged.items() if v is not None})

    def niche(
        self,
        name: str = "toy",
        blocking: Iterable[str] = (),
        diagnostic: Iterable[str] = (),
        model: Mapping[str, str] | None = None,
        **content: Any,
    ) -> Path:
        entry = {"quantized": "demo:random", "reference": "demo:random"} if model is None else dict(model)
        return self.yaml(
            f"config/specialists/{name}.yaml",
            {
                "niche": name,
                "model": entry,
                "benchmarks": {"blocking": list(blocking), "diagnostic": list(diagnostic)},
                **content,
            },
        )

    def data(self, path: str, documents: Iterable[Mapping[str, Any]]) -> Path:
        file = self.path / "data" / "benchmarks" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")
        return file

    def run(self, *arguments: str) -> pytest.RunResult:
        """Run pytest here; in this process, which is quick, unless workers of xdist are asked for."""
        if any(argument.startswith("-n") for argument in arguments):
            return self.run_process(*arguments)
        basetemp = self.path.parent / f"{self.path.name}-basetemp"
        return inner_session.run(self.path, (f"--basetemp={basetemp}", *arguments))

    def run_process(self, *arguments: str) -> pytest.RunResult:
        """Run pytest here in a process of its own: for tests of what a process is, imports or leaves."""
        return self.pytester.runpytest_subprocess(*arguments, timeout=300)

    def records(self) -> list[dict[str, Any]]:
        """All records, in the order in which they were made."""
        paths = (self.path / "artifacts" / "benchmarks").glob("*.json")
        ordered = sorted(paths, key=lambda path: path.stem.rsplit("_", 1)[-1])
        return [json.loads(path.read_text(encoding="utf-8")) for path in ordered]

    def record(self, benchmark: str, variant: str = "quantized") -> dict[str, Any]:
        """The only record of a benchmark and variant."""
        (found,) = [r for r in self.records() if (r["benchmark"], r["variant"]) == (benchmark, variant)]
        return found

    def verdict(self, niche: str = "toy") -> dict[str, Any]:
        path = self.path / "artifacts" / "verdicts" / f"{niche}.json"
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return content


@pytest.fixture
def imported() -> Iterator[dict[str, ModuleType]]:
    """What is put here stays imported, though `pytester` forgets what a test has imported.

    NumPy and others cannot be imported twice.
    """
    modules: dict[str, ModuleType] = {}
    yield modules
    for name, module in modules.items():
        sys.modules.setdefault(name, module)


@pytest.fixture
def toy(
    imported: dict[str, ModuleType], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ToyWorkspace]:
    """A workspace with the niche `toy`, one blocking benchmark `colours`, and 60 documents.

    The right choice is the first in 30 of them: `demo:constant` scores 0.5, `demo:random` about a quarter.
    """
    # Without byte code on disk, pytest would rewrite every plugin anew in each process.
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    workspace = ToyWorkspace(pytester)
    workspace.yaml("config/pipeline.yaml", {"source": "local"})
    workspace.benchmark("colours", gates={"hard_floor": 0.1})
    workspace.data("colours/test.jsonl", choice_documents([0, 0, 0, 1, 2, 3] * 10))
    workspace.niche(blocking=["colours"])
    yield workspace
    imported.update(sys.modules)
