"""Names of models."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gnus.models.registry import BUILT_IN
from pytest_gnus.models.spec import ModelSpec, is_hub_id, parse, parse_problem

PROVIDERS = BUILT_IN.names
#: Those whose names have no form of their own.
ANY_NAME = ("mlx", "hf", "demo")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "models" / "toy").mkdir(parents=True)
    (tmp_path / "adapter").mkdir()
    return tmp_path


@pytest.mark.parametrize("text", ["models/toy", "mlx:models/toy", "./models/toy", "mlx:models/../models/toy"])
def test_a_directory_of_the_project_is_made_absolute(root: Path, text: str) -> None:
    spec = parse(text, root)
    assert spec == ModelSpec("mlx", str((root / "models" / "toy").resolve()))
    assert spec.directory == (root / "models" / "toy").resolve()


def test_an_absolute_directory_stays_where_it_is(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert parse(f"mlx:{elsewhere}", root).name == str(elsewhere.resolve())


def test_a_link_and_its_target_are_one_model(root: Path) -> None:
    (root / "link").symlink_to(root / "models" / "toy", target_is_directory=True)
    assert parse("link", root) == parse("models/toy", root)


def test_the_home_folder_may_be_written_as_a_tilde(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(root / "models"))
    assert parse("~/toy", Path("/nowhere")) == parse("models/toy", root)


@pytest.mark.parametrize("text", ["mlx-community/Qwen3-0.6B-4bit", "mlx:mlx-community/Qwen3-0.6B-4bit"])
def test_a_hub_id_that_is_no_directory_stays_a_hub_id(root: Path, text: str) -> None:
    spec = parse(text, root)
    assert spec == ModelSpec("mlx", "mlx-community/Qwen3-0.6B-4bit")
    assert spec.directory is None


@pytest.mark.parametrize("text", ["models/specialists_mlx/code", "missing", "./a/b"])
def test_a_path_that_is_not_there_and_no_hub_id_is_still_the_projects(root: Path, text: str) -> None:
    spec = parse(text, root)
    assert spec.name == str((root / text).resolve())
    assert spec.directory is None


def test_another_providers_name_is_left_alone(root: Path) -> None:
    (root / "patents").mkdir()
    spec = parse("demo:patents", root)
    assert spec == ModelSpec("demo", "patents")
    assert spec.directory is None


def test_the_adapter_is_located_and_makes_another_model(root: Path) -> None:
    spec = parse("models/toy", root, "adapter")
    assert spec.adapter == str((root / "adapter").resolve())
    assert spec != parse("models/toy", root)
    assert str(spec) == f"mlx:{spec.name} with adapter {spec.adapter}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf:models/toy", "hf:{root}/models/toy"),
        ("hf:org/name", "hf:org/name"),
        (
            "openai:name,tokenizer=models/toy,max_length=8",
            "openai:name,tokenizer={root}/models/toy,max_length=8",
        ),
        ("openai:name, tokenizer=org/name", "openai:name,tokenizer=org/name"),
        (
            "lm_eval:hf,pretrained=models/toy,dtype=float32",
            "lm_eval:hf,pretrained={root}/models/toy,dtype=float32",
        ),
        ("lm_eval:dummy", "lm_eval:dummy"),
    ],
)
def test_directories_of_the_project_are_made_absolute_in_arguments_too(
    root: Path, text: str, expected: str
) -> None:
    assert str(parse(text, root)) == expected.format(root=root.resolve())


def test_the_weights_of_a_torch_model_lie_in_its_directory(root: Path) -> None:
    assert parse("hf:models/toy", root).directory == (root / "models" / "toy").resolve()
    assert parse("lm_eval:hf,pretrained=models/toy", root).directory is None


def test_a_spec_reads_as_it_is_typed() -> None:
    assert str(ModelSpec("demo", "patents")) == "demo:patents"


@pytest.mark.parametrize("text", ["mlx:models/toy", "models/toy", "demo:patents", "org/name", "C:\\models"])
def test_a_usable_name_has_no_problem(text: str) -> None:
    assert parse_problem(text, "--gnus-model") is None


@pytest.mark.parametrize(
    ("text", "provider", "hint"),
    [
        ("mxl:models/toy", "mxl", "Did you mean 'mlx'?"),
        ("torch:org/name", "torch", ""),
        ("dem:x", "dem", "'demo'?"),
    ],
)
def test_an_unknown_provider_is_a_problem_with_the_providers(text: str, provider: str, hint: str) -> None:
    problem = parse_problem(text, "config/specialists/toy.yaml", "model.quantized")
    assert problem is not None
    assert (problem.where, problem.key) == ("config/specialists/toy.yaml", "model.quantized")
    assert repr(provider) in problem.found
    assert text in problem.found
    assert all(known in problem.allowed for known in PROVIDERS)
    assert hint in problem.hint


@pytest.mark.parametrize("text", ["mlx:", "demo:", "mlx:  ", "", " "])
def test_a_provider_without_a_name_is_a_problem(text: str) -> None:
    problem = parse_problem(text, "--gnus-model")
    assert problem is not None
    assert (problem.where, problem.found) == ("--gnus-model", repr(text))


@pytest.mark.parametrize("name", ["org/name", "mlx-community/Qwen3-0.6B_4bit", "a/b"])
def test_a_hub_id_is_an_owner_and_a_name(name: str) -> None:
    assert is_hub_id(name)


@pytest.mark.parametrize(
    "name", ["name", "a/b/c", "/a/b", "./a", "../a", "~/a", "a/", "/b", "a b/c", "", "a/b c"]
)
def test_a_path_is_no_hub_id(name: str) -> None:
    assert not is_hub_id(name)


@given(st.sampled_from(ANY_NAME), st.text(min_size=1, max_size=20).filter(str.strip))
def test_what_follows_a_known_provider_is_its_name_colons_and_all(provider: str, name: str) -> None:
    assert parse_problem(f"{provider}:{name}", "here") is None
    assert parse(f"demo:{name}", Path("/nowhere")) == ModelSpec("demo", name)


@given(st.from_regex(r"[A-Za-z][A-Za-z0-9_]+", fullmatch=True), st.text(max_size=20))
def test_only_known_providers_are_accepted(provider: str, name: str) -> None:
    problem = parse_problem(f"{provider}:{name}", "here")
    assert (problem is None) is (provider in ANY_NAME and bool(name.strip()))


@given(st.text(max_size=30).filter(lambda text: ":" not in text))
def test_a_bare_name_is_the_default_providers(text: str) -> None:
    problem = parse_problem(text, "here")
    assert (problem is None) is bool(text.strip())
