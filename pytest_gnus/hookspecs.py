"""The product's own hooks: where a plugin or a `conftest.py` adds providers, gates and reporters.

Each takes the arguments that it names, as every pytest hook does. All implementations are asked, one after
the other, in pluggy's order: `tryfirst` first, else what was registered last. They exist wherever the plugin
is installed; a plugin that may be used without it marks them with `@pytest.hookimpl(optionalhook=True)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from pytest_gnus.experiments.report import ExperimentReport
    from pytest_gnus.experiments.result import ExperimentResult
    from pytest_gnus.gates.result import GateResult
    from pytest_gnus.gates.verdict import ItemOutcome, NicheVerdict
    from pytest_gnus.judging import Reference
    from pytest_gnus.measurement import Measurement
    from pytest_gnus.models.loaded import LoadedModel
    from pytest_gnus.models.provider import Provider
    from pytest_gnus.plan import BenchmarkItem
    from pytest_gnus.records.fingerprint import Fingerprint


def pytest_gnus_providers(config: pytest.Config) -> Provider | Iterable[Provider] | None:
    """Providers of models, by the word before the colon in `provider:name`.

    Called once per process, when pytest is configured: from an installed plugin, from `-p`, or from the
    `conftest.py` beside the workspace's folders (one in `benchmarks/` is loaded too late). Under xdist each
    worker asks too. A name that is taken is a usage error.
    """


def pytest_gnus_gates(
    item: BenchmarkItem,
    measurement: Measurement,
    model: LoadedModel,
    fingerprint: Fingerprint,
    reference: Reference | None,
    config: pytest.Config,
) -> GateResult | Iterable[GateResult] | None:
    """Gates of a measured benchmark, in addition to the product's own.

    What they say counts as everything else does: in the item's outcome, in its record and in the niche's
    verdict. A gate with `passed=None` was not evaluated, and so has not passed. Whatever is raised here, and
    an answer that is no `GateResult`, is an ERROR of the item.

    Called where the item was measured (under xdist in the worker), for benchmarks only, not for artifacts.

    Args:
        item: the plan: niche, benchmark, variant, thresholds, how it was asked.
        measurement: scores, per-category scores, per-document outcomes.
        model: what is in memory; `model.lm` is lm-eval's model.
        fingerprint: who was measured, and how.
        reference: for the quantized variant the reference's score and documents, or why there are none.
    """


def pytest_gnus_item_finished(
    niche: str,
    outcome: ItemOutcome,
    record: Mapping[str, Any] | None,
    path: Path | None,
    config: pytest.Config,
) -> None:
    """An item has finished and its record is on disk. Called where records are written, never in a worker.

    What is raised here is shown at the end of the run, and changes neither outcome nor verdict.

    Args:
        record: a copy of the record; None for an item that was skipped, and for an artifact.
        path: the record's file; None where there is no record, or where it could not be written.
    """


def pytest_gnus_run_finished(
    run_id: str, verdicts: Sequence[NicheVerdict], artifacts: Path, config: pytest.Config
) -> None:
    """The run has ended; its verdicts are on disk. Called once, where records are written.

    Args:
        verdicts: one for each niche that was asked for; `block` where nothing of it was measured.
        artifacts: the folder of records and verdicts.
    """


def pytest_gnus_result_finished(result: ExperimentResult, config: pytest.Config) -> None:
    """A combination of an experiment has finished and its line is on disk. Never called in a worker.

    What is raised here is shown at the end of the run and changes nothing that was measured.
    """


def pytest_gnus_experiment_finished(
    report: ExperimentReport, files: Sequence[Path], config: pytest.Config
) -> None:
    """The experiment has ended; its report is on disk. Called once, where results are written.

    Args:
        files: the results, the report as JSON, the report as Markdown.
    """
