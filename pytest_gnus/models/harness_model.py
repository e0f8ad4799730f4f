"""Models of lm-eval's own, made to count what they are asked and to keep to the stop strings."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM, CacheHook

from pytest_gnus.errors import EvaluationError, ModelError, did_you_mean
from pytest_gnus.models.arguments import NamedArguments
from pytest_gnus.models.chat_prompts import note_open_blocks, prompt_for_choices
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.models.progress import NoProgress, Progress
from pytest_gnus.models.registry import LOCAL_ARGUMENTS
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.models.token_model import GenerationSettings, cut_at_stop
from pytest_gnus.models.usage import Usage


def load(spec: ModelSpec) -> LoadedModel:
    """Load `lm_eval:NAME,argument=value,...`.

    Raises:
        ModelError: lm-eval has no such model, or it cannot be made with these arguments.
    """
    from lm_eval.api.registry import get_model, model_registry

    arguments = NamedArguments.parse(spec.name)
    if arguments.name not in model_registry:
        hint = did_you_mean(arguments.name, model_registry) or "`lm-eval ls models` lists them."
        raise ModelError(f"lm-eval has no model {arguments.name!r}. {hint}")
    if spec.adapter is not None:
        raise ModelError(
            f"{spec}: lm-eval's models take their adapter as an argument, as in lm_eval:hf,...,peft=DIR"
        )
    text = ",".join(f"{key}={value}" for key, value in arguments.values.items())
    try:
        model = get_model(arguments.name).create_from_arg_string(text)
    except Exception as error:
        raise ModelError(f"cannot load {spec}: {type(error).__name__}: {error}") from error
    if model.world_size > 1:
        raise ModelError(f"{spec}: runs in {model.world_size} processes; a model here is of one process")
    return LoadedModel(
        spec=spec,
        lm=HarnessModel(model, arguments.name),
        device=str(model.device) if getattr(model, "device", None) is not None else None,
        directories=_directories(arguments),
    )


def _directories(arguments: NamedArguments) -> dict[str, Path]:
    """Where a model's weights lie, if all of them are on this machine; else nobody knows whose they are."""
    named = {key: Path(arguments.values[key]) for key in LOCAL_ARGUMENTS if key in arguments.values}
    if "pretrained" not in named or not all(path.is_dir() for path in named.values()):
        return {}
    return {"model": named.pop("pretrained"), **named}


