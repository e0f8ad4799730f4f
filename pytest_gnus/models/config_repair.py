"""Settings of a `config.json` that mlx-lm would silently ignore: put where it reads them, or refused.

mlx-lm hands an architecture the settings that it names among its arguments and drops all others. So a
setting in the spelling of another release, or one that an architecture does not know, changes scores without
a word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_gnus.errors import ModelError

#: The base of the rotary embedding where nobody names one.
_DEFAULT_THETA = 10000.0
#: Names under which architectures take that base.
_THETA_NAMES = ("rope_theta", "rotary_emb_base", "rope_freq_base", "rope_base")
#: Names under which they take the share of a head that is rotated.
_PARTIAL_NAMES = ("partial_rotary_factor", "rotary_pct")
#: Settings that change every score, and the value that changes nothing.
_DECISIVE: Mapping[str, Any] = {
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "logit_scale": 1.0,
    "logits_scaling": 1.0,
    "embedding_multiplier": 1.0,
    "residual_multiplier": 1.0,
    "attention_multiplier": None,
}


@dataclass(frozen=True)
class Weights:
    """What the weight files say: whether there is an output head, and whether it is the embeddings again.

    None where there are no weight files, and where that was not looked at.
    """

    has_head: bool | None
    head_is_embedding: bool | None = None


@dataclass
class _Repair:
    config: Mapping[str, Any]
    arguments: Mapping[str, Any]
    overrides: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def reads(self, name: str) -> bool:
        return name in self.arguments

    def reads_one_of(self, names: Sequence[str]) -> str | None:
        return next(filter(self.reads, names), None)

    def set(self, name: str, value: Any, why: str) -> None:
        self.overrides[name] = value
        self.warnings.append(f"config.json: {why}; {value!r} was used for {name}")

    def refuse(self, key: str, found: Any, what_to_do: str) -> ModelError:
        model_type = self.config.get("model_type")
        return ModelError(f"config.json: {key}: found {found!r}, which {model_type} {what_to_do}")


def repaired_config(
    config: Mapping[str, Any], arguments: Mapping[str, Any], weights: Weights
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Overrides for what would be ignored, and a sentence for each.

    Args:
        arguments: what the architecture takes, with defaults (None where there is none).

    Raises:
        ModelError: a setting that changes scores and that the architecture cannot be given.
    """
    repair = _Repair(config, arguments)
    _repair_rope(repair)
    _repair_nested_text(repair)
    _repair_tied_embeddings(repair, weights)
    _check_head_dim(repair)
    _check_window(repair)
    for key, neutral in _DECISIVE.items():
        value = config.get(key)
        if value is not None and value != neutral and not repair.reads(key):
            raise repair.refuse(key, value, "does not know in mlx-lm: scores would be wrong")
    return repair.overrides, tuple(repair.warnings)


def _repair_rope(repair: _Repair) -> None:
    nested = repair.config.get("rope_parameters")
    if not isinstance(nested, dict) or not nested:
        _only_old_spelling(repair)
        return
    if repair.reads("rope_parameters"):
        return
    if all(isinstance(value, dict) for value in nested.values()):
        _per_layer_type(repair, nested)
        return
    _theta(repair, nested)
    _scaling(repair, nested)
    _partial(repair, nested)


def _only_old_spelling(repair: _Repair) -> None:
    """`rope_theta` and `rope_scaling` at the top, where an architecture reads `rope_parameters` alone."""
    config = repair.config
    scaling = config.get("rope_scaling")
    scaled = isinstance(scaling, dict) and _kind(scaling) != "default"
    if repair.reads("rope_parameters") and not repair.reads("rope_theta"):
        theta = {"rope_theta": config["rope_theta"]} if "rope_theta" in config else {}
        if theta or scaled:
            merged = {"rope_type": "default", **(scaling or {}), **theta}
            repair.set(
                "rope_parameters", merged, f"{', '.join(theta) or 'rope_scaling'} stands outside of it"
            )
    elif scaled and not repair.reads("rope_scaling"):
        raise repair.refuse("rope_scaling", scaling, "does not read in mlx-lm")


def _kind(settings: Mapping[str, Any]) -> str:
    return str(settings.get("rope_type") or settings.get("type") or "default")


def _theta(repair: _Repair, nested: Mapping[str, Any]) -> None:
    theta = nested.get("rope_theta")
    if theta is None:
        return
    name = repair.reads_one_of(_THETA_NAMES)
    for key in dict.fromkeys(("rope_theta", name or "rope_theta")):
        _agree(key, repair.config.get(key), "rope_parameters.rope_theta", theta)
    if name is None:
        if theta != _DEFAULT_THETA:
            raise repair.refuse("rope_parameters.rope_theta", theta, "does not read in mlx-lm")
    elif repair.config.get(name) is None:
        repair.set(name, theta, "rope_theta only inside rope_parameters")


def _agree(one_key: str, one: Any, other_key: str, other: Any) -> None:
    """Refuse two spellings of one setting that say different things."""
    if one is not None and other is not None and one != other:
        raise ModelError(
            f"config.json: {one_key} is {one!r}, but {other_key} is {other!r}: make them equal, or remove "
            "the wrong one"
        )


