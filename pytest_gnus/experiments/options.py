"""From the options of a pytest session to an `ExperimentRequest`."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gnus.errors import ConfigError, Problem
from pytest_gnus.experiments.request import ExperimentRequest, experiment_file
from pytest_gnus.options import WITHOUT_FILE
from pytest_gnus.settings import Settings
from pytest_gnus.workspace import Workspace


def requested(config: pytest.Config, workspace: Workspace, settings: Settings) -> ExperimentRequest:
    """The experiment's file, if there is one, with what options say over it.

    Raises:
        ConfigError: with every problem of the file and the options.
    """
    directory = config.invocation_params.dir
    text = config.getoption("gnus_experiment")
    request = ExperimentRequest(origin="the command line")
    if text is not WITHOUT_FILE:
        path = experiment_file(workspace.root, directory, text)
        if path in {file.resolve() for file in workspace.benchmark_files.values()}:
            found = f"{text!r}, which is a benchmark's file"
            hint = "Write paths before --gnus-experiment."
            raise ConfigError(
                [Problem("--gnus-experiment", "", found, "an experiment's file, or none", hint)]
            )
        request = ExperimentRequest.from_file(workspace, path)
    problems = []
    if settings.variant is not None:
        hint = "Name them with --gnus-model."
        allowed = "nothing: an experiment measures the models that it names"
        problems.append(Problem("--gnus-variant", "", repr(settings.variant), allowed, hint))
    request = _with_niches(config, request, settings)
    request, of_repeat = _with_rounds(config, request)
    problems += of_repeat
    models = config.getoption("gnus_model") or ()
    if models:
        request = request.given("models", "--gnus-model", model_identifiers=tuple(models))
    elif not request.model_identifiers and (model := config.getini("gnus_model").strip()):
        request = request.given("models", "ini setting gnus_model", model_identifiers=(model,))
    output = config.getoption("gnus_output")
    if output is not None:
        request = request.given("output", "--gnus-output", output_file=directory / Path(output).expanduser())
    if not request.model_identifiers:
        where, key = request.place("models")
        allowed = "at least one model, as provider:name"
        problems.append(Problem(where, key, "no model", allowed, "Add --gnus-model=PROVIDER:NAME."))
    if problems:
        raise ConfigError(problems)
    return request


def models_directory(config: pytest.Config, workspace: Workspace) -> Path:
    """What models' directories are relative to: where they were typed, or the workspace of a file."""
    return config.invocation_params.dir if config.getoption("gnus_model") else workspace.root


def _with_niches(config: pytest.Config, request: ExperimentRequest, settings: Settings) -> ExperimentRequest:
    if config.getoption("gnus_niche"):
        return request.given("niche", "--niche", niches=settings.niches)
    if request.niches or request.benchmark_names:
        return request
    return request.given("niche", "ini setting gnus_niche", niches=settings.niches)


def _with_rounds(
    config: pytest.Config, request: ExperimentRequest
) -> tuple[ExperimentRequest, list[Problem]]:
    text = config.getoption("gnus_repeat")
    if text is None:
        return request, []
    try:
        return request.given("repeat", "--gnus-repeat", repeat=int(text)), []
    except ValueError:
        return request, [Problem("--gnus-repeat", "", repr(text), "a whole number")]
