"""Small random models of many architectures, and what a plain forward pass says of them.

Their weights are not mlx-lm's initial ones, with which attention is flat and some recurrent layers do
nothing: what a wrong mask, position or state does to a log-probability must be far above the tolerance of
the tests.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_map_with_path

from pytest_gnus.models.prefix_tree import TokenSequence

VOCABULARY = 97
END = 96

_SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": VOCABULARY}
_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5}
_LLAMA = {**_SIZES, **_HEADS, "num_hidden_layers": 3}
_GEMMA3 = {**_LLAMA, "head_dim": 8, "sliding_window_pattern": 2}
_GPT_OSS = {
    **_SIZES,
    **_HEADS,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "intermediate_size": 32,
    "head_dim": 8,
    "rope_theta": 10000,
}
_RECURRENT_GEMMA = {
    **_SIZES,
    "num_hidden_layers": 3,
    "attention_bias": False,
    "conv1d_width": 4,
    "logits_soft_cap": 30.0,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "block_types": ["recurrent", "recurrent", "attention"],
    "embeddings_scale_by_sqrt_dim": True,
}
_LLAMA4_TEXT = {
    **_SIZES,
    **_HEADS,
    "num_hidden_layers": 4,
    "attention_bias": False,
    "head_dim": 8,
    "hidden_act": "silu",
    "interleave_moe_layer_step": 2,
    "intermediate_size_mlp": 64,
    "max_position_embeddings": 512,
    "model_type": "llama4_text",
    "num_experts_per_tok": 1,
    "num_local_experts": 2,
    "rope_scaling": None,
    "rope_theta": 10000,
    "use_qk_norm": True,
}

#: Name -> (mlx-lm's module, arguments). "wide" ones have a window that short probes do not fill.
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {**_LLAMA, "tie_word_embeddings": False}),
    "llama tied": ("llama", {**_LLAMA, "tie_word_embeddings": True}),
    "llama dynamic rope": (
        "llama",
        {
            **_LLAMA,
            "head_dim": 8,
            "max_position_embeddings": 8,
            "rope_scaling": {"type": "dynamic", "factor": 2.0},
        },
    ),
    "qwen3": (
        "qwen3",
        {
            **_LLAMA,
            "head_dim": 8,
            "rope_theta": 10000.0,
            "max_position_embeddings": 512,
            "tie_word_embeddings": True,
        },
    ),
    "gemma3": ("gemma3_text", {**_GEMMA3, "sliding_window": 6}),
    "gemma3 wide": ("gemma3_text", {**_GEMMA3, "sliding_window": 24}),
    "gemma2": ("gemma2", {**_SIZES, **_HEADS, "head_dim": 8}),
    "cohere": (
        "cohere",
        {**_SIZES, "num_attention_heads": 4, "num_key_value_heads": 2, "logit_scale": 0.3},
    ),
    "mixture of experts": ("mixtral", {**_LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "gpt2": (
        "gpt2",
        {
            "n_ctx": 512,
            "n_embd": 32,
            "n_head": 4,
            "n_layer": 2,
            "n_positions": 512,
            "layer_norm_epsilon": 1e-5,
            "vocab_size": VOCABULARY,
        },
    ),
    "gpt_neox": (
        "gpt_neox",
        {
            "max_position_embeddings": 512,
            "hidden_size": 32,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "layer_norm_eps": 1e-5,
            "vocab_size": VOCABULARY,
            "rotary_emb_base": 10000,
            "rotary_pct": 0.25,
        },
    ),
    "gpt_oss": ("gpt_oss", {**_GPT_OSS, "sliding_window": 6}),
    "gpt_oss wide": ("gpt_oss", {**_GPT_OSS, "sliding_window": 24}),
    "phi3": ("phi3", {**_SIZES, **_HEADS}),
    "olmo2": ("olmo2", {**_SIZES, **_HEADS}),
    "llama4": ("llama4", {"text_config": {**_LLAMA4_TEXT, "attention_chunk_size": 8}}),
    "llama4 wide": ("llama4", {"text_config": {**_LLAMA4_TEXT, "attention_chunk_size": 24}}),
    "deepseek_v3": (
        "deepseek_v3",
        {
            **_SIZES,
            "moe_intermediate_size": 16,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "n_shared_experts": 1,
            "n_routed_experts": 4,
            "routed_scaling_factor": 1.0,
            "kv_lora_rank": 16,
            "q_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "v_head_dim": 8,
            "qk_nope_head_dim": 8,
            "topk_method": "noaux_tc",
            "scoring_func": "sigmoid",
            "norm_topk_prob": True,
            "n_group": 1,
            "topk_group": 1,
            "num_experts_per_tok": 2,
            "moe_layer_freq": 1,
            "first_k_dense_replace": 1,
            "max_position_embeddings": 512,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
        },
    ),
    "mamba": (
        "mamba",
        {
            **_SIZES,
            "state_size": 8,
            "conv_kernel": 4,
            "use_bias": False,
            "use_conv_bias": True,
            "time_step_rank": 4,
        },
    ),
    "mamba2": (
        "mamba2",
        {
            **_SIZES,
            "num_heads": 8,
            "head_dim": 8,
            "state_size": 8,
            "layer_norm_epsilon": 1e-5,
            "conv_kernel": 4,
            "n_groups": 1,
            "use_bias": False,
            "use_conv_bias": True,
            "tie_word_embeddings": True,
            "time_step_limit": (0.0, float("inf")),
            "time_step_rank": 4,
        },
    ),
    "rwkv7": (
        "rwkv7",
        {
            **_SIZES,
            "hidden_size": 64,
            "norm_eps": 1e-5,
            "head_dim": 32,
            "a_low_rank_dim": 8,
            "v_low_rank_dim": 8,
            "gate_low_rank_dim": 8,
            "decay_low_rank_dim": 8,
        },
    ),
    "recurrent_gemma": ("recurrent_gemma", {**_RECURRENT_GEMMA, "attention_window_size": 6}),
    "recurrent_gemma wide": ("recurrent_gemma", {**_RECURRENT_GEMMA, "attention_window_size": 24}),
    "jamba": (
        "jamba",
        {
            **_SIZES,
            **_HEADS,
            "num_hidden_layers": 4,
            "attn_layer_offset": 1,
            "attn_layer_period": 2,
            "expert_layer_offset": 1,
            "expert_layer_period": 2,
            "mamba_d_conv": 4,
            "mamba_d_state": 8,
            "mamba_expand": 2,
            "num_experts": 2,
            "num_experts_per_tok": 1,
            "max_position_embeddings": 512,
        },
    ),
    "qwen3_next": (
        "qwen3_next",
        {
            **_SIZES,
            **_HEADS,
            "num_hidden_layers": 4,
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "linear_conv_kernel_dim": 4,
            "num_experts": 0,
            "num_experts_per_tok": 0,
            "decoder_sparse_step": 1,
            "shared_expert_intermediate_size": 0,
            "mlp_only_layers": [],
            "moe_intermediate_size": 0,
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
            "max_position_embeddings": 512,
            "head_dim": 8,
        },
    ),
}


def build(name: str) -> Any:
    architecture, arguments = ARCHITECTURES[name]
    module = importlib.import_module(f"mlx_lm.models.{architecture}")
    mx.random.seed(5)
    model: nn.Module = module.Model(module.ModelArgs.from_dict({"model_type": architecture, **arguments}))
    model.update(tree_map_with_path(_sharpened, model.parameters()))
    mx.eval(model.parameters())
    return model


def _sharpened(path: str, values: mx.array) -> mx.array:
    """Sharp attention, recurrent states that last, and no part left at zero, where it would do nothing."""
    if path.endswith(("proj.weight", "query_key_value.weight")):
        return values * 3.0
    if path.endswith("A_log"):  # the speed at which a state is forgotten
        return values - 4.0
    zero = not path.endswith("bias") and mx.all(values == 0).item()
    return mx.random.normal(values.shape) * 0.5 if zero else values


def naive(model: Any, sequence: TokenSequence) -> tuple[float, bool]:
    """One forward pass over all tokens but the last; the softmax in NumPy, in double precision."""
    logits = np.array(model(mx.array([sequence.tokens[:-1]]))[0].astype(mx.float32), dtype=np.float64)
    total, greedy = 0.0, True
    for position in range(len(sequence.tokens) - sequence.scored, len(sequence.tokens)):
        row = logits[position - 1]
        shifted = row - row.max()
        total += shifted[sequence.tokens[position]] - np.log(np.exp(shifted).sum())
        greedy = greedy and int(row.argmax()) == sequence.tokens[position]
    return float(total), greedy


def naive_generation(model: Any, prompt: Sequence[int], count: int) -> list[int]:
    """Greedy tokens up to the end token, with a whole forward pass for each of them."""
    made: list[int] = []
    while len(made) < count:
        token = int(mx.argmax(model(mx.array([[*prompt, *made]]))[0, -1]).item())
        if token == END:
            break
        made.append(token)
    return made


def random_tokens(draw: random.Random, count: int) -> list[int]:
    """Token ids, the end token not among them."""
    return [draw.randrange(END) for _ in range(count)]


def ragged_sequences(seed: int, count: int = 14) -> list[TokenSequence]:
    """Questions behind two common stems, with one to four choices, some of which begin another."""
    draw = random.Random(seed)
    sequences = []
    stems = [random_tokens(draw, draw.randint(0, 25)) for _ in range(2)]
    for _ in range(count):
        question = draw.choice(stems) + random_tokens(draw, draw.randint(1, 12))
        for _ in range(draw.choice([1, 2, 4])):
            choice = random_tokens(draw, draw.randint(1, 5))
            sequences.append(TokenSequence((*question, *choice), len(choice)))
            if draw.random() < 0.2:
                longer = (*question, *choice, *random_tokens(draw, 3))
                sequences.append(TokenSequence(longer, draw.randint(1, 3 + len(choice))))
    return sequences


@dataclass
class Watched:
    """What a module was called with; `before` hears of each call first, and may raise."""

    shapes: list[tuple[int, ...]] = field(default_factory=list)
    before: Callable[[tuple[int, ...]], None] = lambda _shape: None

    @property
    def tokens(self) -> int:
        """Rows x width of all calls, padding included."""
        return sum(rows * width for rows, width, *_ in self.shapes)


def watch(module: Any, method: str = "__call__") -> Watched:
    """Note the shape of the first argument of every call of a module's method."""
    watched = Watched()
    original = type(module)

    def noting(this: Any, values: mx.array, *arguments: Any, **keywords: Any) -> Any:
        watched.before(values.shape)
        watched.shapes.append(values.shape)
        return getattr(original, method)(this, values, *arguments, **keywords)

    module.__class__ = type(original.__name__, (original,), {method: noting})
    return watched


def out_of_memory(limit: int) -> Callable[[tuple[int, ...]], None]:
    """Raises what MLX raises where a pass has more tokens than `limit`."""

    def check(shape: tuple[int, ...]) -> None:
        if shape[0] * shape[1] > limit:
            raise RuntimeError("[malloc_or_wait] Unable to allocate 123 bytes.")

    return check
