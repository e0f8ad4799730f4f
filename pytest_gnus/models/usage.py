"""What a model was asked to do, counted for the record (DESIGN, trap 24)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Usage:
    """Counts of one measurement; a provider's model adds to them as it works.

    `truncated_prompts` counts as known once it has been set, be it to 0: a model that never touches it does
    not know how many prompts were longer than its context, and must not look as if none had been.
    """

    requests: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    tokens_reused: int = 0
    stopped_by_string: int = 0
    stopped_by_limit: int = 0
    notes: list[str] = field(default_factory=list)
    adjustments: list[str] = field(default_factory=list)
    _truncated: int | None = None

    @property
    def truncated_prompts(self) -> int:
        return self._truncated or 0

    @truncated_prompts.setter
    def truncated_prompts(self, number: int) -> None:
        self._truncated = number

    @property
    def counts_truncated(self) -> bool:
        """Whether the model says how many prompts were longer than its context."""
        return self._truncated is not None

    def count_prompts(self, lengths: Iterable[int]) -> None:
        for length in lengths:
            self.requests += 1
            self.prompt_tokens += length

    def note(self, text: str) -> None:
        """Something that a person should know, said once."""
        if text not in self.notes:
            self.notes.append(text)

    def adjusted(self, text: str) -> None:
        """What was done to the requests, so that there is nothing to be warned of; said once."""
        if text not in self.adjustments:
            self.adjustments.append(text)

    def reset(self) -> None:
        for name, value in vars(Usage()).items():
            setattr(self, name, value)
