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
        help="Use this model as the quantized variant, e.g. mlx:DIR or mlx:HUB_ID; several are compared",
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


def _add_experiment_options(group: pytest.OptionGroup) -> None:
    for name, metavar, text in (
        ("experiment", "FILE", "Run an experiment: benchmarks x models x rounds (config/experiments/*.yaml)"),
        ("repeat", "N", "Rounds of an experiment, each with few-shot examples of its own (default: 1)"),
        ("output", "FILE", "Where an experiment's results are appended, a JSON line each"),
    ):
        group.addoption(f"--gnus-{name}", metavar=metavar, dest=f"gnus_{name}", default=None, help=text)


def asks_for_benchmarks(config: pytest.Config, given: argparse.Namespace) -> bool:
    """Whether the options given, or the ini settings, name a niche or an experiment."""
    if given.gnus_niche or config.getini("gnus_niche"):
        return True
    return given.gnus_experiment is not None


def is_active(config: pytest.Config) -> bool:
    """Whether this session runs benchmarks at all.

    Raises:
        pytest.UsageError: models, rounds or an output are given, but nothing that could be run on them.
    """
    if asks_for_benchmarks(config, config.option):
        return True
    alone = [f"--gnus-{name}" for name in _OF_A_NICHE if config.getoption(f"gnus_{name}") is not None]
    if not alone:
        return False
    import pytest

    raise pytest.UsageError(
        f"pytest-gnus: {', '.join(alone)}: nothing to measure; add --niche=NAME for the benchmarks of a "
        "niche, or --gnus-experiment=FILE for an experiment"
    )


def is_experiment(config: pytest.Config) -> bool:
    """Whether an active session compares models instead of gating a niche's own."""
    return (
        any(config.getoption(f"gnus_{name}") is not None for name in ("experiment", "repeat", "output"))
        or len(config.getoption("gnus_model") or ()) > 1
    )


_OF_A_NICHE = ("model", "repeat", "output")
