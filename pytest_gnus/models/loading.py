"""Loads an MLX model: from a directory or the hub, with an adapter, in the device's best number format."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pytest_gnus.errors import GnusError, ModelError
from pytest_gnus.models import sgfp4_package
from pytest_gnus.models.adapter import adapter_directory, unused_files, with_adapter
from pytest_gnus.models.compute import DEFAULT_OPTIONS, ComputeOptions
from pytest_gnus.models.config_file import read_config
from pytest_gnus.models.config_repair import Weights, repaired_config
from pytest_gnus.models.cpu import REFERENCE_BLAS, Blas, expected_blas, load_fast_blas
from pytest_gnus.models.end_tokens import declared_end_tokens, read_generation_config
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.models.spec import ModelSpec, is_hub_id
from pytest_gnus.models.tokenizer_identity import tokenizer_identity
from pytest_gnus.models.weight_files import WEIGHT_FILES, check_weight_files, few
from pytest_gnus.sgfp4.manifest import MANIFEST_NAME, read_manifest

#: A directory with this file and no weights is an untrained model: its weights follow from the seed in it.
INITIALIZATION_FILE = "initialization.json"

_HUB_FILES = [
    "*.json",
    "*.jsonl",
    WEIGHT_FILES,
    "sgfp4/*",
    "*.py",
    "*.model",
    "*.tiktoken",
    "*.txt",
    "*.jinja",
]


@dataclass(frozen=True)
class _Weights:
    """A model on disk: its directory and what its files say, with repairs beside it.

    `end_tokens` are those that `generation_config.json` or `config.json` names.
    """

    directory: Path
    config: dict[str, Any]
    end_tokens: tuple[int, ...] | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def load(spec: ModelSpec, options: ComputeOptions = DEFAULT_OPTIONS) -> LoadedModel:
    """Load `mlx:NAME`, NAME being a directory or a hub id.

    Raises:
        ModelError: no such directory or hub repository, a file missing or broken, an unknown architecture.
    """
    directory = spec.directory or from_hub(spec.name)
    return load_directory(spec, directory, options)


def load_directory(
    spec: ModelSpec, directory: Path, options: ComputeOptions = DEFAULT_OPTIONS
) -> LoadedModel:
    """Load the model in a directory under a spec's name and with the spec's adapter."""
    weights = _inspected(directory)
    adapter = adapter_directory(spec.adapter) if spec.adapter is not None else None
    blas = load_fast_blas()
    import mlx.core as mx

    on_cpu = mx.default_device() == mx.Device(mx.cpu)
    dtype = options.dtype or ("float32" if on_cpu else "stored")
    try:
        check_weight_files(directory)
        weights = _repaired(weights)
        model, tokenizer, quantization = _load(weights, dtype)
        if adapter is not None:
            model, told = with_adapter(model, adapter)
            weights = replace(weights, warnings=(*weights.warnings, *told, *unused_files(adapter, directory)))
    except GnusError:
        raise
    except Exception as error:
        raise ModelError(f"cannot load {spec}: {type(error).__name__}: {_shortened(error)}") from error
    model = _in_format(model, dtype, on_cpu)
    from pytest_gnus.models.language_model import MLXLanguageModel

    directories = {"model": directory} | ({"adapter": adapter} if adapter else {})
    return LoadedModel(
        spec=spec,
        lm=MLXLanguageModel(
            model,
            tokenizer,
            weights.config | weights.overrides,
            _kernels(model, on_cpu),
            options.batch_tokens,
        ),
        dtype=_dtype(model),
        device=_device(on_cpu),
        blas=blas.name if on_cpu else None,
        quantization=quantization,
        directories=directories,
        tokenizer=tokenizer_identity(tokenizer),
        warnings=(*weights.warnings, *_late_blas(blas, on_cpu)),
    )


def _late_blas(blas: Blas, on_cpu: bool) -> tuple[str, ...]:
    """A fast BLAS is there, but MLX was imported before it could be loaded: by a conftest, say."""
    if not on_cpu or blas != REFERENCE_BLAS or expected_blas() == REFERENCE_BLAS:
        return ()
    return (
        f"MLX was imported before {expected_blas().name} could be loaded, and computes with its reference "
        "BLAS, many times slower: import it later",
    )


def _shortened(error: Exception) -> str:
    """mlx-lm names all tensors that do not fit, a line each: five of them tell enough."""
    head, *names = str(error).split("\n")
    return f"{head.strip()} {few(name.strip().rstrip(',') for name in names)}".strip()


def _load(weights: _Weights, dtype: str) -> tuple[Any, Any, dict[str, Any] | None]:
    """Model, tokenizer, and how the stored weights are quantized."""
    import mlx.core as mx
    from mlx_lm.utils import load_model, load_tokenizer

    quantization: dict[str, Any] | None
    if sgfp4_package.is_package(weights.directory):
        config = weights.config | weights.overrides
        model, quantization = _load_package(weights.directory, config, dtype)
    else:
        seed = _initialization_seed(weights.directory)
        if seed is not None:
            mx.random.seed(seed)
        model, _ = load_model(weights.directory, strict=seed is None, model_config=weights.overrides)
        quantization = _quantization(weights.config)
    tokenizer = load_tokenizer(weights.directory, eos_token_ids=weights.end_tokens)
    return model, tokenizer, quantization


def _load_package(directory: Path, config: dict[str, Any], dtype: str) -> tuple[Any, dict[str, Any]]:
    """The model of an SGFP4 package, and how it is quantized."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    model_class, arguments_class = _classes(config)
    model = model_class(arguments_class.from_dict(config))
    tensors, quantization = sgfp4_package.load_weights(directory, None if dtype == "stored" else dtype)
    if hasattr(model, "sanitize"):
        tensors = model.sanitize(tensors)
    _check_tensors(directory, tensors, dict(tree_flatten(model.parameters())))
    model.load_weights(list(tensors.items()))
    mx.eval(model.parameters())
    model.eval()
    return model, quantization


