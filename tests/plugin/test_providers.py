"""Providers in a session: what they can give, and servers and lm-eval's models from end to end."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import mlx.core as mx
import pytest
from mlx_lm.utils import load as load_with_mlx_lm

from pytest_gnus.demo import model_directory
from tests.completions_stub import KEY, Stub, completions_stub
from tests.conftest import ToyWorkspace, choice_task

REPOSITORY = Path(__file__).parents[2]
GENERATING = {
    "output_type": "generate_until",
    "doc_to_text": "Description: The present invention relates to a pump {{ question }}\n\nAbstract:",
    "doc_to_target": "{{ choices[answer] }}",
    "generation_kwargs": {"until": "\n", "max_gen_toks": 24},
    "metric_list": [{"metric": "rouge1", "aggregation": "mean", "higher_is_better": True}],
}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded specialist in float32, in which every side computes the same."""
    directory = tmp_path_factory.mktemp("weights") / "model"
    shutil.copytree(model_directory("reference"), directory)
    for path in directory.glob("*.safetensors"):
        stored: dict[str, mx.array] = mx.load(str(path))  # type: ignore[assignment]
        wide = {name: tensor.astype(mx.float32) for name, tensor in stored.items()}
        mx.eval(wide)
        mx.save_safetensors(str(path), wide, metadata={"format": "mlx"})
    config = directory / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"torch_dtype": "float32"}))
    return directory


