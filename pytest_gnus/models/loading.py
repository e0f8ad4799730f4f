"""Loads an MLX model: from a directory or the hub, with an adapter, in the device's best number format."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pytest_gnus.errors import ModelError
from pytest_gnus.models.cpu import load_fast_blas
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.models.spec import ModelSpec, is_hub_id

#: A directory with this file and no weights is an untrained model: its weights follow from the seed in it.
INITIALIZATION_FILE = "initialization.json"

_HUB_FILES = ["*.json", "model*.safetensors", "*.py", "tokenizer.model", "*.tiktoken", "*.txt", "*.jinja"]


@dataclass(frozen=True)
class _Weights:
    """A model on disk: its directory and what its `config.json` says, with repairs beside it."""

    directory: Path
    config: dict[str, Any]
    overrides: dict[str, Any]
    warnings: tuple[str, ...]


def load(spec: ModelSpec) -> LoadedModel:
    """Load `mlx:NAME`, NAME being a directory or a hub id.

    Raises:
        ModelError: no such directory or hub repository, a file missing or broken, an unknown architecture.
    """
    directory = spec.directory or _from_hub(spec.name)
    return load_directory(spec, directory)


def load_directory(spec: ModelSpec, directory: Path) -> LoadedModel:
    """Load the model in a directory under a spec's name and with the spec's adapter."""
    weights = _inspected(directory)
    adapter = _adapter(spec)
    blas = load_fast_blas()
    import mlx.core as mx

    try:
        model, tokenizer = _load(weights, adapter)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"cannot load {spec}: {type(error).__name__}: {error}") from error
    on_cpu = mx.default_device() == mx.Device(mx.cpu)
    if on_cpu:
        model = _for_cpu(model)
    from pytest_gnus.models.language_model import MLXLanguageModel

    directories = {"model": directory} | ({"adapter": adapter} if adapter else {})
    return LoadedModel(
        spec=spec,
        lm=MLXLanguageModel(model, tokenizer, weights.config | weights.overrides, _kernels(model, on_cpu)),
        dtype=_dtype(model),
        device=_device(on_cpu),
        blas=blas.name if on_cpu else None,
        quantization=_quantization(weights.config),
        directories=directories,
        warnings=weights.warnings,
    )


def _load(weights: _Weights, adapter: Path | None) -> tuple[Any, Any]:
    import mlx.core as mx
    from mlx_lm.utils import load_adapters, load_model, load_tokenizer

    seed = _initialization_seed(weights.directory)
    if seed is not None:
        mx.random.seed(seed)
    model, config = load_model(weights.directory, strict=seed is None, model_config=weights.overrides)
    if adapter is not None:
        model = load_adapters(model, str(adapter))
        model.eval()
    tokenizer = load_tokenizer(weights.directory, eos_token_ids=config.get("eos_token_id"))
    return model, tokenizer


def _inspected(directory: Path) -> _Weights:
    """What can be told without reading weights, so that a wrong directory fails at once."""
    if not directory.is_dir():
        raise ModelError(f"there is no model directory {directory}")
    path = directory / "config.json"
    if not path.is_file():
        raise ModelError(f"{directory} is no model directory: it has no config.json")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path} holds no JSON object")
    if not any(directory.glob("model*.safetensors")) and not (directory / INITIALIZATION_FILE).is_file():
        raise ModelError(f"{directory} holds no weights: no file model*.safetensors")
    overrides, warnings = repaired_config(config)
    return _Weights(directory, config, overrides, warnings)


def repaired_config(config: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Settings that mlx-lm would silently ignore, at the place where it reads them.

    transformers 5 writes `rope_parameters: {rope_theta: …}`; mlx-lm's older architectures read `rope_theta`
    at the top level only, and take 10000 where it is missing.
    """
    nested = config.get("rope_parameters")
    if not isinstance(nested, dict) or "rope_theta" in config or "rope_theta" not in nested:
        return {}, ()
    theta = nested["rope_theta"]
    warning = f"config.json has rope_theta only inside rope_parameters; {theta} was used"
    return {"rope_theta": theta}, (warning,)


def _initialization_seed(directory: Path) -> int | None:
    path = directory / INITIALIZATION_FILE
    if any(directory.glob("model*.safetensors")) or not path.is_file():
        return None
    return int(json.loads(path.read_text(encoding="utf-8"))["seed"])


def _from_hub(name: str) -> Path:
    if not is_hub_id(name):
        raise ModelError(f"there is no model directory {name}")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except Exception as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise ModelError(
            f"{name} is no directory here, and the hub has not given it: {type(error).__name__}: {reason}"
        ) from error


def _adapter(spec: ModelSpec) -> Path | None:
    if spec.adapter is None:
        return None
    directory = Path(spec.adapter)
    for name in ("adapter_config.json", "adapters.safetensors"):
        if not (directory / name).is_file():
            raise ModelError(f"the adapter directory {directory} has no {name}")
    return directory


def _for_cpu(model: Any) -> Any:
    """float32 and unquantized: MLX's CPU kernels for anything else are some 50 times slower."""
    import mlx.core as mx
    from mlx_lm.utils import dequantize_model

    model = dequantize_model(model)
    model.set_dtype(mx.float32)
    mx.eval(model.parameters())
    mx.clear_cache()
    return model


def _kernels(model: Any, on_cpu: bool) -> Callable[[], AbstractContextManager[None]]:
    """What forward passes are run in: on a Linux CPU, NumPy where MLX's own kernels are slow."""
    if not on_cpu or sys.platform != "linux":
        return nullcontext
    from pytest_gnus.models.cpu_kernels import numpy_kernels

    return partial(numpy_kernels, model)


def _dtype(model: Any) -> str:
    """The most common floating-point type of the parameters, by elements."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    sizes: dict[str, int] = {}
    for _, value in tree_flatten(model.parameters()):
        if mx.issubdtype(value.dtype, mx.floating):
            name = str(value.dtype).removeprefix("mlx.core.")
            sizes[name] = sizes.get(name, 0) + value.size
    return max(sizes, key=lambda name: sizes[name]) if sizes else "unknown"


def _device(on_cpu: bool) -> str:
    if on_cpu:
        return "cpu"
    import mlx.core as mx

    return "metal" if mx.metal.is_available() else "cuda"


def _quantization(config: dict[str, Any]) -> dict[str, Any] | None:
    """The record's `quantization_config`: how the stored weights are quantized, if they are."""
    settings = config.get("quantization") or config.get("quantization_config")
    if not isinstance(settings, dict):
        return None
    plain = {key: value for key, value in settings.items() if not isinstance(value, dict)}
    return {"format": "mlx", **plain}