def _check_tensors(directory: Path, found: dict[str, Any], expected: dict[str, Any]) -> None:
    faults = [f"{name} is missing" for name in expected if name not in found]
    faults += [f"{name} is not expected" for name in found if name not in expected]
    faults += [
        f"{name} is {list(found[name].shape)}, expected {list(tensor.shape)}"
        for name, tensor in expected.items()
        if name in found and found[name].shape != tensor.shape
    ]
    if faults:
        raise ModelError(f"{directory} does not fit its config.json: {few(faults)}")


def _classes(config: dict[str, Any]) -> tuple[Any, Any]:
    """mlx-lm's classes of an architecture: the model and its arguments."""
    from mlx_lm.utils import load_model

    find: Any = inspect.signature(load_model).parameters["get_model_classes"].default
    model_class, arguments_class = find(config)
    return model_class, arguments_class


def _inspected(directory: Path) -> _Weights:
    """What can be told without reading weights, so that a wrong directory fails at once."""
    if not directory.is_dir():
        raise ModelError(f"there is no model directory {directory}")
    config = read_config(directory)
    if not any(directory.glob(WEIGHT_FILES)) and not (directory / INITIALIZATION_FILE).is_file():
        raise ModelError(f"{directory} holds no weights: no file {WEIGHT_FILES}")
    return _Weights(directory, config, declared_end_tokens(read_generation_config(directory), config))


def _repaired(weights: _Weights) -> _Weights:
    """The configuration as mlx-lm must be given it."""
    config = weights.config
    if config.get("model_file") is not None:
        return weights  # mlx-lm refuses it: code beside the weights
    _, arguments_class = _classes(config)
    arguments = {
        name: None if parameter.default is parameter.empty else parameter.default
        for name, parameter in inspect.signature(arguments_class).parameters.items()
    }
    overrides, warnings = repaired_config(config, arguments, _heads(weights.directory, config))
    return replace(weights, overrides=overrides, warnings=warnings)


def _heads(directory: Path, config: dict[str, Any]) -> Weights:
    """Whether the weight files hold an output head, and one that differs from the embeddings."""
    import mlx.core as mx

    tensors: dict[str, Any] = {}
    for path in directory.glob(WEIGHT_FILES):
        stored: Any = mx.load(str(path))  # lazily: nothing is read yet
        for name, tensor in stored.items():
            tail = ".".join(name.split(".")[-2:])
            if tail in ("lm_head.weight", "embed_tokens.weight"):
                tensors[tail] = tensor
    if sgfp4_package.is_package(directory):
        manifest = read_manifest(directory / MANIFEST_NAME)
        head_there = any(entry.name.endswith("lm_head.weight") for entry in manifest.tensors)
        return Weights(has_head=head_there or "lm_head.weight" in tensors)
    head, embedding = tensors.get("lm_head.weight"), tensors.get("embed_tokens.weight")
    same = None
    if head is not None and embedding is not None and config.get("tie_word_embeddings") is True:
        same = head.shape == embedding.shape and bool(mx.array_equal(head, embedding).item())
    return Weights(has_head=head is not None if tensors else None, head_is_embedding=same)


def _initialization_seed(directory: Path) -> int | None:
    path = directory / INITIALIZATION_FILE
    if any(directory.glob(WEIGHT_FILES)) or not path.is_file():
        return None
    return int(json.loads(path.read_text(encoding="utf-8"))["seed"])


def from_hub(name: str) -> Path:
    """The directory of a hub repository, downloaded where it is not here yet.

    Raises:
        ModelError: the hub does not give it.
    """
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


def _in_format(model: Any, dtype: str, on_cpu: bool) -> Any:
    """The model's numbers in a format; on a CPU unquantized too, unless the format is "stored".

    MLX's CPU kernels for anything but float32 are some 50 times slower, those for quantized layers more.
    """
    import mlx.core as mx
    from mlx_lm.utils import dequantize_model

    if dtype == "stored":
        return model
    if on_cpu:
        model = dequantize_model(model)
    model.set_dtype(getattr(mx, dtype))
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