@pytest.fixture(scope="module")
def mlx_lm_server(weights: Path) -> Iterator[str]:
    """`mlx_lm.server` on loopback with these weights."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "mlx_lm", "server", "--model", str(weights), "--port", str(port)],
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            assert process.poll() is None
            try:
                urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except (URLError, OSError):
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.fixture(scope="module")
def echoing_server(weights: Path) -> Iterator[Stub]:
    model, tokenizer = load_with_mlx_lm(str(weights))[:2]
    with completions_stub(model, tokenizer) as stub:
        yield stub


@pytest.fixture
def patents(toy: ToyWorkspace) -> ToyWorkspace:
    """The repository's own benchmarks of the embedded specialist, as far as they have data here."""
    for name in ("benchmarks", "config", "data"):
        shutil.rmtree(toy.path / name)
        shutil.copytree(REPOSITORY / name, toy.path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return toy


def measured(toy: ToyWorkspace, benchmark: str, model: str, *arguments: str) -> dict:
    """The record of a benchmark under a model."""
    shutil.rmtree(toy.path / "artifacts", ignore_errors=True)
    toy.run(
        "--niche=patents",
        "--gnus-variant=quantized",
        f"--gnus-model={model}",
        "-k",
        benchmark,
        *arguments,
    )
    return toy.record(benchmark)


def same_measurement(one: dict, other: dict, benchmark: str) -> None:
    results = [record["results"][benchmark] for record in (one, other)]
    assert results[0]["n"] == results[1]["n"]
    assert results[0]["score"] == pytest.approx(results[1]["score"], abs=1e-3)
    assert results[0]["metrics"] == pytest.approx(results[1]["metrics"], abs=1e-3)
    assert one["fingerprint"]["prompt_hash"] == other["fingerprint"]["prompt_hash"]
    assert one["timing"]["prompt_tokens"] == other["timing"]["prompt_tokens"]
    assert one["timing"]["generated_tokens"] == other["timing"]["generated_tokens"]


def nowhere(toy: ToyWorkspace, *secrets: str) -> None:
    for path in (toy.path / "artifacts").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(secret.encode() in content for secret in secrets), path


def test_mlx_lms_server_generates_what_the_weights_generate_here(
    patents, weights, mlx_lm_server, monkeypatch
):
    monkeypatch.setenv("OPENAI_BASE_URL", mlx_lm_server)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    here = measured(patents, "bigpatent", f"mlx:{weights}", "--gnus-limit=30")
    there = measured(patents, "bigpatent", "openai:default_model", "--gnus-limit=30", "--log-level=DEBUG")
    same_measurement(here, there, "bigpatent")
    assert here["results"]["bigpatent"]["score"] > 0.5
    assert there["fingerprint"]["model_manifest_sha256"] is None
    assert there["fingerprint_missing"] == ["model_manifest_sha256"]
    nowhere(patents, KEY, mlx_lm_server)


def test_mlx_lms_server_gives_no_log_probabilities_of_prompts_and_it_is_said_before_any_question(
    patents, weights, mlx_lm_server, monkeypatch
):
    monkeypatch.setenv("OPENAI_BASE_URL", mlx_lm_server)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    result = patents.run(
        "--niche=patents",
        f"--gnus-model=openai:default_model,tokenizer={weights}",
        "--gnus-variant=quantized",
        "-k",
        "uspto",
        "--log-level=DEBUG",
    )
    result.assert_outcomes(errors=1, deselected=2)
    result.stdout.fnmatch_lines(
        ["*uspto_classification is of the type multiple_choice*gives no log-probabilities of given texts*"]
    )
    record = patents.record("uspto_classification")
    assert (record["status"], record["counts"]) == ("error", None)
    for secret in (KEY, mlx_lm_server, "127.0.0.1"):
        assert secret not in result.stdout.str()
    nowhere(patents, KEY, mlx_lm_server)


@pytest.mark.parametrize("benchmark", ["uspto_classification", "bigpatent"])
def test_a_server_that_echoes_scores_what_the_weights_score_here(
    patents, weights, echoing_server, monkeypatch, benchmark
):
    monkeypatch.setenv("OPENAI_BASE_URL", echoing_server.url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    limit = "--gnus-limit=12"
    here = measured(patents, benchmark, f"mlx:{weights}", limit)
    there = measured(patents, benchmark, f"openai:embedded,tokenizer={weights},num_concurrent=2", limit)
    same_measurement(here, there, benchmark)
    nowhere(patents, KEY, echoing_server.url)


def test_lm_evals_own_client_scores_the_same_or_is_not_there(patents, weights, echoing_server, monkeypatch):
    pytest.importorskip("tenacity", reason="lm-eval's API models need tenacity")
    here = measured(patents, "uspto_classification", f"mlx:{weights}", "--gnus-limit=6")
    there = measured(
        patents,
        "uspto_classification",
        f"lm_eval:local-completions,model=embedded,base_url={echoing_server.url}/completions,"
        f"tokenizer={weights},tokenizer_backend=huggingface,max_length=512",
        "--gnus-limit=6",
    )
    scores = [record["results"]["uspto_classification"]["score"] for record in (here, there)]
    assert scores[0] == scores[1]


def test_a_server_that_is_not_there_is_an_error_that_does_not_name_it(toy, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    (toy.path / "conftest.py").write_text(
        "from pytest_gnus.models import completions_server\ncompletions_server._WAITS = (0.0,)\n"
    )
    result = toy.run("--niche=toy", "--gnus-model=openai:x", "--gnus-variant=quantized", "--showlocals")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*the server that OPENAI_BASE_URL names cannot be reached*"])
    assert "localhost" not in result.stdout.str()
    assert KEY not in result.stdout.str()
    nowhere(toy, KEY, "localhost")


def test_without_a_server_in_the_environment_only_its_own_items_are_errors(toy, monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    toy.niche(blocking=["colours"], model={"quantized": "openai:x", "reference": "demo:random"})
    result = toy.run("--niche=toy")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*the environment variable OPENAI_BASE_URL is not set*"])


@pytest.mark.parametrize(
    ("model", "allowed"),
    [
        ("openai:", "a name after the colon, as in openai:NAME,tokenizer=DIR"),
        ("openai:x,tokeniser=y", "no 'tokeniser'. Did you mean 'tokenizer'?"),
        ("openai:x,max_length=many", "a whole number from 1 up as max_length"),
        ("openai:x,api_key=sk-1", "no api_key here: it would be written into the records"),
        ("openai:x,tokenizer", "NAME,argument=value,..., without 'tokenizer'"),
        ("openai:,tokenizer=x", "a name before the first comma"),
        ("lm_eval:hf,pretrained=x,trust_remote_code=True", "no trust_remote_code"),
        ("lm_eval:local-completions,base_url=http://me:word@host/v1", "no base_url here"),
    ],
)
def test_a_wrong_name_is_a_usage_error(toy, model, allowed):
    result = toy.run("--niche=toy", f"--gnus-model={model}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert allowed in result.stderr.str()


def test_lm_evals_models_run_by_their_names(toy):
    toy.run("--niche=toy", "--gnus-model=lm_eval:dummy", "--gnus-variant=quantized")
    record = toy.record("colours")
    assert record["counts"]["requests"] == 240
    assert record["results"]["colours"]["n"] == 60
    assert record["fingerprint_missing"] == ["model_manifest_sha256"]
    toy.benchmark("colours", task=choice_task("colours", doc_to_choice=None, **GENERATING), metric="rouge1")
    toy.run("--niche=toy", "--gnus-model=lm_eval:dummy", "--gnus-variant=quantized")
    (_, generated) = toy.records()
    assert generated["counts"]["requests"] == 60


def test_a_model_that_lm_eval_has_not_is_an_error_with_a_hint(toy):
    result = toy.run("--niche=toy", "--gnus-model=lm_eval:dumy", "--gnus-variant=quantized")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*lm-eval has no model 'dumy'. Did you mean 'dummy'?*"])


def test_a_chat_model_and_a_benchmark_that_needs_log_probabilities_are_a_usage_error(toy):
    model = "lm_eval:local-chat-completions,model=x,base_url=http://host/v1/chat/completions"
    toy.benchmark("free", task=choice_task("free", doc_to_choice=None, **GENERATING), metric="rouge1")
    toy.niche(blocking=["colours", "free"])
    result = toy.run("--niche=toy", f"--gnus-model={model}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = result.stderr.str()
    assert "benchmarks/colours.yaml: task.output_type: found 'multiple_choice', for which" in text
    assert "lm-eval's local-chat-completions only generates" in text
    assert "benchmarks/free.yaml" not in text
    assert not (toy.path / "artifacts").exists()


def test_what_a_task_of_lm_evals_needs_is_looked_at_before_a_model_is_loaded(toy):
    (toy.path / "conftest.py").write_text(
        "from pytest_gnus import Abilities, Provider\n"
        "class Chat(Provider):\n"
        "    name = 'chat'\n"
        "    def load(self, spec, options):\n"
        "        raise RuntimeError('LOADED')\n"
        "    def abilities(self, name):\n"
        "        return Abilities(gives_loglikelihood=False, reason='it only talks')\n"
        "def pytest_gnus_providers():\n"
        "    return Chat()\n"
    )
    toy.benchmark("arc_easy", task="arc_easy", num_fewshot=0)
    row = {
        "id": "1",
        "question": "Which?",
        "answerKey": "A",
        "choices": {"text": ["a", "b"], "label": ["A", "B"]},
    }
    for split in ("train", "validation", "test"):
        toy.data(f"arc_easy/{split}.jsonl", [row] * 4)
    toy.niche(blocking=["arc_easy"], model={"quantized": "chat:x"})
    result = toy.run("--niche=toy")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*arc_easy is of the type multiple_choice, for which chat:x gives no log-prob* (it only talks)*"]
    )
    assert "LOADED" not in result.stdout.str()


def test_a_model_that_only_scores_cannot_generate(toy):
    (toy.path / "conftest.py").write_text(
        "from pytest_gnus import Abilities, Provider\n"
        "class Scorer(Provider):\n"
        "    name = 'scorer'\n"
        "    def load(self, spec, options): ...\n"
        "    def abilities(self, name):\n"
        "        return Abilities(generates=False)\n"
        "def pytest_gnus_providers():\n"
        "    return Scorer()\n"
    )
    toy.benchmark("colours", task=choice_task("colours", doc_to_choice=None, **GENERATING), metric="rouge1")
    result = toy.run("--niche=toy", "--gnus-model=scorer:x")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "scorer:x gives no generated texts" in result.stderr.str()
