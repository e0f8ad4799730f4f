"""Loads a torch model through lm-eval's `hf` class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_gnus.errors import ModelError, listed
from pytest_gnus.models.adapter import unused_files
from pytest_gnus.models.compute import ComputeOptions
from pytest_gnus.models.config_file import read_config
from pytest_gnus.models.end_tokens import declared_end_tokens, read_generation_config
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.models.spec import SGFP4_MANIFEST, ModelSpec, is_hub_id
from pytest_gnus.models.tokenizer_identity import tokenizer_identity
from pytest_gnus.models.weight_files import check_weight_files, few

_PACKAGES = ("torch", "accelerate", "peft")
#: Requests of one pass, where no number of tokens is given.
_BATCH = 8


def load(spec: ModelSpec, options: ComputeOptions) -> LoadedModel:
    """Load `hf:NAME`, NAME being a directory or a hub id.

    Raises:
        ModelError: torch is missing, no such directory or repository, weights that torch cannot run.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise ModelError(f"{spec} needs {listed(missing)}: pip install 'pytest-gnus[hf]'")
    directory = spec.directory
    if directory is not None:
        _check(spec, directory)
    elif not is_hub_id(spec.name):
        raise ModelError(f"there is no model directory {spec.name}")
    adapter = _adapter(spec)
    import torch

    from pytest_gnus.models.harness_model import HarnessModel
    from pytest_gnus.models.torch_model import TorchLanguageModel

    device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    dtype = options.dtype or ("float32" if device == "cpu" else "stored")
    try:
        model = TorchLanguageModel(
            pretrained=spec.name,
            peft=str(adapter) if adapter else None,
            device=device,
            dtype="auto" if dtype == "stored" else dtype,
            batch_size=_BATCH,
        )
    except Exception as error:
        raise ModelError(f"cannot load {spec}: {type(error).__name__}: {error}") from error
    _check_report(spec, model.report)
    commit = getattr(model.config, "_commit_hash", None) if directory is None else None
    files = directory or _snapshot(spec.name, commit)
    model.decode_plainly(_declared_end_tokens(files))
    if options.batch_tokens is not None:
        model.batch_size_per_gpu = max(1, options.batch_tokens // model.max_length)
    directories = {"model": directory} | ({"adapter": adapter} if adapter else {}) if directory else {}
    return LoadedModel(
        spec=spec,
        lm=HarnessModel(model, str(spec), model.usage),
        dtype=str(model.model.dtype).removeprefix("torch."),
        device=device,
        quantization=_quantization(model.config),
        directories=directories,
        identity=hub_identity(spec, commit, adapter),
        tokenizer=tokenizer_identity(model.tokenizer),
        warnings=unused_files(adapter, files) if adapter else (),
    )


def _declared_end_tokens(directory: Path) -> tuple[int, ...] | None:
    return declared_end_tokens(read_generation_config(directory), read_config(directory))


def _snapshot(name: str, commit: str | None) -> Path:
    """Where a hub repository's files lie once it has been loaded."""
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(name, "config.json", revision=commit)
    if not isinstance(path, str):
        raise ModelError(f"the hub's cache has no config.json of {name}")
    return Path(path).parent


def _check_report(spec: ModelSpec, report: Mapping[str, Sequence[str]]) -> None:
    """Refuse weights of which transformers or PEFT say that they do not fit."""
    faults = [f"{name} is {kind.removesuffix('_keys')}" for kind, names in report.items() for name in names]
    if faults:
        raise ModelError(f"{spec} does not fit its configuration: {few(faults)}")


def _check(spec: ModelSpec, directory: Path) -> None:
    """Refuse weights that only MLX can run, before torch reads them as something else."""
    config = read_config(directory)
    if (directory / SGFP4_MANIFEST).is_file():
        raise ModelError(f"{spec} is an SGFP4 package; only mlx: loads one")
    if config.get("quantization") is not None:
        raise ModelError(f"{spec} holds weights that MLX has quantized; only mlx: loads them")
    _declared_end_tokens(directory)
    try:
        check_weight_files(directory)
    except ValueError as error:
        raise ModelError(f"cannot load {spec}: {error}") from error


def _adapter(spec: ModelSpec) -> Path | None:
    if spec.adapter is None:
        return None
    directory = Path(spec.adapter)
    if not (directory / "adapter_config.json").is_file() or not any(directory.glob("adapter_model.*")):
        raise ModelError(
            f"the adapter directory {directory} is none of PEFT's: adapter_config.json and adapter_model.* "
            "are needed"
        )
    return directory


def hub_identity(spec: ModelSpec, commit: str | None, adapter: Path | None) -> str | None:
    """Which weights of the hub; with the digest of an adapter over them."""
    if commit is None:
        return None
    if adapter is None:
        return f"hub:{spec.name}@{commit}"
    from pytest_gnus.records.fingerprint import directory_sha256

    return f"hub:{spec.name}@{commit}+adapter:{directory_sha256({'adapter': adapter})}"


def _quantization(config: Any) -> dict[str, Any] | None:
    """The record's `quantization_config`: how the stored weights are quantized, if they are."""
    settings = getattr(config, "quantization_config", None)
    if settings is None:
        return None
    content = settings if isinstance(settings, dict) else settings.to_dict()
    plain = {
        key: value
        for key, value in content.items()
        if value is None or isinstance(value, (bool, int, float, str))
    }
    return {"format": str(plain.get("quant_method", "unknown")), **plain}
