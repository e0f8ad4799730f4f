"""A model whose matrices are in SGFP4: made from an MLX model, read into memory, and measured.

A package is a model directory: the configuration and tokenizer of the model it was made from, the tensors
that stay unquantized in `model.safetensors`, one container per quantized matrix in `sgfp4/`, the manifest.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pytest_gnus.errors import ModelError
from pytest_gnus.gates.artifact import ArtifactNumbers
from pytest_gnus.models.config_file import read_config
from pytest_gnus.models.cpu import load_fast_blas
from pytest_gnus.records.fingerprint import directory_sha256
from pytest_gnus.sgfp4 import (
    ContainerInfo,
    EncodeOptions,
    EncodeReport,
    decode,
    describe,
    encode,
    squared_error,
    squared_sum,
)
from pytest_gnus.sgfp4.manifest import (
    MANIFEST_NAME,
    Manifest,
    TensorEntry,
    manifest_content,
    read_manifest,
)
from pytest_gnus.versions import package_versions

#: Weights that stay as they are: embeddings and norms; the output head is not there where it is tied.
UNQUANTIZED = ("*embed*", "*wte*", "*wpe*", "*norm*", "*ln_*")
#: Where transformers keeps chat templates beside the default one.
_TEMPLATES_FOLDER = "additional_chat_templates"
#: What a package does not take over from its model.
_WEIGHT_FILES = ("*.safetensors", "*.safetensors.index.json", "*.bin", "*.gguf", "*.pt", "*.pth")


@dataclass(frozen=True)
class Quantized:
    """One matrix that was quantized."""

    name: str
    shape: tuple[int, int]
    report: EncodeReport


@dataclass(frozen=True)
class QuantizeReport:
    """What `quantize` made: the quantized matrices, and the names of the tensors that stayed."""

    tensors: tuple[Quantized, ...]
    kept: tuple[str, ...]

    @property
    def weights(self) -> int:
        return sum(tensor.report.container.weights for tensor in self.tensors)

    @property
    def total_bytes(self) -> int:
        return sum(tensor.report.container.total_bytes for tensor in self.tensors)

    @property
    def squared_error(self) -> float:
        return sum(tensor.report.squared_error for tensor in self.tensors)

    @property
    def squared_weights(self) -> float:
        return sum(tensor.report.squared_weights for tensor in self.tensors)

    def stats(self) -> dict[str, Any]:
        """The totals, as the manifest has them."""
        ternary = sum(tensor.report.container.ternary_leaves for tensor in self.tensors)
        leaves = sum(tensor.report.container.leaves for tensor in self.tensors)
        return {
            "weights": self.weights,
            "effective_bpw": 8 * self.total_bytes / self.weights,
            "mse": self.squared_error / self.weights,
            "relative_mse": self.squared_error / self.squared_weights if self.squared_weights else None,
            "t158_ratio": ternary / leaves,
        }


def is_package(directory: Path) -> bool:
    return (directory / MANIFEST_NAME).is_file()


def quantize(
    source: Path,
    target: Path,
    options: EncodeOptions,
    *,
    keep: Sequence[str] = UNQUANTIZED,
    niche: str | None = None,
    advance: Callable[[int], object] = lambda _weights: None,
    begin: Callable[[int], object] = lambda _weights: None,
) -> QuantizeReport:
    """Make a package of the MLX model in `source`; it is there whole, or not at all.

    Args:
        keep: patterns of weights that stay unquantized, besides all that are no matrices.
        begin, advance: hear how many weights there are to quantize, and how many are done.

    Raises:
        ModelError: no model there, one that is quantized already, or `target` exists.
        SGFP4Error: a weight that cannot be encoded, by name.
    """
    if target.exists():
        raise ModelError(f"{target} exists; choose another place, or remove it")
    config = read_config(source)
    if config.get("quantization") or config.get("quantization_config") or is_package(source):
        raise ModelError(f"{source} is quantized already: quantize the model it was made from")
    tensors = _stored(source)
    chosen = [name for name, tensor in sorted(tensors.items()) if _is_quantizable(name, tensor, keep)]
    if not chosen:
        raise ModelError(f"{source} has no matrix to quantize")
    begin(sum(tensors[name].size for name in chosen))
    with _new_directory(target) as folder:
        _copy_files(source, folder)
        (folder / "sgfp4").mkdir()

        done = list(_written(folder, {name: tensors[name] for name in chosen}, options, advance))
        kept = {name: tensor for name, tensor in tensors.items() if name not in set(chosen)}
        _save(folder / "model.safetensors", kept)
        report = QuantizeReport(tuple(quantized for quantized, _ in done), tuple(sorted(kept)))
        content = manifest_content(
            [entry for _, entry in done],
            base_model=source.resolve().name,
            base_model_sha256=directory_sha256({"model": source}),
            niche=niche,
            encoder={
                "name": "pytest-gnus",
                "version": package_versions().get("pytest-gnus"),
                "options": asdict(options),
            },
            stats=report.stats(),
        )
        (folder / MANIFEST_NAME).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return report


def _stored(directory: Path) -> dict[str, Any]:
    """All tensors of a model directory, read when they are used."""
    load_fast_blas()  # whoever imports MLX first decides what it computes with
    import mlx.core as mx

    paths = sorted(directory.glob("model*.safetensors"))
    if not paths:
        raise ModelError(f"{directory} holds no weights: no file model*.safetensors")
    tensors: dict[str, Any] = {}
    for path in paths:
        try:
            stored: Any = mx.load(str(path))
        except RuntimeError as error:
            raise ModelError(f"{path} cannot be read: {error}") from error
        tensors.update(stored)
    return tensors


def _is_quantizable(name: str, tensor: Any, keep: Sequence[str]) -> bool:
    import mlx.core as mx

    matrix = tensor.ndim == 2 and mx.issubdtype(tensor.dtype, mx.floating) and name.endswith(".weight")
    return matrix and not any(fnmatch.fnmatch(name.lower(), pattern.lower()) for pattern in keep)


def _written(
    folder: Path, tensors: Mapping[str, Any], options: EncodeOptions, advance: Callable[[int], object]
) -> Iterator[tuple[Quantized, Mapping[str, Any]]]:
    """Encode matrices on all cores, in the order given, a few in memory at the same time."""
    workers = os.cpu_count() or 1
    waiting: deque[tuple[str, Any, Future[tuple[bytes, EncodeReport]]]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for name, tensor in tensors.items():
            # MLX's arrays belong to this thread; the others get NumPy's.
            future = pool.submit(encode, as_float32(tensor), options, tensor=name)
            waiting.append((name, tensor, future))
            if len(waiting) > workers:
                yield _write_container(folder, *waiting.popleft(), advance)
        while waiting:
            yield _write_container(folder, *waiting.popleft(), advance)


def _write_container(
    folder: Path,
    name: str,
    tensor: Any,
    encoded: Future[tuple[bytes, EncodeReport]],
    advance: Callable[[int], object],
) -> tuple[Quantized, Mapping[str, Any]]:
    data, report = encoded.result()
    path = folder / "sgfp4" / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}.sgfp4"
    path.write_bytes(data)
    shape = (int(tensor.shape[0]), int(tensor.shape[1]))
    container = report.container
    advance(container.weights)
    return Quantized(name, shape, report), {
        "name": name,
        "path": f"sgfp4/{path.name}",
        "sha256": hashlib.sha256(data).hexdigest(),
        "shape": list(shape),
        "dtype": _dtype_name(tensor),
        "stats": {
            "shape": list(shape),
            "fp4_blocks": container.fp4_leaves,
            "t158_blocks": container.ternary_leaves,
            "total_blocks": container.leaves,
            "effective_bpw": container.bits_per_weight,
            "layout_distribution": dict(container.layout_counts),
            "mse": report.mse,
            "relative_mse": report.relative_mse,
        },
    }


def as_float32(tensor: Any) -> np.ndarray:
    """An MLX array as NumPy has it, in float32."""
    import mlx.core as mx

    with mx.stream(mx.cpu):
        converted = tensor.astype(mx.float32)
        mx.eval(converted)
    return np.array(converted)


def _dtype_name(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("mlx.core.")


def _copy_files(source: Path, folder: Path) -> None:
    for path in sorted(source.iterdir()):
        weights = any(fnmatch.fnmatch(path.name, pattern) for pattern in _WEIGHT_FILES)
        if path.is_dir() and path.name == _TEMPLATES_FOLDER:
            shutil.copytree(path, folder / path.name)
        elif path.is_file() and not weights and not path.name.startswith(".") and path.name != MANIFEST_NAME:
            shutil.copyfile(path, folder / path.name)


def _save(path: Path, tensors: Mapping[str, Any]) -> None:
    import mlx.core as mx

    mx.save_safetensors(str(path), dict(sorted(tensors.items())), metadata={"format": "mlx"})


@contextmanager
def _new_directory(target: Path) -> Iterator[Path]:
    """A directory that takes its place when the block ends without an error."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as temporary:
        folder = Path(temporary) / "new"
        folder.mkdir()
        yield folder
        folder.rename(target)


