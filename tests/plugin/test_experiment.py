"""Experiments through the real plugin: what is collected, what is written, what a wrong command line says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_gnus.experiments.output import read_documents
from tests.conftest import ToyWorkspace, choice_documents, choice_task

ARGUMENTS = ("--collect-only", "-q", "-p", "no:cacheprovider")
MODELS = ("--gnus-experiment", "--gnus-model=demo:random", "--gnus-model=demo:constant")


@pytest.fixture
def lab(toy: ToyWorkspace) -> ToyWorkspace:
    """The toy workspace with a second benchmark, few-shot examples, and an experiment over both."""
    few_shot = choice_task("colours", training_split="train", fewshot_split="train")
    toy.benchmark("colours", task=few_shot, num_fewshot=2)
    toy.data("colours/train.jsonl", choice_documents([3, 2, 1, 0] * 10))
    toy.benchmark("shapes")
    toy.data("shapes/test.jsonl", choice_documents([0, 1, 2, 3] * 10))
    toy.niche(blocking=["colours"], diagnostic=["shapes"])
    experiment(toy)
    return toy


def experiment(toy, **content):
    default = {"name": "trial", "niche": "toy", "models": ["demo:random", "demo:constant"], "repeat": 2}
    merged = {**default, **content}
    name = merged["name"]
    toy.yaml(f"config/experiments/{name}.yaml", {k: v for k, v in merged.items() if v is not None})


def names(result):
    return [line.split("::")[1] for line in result.outlines if "::" in line]


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def results(toy):
    """The lines of the only file of results below artifacts/experiments."""
    (path,) = (toy.path / "artifacts" / "experiments").glob("*.jsonl")
    return lines_of(path)


def report(toy):
    (path,) = (toy.path / "artifacts" / "experiments").glob("*.report.json")
    return json.loads(path.read_text(encoding="utf-8"))


def place(line):
    return (line["round_index"], line["model_label"], line["benchmark"])


# --- what is collected ---


def test_every_combination_is_an_item_and_rounds_stand_outermost(lab):
    assert names(lab.run("--gnus-experiment=config/experiments/trial.yaml", *ARGUMENTS)) == [
        "colours[toy-random-round0]",
        "shapes[toy-random-round0]",
        "colours[toy-constant-round0]",
        "shapes[toy-constant-round0]",
        "colours[toy-random-round1]",
        "shapes[toy-random-round1]",
        "colours[toy-constant-round1]",
        "shapes[toy-constant-round1]",
    ]


def test_the_same_from_options_and_options_win_over_the_file(lab):
    by_options = lab.run("--niche=toy", *MODELS, "--gnus-repeat=2", *ARGUMENTS)
    by_file = lab.run("--gnus-experiment=trial", *ARGUMENTS)
    assert names(by_options) == names(by_file)
    lab.niche("other", blocking=["shapes"])
    replaced = lab.run(
        "--gnus-experiment=trial",
        "--niche=other",
        "--gnus-model=demo:constant",
        "--gnus-repeat=1",
        *ARGUMENTS,
    )
    assert names(replaced) == ["shapes[other-constant-round0]"]


def test_several_niches_each_with_its_benchmarks(lab):
    lab.niche("other", blocking=["shapes"])
    found = names(
        lab.run("--niche=toy", "--niche=other", "--gnus-experiment", MODELS[1], "--gnus-repeat=1", *ARGUMENTS)
    )
    assert found == ["colours[toy-random-round0]", "shapes[toy-random-round0]", "shapes[other-random-round0]"]


def test_without_a_niche_any_benchmark_of_the_workspace_in_the_order_given(lab):
    experiment(lab, niche=None, benchmarks=["shapes", "colours", "shapes"], repeat=1, models=["demo:random"])
    assert names(lab.run("--gnus-experiment=trial", *ARGUMENTS)) == [
        "shapes[random-round0]",
        "colours[random-round0]",
    ]


@pytest.mark.parametrize("repeat", ["0", "-3"])
def test_less_than_one_round_is_one(lab, repeat):
    found = names(
        lab.run("--niche=toy", "--gnus-experiment", MODELS[1], f"--gnus-repeat={repeat}", *ARGUMENTS)
    )
    assert found == ["colours[toy-random-round0]", "shapes[toy-random-round0]"]


def test_round_names_keep_k_from_choosing_others_too(lab):
    found = names(
        lab.run(
            "--niche=toy",
            "--gnus-experiment",
            "--gnus-model=demo:random",
            "--gnus-repeat=11",
            "-k",
            "round01 or round10",
            *ARGUMENTS,
        )
    )
    assert found == [f"{name}[toy-random-round{n}]" for n in ("01", "10") for name in ("colours", "shapes")]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (("-k", "constant and round1 and shapes"), ["shapes[toy-constant-round1]"]),
        (
            ("-m", "gnus_model(name='random') and gnus_round(index=0)"),
            ["colours[toy-random-round0]", "shapes[toy-random-round0]"],
        ),
        (
            ("benchmarks/shapes.yaml", "-k", "round0"),
            ["shapes[toy-random-round0]", "shapes[toy-constant-round0]"],
        ),
        (("benchmarks/shapes.yaml::shapes[toy-constant-round1]",), ["shapes[toy-constant-round1]"]),
    ],
)
def test_selection_works_as_on_any_test(lab, selection, expected):
    assert names(lab.run("--gnus-experiment=trial", "--strict-markers", *selection, *ARGUMENTS)) == expected


def test_a_niche_with_one_model_stays_the_release_gate(lab):
    found = names(lab.run("--niche=toy", "--gnus-model=demo:constant", "-k", "colours", *ARGUMENTS))
    assert found == ["colours[toy-reference]", "colours[toy-quantized]"]


def test_collecting_imports_nothing_heavy_and_writes_nothing(lab):
    (lab.path / "conftest.py").write_text(
        "import sys\n"
        "def pytest_collection_finish(session):\n"
        "    heavy = {'lm_eval', 'mlx', 'mlx_lm', 'transformers', 'datasets', 'torch', 'scipy', 'numpy'}\n"
        "    print('HEAVY', sorted(heavy & set(sys.modules)), len(session.items))\n"
    )
    result = lab.run_process("--gnus-experiment=trial", "--collect-only", "-q", "-s")
    result.stdout.fnmatch_lines(["HEAVY [[][]] 8"])
    assert not (lab.path / "artifacts").exists()


# --- what is measured and written ---


def test_lines_and_report(lab):
    result = lab.run("--gnus-experiment=trial")
    result.assert_outcomes(passed=8)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "gnus: experiment=trial, niche=toy, benchmarks=colours,shapes, models=random,constant, rounds=2*",
            "*experiment trial*",
            "niche *benchmark *model *rounds *score *std *95% interval *n",
            "toy *colours *constant * 2 * 0.5000 * 0.0000 * 0.3774 to 0.6226 * 60",
            "benchmark *first *second *second - first *95% interval *p *p (Holm) *better",
            "colours (toy) *random *constant *",
            "results: artifacts/experiments/trial_*.jsonl",
            "report: artifacts/experiments/trial_*.report.json, artifacts/experiments/trial_*.report.md",
        ]
    )
    lines = results(lab)
    assert [place(line) for line in lines] == [
        (index, model, benchmark)
        for index in (0, 1)
        for model in ("random", "constant")
        for benchmark in ("colours", "shapes")
    ]
    for line in lines:
        assert line["details"] == {"round_index": line["round_index"]}
        assert (line["status"], line["error"], line["experiment"]) == ("measured", None, "trial")
        assert line["model"] == f"demo:{line['model_label']}"
        assert line["fingerprint"]["fewshot_seed"] == line["seed"]["fewshot"] == 1234 + line["round_index"]
        assert line["fingerprint_valid"] is True
    found = report(lab)
    assert found["results"] == lines
    assert (found["repeat"], found["benchmarks"]) == (2, ["colours", "shapes"])
    assert found["models"] == ["demo:random", "demo:constant"]
    assert found["benchmark_file"] == "config/experiments/trial.yaml"
    assert len({line["run_id"] for line in lines}) == 1
    (markdown,) = (lab.path / "artifacts" / "experiments").glob("*.report.md")
    assert "| toy     | colours     | constant |" in markdown.read_text()


def test_it_leaves_no_release_records_and_no_verdict(lab):
    lab.run("--gnus-experiment=trial", "-k", "round0").assert_outcomes(passed=4, deselected=4)
    assert sorted(path.name for path in (lab.path / "artifacts").iterdir()) == ["experiments"]


def test_rounds_differ_in_their_examples_and_the_first_is_the_canonical_run(lab):
    lab.run("--gnus-experiment=trial", "-k", "colours and random").assert_outcomes(passed=2, deselected=6)
    first, second = results(lab)
    assert first["fingerprint"]["prompt_hash"] != second["fingerprint"]["prompt_hash"]
    assert first["score"] != second["score"]
    (summary,) = report(lab)["summaries"]
    assert summary["scores"] == {"0": first["score"], "1": second["score"]}
    assert summary["std"] > 0
    lab.run("--niche=toy", "--gnus-variant=quantized", "-k", "colours")
    record = lab.record("colours")
    assert record["fingerprint"] == first["fingerprint"]
    assert record["results"]["colours"]["score"] == first["score"]


def test_documents_beside_the_results_make_the_scores(lab):
    lab.run("--niche=toy", *MODELS, "--gnus-output=out/results.jsonl", "-k", "shapes")
    for line in lines_of(lab.path / "out" / "results.jsonl"):
        documents = read_documents(lab.path / "out" / line["samples"])
        assert len(documents) == line["n"] == 40
        assert sum(document.score for document in documents) / 40 == pytest.approx(line["score"], abs=1e-12)


def test_documents_that_a_task_draws_at_random_stay_the_same_in_all_rounds(lab):
    (lab.path / "benchmarks" / "shuffled.py").write_text(
        "import random\n"
        "def shuffled(dataset):\n"
        "    return dataset.map(lambda d: {**d, 'choices': random.sample(d['choices'], len(d['choices']))})\n"
    )
    lab.yaml(
        "benchmarks/shuffles.yaml",
        "name: shuffles\nmetric: acc\nnum_fewshot: 2\ngates: {hard_floor: 0.0}\ntask:\n"
        "  task: shuffles\n  dataset_path: nobody/nothing\n  output_type: multiple_choice\n"
        "  training_split: train\n  test_split: test\n  fewshot_split: train\n"
        "  process_docs: !function shuffled.shuffled\n"
        '  doc_to_text: "Q: {{ question }} A:"\n  doc_to_choice: choices\n  doc_to_target: answer\n'
        "  metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]\n",
    )
    for split in ("train", "test"):
        lab.data(f"shuffles/{split}.jsonl", choice_documents([0, 1, 2, 3] * 10))
    experiment(lab, niche=None, benchmarks=["shuffles"], repeat=3)
    lab.run("--gnus-experiment=trial").assert_outcomes(passed=6)
    folder = lab.path / "artifacts" / "experiments"
    hashes = {tuple(d.doc_hash for d in read_documents(folder / line["samples"])) for line in results(lab)}
    assert len(hashes) == 1
    assert len({line["fingerprint"]["prompt_hash"] for line in results(lab)}) == 3
    assert report(lab)["comparisons"][0]["p_value"] is not None


def test_lines_of_several_runs_stand_in_one_file(lab):
    for _ in range(2):
        lab.run("--niche=toy", "--gnus-experiment", MODELS[1], "--gnus-output=all.jsonl", "-k", "shapes")
    lines = lines_of(lab.path / "all.jsonl")
    assert len(lines) == len({line["run_id"] for line in lines}) == 2


# --- bundles and overrides ---


def test_a_prompt_bundle_and_overrides_change_how_models_are_asked(lab):
    lab.yaml("config/prompts/clerk.yaml", {"name": "clerk", "system_instruction": "You are a clerk."})
    lab.run("--gnus-experiment=trial", "-k", "colours and constant and round0")
    (plain,) = results(lab)
    experiment(lab, name="asked", prompt_bundle="clerk", overrides={"num_fewshot": 1, "limit": 8})
    result = lab.run(
        "--gnus-experiment=asked", "--gnus-output=asked.jsonl", "-k", "colours and constant and round0"
    )
    result.stdout.fnmatch_lines(["gnus: experiment=asked, *mode=diagnostic*"])
    (asked,) = lines_of(lab.path / "asked.jsonl")
    assert (plain["mode"], asked["mode"]) == ("canonical", "diagnostic")
    assert (plain["num_fewshot"], asked["num_fewshot"], asked["n"]) == (2, 1, 8)
    assert plain["fingerprint"]["prompt_hash"] != asked["fingerprint"]["prompt_hash"]


def test_sampled_rounds_have_seeds_of_their_own_and_repeat_exactly(toy):
    task = choice_task(
        "writing",
        output_type="generate_until",
        doc_to_text="Description: The present invention relates to {{ question }}\n\nAbstract:",
        doc_to_target="{{ choices[answer] }}",
        generation_kwargs={"until": ["\n"], "max_gen_toks": 12},
        metric_list=[{"metric": "rouge1", "aggregation": "mean", "higher_is_better": True}],
    )
    del task["doc_to_choice"]
    toy.benchmark("writing", task=task, metric="rouge1")
    documents = choice_documents([0, 1, 2, 3, 0, 1, 2, 3])
    for document in documents:
        document["choices"] = ["the a of", "to in and", "pump for", "is with by"]
    toy.data("writing/test.jsonl", documents)
    toy.yaml("config/prompts/warm.yaml", {"name": "warm", "generation": {"temperature": 1.5}})
    experiment(
        toy,
        niche=None,
        benchmarks=["writing"],
        models=["demo:patents-reference"],
        repeat=3,
        prompt_bundle="warm",
    )
    (toy.path / "conftest.py").write_text(
        "import json, pytest, lm_eval\n"
        "from pytest_gnus import evaluation\n"
        "original = lm_eval.simple_evaluate\n"
        "def watched(**keywords):\n"
        "    found = original(**keywords)\n"
        "    texts = [s['resps'] for s in found['samples']['writing']]\n"
        "    with open('texts.jsonl', 'a') as file: file.write(json.dumps(texts) + '\\n')\n"
        "    return found\n"
        "lm_eval.simple_evaluate = watched\n"
    )
    for _ in range(2):
        toy.run("--gnus-experiment=trial", "--gnus-output=w.jsonl").assert_outcomes(passed=3)
    texts = [json.dumps(text) for text in lines_of(toy.path / "texts.jsonl")]
    assert texts[:3] == texts[3:]
    assert len(set(texts)) == 3
    lines = lines_of(toy.path / "w.jsonl")
    assert [line["seed"]["sampling"] for line in lines[:3]] == [1234, 1235, 1236]
    assert all(line["fingerprint"]["generation_params"]["do_sample"] is True for line in lines)


# --- what cannot be measured ---


def test_a_model_that_is_not_there_is_an_error_of_its_items_and_the_others_are_measured(lab):
    experiment(lab, models=["demo:random", "mlx:models/none"], benchmarks=["shapes"])
    result = lab.run("--gnus-experiment=trial")
    result.assert_outcomes(passed=2, errors=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    lines = results(lab)
    assert [(line["status"], line["score"] is None) for line in lines] == [
        ("measured", False),
        ("error", True),
    ] * 2
    assert "models/none" in lines[1]["error"]
    result.stdout.fnmatch_lines(["shapes[[]toy-none-round0[]]: error: *models/none*"])


def test_not_implemented_is_skipped_with_its_reason_and_the_experiment_is_not_whole(lab):
    lab.benchmark(
        "later", task=None, num_fewshot=None, metric=None, status="not_implemented", reason="no sandbox"
    )
    experiment(lab, benchmarks=["later", "shapes"], niche=None, repeat=1)
    result = lab.run("--gnus-experiment=trial", "-rs")
    result.assert_outcomes(passed=2, skipped=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "later[[]random-round0[]]: not implemented: no sandbox",
            "no test failed, but the experiment is not whole: exit status 1",
            "SKIPPED*no sandbox",
        ]
    )
    assert {line["status"] for line in results(lab)} == {"measured", "not_implemented"}


def test_a_diagnostic_benchmark_without_its_data_is_skipped_unless_it_was_asked_for_by_name(lab):
    (lab.path / "data" / "benchmarks" / "shapes" / "test.jsonl").unlink()
    (lab.path / "data" / "benchmarks" / "shapes").rmdir()
    result = lab.run("--niche=toy", *MODELS)
    result.assert_outcomes(passed=2, skipped=2)
    assert result.ret == pytest.ExitCode.OK
    experiment(lab, benchmarks=["shapes"], repeat=1)
    result = lab.run("--gnus-experiment=trial")
    result.assert_outcomes(errors=2)


@pytest.mark.parametrize("mark", ["xfail", "skip"])
def test_a_mark_of_the_users_does_not_make_the_experiment_whole(lab, mark):
    experiment(lab, models=["mlx:models/none"], benchmarks=["shapes"], repeat=1)
    (lab.path / "conftest.py").write_text(
        "import pytest\n"
        "def pytest_collection_modifyitems(items):\n"
        f"    for item in items: item.add_marker(pytest.mark.{mark}(reason='mine'))\n"
    )
    result = lab.run("--gnus-experiment=trial")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert [line["status"] for line in results(lab)] == ["error" if mark == "xfail" else "skipped"]


def test_last_failed_runs_what_could_not_be_measured(lab):
    missing = lab.path / "data" / "benchmarks" / "shapes" / "test.jsonl"
    content = missing.read_text()
    missing.unlink()
    experiment(lab, benchmarks=["colours", "shapes"], repeat=2)
    lab.run("--gnus-experiment=trial", "--gnus-output=r.jsonl").assert_outcomes(passed=4, errors=4)
    missing.write_text(content)
    result = lab.run("--gnus-experiment=trial", "--gnus-output=r.jsonl", "--lf")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["4 of 8 combinations ran"])
    assert [line["benchmark"] for line in lines_of(lab.path / "r.jsonl")[8:]] == ["shapes"] * 4


# --- how often models are loaded ---

LOADS = """
import pytest
@pytest.fixture(scope="session", autouse=True)
def counted(gnus_models):
    yield
    print("LOADED", *(spec.name for spec in gnus_models.loads))
