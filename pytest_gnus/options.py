"""The options on the command line and their ini settings.

Imported by every pytest session in whose environment the plugin is installed, so it imports nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    import pytest

MODES = ("canonical", "diagnostic")
SOURCES = ("huggingface", "local")
DTYPES = ("float32", "bfloat16", "float16", "stored")
VARIANTS = ("quantized", "reference", "baseline", "all")
MARKERS = (
    "gnus_niche(name): the niche whose specialist is measured",
    "gnus_benchmark(name): the benchmark that is run",
    "gnus_variant(name): quantized, reference or baseline",
    "blocking: a benchmark that blocks the release of its niche",
    "diagnostic: a benchmark that is recorded and shown, and blocks nothing",
    "gnus_model(name): in an experiment, the model that is measured, by its short name",
    "gnus_round(index): in an experiment, the round, from 0",
)


def add_options(parser: pytest.Parser) -> None:
    """Register `--niche`, `--gnus-*` and their ini settings."""
    group = parser.getgroup("gnus", "LLM benchmarks (pytest-gnus)")
    group.addoption(
        "--niche",
        action="append",
        metavar="NAME",
        dest="gnus_niche",
        help="Run the release gate of a niche (repeatable; 'all' for every niche)",
    )
    parser.addini("gnus_niche", "Niches to run, as --niche", type="args", default=[])
    for name, metavar, text in (
        ("variant", "NAME", f"Which weights: {', '.join(VARIANTS)} (default: reference and quantized)"),
        ("mode", "NAME", "canonical: frozen settings, gated (default); diagnostic: overridden, never gated"),
        ("source", "NAME", "Where documents come from: huggingface or local (data/benchmarks/)"),
        ("dtype", "NAME", f"Compute in {', '.join(DTYPES)} (default: float32 on a CPU, else as stored)"),
        ("artifacts", "DIR", "Where records and verdicts are written (default: artifacts/)"),
        (
            "history",
            "URL",
            "Keep records there too and compare with them: a folder, or s3://, gs://, hf://, ...",
        ),
    ):
        group.addoption(f"--gnus-{name}", metavar=metavar, dest=f"gnus_{name}", default=None, help=text)
        parser.addini(f"gnus_{name}", f"As --gnus-{name}", type="string", default="")
    group.addoption(
        "--gnus-model",
        action="append",
        metavar="PROVIDER:NAME",
        dest="gnus_model",
        default=None,
        help="Use this model as the quantized variant, e.g. mlx:DIR or mlx:HUB_ID; repeatable with "
        "--gnus-experiment, which compares them",
    )
    parser.addini("gnus_model", "As --gnus-model", type="string", default="")
    _add_experiment_options(group)
    group.addoption(
        "--gnus-batch-tokens",
        metavar="N",
        dest="gnus_batch_tokens",
        default=None,
        help="Tokens of one forward pass, padding included (default: what the free memory allows)",
    )
    parser.addini("gnus_batch_tokens", "As --gnus-batch-tokens", type="int", default=0)
    group.addoption(
        "--gnus-workers-per-device",
        metavar="N",
        dest="gnus_workers_per_device",
        default=None,
        help="How many processes may hold a model on one GPU at once (default: 1); on a CPU memory decides",
    )
    parser.addini("gnus_workers_per_device", "As --gnus-workers-per-device", type="int", default=0)
    group.addoption(
        "--gnus-limit",
        metavar="N",
        dest="gnus_limit",
        default=None,
        help="Measure only the first N documents of each task; the run is marked and never gates",
    )
    parser.addini("gnus_limit", "As --gnus-limit", type="int", default=0)
    group.addoption(
        "--gnus-force-download",
        action="store_true",
        dest="gnus_force_download",
        default=None,
        help="Download data sets again even when they are cached",
    )
    parser.addini("gnus_force_download", "As --gnus-force-download", type="bool", default=False)


#: The value of `--gnus-experiment` where it stands without a file.
WITHOUT_FILE = True


def _add_experiment_options(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--gnus-experiment",
        nargs="?",
        const=WITHOUT_FILE,
        metavar="FILE",
        dest="gnus_experiment",
        default=None,
        help="Run an experiment: benchmarks x models x rounds, of a file (config/experiments/*.yaml) or of "
        "--niche and --gnus-model; never gated",
    )
    for name, metavar, text in (
        ("repeat", "N", "Rounds of an experiment, each with few-shot examples of its own (default: 1)"),
        ("output", "FILE", "Where an experiment's results are appended, a JSON line each"),
    ):
        group.addoption(f"--gnus-{name}", metavar=metavar, dest=f"gnus_{name}", default=None, help=text)


def register_markers(config: pytest.Config) -> None:
    """Make the markers known in every session, for `--strict-markers` and `--markers`."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def may_name_benchmarks(config: pytest.Config) -> bool:
    """Whether the command line names YAML files, which may be benchmarks or niches."""
    return any(argument.partition("::")[0].endswith((".yaml", ".yml")) for argument in config.args)


def asks_for_benchmarks(config: pytest.Config, given: argparse.Namespace) -> bool:
    """Whether the options given, or the ini settings, name a niche or an experiment."""
    if given.gnus_niche or config.getini("gnus_niche"):
        return True
    return given.gnus_experiment is not None


def is_active(config: pytest.Config) -> bool:
    """Whether this session runs benchmarks at all.

    Raises:
        pytest.UsageError: options that only an experiment can obey, and no experiment; a model, and nothing
            that could be run on it.
    """
    if asks_for_benchmarks(config, config.option):
        if not is_experiment(config):
            _refuse_what_is_for_experiments(config)
        return True
    _refuse_what_is_for_experiments(config)
    if config.getoption("gnus_model") is None:
        return False
    import pytest

    raise pytest.UsageError(
        "pytest-gnus: --gnus-model: nothing to measure; add --niche=NAME for the benchmarks of a niche"
    )


def is_experiment(config: pytest.Config) -> bool:
    """Whether an active session compares models instead of gating a niche's own: only where that is said."""
    return config.getoption("gnus_experiment") is not None


def _refuse_what_is_for_experiments(config: pytest.Config) -> None:
    """A release gate must not become an experiment, which gates nothing, by another option in passing."""
    models = config.getoption("gnus_model") or ()
    asked = [
        *([f"--gnus-model {len(models)} times"] if len(models) > 1 else []),
        *(f"--gnus-{name}" for name in ("repeat", "output") if config.getoption(f"gnus_{name}") is not None),
    ]
    if not asked:
        return
    import pytest

    raise pytest.UsageError(
        f"pytest-gnus: {', '.join(asked)}: only an experiment, which gates nothing, does this; add "
        "--gnus-experiment for one of the models named (it takes a file, or --niche=NAME beside it)"
        + (", or name one model for a gate" if len(models) > 1 else "")
    )


def asks_for_a_part(config: pytest.Config) -> bool:
    """Whether a part of a niche was asked for by an option, so that what is left out is left out on purpose.

    What a conftest or another plugin leaves out was not asked for.
    """
    import pytest

    if config.args_source is pytest.Config.ArgsSource.ARGS or config.getoption("gnus_variant") is not None:
        return True
    return any(config.getoption(name, None) for name in _SELECTING)


#: pytest's own options that select among what was collected, or run none of it.
_SELECTING = (
    "keyword",
    "markexpr",
    "deselect",
    "ignore",
    "ignore_glob",
    "lf",
    "stepwise",
    "setuponly",
    "setupplan",
)
