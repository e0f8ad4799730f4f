"""A completions server as a model: its answers against the same weights in this process."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.instance import Instance

from pytest_gnus.errors import EvaluationError, GnusError, ModelError
from pytest_gnus.models import completions_server
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.models.registry import load
from pytest_gnus.models.spec import ModelSpec
from tests.completions_stub import KEY, Stub, completions_stub

PAIRS = [
    ("Abstract: A pump for water with a valve and a rotor.\nCPC section:", " F"),
    ("Abstract: A pump for water with a valve and a rotor.\nCPC section:", " A"),
    ("Abstract: A loom with a shuttle.\nCPC section: ", "D"),
    ("Description: The present invention relates to", " a compressor and to a"),
    ("", "A device"),
    ("xyz", "xyz"),
]
PROMPT = "Description: The present invention relates to a pump with a valve.\n\nAbstract:"


@pytest.fixture(scope="module")
def server(embedded: Any) -> Iterator[Stub]:
    with completions_stub(embedded.lm._generator._model, embedded.lm.tokenizer) as stub:
        yield stub


@pytest.fixture
def stub(server: Stub, monkeypatch: pytest.MonkeyPatch) -> Stub:
    """The server as it should be, named by the environment."""
    server.faults.clear()
    server.requests.clear()
    server.keys.clear()
    server.most_at_once = 0
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(completions_server, "_WAITS", (0.01, 0.01, 0.01))
    return server


def loaded(directory: Path, *arguments: str) -> LoadedModel:
    return load(ModelSpec("openai", ",".join(["embedded", f"tokenizer={directory}", *arguments])))


def requests(pairs: list[tuple[Any, ...]], kind: str = "loglikelihood") -> list[Instance]:
    return [Instance(kind, {}, pair, index) for index, pair in enumerate(pairs)]


def generation(prompts: list[str], **settings: Any) -> list[Instance]:
    return requests([(prompt, dict(settings)) for prompt in prompts], "generate_until")


def test_log_probabilities_equal_those_of_the_same_weights_here(
    stub: Stub, embedded: Any, reference_directory: Path
) -> None:
    model = loaded(reference_directory)
    assert model.abilities.gives_loglikelihood
    assert (model.identity, model.directories) == (None, {})
    (likeliest,) = embedded.lm.generate_until(generation([PROMPT], max_gen_toks=4))
    pairs = [*PAIRS, (PROMPT, likeliest)]
    theirs = model.lm.loglikelihood(requests(pairs))  # type: ignore[attr-defined]
    ours = embedded.lm.loglikelihood(requests(pairs))
    assert [a[0] for a in theirs] == pytest.approx([b[0] for b in ours], abs=1e-3)
    assert [a[1] for a in theirs] == [b[1] for b in ours]
    assert [greedy for _, greedy in theirs] == [False] * len(PAIRS) + [True]
    assert model.lm.usage.requests == len(pairs)


def test_rolling_log_likelihoods_equal_those_of_the_same_weights_here(
    stub: Stub, embedded: Any, reference_directory: Path
) -> None:
    texts = requests([("A pump comprises a housing.",), ("A loom",)], "loglikelihood_rolling")
    lm: Any = loaded(reference_directory).lm
    assert lm.loglikelihood_rolling(texts) == pytest.approx(
        embedded.lm.loglikelihood_rolling(texts), abs=1e-3
    )


def test_a_long_context_loses_its_oldest_tokens_and_is_counted(stub: Stub, reference_directory: Path) -> None:
    lm: Any = loaded(reference_directory, "max_length=32").lm
    long, short = ("a valve and a pump " * 20, " F"), ("a valve", " F")
    stub.requests.clear()
    lm.loglikelihood(requests([long, short]))
    lengths = [len(request["prompt"]) for request in stub.requests]
    assert lengths[0] == 31  # with the generated token, as many as the server takes
    assert lm.usage.truncated_prompts == 1
    with pytest.raises(EvaluationError, match="does not fit the model's context of 32 tokens"):
        lm.loglikelihood(requests([("a", "a valve and a pump " * 20)]))


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("own_position", "the server gives a token the log-probability"),
        ("no_echo", "log-probabilities of 1 tokens for a prompt of"),
    ],
)
def test_log_probabilities_that_are_not_the_prompts_are_refused_before_anything_is_asked(
    stub: Stub, reference_directory: Path, fault: str, reason: str
) -> None:
    stub.faults[fault] = True
    abilities = loaded(reference_directory).abilities
    assert abilities.lacking("generate_until") is None
    assert reason in str(abilities.lacking("multiple_choice"))
    assert len(stub.requests) <= 3


def test_without_a_tokenizer_there_are_only_texts(stub: Stub) -> None:
    model = load(ModelSpec("openai", "embedded"))
    assert "openai:NAME,tokenizer=DIR" in str(model.abilities.lacking("loglikelihood"))
    assert model.lm.generate_until(generation([PROMPT], until=["\n"]))[0]  # type: ignore[attr-defined]
    assert not model.lm.usage.counts_truncated  # nobody knows what the server has cut
    with pytest.raises(EvaluationError, match="no chat template"):
        model.lm.apply_chat_template([{"role": "user", "content": "?"}])  # type: ignore[attr-defined]


def test_a_seed_goes_out_with_what_is_sampled_and_with_nothing_else(stub: Stub) -> None:
    """`sampling_seed` is what an experiment sets anew in each round."""
    lm: Any = load(ModelSpec("openai", "embedded")).lm
    sent = []
    for seed, settings in ((None, {"do_sample": True}), (1235, {"do_sample": True}), (1236, {})):
        if seed is not None:
            lm.sampling_seed = seed
        before = len(stub.requests)
        lm.generate_until(
            generation([PROMPT], temperature=0.7 if settings else 0.0, max_gen_toks=2, **settings)
        )
        sent += [request.get("seed") for request in stub.requests[before:]]
    assert sent == [1234, 1235, None]


def test_what_is_not_finite_stays_so(stub: Stub, reference_directory: Path) -> None:
    lm: Any = loaded(reference_directory).lm
    stub.faults["not_finite"] = True
    ((logprob, greedy),) = lm.loglikelihood(requests([PAIRS[0]]))
    assert math.isnan(logprob)
    assert greedy is False


@pytest.mark.parametrize("until", ["\n", ["\n"], ["x1", "x2", "x3", "x4", " a", "\n"]])
def test_generated_texts_equal_those_of_the_same_weights_here(
    stub: Stub, embedded: Any, reference_directory: Path, until: Any
) -> None:
    lm: Any = loaded(reference_directory).lm
    prompts = [PROMPT, "Description: A loom with a shuttle.\n\nAbstract:", "A"]
    asked = generation(prompts, until=until, max_gen_toks=12)
    ours = embedded.lm.generate_until(asked)
    assert lm.generate_until(asked) == ours
    embedded.lm.usage.reset()
    embedded.lm.generate_until(asked)
    for count in ("requests", "stopped_by_string", "stopped_by_limit"):
        assert getattr(lm.usage, count) == getattr(embedded.lm.usage, count)
    assert lm.usage.notes == []
    assert lm.usage.generated_tokens > 0


def test_a_server_that_does_not_say_what_stopped_it_is_noted(stub: Stub, reference_directory: Path) -> None:
    stub.faults["says_reason"] = False
    lm: Any = loaded(reference_directory).lm
    lm.generate_until(generation([PROMPT], until=["\n"], max_gen_toks=60))
    assert lm.usage.stopped_by_string == lm.usage.stopped_by_limit == 0
    assert "does not say" in lm.usage.notes[0]


def test_long_prompts_lose_their_beginning(stub: Stub, reference_directory: Path) -> None:
    lm: Any = loaded(reference_directory, "max_length=40").lm
    stub.requests.clear()
    lm.generate_until(generation(["é" * 7 + "a valve and a pump é" * 20, "short"], max_gen_toks=8))
    long, short = (request["prompt"] for request in stub.requests)
    assert ("é" * 7 + "a valve and a pump é" * 20).endswith(long)
    assert 28 <= len(lm.tok_encode(long)) <= 32
    assert short == "short"
    assert (lm.usage.truncated_prompts, lm.usage.counts_truncated) == (1, True)
    with pytest.raises(EvaluationError, match="lower max_gen_toks"):
        lm.generate_until(generation(["a"], max_gen_toks=40))


def test_reasoning_is_dropped_before_stop_strings_are_looked_for(
    stub: Stub, reference_directory: Path
) -> None:
    lm: Any = loaded(reference_directory, "think_end_token=</think>").lm
    stub.faults["text"] = "first\n\nthis</think>\n\nThe answer is 42\nnot this"
    assert lm.generate_until(generation([PROMPT], until=["\n"])) == ["The answer is 42"]
    assert "stop" not in stub.requests[-1]


def test_requests_go_out_at_the_same_time_and_answers_come_in_order(
    stub: Stub, embedded: Any, reference_directory: Path
) -> None:
    lm: Any = loaded(reference_directory, "num_concurrent=4").lm
    assert stub.most_at_once == 1
    stub.faults["seconds"] = 0.05
    found = lm.loglikelihood(requests(PAIRS * 2))
    assert 2 <= stub.most_at_once <= 4
    expected = [score for score, _ in embedded.lm.loglikelihood(requests(PAIRS * 2))]
    assert [score for score, _ in found] == pytest.approx(expected, abs=1e-3)


def test_after_an_error_nothing_more_is_asked(stub: Stub, reference_directory: Path) -> None:
    lm: Any = loaded(reference_directory, "num_concurrent=2").lm
    stub.requests.clear()
    stub.faults["status"] = 400
    with pytest.raises(EvaluationError, match="HTTP 400"):
        lm.generate_until(generation([PROMPT] * 50))
    assert len(stub.requests) < 50


def test_a_busy_server_is_asked_again(stub: Stub, reference_directory: Path) -> None:
    lm: Any = loaded(reference_directory).lm
    stub.requests.clear()
    stub.faults["busy"] = 3
    lm.generate_until(generation([PROMPT], max_gen_toks=1))
    assert len(stub.requests) == 4
    stub.faults["busy"] = 4
    with pytest.raises(EvaluationError, match="HTTP 503"):
        lm.generate_until(generation([PROMPT], max_gen_toks=1))


def test_the_key_goes_to_the_server_and_only_there(stub: Stub, reference_directory: Path) -> None:
    model = loaded(reference_directory)
    assert set(stub.keys) == {f"Bearer {KEY}"}
    assert KEY not in f"{model!r} {vars(model.lm)!r} {model.lm._server!r}"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("status", "error", "text"),
    [
        (400, EvaluationError, "HTTP 400"),
        (401, ModelError, "refuses the key that OPENAI_API_KEY holds"),
        (404, ModelError, "HTTP 404"),
        (307, ModelError, "sends its requests elsewhere"),
        (500, EvaluationError, "HTTP 500"),
    ],
)
def test_no_message_names_the_server_or_the_key(
    stub: Stub, status: int, error: type[GnusError], text: str
) -> None:
    stub.faults["status"] = status
    with pytest.raises(error, match=text) as raised:
        load(ModelSpec("openai", "embedded"))
    assert raised.value.__suppress_context__ or raised.value.__context__ is None
    for secret in (KEY, stub.url, "127.0.0.1"):
        assert secret not in str(raised.value)
    assert len(stub.requests) == (4 if status == 500 else 1)


def test_a_server_that_is_not_there_is_not_named(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:9/v1")
    with pytest.raises(ModelError, match="OPENAI_BASE_URL names cannot be reached") as raised:
        load(ModelSpec("openai", "embedded"))
    assert "localhost" not in str(raised.value)


def test_an_answer_that_is_none_is_an_error(stub: Stub) -> None:
    stub.faults["no_json"] = True
    with pytest.raises(EvaluationError, match="is not JSON"):
        load(ModelSpec("openai", "embedded"))
    stub.faults.clear()
    stub.faults["text"] = None
    with pytest.raises(EvaluationError, match="gave no text"):
        load(ModelSpec("openai", "embedded"))


@pytest.mark.parametrize("url", ["", "   ", "localhost:8080", "ftp://host/v1", "http://"])
def test_the_environment_must_name_a_server(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    with pytest.raises(ModelError, match=r"OPENAI_BASE_URL is .*127\.0\.0\.1"):
        load(ModelSpec("openai", "embedded"))


def test_a_tokenizer_that_is_not_there_and_an_adapter_are_errors(stub: Stub, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no tokenizer in"):
        load(ModelSpec("openai", f"embedded,tokenizer={tmp_path}"))
    with pytest.raises(ModelError, match="an adapter cannot be given"):
        load(ModelSpec("openai", "embedded", str(tmp_path)))
