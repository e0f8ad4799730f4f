"""Reasoning blocks that a chat template opens: closed as the template would, or told of."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment
from lm_eval.api.instance import Instance

from pytest_gnus.errors import EvaluationError
from pytest_gnus.models.chat_prompts import note_open_blocks, prompt_for_choices
from pytest_gnus.models.harness_model import HarnessModel
from pytest_gnus.models.loading import load
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.models.usage import Usage

QUESTION = [{"role": "user", "content": "Which is red?"}]
TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
#: Opens a block unless it is told not to think.
SWITCHED = TURNS + (
    "{% if add_generation_prompt %}<assistant>"
    "{% if enable_thinking is not defined or enable_thinking %}<think>\n"
    "{% else %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
#: The same with another variable, whose empty block is nothing at all.
OTHER_SWITCH = TURNS + (
    "{% if add_generation_prompt %}<assistant>{% if thinking | default(true) %}<think>{% endif %}{% endif %}"
)
#: Knows the variable, and opens a block whatever it says; its empty block stands in its text.
WRITTEN = TURNS + (
    "{% if enable_thinking %}{% endif %}"
    "{% if add_generation_prompt %}{{ '<assistant><think>\\n' }}{% endif %}"
    "{% if false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
)
#: Puts an empty block before each answer that it is shown, in pieces.
RENDERED = (
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}"
    "{{ '<think>' + '\n' }}{{ m.reasoning }}{{ '\n</think>' + '\n' }}{% endif %}{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant><think>\n{% endif %}"
)
#: Opens a block, drops it from answers, and has no switch.
STUBBORN = TURNS + "{% if add_generation_prompt %}<assistant><think>\n{% endif %}"


def renderer(template: str) -> Callable[..., str]:
    def render(turns: Any = QUESTION, **variables: Any) -> str:
        settings = {"add_generation_prompt": turns is QUESTION, **variables}
        return Environment(autoescape=False).from_string(template).render(messages=turns, **settings)

    return render


HEAD = "<user>Which is red?<assistant>"


@pytest.mark.parametrize(
    ("template", "expected", "told"),
    [
        (SWITCHED, HEAD + "<think>\n\n</think>\n\n", "with enable_thinking=False"),
        (OTHER_SWITCH, HEAD, "with thinking=False"),
        (WRITTEN, HEAD + "<think>\n\n</think>\n\n", r"behind '<think>\n\n</think>\n\n'"),
        (RENDERED, HEAD + "<think>\n\n</think>\n", r"behind '<think>\n\n</think>\n'"),
    ],
    ids=["switched", "another switch", "written", "rendered"],
)
def test_a_block_is_closed_as_the_template_would(template: str, expected: str, told: str) -> None:
    usage = Usage()
    assert prompt_for_choices(renderer(template), template, usage) == expected
    assert usage.adjustments == [
        f"the chat template opens a reasoning block (<think>): choices were scored {told}"
    ]
    assert usage.notes == []


def test_what_cannot_be_closed_stays_open_and_is_told() -> None:
    usage = Usage()
    prompt = prompt_for_choices(renderer(STUBBORN), STUBBORN, usage)
    assert prompt == HEAD + "<think>\n"
    note_open_blocks([Instance("loglikelihood", {}, (text, " A"), 0) for text in (prompt, "plain")], usage)
    assert usage.adjustments == []
    assert usage.notes == [
        "1 of 2 choices were scored behind an open reasoning block (<think>), as thoughts: the chat template "
        "offers no way to close it"
    ]


@pytest.mark.parametrize(
    "template",
    [
        TURNS + "{% if add_generation_prompt %}<assistant>{% endif %}",
        TURNS + "{% if add_generation_prompt %}<assistant><think>\n\n</think>\n\n{% endif %}",
    ],
    ids=["no block", "closed already"],
)
def test_a_template_that_opens_none_is_left_alone(template: str) -> None:
    usage = Usage()
    assert prompt_for_choices(renderer(template), template, usage) == renderer(template)()
    assert (usage.adjustments, usage.notes) == ([], [])


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory, reference_directory: Path) -> Any:
    """The embedded reference with a template that opens a block unless it is told not to."""
    directory = tmp_path_factory.mktemp("thinking") / "model"
    shutil.copytree(reference_directory, directory)
    (directory / "chat_template.jinja").write_text(SWITCHED)
    return load(ModelSpec("mlx", str(directory)))


def test_prompts_of_choices_are_closed_and_those_to_be_continued_are_not(
    thinking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(thinking.lm), "_thinks", True)
    lm = thinking.lm
    lm.usage.reset()
    lm.scores_choices(True)
    assert lm.apply_chat_template(QUESTION) == HEAD + "<think>\n\n</think>\n\n"
    assert len(lm.usage.adjustments) == 1
    lm.scores_choices(False)
    assert lm.apply_chat_template(QUESTION) == HEAD + "<think>\n"
    prefilled = [*QUESTION, {"role": "assistant", "content": "The"}]
    lm.scores_choices(True)
    assert lm.apply_chat_template(prefilled, add_generation_prompt=False).endswith("<assistant>The")


def test_choices_behind_an_open_block_are_told_by_the_model_that_scores_them(thinking: Any) -> None:
    thinking.lm.usage.reset()
    thinking.lm.loglikelihood([Instance("loglikelihood", {}, (HEAD + "<think>\n", " A"), 0)])
    assert "1 of 1 choices were scored behind an open reasoning block" in thinking.lm.usage.notes[0]


def test_a_template_that_refuses_a_chat_says_so(reference_directory: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(reference_directory, tmp_path / "model"))
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    settings["chat_template"] = "{{ raise_exception('System role not supported') }}"
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    lm: Any = load(ModelSpec("mlx", str(directory))).lm
    with pytest.raises(EvaluationError, match="the chat template refuses a chat: System role not supported"):
        lm.apply_chat_template(QUESTION)


class _Foreign:
    """An lm-eval model of others: it has a template, and no notion of what its prompts are for."""

    def set_cache_hook(self, hook: Any) -> None:
        """Nothing is cached."""

    def chat_template(self, _chosen: bool | str) -> str:
        return WRITTEN

    def apply_chat_template(self, turns: Any, add_generation_prompt: bool = True) -> str:
        return renderer(WRITTEN)(turns, add_generation_prompt=add_generation_prompt)


def test_models_of_lm_evals_own_are_closed_by_the_text_of_their_template() -> None:
    foreign: Any = _Foreign()
    lm = HarnessModel(foreign, "foreign")
    assert lm.apply_chat_template(QUESTION) == HEAD + "<think>\n"
    lm.scores_choices(True)
    assert lm.apply_chat_template(QUESTION) == HEAD + "<think>\n\n</think>\n\n"
    assert len(lm.usage.adjustments) == 1