class HarnessModel(LM):
    """An lm-eval model as the rest of the product asks it.

    Args:
        model: any of lm-eval's.
        name: what messages call it.
        usage: where the model counts its own requests; without one they are counted here, as far as can be
            told from outside.
    """

    def __init__(self, model: LM, name: str, usage: Usage | None = None) -> None:
        super().__init__()
        self._model: LM | None = model
        self._name = name
        self._counts_itself = usage is not None
        self._scores_choices = False
        self.usage = usage or Usage()
        self.progress: Progress = NoProgress()
        model.set_cache_hook(_FinishedRequests(self))

    def release(self) -> None:
        """Let go of the weights, even where a traceback still holds this object."""
        model: Any = self._model
        self._model = None
        if hasattr(model, "_model"):
            model._model = None  # the torch model of lm-eval's classes
        del model
        gc.collect()
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()

    def __getattr__(self, name: str) -> Any:
        """What lm-eval asks of some models only: `batch_sizes`, `get_model_info`, `tokenizer`."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._model, name)

    @property
    def device(self) -> Any:
        return getattr(self._model, "device", None)

    @property
    def tokenizer_name(self) -> str:
        return str(self._inner.tokenizer_name)

    @property
    def _inner(self) -> Any:
        if self._model is None:
            raise RuntimeError(f"{self._name} has been released")
        return self._model

    def scores_choices(self, value: bool) -> None:
        """Say whether the prompts to come are for log-probabilities alone."""
        if hasattr(self._inner, "scores_choices"):
            self._inner.scores_choices(value)
        else:
            self._scores_choices = value

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        def render(turns: list[dict[str, str]] = chat_history, **_variables: Any) -> str:
            generation = turns is chat_history and add_generation_prompt
            text: str = self._inner.apply_chat_template(turns, add_generation_prompt=generation)
            return text

        if self._scores_choices and add_generation_prompt:
            return prompt_for_choices(render, self.chat_template(True), self.usage)
        return render()

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        template: str | None = self._inner.chat_template(chat_template)
        return template

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        if not self._counts_itself:
            note_open_blocks(requests, self.usage)
        answers = self._asked(self._inner.loglikelihood, requests)
        self._count_truncated([(*request.args, 0) for request in requests])
        scores = [(float(logprob), bool(greedy)) for logprob, greedy in answers]
        asked = [score for request, (score, _) in zip(requests, scores, strict=True) if request.args[1]]
        if asked and not any(asked):
            # lm-eval's API models add up nothing where a server ignores `echo`; every first choice then wins.
            raise EvaluationError(
                f"{self._name} gave the log-probability 0 to each of {len(asked)} texts: it scores none"
            )
        return scores

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        # Some of lm-eval's models give (log-probability, greedy), as its documentation once had it.
        answers = self._asked(self._inner.loglikelihood_rolling, requests)
        self._count_truncated([])  # a text that is too long is read in several windows
        return [float(answer[0] if isinstance(answer, tuple) else answer) for answer in answers]

    def generate_until(self, requests: list[Instance]) -> list[str]:
        settings = [GenerationSettings.of(request.args[1]) for request in requests]
        plain = [
            _with_settings(request, asked.stop) for request, asked in zip(requests, settings, strict=True)
        ]
        answers = self._asked(self._inner.generate_until, plain)
        self._count_truncated(
            [
                (request.args[0], "", asked.max_tokens)
                for request, asked in zip(requests, settings, strict=True)
            ]
        )
        if not self._counts_itself:
            self.usage.note(
                f"lm-eval's {self._name} does not say what ended an output: none is counted as cut by a stop "
                "string or by the limit of tokens"
            )
        missing = sum(not isinstance(answer, str) for answer in answers)
        if missing:
            raise EvaluationError(f"{self._name} gave no text for {missing} of {len(answers)} prompts")
        return [cut_at_stop(answer, asked.stop) for answer, asked in zip(answers, settings, strict=True)]

    def _count_truncated(self, prompts: Sequence[tuple[Any, Any, int]]) -> None:
        """Count prompts (context, continuation, tokens to be generated) that the model cannot read whole.

        lm-eval's models drop what does not fit, and most say so in a log line only. From outside it is known
        where the tokenizer is at hand and the model says how much it reads; else nothing is counted.
        """
        if self._counts_itself:
            return
        # As an attribute that is there: of some models it is a property that downloads a tokenizer.
        if not _is_tokenizer(vars(self._inner).get("tokenizer")):
            return
        length = getattr(self._inner, "max_length", None)
        if not isinstance(length, int):
            return
        if not all(isinstance(context, str) for context, _, _ in prompts):
            return  # a chat, of which only the server makes a text
        self.usage.truncated_prompts += sum(
            len(self._inner.tok_encode(context + continuation)) > length - generated
            for context, continuation, generated in prompts
        )

    def _asked(self, ask: Callable[[list[Instance]], Sequence[Any]], requests: list[Instance]) -> list[Any]:
        if not self._counts_itself:
            self.usage.count_prompts(0 for _ in requests)
        self.progress.begin(len(requests))
        try:
            answers = list(ask(requests))
        except NotImplementedError as error:
            raise EvaluationError(f"{self._name} cannot answer: {error or 'not implemented'}") from error
        if len(answers) != len(requests):
            raise EvaluationError(f"{self._name} gave {len(answers)} answers to {len(requests)} requests")
        return answers


class _FinishedRequests(CacheHook):
    """Where lm-eval's models report each request that is done, for a cache that is never used here."""

    def __init__(self, model: HarnessModel) -> None:
        super().__init__(None)
        self._model = model

    def add_partial(self, _attr: str, _request: Any, _answer: Any) -> None:
        self._model.progress.advance(1, 0)


def _is_tokenizer(tokenizer: Any) -> bool:
    """Whether it is one of transformers', whose import is the model's business."""
    transformers = sys.modules.get("transformers")
    return transformers is not None and isinstance(tokenizer, transformers.PreTrainedTokenizerBase)


def _with_settings(request: Instance, stop: Sequence[str]) -> Instance:
    """A request whose stop strings are a list: some models take a string apart into its characters."""
    context, settings, *rest = request.args
    return replace(request, arguments=(context, {**settings, "until": list(stop)}, *rest))