"""
NO_ROOM = """
from pytest_gnus.models import room
room.has_room = lambda spec: False
"""


@pytest.mark.parametrize("there_is_room", [True, False])
def test_models_are_loaded_once_where_there_is_room_and_else_once_in_a_round(lab, there_is_room):
    names = ["patents", "patents-reference", "patents-baseline"]
    experiment(
        lab, models=names, default_provider="demo", benchmarks=["shapes", "colours"], overrides={"limit": 2}
    )
    (lab.path / "conftest.py").write_text(LOADS + ("" if there_is_room else NO_ROOM))
    result = lab.run("--gnus-experiment=trial", "-s")
    result.assert_outcomes(passed=12)
    (loaded,) = [line.split("LOADED")[1].split() for line in result.outlines if "LOADED" in line]
    assert loaded == (names if there_is_room else names * 2)
    assert [line["round_index"] for line in results(lab)] == [0] * 6 + [1] * 6
    assert [line["model"] for line in results(lab)][::2] == names * 2


# --- under xdist ---

WHERE = """
import json, os, pytest
@pytest.fixture(autouse=True)
def where(request, worker_id, gnus_models):
    yield
    with open("where.jsonl", "a") as file:
        loads = [str(spec) for spec in gnus_models.loads]
        file.write(json.dumps([worker_id, request.node.planned.label, loads]) + "\\n")
