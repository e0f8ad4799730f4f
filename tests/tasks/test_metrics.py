"""ROUGE against values worked out by hand (Lin 2004)."""

from __future__ import annotations

import pytest

from pytest_gnus.tasks.metrics import ROUGE_METRICS, register_metrics, rouge


@pytest.mark.parametrize(
    ("name", "reference", "prediction", "expected"),
    [
        # 3 of 4 reference words and 3 of 5 predicted words in common: 2 * .75 * .6 / 1.35
        ("rouge1", "a pump with valve", "a pump and a valve", 2 * 0.75 * 0.6 / 1.35),
        # bigrams in common: "a pump" of 3 and of 4
        ("rouge2", "a pump with valve", "a pump and a valve", 2 * (1 / 3) * (1 / 4) / (1 / 3 + 1 / 4)),
        # longest common subsequence "a pump valve": 3 of 4, 3 of 5
        ("rougeL", "a pump with valve", "a pump and a valve", 2 * 0.75 * 0.6 / 1.35),
        ("rouge1", "the pumps", "the pump", 1.0),  # stemmed
        ("rouge1", "pump", "", 0.0),
        ("rougeL", "one two three", "three two one", 1 / 3),
    ],
)
def test_values(name: str, reference: str, prediction: str, expected: float) -> None:
    assert rouge(name, [reference], [prediction]) == pytest.approx(expected)


def test_registering_twice_is_harmless_and_lm_eval_finds_them() -> None:
    register_metrics()
    register_metrics()
    from lm_eval.api.registry import get_metric, get_metric_aggregation, is_higher_better

    for name in ROUGE_METRICS:
        metric = get_metric(name)
        assert metric is not None
        assert metric(references=["a b"], predictions=["a b"]) == 1.0
        assert is_higher_better(name) is True
        assert get_metric_aggregation(name)([0.0, 1.0]) == 0.5  # type: ignore[misc]
