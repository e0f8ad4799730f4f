"""Seeds and decoding of an experiment's items."""

from __future__ import annotations

import pytest

from pytest_gnus.experiments.plan import decoding_with, in_round, samples
from pytest_gnus.plan import CANONICAL_DECODING, Request

REQUEST = Request("x", "canonical", "local", 0, 1234, False, None, {}, {}, None, False, None, (), None)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"do_sample": False, "temperature": 0.0}),
        ({"temperature": 0.7}, {"do_sample": True, "temperature": 0.7}),
        ({"do_sample": True}, {"do_sample": True, "temperature": 1.0}),
        ({"temperature": 0.0}, {"do_sample": False, "temperature": 0.0}),
        ({"do_sample": False, "temperature": 0.7}, {"do_sample": False, "temperature": 0.7}),
        ({"max_gen_toks": 5}, {"do_sample": False, "temperature": 0.0, "max_gen_toks": 5}),
    ],
)
def test_a_temperature_alone_samples_and_so_does_do_sample_alone(changes, expected):
    assert decoding_with(changes, CANONICAL_DECODING) == expected


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        ({"decoding": "log-likelihood"}, False),
        ({"do_sample": False, "temperature": 0.7}, False),
        ({"do_sample": True, "temperature": 0.0}, False),
        ({"temperature": 0.7}, True),
        ({"do_sample": True, "temperature": 1}, True),
        ({"one_task": {"do_sample": False}, "other": {"temperature": 0.1}}, True),
        ({"one_task": {"decoding": "log-likelihood"}}, False),
    ],
)
def test_what_samples(generation, expected):
    assert samples(generation) is expected


def test_the_first_round_has_the_canonical_seeds_and_the_documents_keep_theirs():
    seeds = [
        (r.fewshot_seed, r.sampling_seed, r.documents_seed) for r in (in_round(REQUEST, n) for n in (0, 1, 7))
    ]
    assert seeds == [(1234, 1234, 1234), (1235, 1235, 1234), (1241, 1241, 1234)]
