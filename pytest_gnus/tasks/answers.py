"""What a document's choices and its right answer may be.

lm-eval takes whatever it is given: a right answer that is none of the choices counts as answered wrong, a
negative one is another choice, and no choices at all end it in an error that names no document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def choice_fault(choices: Any) -> str | None:
    """What is wrong with a document's choices, if anything."""
    if not isinstance(choices, list):
        return f"gives {_shown(choices)}, where a list of texts is needed"
    if not choices:
        return "gives no choices"
    for number, choice in enumerate(choices):
        if not isinstance(choice, str):
            return f"gives choice {number} as {_shown(choice)}, where a text is needed"
        if not choice:
            return f"gives choice {number} as an empty text, which cannot be scored"
    return None


def gold_fault(gold: Any, choices: Sequence[str], *, several: bool) -> str | None:
    """What is wrong with the right answer of a document with choices, if anything.

    Args:
        several: whether the first document has a list of right answers, as then all have to.
    """
    if isinstance(gold, list) != several:
        first = "a list of right answers" if several else "a single right answer"
        return f"gives {_shown(gold)}, where the first document has {first}: use one form in all documents"
    if not several:
        return _single_fault(gold, choices)
    if not gold:
        return "gives no right answer: the list is empty"
    faults = (
        _single_fault(one, choices)
        if isinstance(one, int)
        else f"gives {_shown(one)} in a list, where the number of a choice is needed"
        for one in gold
    )
    return next((fault for fault in faults if fault is not None), None)


def target_fault(target: Any, *, several: bool) -> str | None:
    """What is wrong with the right answer that a generated text is compared with, if anything."""
    if isinstance(target, list) and not several:
        return (
            f"gives {_shown(target)}, where the first document has a single right answer: use one form in "
            "all documents"
        )
    if isinstance(target, list) and (not target or None in target):
        return f"gives {_shown(target)}, which holds no right answer"
    return None


def _single_fault(gold: Any, choices: Sequence[str]) -> str | None:
    if isinstance(gold, str) and gold in choices:
        return None
    if isinstance(gold, int) and 0 <= gold < len(choices):
        return None
    allowed = f"a whole number from 0 to {len(choices) - 1}, or the text of a choice"
    return f"gives {_shown(gold)}, which is none of its {len(choices)} choices; allowed: {allowed}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
