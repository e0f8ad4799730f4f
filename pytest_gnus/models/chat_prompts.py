"""Prompts of chat templates, and reasoning blocks that a template's generation prompt opens.

Behind an open block a choice is scored as a thought. So it is closed before choices are scored, as the
template itself would close it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from jinja2 import Environment, TemplateError, TemplateSyntaxError, meta
from lm_eval.api.instance import Instance

from pytest_gnus.errors import EvaluationError
from pytest_gnus.models.usage import Usage

#: What begins and ends a reasoning block.
_BLOCKS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<seed:think>", "</seed:think>"),
    ("<|think:start|>", "<|think:end|>"),
    ("<|channel>thought", "<channel|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),
)
#: Those by which mlx-lm knows that a model thinks.
_MARKS = (_BLOCKS[0], _BLOCKS[2], _BLOCKS[4], ("<|channel>", "<channel|>"))
#: Variables with which templates are told not to let the model think.
_SWITCHES = ("enable_thinking", "thinking")
_ANSWER = "The answer of the assistant."

Render = Callable[..., str]


class ChatPrompts:
    """How a language model with a tokenizer of transformers renders chats; a base of lm-eval's models."""

    tokenizer: Any
    usage: Usage
    _scores_choices = False

    def scores_choices(self, value: bool) -> None:
        """Say whether the prompts to come are for log-probabilities alone."""
        self._scores_choices = value

    @cached_property
    def _thinks(self) -> bool:
        """What mlx-lm gives a template as `enable_thinking`: whether the tokenizer has marks for thoughts."""
        known: bool | None = getattr(self.tokenizer, "has_thinking", None)
        if known is not None:
            return known
        vocabulary = self.tokenizer.get_vocab()
        return any(begin in vocabulary and end in vocabulary for begin, end in _MARKS)

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """A chat as text.

        Raises:
            EvaluationError: the template refuses it, a system turn for example.
        """

        def render(turns: Sequence[dict[str, str]] = chat_history, **variables: Any) -> str:
            settings = {"enable_thinking": self._thinks, **variables}
            generation = turns is chat_history and add_generation_prompt
            text: str = self.tokenizer.apply_chat_template(
                turns,
                tokenize=False,
                add_generation_prompt=generation,
                continue_final_message=not generation,
                **settings,
            )
            return text

        try:
            if self._scores_choices and add_generation_prompt:
                return prompt_for_choices(render, self._template, self.usage)
            return render()
        except TemplateError as error:
            raise EvaluationError(f"the chat template refuses a chat: {error}") from error

    @property
    def _template(self) -> str | None:
        """The text of the template in use, where there is one."""
        found = self.tokenizer.chat_template
        default = found.get("default") if isinstance(found, dict) else found
        return default if isinstance(default, str) else None


def prompt_for_choices(render: Render, source: str | None, usage: Usage) -> str:
    """A prompt behind which choices are scored, its reasoning block closed if the template can.

    Args:
        render: gives the prompt, or that of other turns; variables of the template may be given to it.
        source: the template's text, where it is known.
        usage: hears what was done.
    """
    prompt = render()
    block = _opened(prompt)
    if block is None:
        return prompt
    begin, end = block
    for switch in _switches(source):
        closed = render(**{switch: False})
        if _opened(closed) is None:
            usage.adjusted(
                f"the chat template opens a reasoning block ({begin}): choices were scored with "
                f"{switch}=False"
            )
            return closed
    empty = _empty_block(begin, end, source, render)
    if empty is None:
        return prompt
    usage.adjusted(
        f"the chat template opens a reasoning block ({begin}): choices were scored behind {empty!r}"
    )
    return prompt.rstrip()[: -len(begin)] + empty


def note_open_blocks(requests: Iterable[Instance], usage: Usage) -> None:
    """Warn of choices that are scored behind an open reasoning block."""
    contexts = [str(request.args[0]) for request in requests]
    blocks = [block for block in map(_opened, contexts) if block is not None]
    if blocks:
        usage.note(
            f"{len(blocks)} of {len(contexts)} choices were scored behind an open reasoning block "
            f"({blocks[0][0]}), as thoughts: the chat template offers no way to close it"
        )


def _opened(prompt: str) -> tuple[str, str] | None:
    tail = prompt.rstrip()
    return next((block for block in _BLOCKS if tail.endswith(block[0])), None)


def _switches(source: str | None) -> Sequence[str]:
    """The variables of a template that may switch reasoning off."""
    if source is None:
        return ()
    try:
        known = meta.find_undeclared_variables(_syntax().parse(source))
    except TemplateSyntaxError:  # it has been rendered: it uses a statement of transformers
        known = set(re.findall(r"\w+", source))
    return [switch for switch in _SWITCHES if switch in known]


def _syntax() -> Environment:
    return Environment(autoescape=False, extensions=["jinja2.ext.loopcontrols"])  # parsed, never rendered


def _empty_block(begin: str, end: str, source: str | None, render: Render) -> str | None:
    """The template's empty block with what stands behind it: as it is written there, or as it renders one."""
    written = re.search(
        re.escape(begin) + r"(\s|\\n)*" + re.escape(end) + r"(\s|\\n)*",
        source or "",
    )
    if written is not None:
        return written[0].replace("\\n", "\n")
    rendered = render([{"role": "user", "content": "A question."}, {"role": "assistant", "content": _ANSWER}])
    empty = f"{re.escape(begin)}\\s*{re.escape(end)}\\s*(?={re.escape(_ANSWER)})"
    shown = re.search(empty, rendered)
    return shown[0] if shown is not None else None