"""


def test_each_model_stays_on_one_worker_and_the_controller_writes(lab):
    (lab.path / "conftest.py").write_text(WHERE)
    result = lab.run("--gnus-experiment=trial", "-n", "2")
    result.assert_outcomes(passed=8)
    seen = lines_of(lab.path / "where.jsonl")
    workers = {}
    for worker, label, loads in seen:
        workers.setdefault(label, set()).add(worker)
        assert loads == [f"demo:{label}"]
    assert {label: len(used) for label, used in workers.items()} == {"random": 1, "constant": 1}
    assert workers["random"] != workers["constant"]
    lines = results(lab)
    assert len({place(line) for line in lines}) == len(lines) == 8
    ordered = [place(line) for line in report(lab)["results"]]
    assert [index for index, _, _ in ordered] == [0] * 4 + [1] * 4
    assert sorted(ordered) == sorted(place(line) for line in lines)


def test_an_item_whose_worker_dies_is_an_error_in_the_results(lab):
    (lab.path / "conftest.py").write_text(
        "import os, pytest\n"
        "@pytest.fixture(autouse=True)\n"
        "def die(request):\n"
        "    if request.node.name == 'shapes[toy-random-round0]': os._exit(1)\n"
    )
    result = lab.run("--gnus-experiment=trial", "-n", "2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    lines = results(lab)
    assert len({place(line) for line in lines}) == len(lines) == 8
    (broken,) = [line for line in lines if line["status"] != "measured"]
    assert place(broken) == (0, "random", "shapes")
    assert broken["status"] == "error"
    assert "died while it ran shapes[toy-random-round0]: its process exited with status 1" in broken["error"]


# --- killed, damaged, not writable ---


def test_after_kill_nine_at_most_the_line_being_written_is_missing_and_a_rerun_repairs_it(lab):
    """The process is killed in the middle of its third line."""
    (lab.path / "conftest.py").write_text(
        "import os, time\n"
        "from pytest_gnus.experiments import output\n"
        "written = []\n"
        "original = output.ResultsFile.append\n"
        "def append(self, content):\n"
        "    if len(written) == 2 and os.environ.get('STOP_IN_A_LINE'):\n"
        '        self._file.write(b\'{"run_id": "half a li\')\n'
        "        self._file.flush()\n"
        "        print('WRITING', flush=True)\n"
        "        time.sleep(120)\n"
        "    original(self, content)\n"
        "    written.append(content)\n"
        "output.ResultsFile.append = append\n"
    )
    command = ["--gnus-experiment=trial", "--gnus-output=r.jsonl", "-s", "-p", "no:cacheprovider"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *command],
        cwd=lab.path,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "STOP_IN_A_LINE": "1"},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "WRITING" in line:
            break
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=60)
    process.stdout.close()
    left = (lab.path / "r.jsonl").read_bytes().splitlines(keepends=True)
    assert [json.loads(line)["benchmark"] for line in left[:2]] == ["colours", "shapes"]
    assert left[2:] == [b'{"run_id": "half a li']

    result = lab.run(*command)
    result.assert_outcomes(passed=8)
    (damaged,) = lab.path.glob("r.jsonl.damaged-*")
    assert damaged.read_bytes() == b'{"run_id": "half a li'
    note = f"r.jsonl: its last line was not whole, *21 bytes were moved to {damaged.name}"
    result.stdout.fnmatch_lines([f"gnus: {note}", note])
    lines = lines_of(lab.path / "r.jsonl")
    assert [line["run_id"] for line in lines[:2]] == [json.loads(line)["run_id"] for line in left[:2]]
    assert len({line["run_id"] for line in lines}) == 2
    assert [place(line) for line in lines[:2]] == [place(line) for line in lines[2:4]]


def test_a_kill_between_lines_loses_nothing(lab):
    (lab.path / "conftest.py").write_text(
        "import time, pytest\n"
        "@pytest.fixture(autouse=True)\n"
        "def wait(request):\n"
        "    if request.node.name == 'shapes[toy-constant-round0]':\n"
        "        print('WAITING', flush=True)\n"
        "        time.sleep(120)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "--gnus-experiment=trial", "-s", "-p", "no:cacheprovider"],
        cwd=lab.path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "WAITING" in line:
            break
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=60)
    process.stdout.close()
    assert [place(line) for line in results(lab)] == [
        (0, "random", "colours"),
        (0, "random", "shapes"),
        (0, "constant", "colours"),
    ]


def test_a_file_that_holds_something_else_is_refused_and_left_alone(lab):
    (lab.path / "notes.md").write_text("# Notes\n")
    result = lab.run("--niche=toy", *MODELS, "--gnus-output=notes.md")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*notes.md: line 1 is no result of an experiment*--gnus-output*"])
    assert (lab.path / "notes.md").read_text() == "# Notes\n"


def test_an_output_that_cannot_be_written_is_a_usage_error(lab):
    (lab.path / "taken").write_text("")
    result = lab.run("--niche=toy", *MODELS, "--gnus-output=taken/r.jsonl")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*the results cannot be written: *taken*"])


# --- wrong command lines and files ---


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["--gnus-model=demo:random"],
            "--gnus-model: nothing to measure; add --niche=NAME*",
        ),
        (
            ["--gnus-repeat=2", "--gnus-output=x"],
            "--gnus-repeat, --gnus-output: only an experiment, which gates nothing, does this; add "
            "--gnus-experiment *",
        ),
        (
            ["--niche=toy", "--gnus-model=demo:random", "--gnus-repeat=2"],
            "--gnus-repeat: only an experiment, *",
        ),
        (
            ["--niche=toy", *MODELS[1:]],
            "--gnus-model 2 times: only an experiment, *--gnus-experiment*, or name one model for a gate",
        ),
        (["--niche=toy", "--gnus-experiment"], "*found no model; allowed: at least one model*--gnus-model*"),
        (MODELS, "*the command line: benchmarks: found nothing; *--niche=NAME*"),
        (["--gnus-experiment=", "--niche=toy", MODELS[1]], "*--gnus-experiment: found '', which is no file*"),
        (
            ["--niche=toy", *MODELS, "--gnus-repeat=two"],
            "*--gnus-repeat: found 'two'; allowed: a whole number",
        ),
        (
            ["--niche=toy", *MODELS, "--gnus-variant=quantized"],
            "*--gnus-variant: found 'quantized'*--gnus-model*",
        ),
        (
            ["--niche=toy", *MODELS, MODELS[1]],
            "*--gnus-model: found 'demo:random' a second time*each model once*",
        ),
        (
            ["--niche=toy", "--gnus-experiment", "--gnus-model=demmo:y"],
            "*--gnus-model: *'demmo'*Did you mean 'demo'?",
        ),
        (
            ["--gnus-experiment", "benchmarks/colours.yaml", "--niche=toy", MODELS[1]],
            "*--gnus-experiment: found 'benchmarks/colours.yaml', which is a benchmark's file*",
        ),
        (["--niche=toi", *MODELS], "*--niche: found 'toi'; *Did you mean 'toy'?"),
        (["--gnus-experiment=trail"], "*--gnus-experiment: found 'trail', which is no file; allowed: trial*"),
    ],
)
def test_wrong_command_lines_say_what_to_do(lab, arguments, expected):
    result = lab.run(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{expected}"])
    assert not (lab.path / "artifacts").exists()


def test_every_problem_of_an_experiment_comes_at_once(lab):
    experiment(
        lab,
        niche="toi",
        benchmarks=["color"],
        models=["demo:random", "demmo:x", "demo:random"],
        prompt_bundle="clerk",
    )
    text = lab.run("--gnus-experiment=trial").stderr.str()
    where = "config/experiments/trial.yaml"
    for expected in (
        f"{where}: niche: found 'toi'; allowed: toy. Did you mean 'toy'?",
        f"{where}: models[1]: found the provider 'demmo'",
        f"{where}: models[2]: found 'demo:random' a second time",
        f"{where}: prompt_bundle: found 'clerk'; allowed: (none). Write config/prompts/clerk.yaml.",
    ):
        assert expected in text


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"modles": []}, "modles: found an unknown key*Did you mean 'models'?*"),
        ({"repeat": "2"}, "repeat: found '2'; allowed: a valid integer*"),
        ({"overrides": {"num_few_shot": 1}}, "overrides.num_few_shot: found an unknown key*'num_fewshot'?*"),
        ({"models": None}, "models: found no model; allowed: at least one model*"),
        ({"benchmarks": ["color"]}, "benchmarks[[]0[]]: found 'color'; allowed: colours, shapes*'colours'?*"),
        ({"niche": None}, "benchmarks: found nothing; allowed: colours, shapes*"),
    ],
)
def test_a_wrong_file_is_named_with_its_key(lab, content, expected):
    experiment(lab, **content)
    result = lab.run("--gnus-experiment=trial")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*config/experiments/trial.yaml: {expected}"])


def test_a_benchmark_of_another_niche_says_so(lab):
    lab.benchmark("aside")
    experiment(lab, benchmarks=["aside"])
    result = lab.run("--gnus-experiment=trial")
    result.stderr.fnmatch_lines(
        ["*benchmarks[[]0[]]: found 'aside'*It is no benchmark of toy; leave the niche out.*"]
    )


def test_a_wrong_prompt_bundle_is_named_with_its_key(lab):
    lab.yaml("config/prompts/clerk.yaml", {"name": "clark", "system_instrction": "x"})
    experiment(lab, prompt_bundle="clerk")
    lab.run("--gnus-experiment=trial").stderr.fnmatch_lines(
        ["*prompts/clerk.yaml: system_instrction: found an unknown key*Did you mean 'system_instruction'?*"]
    )


def test_no_workspace_is_a_usage_error(pytester):
    result = pytester.runpytest_subprocess("--gnus-experiment=x")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*an experiment needs a workspace*config/specialists/*"])


# --- providers ---


def test_a_provider_of_the_workspaces_own_is_compared_as_any_other(lab):
    example = Path(__file__).parents[2] / "examples" / "provider" / "conftest.py"
    (lab.path / "conftest.py").write_text(example.read_text())
    (lab.path / "words.txt").write_text("red red green blue grey pump")
    result = lab.run(
        "--niche=toy", "--gnus-experiment", "--gnus-model=unigram:words.txt", MODELS[2], "-k", "shapes"
    )
    result.assert_outcomes(passed=2, deselected=2)
    assert [line["model_label"] for line in results(lab)] == ["words.txt", "constant"]


def test_a_model_that_cannot_give_what_a_benchmark_needs_is_a_usage_error(lab):
    experiment(lab, models=["demo:random", "lm_eval:local-chat-completions,model=x"])
    result = lab.run("--gnus-experiment=trial")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*benchmarks/shapes.yaml: task.output_type: *gives no log-probabilities*"])


# --- reporters ---

REPORTER = """
import os

def pytest_gnus_result_finished(result, config):
    with open(config.rootpath / "heard.txt", "a") as file:
        file.write(f"{result.round_index} {result.model_label} {result.benchmark} {result.samples}\\n")
    result.status = "altered"

def pytest_gnus_experiment_finished(report, files):
    with open("heard.txt", "a") as file:
        file.write(f"{len(report.results)} {[path.is_file() for path in files]}\\n")
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "workers"])
def test_reporters_hear_each_result_once_and_the_report_and_change_nothing(lab, workers):
    (lab.path / "conftest.py").write_text(REPORTER)
    result = lab.run("--gnus-experiment=trial", *workers)
    result.assert_outcomes(passed=8)
    *heard, end = (lab.path / "heard.txt").read_text().splitlines()
    expected = [
        f"{line['round_index']} {line['model_label']} {line['benchmark']} {line['samples']}"
        for line in results(lab)
    ]
    assert heard == expected
    assert end == "8 [True, True, True]"
    assert {line["status"] for line in results(lab)} == {"measured"}
    result.stdout.fnmatch_lines(["a reporter failed: pytest_gnus_result_finished of conftest.py raised *"])