def load_weights(directory: Path, dtype: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """All weights of a package, every container's digest checked, and the record's `quantization_config`.

    Args:
        dtype: what decoded weights are stored in; None for that of the weights they were made from.

    Raises:
        SGFP4Error: a container that is missing, altered or broken.
        ModelError: a tensor that is there twice.
    """
    import mlx.core as mx

    manifest = read_manifest(directory / MANIFEST_NAME)
    weights = _stored(directory)
    infos = []
    for entry in manifest.tensors:
        if entry.name in weights:
            raise ModelError(
                f"{directory}: {entry.name} is in model.safetensors and in the manifest: one is too many"
            )
        data = entry.read()
        infos.append(describe(data, entry.shape, source=str(entry.path), tensor=entry.name))
        decoded = decode(data, entry.shape, source=str(entry.path), tensor=entry.name)
        weight = mx.array(decoded).astype(getattr(mx, dtype or entry.dtype or "float32"))
        del decoded
        mx.eval(weight)
        weights[entry.name] = weight
    return weights, _quantization_config(manifest, infos)


def _quantization_config(manifest: Manifest, infos: Sequence[ContainerInfo]) -> dict[str, Any]:
    encoder = manifest.content.get("encoder")
    return {
        "format": "sgfp4",
        "version": max(info.version for info in infos),
        "block_sizes": sorted({size for info in infos for size in info.leaf_counts}, reverse=True),
        "bits_per_weight": 8 * sum(i.total_bytes for i in infos) / sum(i.weights for i in infos),
        "encoder_version": encoder.get("version") if isinstance(encoder, dict) else None,
    }


def measure(directory: Path, reference: Path | None, missing: str = "") -> ArtifactNumbers:
    """What a package's containers are worth, measured from the containers themselves.

    Args:
        reference: the model that the package was made from; its weights are what errors are taken from.
        missing: why there is no reference.

    Raises:
        SGFP4Error: a container that is missing, altered or broken.
        ModelError: the reference lacks a tensor, or has it in another shape.
    """
    manifest = read_manifest(directory / MANIFEST_NAME)
    originals = _stored(reference) if reference is not None else None
    total_bytes = weights = leaves = ternary = 0
    error = energy = 0.0
    for entry in manifest.tensors:
        data = entry.read()
        info = describe(data, entry.shape, source=str(entry.path), tensor=entry.name)
        decoded = decode(data, entry.shape, source=str(entry.path), tensor=entry.name)
        total_bytes += info.total_bytes
        weights += info.weights
        leaves += info.leaves
        ternary += info.ternary_leaves
        if originals is not None:
            original = _original(originals, entry, reference)
            error += squared_error(original, decoded)
            energy += squared_sum(original)
    return ArtifactNumbers(
        bits_per_weight=8 * total_bytes / weights,
        ternary_ratio=ternary / leaves,
        mse=error / weights if originals is not None else None,
        relative_mse=error / energy if originals is not None and energy else None,
        missing=missing if originals is None else "" if energy else "the reference's weights are all zero",
        tensors=len(manifest.tensors),
        weights=weights,
        manifest_sha256=manifest.sha256,
    )


def _original(originals: Mapping[str, Any], entry: TensorEntry, reference: Path | None) -> np.ndarray:
    tensor = originals.get(entry.name)
    if tensor is None:
        raise ModelError(f"the reference {reference} has no tensor {entry.name}")
    if tuple(tensor.shape) != entry.shape:
        raise ModelError(
            f"{entry.name} is {list(entry.shape)} in the package, but {list(tensor.shape)} in {reference}"
        )
    return as_float32(tensor)
