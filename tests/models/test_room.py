"""Whether a model has room beside those that are in memory already."""

from __future__ import annotations

import json

import pytest

from pytest_gnus.models import memory, room
from pytest_gnus.models.spec import SGFP4_MANIFEST, ModelSpec


@pytest.fixture
def model(tmp_path):
    """A directory of a model with 1000 bytes of weights."""

    def make(config=b"{}", name="model"):
        directory = tmp_path / name
        directory.mkdir()
        (directory / "config.json").write_bytes(config)
        (directory / "model.safetensors").write_bytes(b"x" * 1000)
        return ModelSpec("mlx", str(directory))

    return make


def test_a_model_may_be_twice_as_large_in_memory_and_a_quantized_one_eight_times(model, tmp_path):
    assert room.size_in_memory(model()) == 2 * 1002
    for number, key in enumerate(("quantization", "quantization_config")):
        config = json.dumps({key: {"bits": 4}}).encode()
        assert room.size_in_memory(model(config, f"q{number}")) == 8 * (1000 + len(config))
    package = model(name="package")
    (tmp_path / "package" / SGFP4_MANIFEST).write_text("{}")
    assert room.size_in_memory(package) == 8 * 1004
    assert room.size_in_memory(model(b"broken", "b")) == 8 * 1006


def test_an_adapter_counts(model, tmp_path):
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapters.safetensors").write_bytes(b"x" * 50)
    spec = model()
    assert room.size_in_memory(ModelSpec("mlx", spec.name, str(adapter))) == 2 * 1052


def test_it_may_take_half_of_what_is_free(model, monkeypatch):
    spec = model()
    for free, expected in ((4008, True), (4007, False), (None, False)):
        monkeypatch.setattr(memory, "free_memory", lambda free=free: free)
        assert room.has_room(spec) is expected


def test_answerers_without_weights_always_have_room_and_what_nobody_knows_has_none(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 0)
    assert room.has_room(ModelSpec("demo", "random")) is True
    assert room.has_room(ModelSpec("mlx", "org/on-the-hub")) is False
