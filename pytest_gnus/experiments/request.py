"""What an experiment was asked to do: by its file, by options, or by a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_gnus.errors import ConfigError, Problem, did_you_mean, listed
from pytest_gnus.models.spec import DEFAULT_PROVIDER
from pytest_gnus.schema import DiagnosticOverrides, Experiment
from pytest_gnus.workspace import Workspace, read_file

FOLDER = Path("config") / "experiments"


@dataclass(frozen=True)
class ExperimentRequest:
    """Benchmarks x models x rounds.

    Args:
        benchmark_file: a niche's file or a benchmark's, relative to the workspace.
        benchmark_names: only these; empty for all of the file's or of the niches'.
        model_identifiers: `provider:name`, or a bare name of `default_provider`. At least one.
        repeat: rounds; less than one is one.
        output_file: the JSON-lines file that results are appended to; by default a file of its own in
            `artifacts/experiments/`.
        prompt_bundle_name: a file in `config/prompts/`, without its suffix.
        niches: niches whose benchmarks are run.
        overrides: what else is changed, with the keys of a benchmark's `diagnostic:`.
        source, mode, limit: as `--gnus-source`, `--gnus-mode` and `--gnus-limit`.
        experiment_file: the file that this was read from.
        origin, given_as: where this was written, for messages: a file, and options by key.
    """

    benchmark_file: Path | str | None = None
    benchmark_names: Sequence[str] = ()
    model_identifiers: Sequence[str] = ()
    repeat: int = 1
    output_file: Path | str | None = None
    prompt_bundle_name: str | None = None
    niches: Sequence[str] = ()
    default_provider: str = DEFAULT_PROVIDER
    overrides: DiagnosticOverrides | Mapping[str, Any] = field(default_factory=DiagnosticOverrides)
    name: str = "experiment"
    source: str | None = None
    mode: str = "canonical"
    limit: int | None = None
    experiment_file: Path | None = None
    origin: str = "ExperimentRequest"
    given_as: Mapping[str, str] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        return max(self.repeat, 1)

    def place(self, key: str) -> tuple[str, str]:
        """Where a value was given: a file and its key, or an option."""
        return (self.given_as[key], "") if key in self.given_as else (self.origin, key)

    def given(self, key: str, option: str, **values: Any) -> ExperimentRequest:
        """This request with values that an option gives."""
        return replace(self, given_as={**self.given_as, key: option}, **values)

    @classmethod
    def from_file(cls, workspace: Workspace, path: Path) -> ExperimentRequest:
        """An experiment's file.

        Raises:
            ConfigError: with every problem of the file.
        """
        root = workspace.root
        found, _ = read_file(root, path, Experiment)  # no key of these files has been renamed
        where = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
        if found.name != path.stem:
            hint = "The name must be that of the file."
            raise ConfigError([Problem(where, "name", repr(found.name), repr(path.stem), hint)])
        return cls(
            benchmark_names=tuple(found.benchmarks),
            model_identifiers=tuple(found.models),
            repeat=found.repeat,
            output_file=root / Path(found.output).expanduser() if found.output else None,
            prompt_bundle_name=found.prompt_bundle,
            niches=(found.niche,) if found.niche else (),
            default_provider=found.default_provider or DEFAULT_PROVIDER,
            overrides=found.overrides,
            name=found.name,
            experiment_file=path,
            origin=where,
        )


def experiment_file(root: Path, directory: Path, text: str, where: str = "--gnus-experiment") -> Path:
    """The file that `text` names: a path, or the name of one in `config/experiments/`.

    Raises:
        ConfigError: there is none; the message lists those that there are.
    """
    path = directory / Path(text).expanduser()
    if path.is_file():
        return path.resolve()
    there = {file.stem: file for file in sorted((root / FOLDER).glob("*.y*ml"))}
    if text in there:
        return there[text].resolve()
    hint = did_you_mean(Path(text).stem, there)
    raise ConfigError([Problem(where, "", f"{text!r}, which is no file", listed(there) or "a file", hint)])
