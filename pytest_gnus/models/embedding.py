"""How many token ids an MLX model can be given: one more and MLX reads beside its weights, or crashes."""

from __future__ import annotations

from typing import Any

import mlx.nn as nn

#: Names that architectures give the embedding of tokens; positions and layers have others.
_EMBEDDINGS = (
    "embed_tokens",
    "word_embeddings",
    "token_embeddings",
    "tok_embeddings",
    "wte",
    "embed_in",
    "embeddings",
    "embedding",
    "embed",
)
_HEADS = ("lm_head", "embed_out", "output")


def embedding_rows(model: nn.Module) -> int | None:
    """The ids that both the embedding and the output layer have a row for; None where none is found."""
    modules = list(model.named_modules())
    embedding = _rows(modules, _EMBEDDINGS)
    head = _rows([(path, module) for path, module in modules if "layers." not in path], _HEADS)
    found = [rows for rows in (embedding, head) if rows is not None]
    return min(found) if embedding is not None else None


def _rows(modules: list[tuple[str, Any]], names: tuple[str, ...]) -> int | None:
    """The rows of the first matrix that has one of these names, the likeliest name first."""
    for name in names:
        for path, module in modules:
            if path.rsplit(".", 1)[-1] == name and not path.startswith("vision"):
                for part in (module, module.get("linear"), module.get("embedding")):  # of an adapter
                    weight = part.get("weight") if isinstance(part, nn.Module) else None
                    if weight is not None and weight.ndim == 2:
                        return int(weight.shape[0])
    return None
