"""An adapter of mlx-lm over an MLX model, every tensor of it in its place.

mlx-lm converts the layers that `adapter_config.json` names and loads whatever tensors the file holds: a layer
without its tensors keeps initial ones, and does nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_gnus.errors import ModelError, listed
from pytest_gnus.models.weight_files import few, tensor_names

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapters.safetensors"
_KINDS = ("lora", "dora", "full")
#: What trainers leave beside an adapter, and nobody reads: texts are those of the model below it.
_OF_THE_MODEL = ("tokenizer.json", "chat_template.jinja", "generation_config.json")


def adapter_directory(name: str) -> Path:
    """The directory of an adapter.

    Raises:
        ModelError: it lacks one of the two files.
    """
    directory = Path(name)
    for file in (CONFIG_FILE, WEIGHTS_FILE):
        if not (directory / file).is_file():
            raise ModelError(f"the adapter directory {directory} has no {file}")
    return directory


def with_adapter(model: Any, directory: Path) -> tuple[Any, tuple[str, ...]]:
    """The model with an adapter's weights, and what a person should know of it.

    Raises:
        ModelError: tensors that the configuration promises are not there, or it promises none.
    """
    from mlx.utils import tree_flatten
    from mlx_lm.utils import load_adapters

    settings = _settings(directory)
    model.freeze()  # what training leaves trainable is what it saves
    model = load_adapters(model, str(directory))
    if settings.get("fine_tune_type") == "full":
        for layer in model.layers[-max(int(settings.get("num_layers", -1)), 0) :]:
            layer.unfreeze()
    promised = [name for name, _ in tree_flatten(model.trainable_parameters())]
    held = set(tensor_names(directory / WEIGHTS_FILE))
    missing = [name for name in promised if name not in held]
    if missing:
        raise ModelError(
            f"the adapter {directory} lacks {len(missing)} of {len(promised)} tensors that its {CONFIG_FILE} "
            f"promises: {few(missing)}; take the whole adapter, or let num_layers and lora_parameters.keys "
            "name the layers that were trained"
        )
    if not promised:
        raise ModelError(
            f"the adapter {directory} changes nothing: its {CONFIG_FILE} names no layer of this model"
        )
    model.eval()
    return model, _unknown_keys(settings, promised)


def unused_files(adapter: Path, model: Path) -> tuple[str, ...]:
    """A warning of each file about texts or decoding in which an adapter differs from its model."""
    differing = [
        name
        for name in _OF_THE_MODEL
        if (adapter / name).is_file()
        and not ((model / name).is_file() and (model / name).read_bytes() == (adapter / name).read_bytes())
    ]
    return tuple(
        f"the adapter brings a {name} of its own, which is not used: the model's is; put it into the model's "
        "directory if the adapter was trained with it"
        for name in differing
    )


def _settings(directory: Path) -> dict[str, Any]:
    path = directory / CONFIG_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds no JSON object")
    kind = content.get("fine_tune_type", "lora")
    if kind not in _KINDS:
        raise ModelError(f"{path}: fine_tune_type: found {kind!r}; allowed: {listed(_KINDS)}")
    return content


def _unknown_keys(settings: dict[str, Any], promised: list[str]) -> tuple[str, ...]:
    """Layers that the configuration names and this model does not have."""
    parameters = settings.get("lora_parameters")
    keys = parameters.get("keys") if isinstance(parameters, dict) else None
    owners = [f".{name.rsplit('.', 1)[0]}" for name in promised]
    unknown = [key for key in keys or () if not any(owner.endswith(f".{key}") for owner in owners)]
    if not unknown:
        return ()
    return (
        f"{CONFIG_FILE}: lora_parameters.keys: no layer that the adapter changes is called {few(unknown)}",
    )
