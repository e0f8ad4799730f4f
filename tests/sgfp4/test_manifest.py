"""Manifests of both forms, and what is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_gnus.sgfp4 import SGFP4Error, decode, encode
from pytest_gnus.sgfp4.manifest import MANIFEST_NAME, read_manifest

CONTAINER, _ = encode(np.random.default_rng(0).normal(size=(70, 40)).astype(np.float32))


def written(folder: Path, content: Any, *, container: str = "sgfp4/a.sgfp4") -> Path:
    """A manifest with its container beside it."""
    path = folder / container
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(CONTAINER)
    (folder / MANIFEST_NAME).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder / MANIFEST_NAME


def entry(**changes: Any) -> dict[str, Any]:
    whole = {
        "name": "a.weight",
        "path": "sgfp4/a.sgfp4",
        "sha256": hashlib.sha256(CONTAINER).hexdigest(),
        "shape": [70, 40],
        "stats": {"effective_bpw": 4.25},
    }
    return {key: value for key, value in {**whole, **changes}.items() if value is not None}


def test_a_whole_model(tmp_path: Path) -> None:
    path = written(tmp_path, {"manifest_version": "2", "tensors": [entry()]})
    manifest = read_manifest(path)
    (tensor,) = manifest.tensors
    assert (tensor.name, tensor.shape, tensor.stats["effective_bpw"]) == ("a.weight", (70, 40), 4.25)
    assert manifest.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert tensor.read() == CONTAINER
    assert decode(tensor.read(), tensor.shape).shape == (70, 40)


@pytest.mark.parametrize("where", ["C:\\exports\\patents\\model.fp4.bin", "/home/a/model.fp4.bin"])
def test_a_single_tensor_export_names_its_file_however_it_was_written(tmp_path: Path, where: str) -> None:
    binary = {
        "path": where,
        "sha256": hashlib.sha256(CONTAINER).hexdigest().upper(),
        "format": "fp4_ultra_v0.2",
        "stats": {"shape": [70, 40], "total_blocks": 2},
    }
    content = {"manifest_version": "1.0", "niche": "patents", "base_model": "m", "fp4_binary": binary}
    (tensor,) = read_manifest(written(tmp_path, content, container="model.fp4.bin")).tensors
    assert (tensor.path, tensor.shape) == (tmp_path / "model.fp4.bin", (70, 40))
    assert tensor.read() == CONTAINER


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[1]", "found 'list'; allowed: a JSON object"),
        ({"niche": "x"}, "a key `tensors` or `fp4_binary`"),
        ({"tensors": []}, "a list of at least one tensor"),
        ({"tensors": ["a"]}, r"tensors\[0\]: found 'a'; allowed: an object"),
        ({"tensors": [entry(name=None)]}, r"tensors\[0\]\.name: found None"),
        ({"tensors": [entry(sha256="abc")]}, r"tensors\[0\]\.sha256: found 'abc'"),
        ({"tensors": [entry(sha256=None)]}, r"tensors\[0\]\.sha256: found None"),
        ({"tensors": [entry(shape=[70])]}, r"tensors\[0\]\.shape: found \[70\]"),
        ({"tensors": [entry(shape=[70, 0])]}, r"tensors\[0\]\.shape: found \[70, 0\]"),
        ({"tensors": [entry(shape=[True, 4])]}, r"tensors\[0\]\.shape"),
        ({"tensors": [entry(shape=[7.0, 4])]}, r"tensors\[0\]\.shape"),
        ({"tensors": [entry(path="..")]}, r"tensors\[0\]\.path: found '\.\.'"),
        ({"tensors": [entry(path=None)]}, r"tensors\[0\]\.path: found None"),
        ({"tensors": [entry(stats=[1])]}, r"tensors\[0\]\.stats"),
        ({"tensors": [entry(), entry(path="b")]}, "name a.weight twice"),
        ({"tensors": [entry(), entry(name="b")]}, "path .* twice"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(SGFP4Error, match=message) as caught:
        read_manifest(written(tmp_path, content))
    assert MANIFEST_NAME in str(caught.value)


def test_a_path_never_leaves_the_package(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (tmp_path / "secret").write_bytes(CONTAINER)
    path = written(package, {"tensors": [entry(path="../secret")]})
    (tensor,) = read_manifest(path).tensors
    assert tensor.path == package / "sgfp4" / "secret"
    with pytest.raises(SGFP4Error, match=r"tensor a\.weight: cannot be read"):
        tensor.read()


def test_an_altered_container_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    (tensor,) = read_manifest(written(tmp_path, {"tensors": [entry()]})).tensors
    data = bytearray(CONTAINER)
    data[-1] ^= 1
    tensor.path.write_bytes(data)
    with pytest.raises(
        SGFP4Error, match=r"a\.sgfp4, tensor a\.weight: the file's SHA-256 is [0-9a-f]{64}, but"
    ):
        tensor.read()


def test_a_manifest_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SGFP4Error, match="cannot be read: No such file"):
        read_manifest(tmp_path / MANIFEST_NAME)
