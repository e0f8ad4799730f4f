"""What a model counts, and what it does not know."""

from __future__ import annotations

from pytest_gnus.models.usage import Usage


def test_what_a_model_never_touches_it_does_not_know() -> None:
    usage = Usage()
    usage.count_prompts([3, 4])
    assert (usage.requests, usage.prompt_tokens) == (2, 7)
    assert (usage.truncated_prompts, usage.counts_truncated) == (0, False)
    usage.truncated_prompts += 0
    assert (usage.truncated_prompts, usage.counts_truncated) == (0, True)
    usage.truncated_prompts += 2
    assert usage.truncated_prompts == 2


def test_a_reset_forgets_that_it_was_known() -> None:
    usage = Usage(requests=5)
    usage.truncated_prompts = 5
    usage.note("a note")
    usage.reset()
    assert usage == Usage()
    assert (usage.requests, usage.notes, usage.counts_truncated) == (0, [], False)
