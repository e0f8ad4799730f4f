"""Settings that mlx-lm would ignore: what becomes of each, case by case."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pytest_gnus.errors import ModelError
from pytest_gnus.models.config_repair import Weights, repaired_config

NO_WEIGHTS = Weights(has_head=None)
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}

#: What architectures take, with their defaults.
LLAMA = {
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "tie_word_embeddings": True,
    "head_dim": None,
    "hidden_size": None,
}
GEMMA3 = {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": None, "sliding_window": 512}
NEOX = {"rotary_emb_base": None, "rotary_pct": None}
NEW_ONLY = {"rope_parameters": None}
BOTH = {"rope_parameters": None, "rope_theta": 10000.0}
NOTHING: dict[str, Any] = {}


def repaired(config: dict[str, Any], arguments: dict[str, Any], weights: Weights = NO_WEIGHTS) -> Any:
    return repaired_config({"model_type": "toy", **config}, arguments, weights)


@pytest.mark.parametrize(
    ("arguments", "config", "overrides"),
    [
        pytest.param(LLAMA, {"rope_theta": 5e5}, {}, id="the old spelling is read"),
        pytest.param(LLAMA, {"rope_parameters": {}}, {}, id="empty"),
        pytest.param(LLAMA, {"rope_parameters": None}, {}, id="null"),
        pytest.param(
            LLAMA,
            {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}},
            {"rope_theta": 5e5},
            id="theta in the new spelling",
        ),
        pytest.param(
            LLAMA,
            {"rope_theta": 500000, "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}},
            {},
            id="theta in both, equal",
        ),
        pytest.param(
            LLAMA,
            {"rope_parameters": {"rope_theta": 5e5, **LLAMA3}},
            {"rope_theta": 5e5, "rope_scaling": {"type": "llama3", **LLAMA3}},
            id="scaling in the new spelling",
        ),
        pytest.param(
            LLAMA,
            {"rope_scaling": LLAMA3, "rope_parameters": {"rope_theta": 5e5, **LLAMA3}},
            {"rope_theta": 5e5},
            id="scaling in both, equal",
        ),
        pytest.param(
            LLAMA,
            {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"rope_theta": 5e5}},
            {"rope_theta": 5e5},
            id="scaling in the old spelling, theta in the new one",
        ),
        pytest.param(LLAMA, {"rope_scaling": LLAMA3}, {}, id="scaling in the old spelling"),
        pytest.param(
            NEOX,
            {"rope_parameters": {"rope_theta": 25000, "partial_rotary_factor": 0.25}},
            {"rotary_emb_base": 25000, "rotary_pct": 0.25},
            id="under the architecture's own names",
        ),
        pytest.param(
            {"rope_theta": 1e4, "partial_rotary_factor": 1.0},
            {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
            {"rope_theta": 1e4, "partial_rotary_factor": 0.5},
            id="part of a head",
        ),
        pytest.param(
            {"rope_theta": 1e4, "partial_rotary_factor": 1.0},
            {"partial_rotary_factor": 0.5, "rope_parameters": {"partial_rotary_factor": 0.5}},
            {},
            id="part of a head, both spellings",
        ),
        pytest.param(LLAMA, {"rope_parameters": {"partial_rotary_factor": 1.0}}, {}, id="all of a head"),
        pytest.param(
            NOTHING, {"rope_parameters": {"rope_theta": 1e4}}, {}, id="the usual theta needs no reader"
        ),
        pytest.param(
            NEW_ONLY,
            {"rope_theta": 5e5},
            {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
            id="an architecture of the new spelling, theta",
        ),
        pytest.param(
            NEW_ONLY,
            {"rope_theta": 5e5, "rope_scaling": LLAMA3},
            {"rope_parameters": {**LLAMA3, "rope_theta": 5e5}},
            id="an architecture of the new spelling, theta and scaling",
        ),
        pytest.param(
            NEW_ONLY,
            {"rope_scaling": LLAMA3},
            {"rope_parameters": LLAMA3},
            id="an architecture of the new spelling, scaling",
        ),
        pytest.param(NEW_ONLY, {"rope_scaling": {"rope_type": "default"}}, {}, id="scaling by nothing"),
        pytest.param(
            NEW_ONLY, {"rope_parameters": {"rope_theta": 5e5, **LLAMA3}}, {}, id="the new spelling is read"
        ),
        pytest.param(BOTH, {"rope_theta": 5e5}, {}, id="an architecture of both spellings, the old one"),
        pytest.param(
            BOTH, {"rope_parameters": {"rope_theta": 5e5}}, {}, id="an architecture of both, the new one"
        ),
        pytest.param(
            GEMMA3,
            {
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2e6},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
                }
            },
            {
                "rope_theta": 2e6,
                "rope_local_base_freq": 2e4,
                "rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 8.0},
            },
            id="a base for each kind of layer",
        ),
        pytest.param(
            GEMMA3,
            {
                "rope_local_base_freq": 2e4,
                "rope_theta": 2e6,
                "rope_parameters": {
                    "full_attention": {"rope_theta": 2e6},
                    "sliding_attention": {"rope_theta": 2e4},
                },
            },
            {},
            id="a base for each kind of layer, both spellings",
        ),
        pytest.param(
            LLAMA,
            {
                "rope_parameters": {
                    "full_attention": {"rope_theta": 5e5, "rope_type": "default"},
                    "sliding_attention": {"rope_theta": 5e5, "rope_type": "default"},
                }
            },
            {"rope_theta": 5e5},
            id="the same for each kind of layer",
        ),
        pytest.param(
            {"text_config": None},
            {"text_config": {"hidden_size": 8, "rope_parameters": {"rope_theta": 5e5, **LLAMA3}}},
            {
                "text_config": {
                    "hidden_size": 8,
                    "rope_parameters": {"rope_theta": 5e5, **LLAMA3},
                    "rope_theta": 5e5,
                    "rope_scaling": {"type": "llama3", **LLAMA3},
                }
            },
            id="inside text_config",
        ),
        pytest.param(
            {"text_config": None},
            {
                "text_config": {
                    "rope_theta": 5e5,
                    "rope_scaling": LLAMA3,
                    "rope_parameters": {"rope_theta": 5e5, **LLAMA3},
                }
            },
            {},
            id="inside text_config, both spellings",
        ),
    ],
)
def test_rotary_settings_are_put_where_the_architecture_reads_them(
    arguments: dict[str, Any], config: dict[str, Any], overrides: dict[str, Any]
) -> None:
    found, warnings = repaired(config, arguments)
    assert found == overrides
    assert len(warnings) == len(overrides)
    assert all(warning.startswith("config.json: ") for warning in warnings)


def test_a_base_for_each_kind_of_layer_inside_text_config() -> None:
    """As transformers 5 writes a multimodal Gemma 3."""
    text = {
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
        }
    }
    found, warnings = repaired({"text_config": text}, {"text_config": None})
    assert found["text_config"] == {
        **text,
        "rope_theta": 1e6,
        "rope_local_base_freq": 2e4,
        "rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 8.0},
    }
    assert len(warnings) == 1


@pytest.mark.parametrize(
    ("arguments", "config", "message"),
    [
        (
            LLAMA,
            {"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}},
            "rope_theta is 10000.0, but rope_parameters.rope_theta is 500000.0: make them equal",
        ),
        (
            NEOX,
            {"rotary_emb_base": 10000, "rope_parameters": {"rope_theta": 25000}},
            "rotary_emb_base is 10000, but rope_parameters.rope_theta is 25000",
        ),
        (
            GEMMA3,
            {
                "rope_local_base_freq": 1e4,
                "rope_parameters": {
                    "full_attention": {"rope_theta": 1e6},
                    "sliding_attention": {"rope_theta": 2e4},
                },
            },
            "rope_local_base_freq is 10000.0, but .* 20000.0",
        ),
        (
            {"text_config": None},
            {"text_config": {"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}}},
            "text_config.rope_theta is 10000.0, but .* 500000.0",
        ),
        (
            LLAMA,
            {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": LLAMA3},
            "the kind of rope_scaling is 'linear', but that of rope_parameters is 'llama3'",
        ),
        (
            LLAMA,
            {"rope_scaling": LLAMA3, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
            "the kind of rope_scaling is 'llama3', but that of rope_parameters is 'default'",
        ),
        (
            LLAMA,
            {"rope_scaling": {**LLAMA3, "factor": 2.0}, "rope_parameters": LLAMA3},
            "rope_scaling.factor is 2.0, but rope_parameters.factor is 8.0",
        ),
        (
            {**LLAMA, "partial_rotary_factor": 1.0},
            {"partial_rotary_factor": 0.25, "rope_parameters": {"partial_rotary_factor": 0.5}},
            "partial_rotary_factor is 0.25, but rope_parameters.partial_rotary_factor is 0.5",
        ),
        (
            NOTHING,
            {"rope_parameters": {"rope_theta": 5e5}},
            "rope_parameters.rope_theta: found 500000.0, which toy does not read",
        ),
        (
            {"rope_theta": 1e4},
            {"rope_parameters": LLAMA3},
            "rope_type: found 'llama3', which toy does not read",
        ),
        (
            {"rope_theta": 1e4},
            {"rope_scaling": LLAMA3},
            "rope_scaling: found .*llama3.*, which toy does not read",
        ),
        (BOTH, {"rope_scaling": LLAMA3}, "rope_scaling: found .*llama3.*, which toy does not read"),
        (
            LLAMA,
            {"rope_parameters": {"partial_rotary_factor": 0.5}},
            "partial_rotary_factor: found 0.5, which toy does not read",
        ),
        (
            LLAMA,
            {
                "rope_parameters": {
                    "full_attention": {"rope_theta": 1e6},
                    "sliding_attention": {"rope_theta": 1e4},
                }
            },
            "rope_parameters: found .* takes one setting for all layers",
        ),
    ],
)
def test_rotary_settings_that_nobody_reads_or_that_disagree_are_refused(
    arguments: dict[str, Any], config: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        repaired(config, arguments)


@pytest.mark.parametrize(
    ("default", "given", "weights", "expected"),
    [
        pytest.param(True, None, Weights(True), {"tie_word_embeddings": False}, id="not set, with a head"),
        pytest.param(
            False, None, Weights(False), {"tie_word_embeddings": True}, id="not set, without a head"
        ),
        pytest.param(False, None, Weights(True), {}, id="the default is right, with a head"),
        pytest.param(True, None, Weights(False), {}, id="the default is right, without a head"),
        pytest.param(None, None, Weights(True), {}, id="no default"),
        pytest.param(True, None, Weights(None), {}, id="no weights"),
        pytest.param(False, True, Weights(False), {}, id="tied"),
        pytest.param(False, True, Weights(True, True), {}, id="tied, with the embeddings again as head"),
        pytest.param(True, False, Weights(True), {}, id="not tied"),
    ],
)
def test_tied_embeddings(
    default: bool | None, given: bool | None, weights: Weights, expected: dict[str, Any]
) -> None:
    config = {} if given is None else {"tie_word_embeddings": given}
    found, warnings = repaired(config, {"tie_word_embeddings": default}, weights)
    assert found == expected
    assert len(warnings) == len(expected)


def test_an_output_head_that_would_be_dropped_is_refused() -> None:
    with pytest.raises(ModelError, match=r"tie_word_embeddings: found True.*set it to false, or remove"):
        repaired({"tie_word_embeddings": True}, LLAMA, Weights(True, False))


def test_an_architecture_that_always_ties_is_left_alone() -> None:
    assert repaired({"tie_word_embeddings": True}, NOTHING, Weights(True, False)) == ({}, ())


@pytest.mark.parametrize(
    ("arguments", "config", "refused"),
    [
        (NOTHING, {"head_dim": 16, "hidden_size": 32, "num_attention_heads": 4}, True),
        (NOTHING, {"head_dim": 8, "hidden_size": 32, "num_attention_heads": 4}, False),
        (NOTHING, {"head_dim": None, "hidden_size": 32, "num_attention_heads": 4}, False),
        (NOTHING, {"head_dim": 16}, False),
        (LLAMA, {"head_dim": 16, "hidden_size": 32, "num_attention_heads": 4}, False),
    ],
)
def test_a_head_size_that_nobody_reads_is_refused_where_it_matters(
    arguments: dict[str, Any], config: dict[str, Any], refused: bool
) -> None:
    if refused:
        with pytest.raises(ModelError, match=r"head_dim: found 16, .* hidden_size / num_attention_heads = 8"):
            repaired(config, arguments)
    else:
        assert repaired(config, arguments) == ({}, ())


@pytest.mark.parametrize(
    ("arguments", "config", "warned"),
    [
        (NOTHING, {"sliding_window": 512}, True),
        (NOTHING, {"sliding_window": 512, "max_position_embeddings": 4096}, True),
        (NOTHING, {"sliding_window": 4096, "max_position_embeddings": 4096}, False),
        (NOTHING, {"sliding_window": 512, "use_sliding_window": False}, False),
        (NOTHING, {"sliding_window": None}, False),
        (GEMMA3, {"sliding_window": 512}, False),
    ],
)
def test_a_window_that_nobody_reads_is_told(
    arguments: dict[str, Any], config: dict[str, Any], warned: bool
) -> None:
    overrides, warnings = repaired(config, arguments)
    assert overrides == {}
    assert len(warnings) == warned
    if warned:
        assert re.search(r"sliding_window 512 .*longer than 512 tokens", warnings[0])


DECISIVE = [
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "logit_scale",
    "logits_scaling",
    "embedding_multiplier",
    "residual_multiplier",
    "attention_multiplier",
]


@pytest.mark.parametrize("key", DECISIVE)
def test_what_changes_every_score_and_is_not_known_is_refused(key: str) -> None:
    with pytest.raises(ModelError, match=f"{key}: found 0.3, which toy does not know in mlx-lm"):
        repaired({key: 0.3}, NOTHING)
    assert repaired({key: 0.3}, {key: None}) == ({}, ())
    assert repaired({key: None}, NOTHING) == ({}, ())


@pytest.mark.parametrize("key", DECISIVE[2:6])
def test_what_multiplies_by_one_changes_nothing(key: str) -> None:
    assert repaired({key: 1.0}, NOTHING) == ({}, ())
    assert repaired({key: 1}, NOTHING) == ({}, ())
