"""lm-eval's own models, as the product asks them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from pytest_gnus.demo import model_directory
from pytest_gnus.errors import EvaluationError, ModelError
from pytest_gnus.models.harness_model import HarnessModel
from pytest_gnus.models.registry import BUILT_IN, load
from pytest_gnus.models.spec import ModelSpec, parse


class Recorded(LM):
    """Keeps what it was asked and answers as it is told."""

    def __init__(self, answers: list[Any]) -> None:
        super().__init__()
        self.answers = answers
        self.asked: list[Instance] = []

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[Any]:
        if not self.answers:
            raise NotImplementedError("only talks")
        return self.answers

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[Any]:
        return self.answers

    def generate_until(self, requests: list[Instance]) -> list[Any]:
        self.asked = requests
        for request in requests:
            self.cache_hook.add_partial("generate_until", request.args, "")
        return self.answers


class Progress:
    def __init__(self) -> None:
        self.begun, self.finished = 0, 0

    def item(self, name: str) -> None: ...

    def begin(self, requests: int) -> None:
        self.begun += requests

    def advance(self, requests: int, tokens: int) -> None:
        self.finished += requests

    def close(self) -> None: ...


def generation(*settings: dict[str, Any]) -> list[Instance]:
    return [Instance("generate_until", {}, ("a prompt", each), index) for index, each in enumerate(settings)]


def test_a_string_as_stop_is_one_sequence_and_what_follows_it_is_cut() -> None:
    inner = Recorded(["first\n\nsecond", "no stop", "Q here"])
    model = HarnessModel(inner, "recorded")
    model.progress = progress = Progress()
    found = model.generate_until(generation({"until": "\n\n", "max_gen_toks": 3}, {}, {"until": ["", "Q"]}))
    assert found == ["first", "no stop", ""]
    assert [request.args[1]["until"] for request in inner.asked] == [["\n\n"], [], ["", "Q"]]
    assert inner.asked[0].args[1]["max_gen_toks"] == 3
    assert (progress.begun, progress.finished) == (3, 3)
    assert (model.usage.requests, len(model.usage.notes)) == (3, 1)


@pytest.mark.parametrize("answers", [["one"], ["one", None], ["one", "two", "three"]])
def test_a_missing_answer_is_an_error(answers: list[Any]) -> None:
    with pytest.raises(EvaluationError, match="recorded gave"):
        HarnessModel(Recorded(answers), "recorded").generate_until(generation({}, {}))


def test_what_a_model_cannot_answer_is_an_error_with_its_own_words() -> None:
    with pytest.raises(EvaluationError, match="recorded cannot answer: only talks"):
        HarnessModel(Recorded([]), "recorded").loglikelihood([])


def test_a_server_that_echoes_nothing_must_not_score_zero() -> None:
    pairs = [("a", " b"), ("a", " c"), ("a", "")]
    requests = [Instance("loglikelihood", {}, pair, index) for index, pair in enumerate(pairs)]
    with pytest.raises(EvaluationError, match="the log-probability 0 to each of 2 texts"):
        HarnessModel(Recorded([(0, True)] * 3), "recorded").loglikelihood(requests)
    scored = HarnessModel(Recorded([(0, True), (-1.0, False), (0, True)]), "recorded").loglikelihood(requests)
    assert scored == [(0.0, True), (-1.0, False), (0.0, True)]


def test_rolling_answers_come_in_two_forms() -> None:
    requests = [Instance("loglikelihood_rolling", {}, ("a",), index) for index in range(2)]
    model = HarnessModel(Recorded([-1.5, (-2.5, False)]), "recorded")
    assert model.loglikelihood_rolling(requests) == [-1.5, -2.5]


def test_a_released_model_is_gone_though_its_wrapper_is_held() -> None:
    model = HarnessModel(Recorded([]), "recorded")
    assert model.answers == []
    model.release()
    with pytest.raises(AttributeError):
        _ = model.answers
    with pytest.raises(RuntimeError, match="has been released"):
        model.generate_until([])


def test_models_are_found_by_name(tmp_path: Path) -> None:
    loaded = load(ModelSpec("lm_eval", "dummy"))
    assert (loaded.identity, loaded.directories) == (None, {})
    with pytest.raises(ModelError, match=r"no model 'hgf'\. Did you mean 'hf'\?"):
        load(ModelSpec("lm_eval", "hgf"))
    with pytest.raises(ModelError, match="cannot load lm_eval:local-completions,nonsense=1"):
        load(ModelSpec("lm_eval", "local-completions,nonsense=1"))
    with pytest.raises(ModelError, match="peft=DIR"):
        load(ModelSpec("lm_eval", "dummy", str(tmp_path)))


def test_every_model_of_lm_evals_that_only_generates_is_known_without_importing_it() -> None:
    import inspect

    from lm_eval.api.registry import get_model
    from lm_eval.models import MODEL_MAPPING

    checked = 0
    for name in MODEL_MAPPING:
        try:
            source = inspect.getsource(get_model(name).loglikelihood)
        except (ImportError, ValueError):
            continue  # of a package that is not installed, or (0.4.13's audio model) registered wrongly
        only_generates = "raise NotImplementedError" in source
        abilities = BUILT_IN.abilities(parse(f"lm_eval:{name},model=x", Path()))
        assert abilities.gives_loglikelihood is not only_generates, name
        checked += 1
    assert checked >= 8


class Cutting(Recorded):
    """Reads at most 20 tokens of the embedded model's tokenizer, and says so."""

    max_length: int = 20

    def __init__(self, answers: list[Any]) -> None:
        from transformers import AutoTokenizer

        super().__init__(answers)
        self.tokenizer = AutoTokenizer.from_pretrained(model_directory("reference"))

    def tok_encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text))


def test_prompts_that_do_not_fit_are_counted_where_the_tokenizer_is_at_hand() -> None:
    inner = Cutting([(-1.0, False)] * 3)
    words = 0
    while len(inner.tok_encode("pump " * words)) < 18:
        words += 1
    fits, long = "pump " * words, "pump " * 40
    model = HarnessModel(inner, "cutting")
    pairs = [(fits, "A"), (long, "A"), (fits, "pump " * 20)]
    model.loglikelihood([Instance("loglikelihood", {}, pair, index) for index, pair in enumerate(pairs)])
    assert (model.usage.truncated_prompts, model.usage.requests) == (2, 3)

    model.usage.reset()
    assert not model.usage.counts_truncated
    inner.answers = ["x", "y"]
    requests = [
        Instance("generate_until", {}, (fits, {"max_gen_toks": tokens}), index)
        for index, tokens in enumerate((1, 10))
    ]
    model.generate_until(requests)
    assert (model.usage.truncated_prompts, model.usage.counts_truncated) == (1, True)


def test_where_it_cannot_be_told_none_is_said_to_have_been_cut() -> None:
    request = [Instance("loglikelihood", {}, ("a", " b"), 0)]
    without_tokenizer = HarnessModel(Recorded([(-1.0, False)]), "recorded")
    without_tokenizer.loglikelihood(request)
    inner = Cutting([(-1.0, False)])
    inner.max_length = None  # type: ignore[assignment]
    without_length = HarnessModel(inner, "cutting")
    without_length.loglikelihood(request)
    assert not without_tokenizer.usage.counts_truncated
    assert not without_length.usage.counts_truncated