def _scaling(repair: _Repair, nested: Mapping[str, Any]) -> None:
    kind = _kind(nested)
    top = repair.config.get("rope_scaling")
    if isinstance(top, dict) and top:
        if "rope_type" in nested or "type" in nested:
            _agree("the kind of rope_scaling", _kind(top), "that of rope_parameters", kind)
        for key in top.keys() & nested.keys() - {"rope_type", "type"}:
            _agree(f"rope_scaling.{key}", top[key], f"rope_parameters.{key}", nested[key])
        return
    if kind == "default":
        return
    if not repair.reads("rope_scaling"):
        raise repair.refuse("rope_parameters.rope_type", kind, "does not read in mlx-lm")
    repair.set("rope_scaling", _old_scaling(nested), f"the {kind} scaling stands inside rope_parameters only")


def _old_scaling(nested: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a scaling for `rope_scaling`; some architectures look for `type` alone."""
    return {"type": _kind(nested)} | {key: value for key, value in nested.items() if key != "rope_theta"}


def _partial(repair: _Repair, nested: Mapping[str, Any]) -> None:
    factor = nested.get("partial_rotary_factor")
    if factor is None:
        return
    name = repair.reads_one_of(_PARTIAL_NAMES)
    key = name or "partial_rotary_factor"
    _agree(key, repair.config.get(key), "rope_parameters.partial_rotary_factor", factor)
    if name is None:
        if factor != 1.0:
            raise repair.refuse("rope_parameters.partial_rotary_factor", factor, "does not read in mlx-lm")
    elif repair.config.get(name) is None:
        repair.set(name, factor, "partial_rotary_factor stands inside rope_parameters only")


def _per_layer_type(repair: _Repair, nested: Mapping[str, Mapping[str, Any]]) -> None:
    """`{full_attention: {…}, sliding_attention: {…}}`, for an architecture with two bases or with one."""
    local = nested.get("sliding_attention", {}).get("rope_theta")
    others = {key: value for key, value in nested.items() if key != "sliding_attention"}
    if local is not None and repair.reads("rope_local_base_freq"):
        given = repair.config.get("rope_local_base_freq")
        _agree("rope_local_base_freq", given, "rope_parameters.sliding_attention.rope_theta", local)
        if given is None:
            repair.set("rope_local_base_freq", local, "the sliding layers' rope_theta is in rope_parameters")
    else:
        others = dict(nested)
    if len({repr(sorted(value.items())) for value in others.values()}) != 1:
        raise repair.refuse("rope_parameters", dict(nested), "takes one setting for all layers in mlx-lm")
    only = next(iter(others.values()))
    _theta(repair, only)
    _scaling(repair, only)


def _repair_nested_text(repair: _Repair) -> None:
    """The text model of a multimodal one has its settings in `text_config`, read by the model it wraps.

    What that model reads is not known here; it is given both spellings, and drops what it does not know.
    """
    text = repair.config.get("text_config")
    nested = text.get("rope_parameters") if isinstance(text, dict) else None
    if not isinstance(text, dict) or not isinstance(nested, dict):
        return
    where = "text_config.rope_parameters"
    found: dict[str, Any] = {}
    if nested and all(isinstance(value, dict) for value in nested.values()):
        found["rope_local_base_freq"] = nested.get("sliding_attention", {}).get("rope_theta")
        nested = nested.get("full_attention", {})
    found["rope_theta"] = nested.get("rope_theta")
    if _kind(nested) != "default" and not text.get("rope_scaling"):
        found["rope_scaling"] = _old_scaling(nested)
    for key in ("rope_local_base_freq", "rope_theta"):
        _agree(f"text_config.{key}", text.get(key), where, found.get(key))
    added = {key: value for key, value in found.items() if value is not None and text.get(key) is None}
    if added:
        repair.overrides["text_config"] = {**text, **added}
        repair.warnings.append(f"config.json: {', '.join(added)} only inside {where}; {added} used")


def _repair_tied_embeddings(repair: _Repair, weights: Weights) -> None:
    key = "tie_word_embeddings"
    if not repair.reads(key):
        return
    default = repair.arguments[key]
    given = repair.config.get(key)
    if weights.has_head is None:
        return
    if given is None and default is not None and default == weights.has_head:
        said = "the weights have an output head" if weights.has_head else "the weights have no output head"
        repair.set(key, not weights.has_head, f"{key} is not set, and {said}")
    elif given is True and weights.has_head and weights.head_is_embedding is False:
        raise repair.refuse(
            key,
            True,
            "takes as leave to drop the output head of the weights, though it differs from the embeddings: "
            "set it to false, or remove lm_head.weight",
        )


def _check_head_dim(repair: _Repair) -> None:
    size = repair.config.get("head_dim")
    width, heads = repair.config.get("hidden_size"), repair.config.get("num_attention_heads")
    if isinstance(size, int) and width and heads and not repair.reads("head_dim") and size * heads != width:
        raise repair.refuse(
            "head_dim", size, f"takes as hidden_size / num_attention_heads = {width // heads}"
        )


def _check_window(repair: _Repair) -> None:
    window = repair.config.get("sliding_window")
    used = repair.config.get("use_sliding_window", True)
    longest = repair.config.get("max_position_embeddings")
    shorter = isinstance(window, int) and (longest is None or window < longest)
    if shorter and used and not repair.reads("sliding_window"):
        repair.warnings.append(
            f"config.json: sliding_window {window} is not known to this architecture in mlx-lm: prompts "
            f"longer than {window} tokens are scored with full attention"
        )
