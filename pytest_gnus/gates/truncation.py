"""Prompts that were longer than a model's context: what share of them a benchmark allows.

A model that drops the oldest tokens of a prompt answers another question than the benchmark asks.
"""

from __future__ import annotations

from pytest_gnus.gates.result import GateResult, not_evaluated

NAME = "truncated_share"


def truncated_share(
    truncated: int | None, requests: int, threshold: float | None, context_tokens: int | None = None
) -> GateResult | None:
    """Whether the share of truncated prompts stays within `threshold`, equality included.

    Where nobody knows how many were truncated the gate is not evaluated, which is noted and does not block.

    Args:
        truncated: prompts that lost tokens; None where the model does not count them.
        requests: all prompts.
        threshold: None where no limit is set: there is no gate then.
        context_tokens: what the model reads at most, where that is known.
    """
    if threshold is None:
        return None
    if truncated is None:
        detail = "the model does not say how many prompts were longer than its context"
        return not_evaluated(NAME, detail, threshold, severity="note")
    if not 0 <= truncated <= requests:
        return not_evaluated(NAME, f"the model counts {truncated} truncated of {requests} prompts", threshold)
    share = truncated / requests if requests else 0.0
    limit = f"; truncated_max_share allows {threshold:.2%}" if truncated else ""
    return GateResult(
        NAME,
        share <= threshold,
        value=share,
        threshold=threshold,
        detail=truncation_sentence(truncated, requests, context_tokens) + limit,
    )


def truncation_sentence(truncated: int, requests: int, context_tokens: int | None = None) -> str:
    """How many prompts were too long, and what became of them."""
    context = "the model's context" + (f" of {context_tokens} tokens" if context_tokens is not None else "")
    if not truncated:
        return f"none of {requests} prompts was longer than {context}"
    verb = "was" if truncated == 1 else "were"
    return f"{truncated} of {requests} prompts {verb} longer than {context}; their oldest tokens were dropped"
