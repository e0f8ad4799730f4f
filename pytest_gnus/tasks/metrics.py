"""Metrics that lm-eval lacks: ROUGE, from the package that lm-eval's own tasks use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

ROUGE_METRICS = ("rouge1", "rouge2", "rougeL")


def register_metrics() -> None:
    """Make `rouge1`, `rouge2` and `rougeL` known to lm-eval. Does nothing the second time."""
    # lm-eval fills its aggregations when this module is imported; registering a metric needs "mean".
    import lm_eval.api.metrics  # noqa: F401
    from lm_eval.api.registry import metric_registry, register_metric

    for name in ROUGE_METRICS:
        if name not in metric_registry:
            metric: Callable[..., float] = partial(rouge, name)
            register_metric(
                metric=name, higher_is_better=True, output_type="generate_until", aggregation="mean"
            )(metric)


def rouge(name: str, references: Sequence[str], predictions: Sequence[str], **_keywords: Any) -> float:
    """F-measure of one prediction against one reference, in [0, 1], with Porter stemming (Lin 2004)."""
    result = _scorer().score(str(references[0]), str(predictions[0]))
    return float(result[name].fmeasure)


@cache
def _scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(list(ROUGE_METRICS), use_stemmer=True)
