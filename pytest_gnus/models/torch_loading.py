"""Loads a torch model through lm-eval's `hf` class."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_gnus.errors import ModelError, listed
from pytest_gnus.models.compute import ComputeOptions
from pytest_gnus.models.config_file import read_config
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.models.spec import SGFP4_MANIFEST, ModelSpec, is_hub_id

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
    if options.batch_tokens is not None:
        model.batch_size_per_gpu = max(1, options.batch_tokens // model.max_length)
    commit = getattr(model.config, "_commit_hash", None) if directory is None else None
    directories = {"model": directory} | ({"adapter": adapter} if adapter else {}) if directory else {}
    return LoadedModel(
        spec=spec,
        lm=HarnessModel(model, str(spec), model.usage),
        dtype=str(model.model.dtype).removeprefix("torch."),
        device=device,
        quantization=_quantization(model.config),
        directories=directories,
        identity=hub_identity(spec, commit, adapter),
    )


def _check(spec: ModelSpec, directory: Path) -> None:
    """Refuse weights that only MLX can run, before torch reads them as something else."""
    config = read_config(directory)
    if (directory / SGFP4_MANIFEST).is_file():
        raise ModelError(f"{spec} is an SGFP4 package; only mlx: loads one")
    if config.get("quantization") is not None:
        raise ModelError(f"{spec} holds weights that MLX has quantized; only mlx: loads them")


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
