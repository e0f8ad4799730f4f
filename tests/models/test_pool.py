"""One model in memory at a time."""

from __future__ import annotations

from itertools import chain, product

import pytest

from pytest_gnus.errors import ModelError
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.models.pool import ModelPool
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.models.usage import Usage

A, B, BROKEN = ModelSpec("mlx", "a"), ModelSpec("mlx", "b"), ModelSpec("mlx", "broken")


class Recorder:
    """A loader that writes down what happens, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, spec: ModelSpec) -> LoadedModel:
        self.events.append(f"load {spec.name}")
        if spec == BROKEN:
            raise ModelError(f"no weights (try {self.events.count('load broken')})")
        return LoadedModel(spec=spec, lm=Recorded(spec.name, self.events))


class Recorded:
    """A language model that says when it is freed."""

    def __init__(self, name: str, events: list[str]) -> None:
        self.usage = Usage()
        self._name = name
        self._events = events

    def release(self) -> None:
        self._events.append(f"release {self._name}")


@pytest.fixture
def loader() -> Recorder:
    return Recorder()


@pytest.fixture
def pool(loader: Recorder) -> ModelPool:
    return ModelPool(loader)


def test_nothing_is_loaded_before_it_is_asked_for(pool: ModelPool, loader: Recorder) -> None:
    assert (loader.events, pool.loads) == ([], [])


def test_a_model_is_loaded_once_while_it_is_asked_for(pool: ModelPool, loader: Recorder) -> None:
    first = pool.get(A)
    assert pool.get(ModelSpec("mlx", "a")) is first
    assert first.spec == A
    assert (loader.events, pool.loads) == (["load a"], [A])


def test_a_model_is_freed_before_the_next_is_loaded(pool: ModelPool, loader: Recorder) -> None:
    pool.get(A)
    pool.get(B)
    pool.get(A)
    assert loader.events == ["load a", "release a", "load b", "release b", "load a"]
    assert pool.loads == [A, B, A]


def test_the_same_weights_with_an_adapter_are_another_model(pool: ModelPool, loader: Recorder) -> None:
    pool.get(A)
    pool.get(ModelSpec("mlx", "a", "adapter"))
    assert loader.events == ["load a", "release a", "load a"]


def test_a_load_that_failed_is_not_tried_again(pool: ModelPool, loader: Recorder) -> None:
    for _ in range(3):
        with pytest.raises(ModelError) as raised:
            pool.get(BROKEN)
        assert str(raised.value) == "no weights (try 1)"
    assert (loader.events, pool.loads) == (["load broken"], [])


def test_a_failing_load_frees_what_was_held_first(pool: ModelPool, loader: Recorder) -> None:
    pool.get(A)
    with pytest.raises(ModelError):
        pool.get(BROKEN)
    pool.get(A)
    assert loader.events == ["load a", "release a", "load broken", "load a"]


def test_a_known_failure_costs_the_held_model_nothing(pool: ModelPool, loader: Recorder) -> None:
    with pytest.raises(ModelError):
        pool.get(BROKEN)
    held = pool.get(A)
    with pytest.raises(ModelError):
        pool.get(BROKEN)
    assert pool.get(A) is held
    assert loader.events == ["load broken", "load a"]


def test_release_frees_the_model_once(pool: ModelPool, loader: Recorder) -> None:
    pool.get(A)
    pool.release()
    pool.release()
    assert loader.events == ["load a", "release a"]
    pool.get(A)
    assert loader.events == ["load a", "release a", "load a"]


def test_release_of_an_empty_pool_does_nothing(pool: ModelPool, loader: Recorder) -> None:
    pool.release()
    assert loader.events == []


def test_never_are_two_models_in_memory(pool: ModelPool, loader: Recorder) -> None:
    """Through every pair of requests that can follow each other; None asks to release."""
    for spec in chain.from_iterable(product([A, B, BROKEN, None], repeat=2)):
        if spec is None:
            pool.release()
        elif spec == BROKEN:
            with pytest.raises(ModelError, match="try 1"):
                pool.get(spec)
        else:
            assert pool.get(spec).spec == spec
    held: list[str] = []
    for event in loader.events:
        what, name = event.split()
        if what == "load":
            assert held == []
            held += [name] if name != "broken" else []
        else:
            assert held == [name]
            held.clear()
    assert loader.events.count("load broken") == 1


def test_models_that_fit_stay_and_are_loaded_once(loader: Recorder) -> None:
    pool = ModelPool(loader, fits=lambda _spec: True)
    for spec in [A, B] * 3:
        assert pool.get(spec).spec == spec
    assert loader.events == ["load a", "load b"]
    pool.release()
    assert sorted(loader.events[2:]) == ["release a", "release b"]


def test_without_room_the_newest_goes_first_since_the_oldest_is_wanted_next(loader: Recorder) -> None:
    """Three models in rounds and room for two: the first is loaded once, the others in turn."""
    held: set[str] = set()

    def fits(_spec: ModelSpec) -> bool:
        held.clear()
        for event in loader.events:
            what, name = event.split()
            held.add(name) if what == "load" else held.discard(name)
        return len(held) < 2

    pool = ModelPool(loader, fits)
    c = ModelSpec("mlx", "c")
    for spec in [A, B, c] * 3:
        pool.get(spec)
    assert pool.loads == [A, B, c, B, c, B, c]
    assert "release a" not in loader.events
