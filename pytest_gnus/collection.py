"""From benchmark files to pytest items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from pytest_gnus.fixtures import check_artifact_gates, check_gates
from pytest_gnus.plan import ArtifactItem, BenchmarkItem, by_model

if TYPE_CHECKING:
    from pytest_gnus.measurement import Measurement
    from pytest_gnus.run import ArtifactState, FinishedItem, ItemState


class GateFailure(AssertionError):
    """Gates that do not hold; the text is all that a person is shown."""


class BenchmarkFile(pytest.File):
    """One `benchmarks/<name>.yaml`; its items are the niches and variants that run it."""

    planned: Sequence[BenchmarkItem] = ()

    def collect(self) -> Iterable[BenchmarkFunction]:
        for planned in self.planned:
            yield BenchmarkFunction.make(self, planned)


class SpecialistFile(pytest.File):
    """One `config/specialists/<niche>.yaml`; its item is the niche's SGFP4 artifact."""

    planned: Sequence[ArtifactItem] = ()

    def collect(self) -> Iterable[ArtifactFunction]:
        for planned in self.planned:
            yield ArtifactFunction.make(self, planned)


class GnusFunction(pytest.Function):
    """A pytest function of this product: fixtures, marks and reports are all pytest's own."""

    seconds: float = 0.0
    #: What it came to the last time that it was run.
    finished: FinishedItem | None = None

    def mark(self, niche: str, benchmark: str, variant: str, *, blocking: bool) -> None:
        """The product's own marks, for `-m` and for those who read them.

        Names are keywords, so that `-m "gnus_variant(name='quantized')"` selects.
        """
        self.add_marker(pytest.mark.gnus_niche(name=niche))
        self.add_marker(pytest.mark.gnus_benchmark(name=benchmark))
        self.add_marker(pytest.mark.gnus_variant(name=variant))
        self.add_marker(pytest.mark.blocking if blocking else pytest.mark.diagnostic)

    if hasattr(pytest.Item, "id"):

        @property
        def id(self) -> Any:
            """The name taken apart, as pytest does with a name that it reads from a file.

            pytest 9.2 compares identifiers in parts; without this, `--lf` does not know an item with
            brackets in its name again.
            """
            whole: Any = super().id
            return type(whole).parse(str(whole))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.name

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:  # type: ignore[override]
        if isinstance(excinfo.value, GateFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo)


class MeasuringFunction(GnusFunction):
    """Measures one benchmark, for a gate or for an experiment."""

    planned: BenchmarkItem

    @cached_property
    def state(self) -> ItemState:
        """What has become of the item; made when it runs, since collecting is to be instant."""
        from pytest_gnus.run import ItemState

        return ItemState(self.planned)

    def note_score(self, measurement: Measurement) -> None:
        """Have the score in the reports of pytest and of others; once, however often the item is run."""
        noted = {
            "gnus_metric": measurement.metric,
            "gnus_score": float(measurement.score),
            "gnus_n": measurement.n,
        }
        others = [(name, value) for name, value in self.user_properties if name not in noted]
        self.user_properties[:] = [*others, *noted.items()]


class BenchmarkFunction(MeasuringFunction):
    """Measures one benchmark and gates it."""

    @classmethod
    def make(cls, parent: BenchmarkFile, planned: BenchmarkItem) -> BenchmarkFunction:
        item: BenchmarkFunction = cls.from_parent(parent, name=planned.name, callobj=_test_function())
        item.planned = planned
        item.mark(planned.niche, planned.benchmark.name, planned.variant, blocking=planned.blocking)
        return item


class ArtifactFunction(GnusFunction):
    """Measures one SGFP4 artifact."""

    planned: ArtifactItem

    @classmethod
    def make(cls, parent: SpecialistFile, planned: ArtifactItem) -> ArtifactFunction:
        item: ArtifactFunction = cls.from_parent(parent, name=planned.name, callobj=_artifact_function())
        item.planned = planned
        item.mark(planned.niche, planned.benchmark, planned.variant, blocking=True)
        return item

    @cached_property
    def state(self) -> ArtifactState:
        """What has become of the item."""
        from pytest_gnus.run import ArtifactState

        return ArtifactState(self.planned)


def _artifact_function() -> Callable[..., None]:
    def check(gnus_artifact: None, request: pytest.FixtureRequest) -> None:
        check_artifact_gates(request)

    return check


def _test_function() -> Callable[..., None]:
    """A function of each item's own: pytest keeps marks on it."""

    def check(gnus_measurement: Any, request: pytest.FixtureRequest) -> None:
        check_gates(request)

    return check


def items_by_file(items: Iterable[BenchmarkItem], files: dict[str, Path]) -> dict[Path, list[BenchmarkItem]]:
    """The planned items of each benchmark file, by its path with links resolved."""
    by_file: dict[Path, list[BenchmarkItem]] = {}
    for item in items:
        by_file.setdefault(files[item.benchmark.name].resolve(), []).append(item)
    return by_file


def sort_items(items: list[pytest.Item], plan: Sequence[BenchmarkItem]) -> None:
    """Order benchmark items, in place, by niche and then so that each model's stand together.

    Artifacts come before all benchmarks: a broken one is to fail before anything is run on it. They keep the
    places that such items had; other tests stay where they are.
    """
    artifacts = [item for item in items if isinstance(item, ArtifactFunction)]
    ours = as_planned((item for item in items if isinstance(item, BenchmarkFunction)), plan)
    order = by_model([item.planned for item in ours])
    put_in_their_places(items, [*artifacts, *(ours[index] for index in order)])


_Measuring = TypeVar("_Measuring", bound=MeasuringFunction)


def as_planned(items: Iterable[_Measuring], plan: Sequence[BenchmarkItem]) -> list[_Measuring]:
    """Items in the order of their plan."""
    rank = {planned.key: index for index, planned in enumerate(plan)}
    return sorted(items, key=lambda item: rank[item.planned.key])


def put_in_their_places(items: list[pytest.Item], ours: Sequence[GnusFunction]) -> None:
    """Put the product's items of a session, in place, into this order; other tests stay where they are."""
    places = [index for index, item in enumerate(items) if isinstance(item, GnusFunction)]
    for place, item in zip(places, ours, strict=True):
        items[place] = item
