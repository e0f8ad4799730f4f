"""The Python API: a niche's benchmarks without a pytest session, through the same rooms."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, cast

from pytest_gnus.errors import ConfigError, GnusError, Problem, did_you_mean, listed
from pytest_gnus.models import registry
from pytest_gnus.models.pool import ModelPool
from pytest_gnus.models.provider import Provider
from pytest_gnus.plan import BenchmarkItem, Planner
from pytest_gnus.records.store import RecordStore
from pytest_gnus.run import ItemState, Run
from pytest_gnus.schema import Mode, Source
from pytest_gnus.settings import API_SOURCE, Settings
from pytest_gnus.workspace import Workspace, open_workspace


class BenchmarkRunner:
    """Runs the benchmarks of a niche and writes their records.

    Args:
        project_root: the workspace; without one, the nearest folder upwards with `config/specialists/`.
        providers: providers of models beside the built-in ones.

    Raises:
        ConfigError: there is no workspace, or something in it is wrong.
    """

    def __init__(self, project_root: Path | str | None = None, providers: Iterable[Provider] = ()) -> None:
        self._workspace = open_workspace(project_root, "BenchmarkRunner", providers)

    @property
    def workspace(self) -> Workspace:
        return self._workspace

    def run_benchmarks(
        self,
        niche: str,
        mode: str = "canonical",
        source: str = "huggingface",
        force_download: bool = False,
        quantized: bool = True,
    ) -> list[Path]:
        """Measure every benchmark of a niche on its quantized or its reference weights.

        Returns the records written, a path each, in the niche's order. Gates are recorded, not raised.

        Raises:
            NotImplementedError: `source` is "api", which is judge-only (D-01).
            RuntimeError: lm-eval is not installed.
            ConfigError: no such niche, mode, source or variant.
            GnusError: a model or data set cannot be used. What went wrong is recorded first.
        """
        if source == "api":
            raise NotImplementedError(API_SOURCE)
        if find_spec("lm_eval") is None:
            raise RuntimeError("lm-eval is not installed: pip install lm-eval")
        variant: Literal["quantized", "reference"] = "quantized" if quantized else "reference"
        self._check(niche, mode, source)
        settings = Settings(
            niches=(niche,),
            variant=variant,
            mode=cast("Mode", mode),
            source=cast("Source", source),
            force_download=force_download,
            artifacts=self._workspace.root / "artifacts",
        )
        planner = Planner(self._workspace, settings, Path.cwd())
        if problems := planner.problems():
            raise ConfigError(problems)
        known = self._workspace.providers
        pool = ModelPool(partial(registry.load, providers=known))
        run = Run(RecordStore(settings.artifacts), pool=pool, providers=known)
        try:
            paths = [self._run_item(run, item) for item in planner.items()]
        finally:
            run.pool.release()
        return [path for path in paths if path is not None]

    def _check(self, niche: str, mode: str, source: str) -> None:
        problems = [
            Problem("run_benchmarks", key, repr(value), listed(known), did_you_mean(value, known))
            for key, value, known in (
                ("niche", niche, sorted(self._workspace.niches)),
                ("mode", mode, ["canonical", "diagnostic"]),
                ("source", source, ["huggingface", "local"]),
            )
            if value not in known
        ]
        if problems:
            raise ConfigError(problems)

    @staticmethod
    def _run_item(run: Run, item: BenchmarkItem) -> Path | None:
        state = ItemState(item)
        try:
            state.skip = run.skip(item)
            if state.skip is not None:
                finished = run.finish(state, state.skip.status, state.skip.reason)
            else:
                built = run.prepare(item)
                run.measure(state, built, run.pool.get(item.model))
                finished = run.finish(state, run.judge(state))
        except GnusError as error:
            failed = run.finish(state, "error", str(error))
            if failed.record is not None:
                run.store.write(failed.record)
            raise
        if finished.record is None:
            return None
        return run.store.write(finished.record, finished.samples)
