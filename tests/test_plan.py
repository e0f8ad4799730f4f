"""What a run is to measure, and in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.plan import FEWSHOT_SEED, VARIANT_ORDER, BenchmarkItem, Planner, by_model
from pytest_gnus.schema import Benchmark, Niche, Pipeline, Thresholds, Variant
from pytest_gnus.settings import Settings
from pytest_gnus.tasks.local_data import LocalData
from pytest_gnus.workspace import Workspace

ROOT = Path("/nowhere/project")
SHELL = Path("/nowhere/shell")
ALL_MODELS = {"quantized": "demo:q", "reference": "demo:r", "baseline": "demo:b"}


def niche_of(name: str = "toy", model: Mapping[str, Any] | None = ALL_MODELS, **content: Any) -> Niche:
    benchmarks = {"blocking": ["colours"], "diagnostic": ["mmlu"]}
    return Niche.model_validate({"niche": name, "model": model, "benchmarks": benchmarks, **content})


def planner_of(
    *niches: Niche, pipeline: Pipeline | None = None, colours: Mapping[str, Any] | None = None, **options: Any
) -> Planner:
    """A planner for all the niches given, with settings from `options`."""
    benchmarks = {
        "colours": Benchmark.model_validate({"name": "colours", "task": "t", **(colours or {})}),
        "mmlu": Benchmark(name="mmlu", task="mmlu"),
    }
    workspace = Workspace(
        ROOT, pipeline or Pipeline(), benchmarks, {}, {niche.niche: niche for niche in niches}
    )
    return Planner(workspace, Settings(niches=tuple(niche.niche for niche in niches), **options), SHELL)


def item_for(variant: Variant = "quantized", **content: Any) -> BenchmarkItem:
    """The item of colours in a plan made of one niche with all models."""
    model = content.pop("model", None)
    entry = content.pop("entry", ALL_MODELS)
    options = {"variant": "all", "model": model, **content}
    (item,) = [
        i
        for i in planner_of(niche_of(model=entry), **options).items()
        if (i.benchmark.name, i.variant) == ("colours", variant)
    ]
    return item


def names(planner: Planner) -> list[str]:
    return [item.name for item in planner.items()]


def test_by_default_the_reference_and_then_quantized_are_measured() -> None:
    assert names(planner_of(niche_of())) == [
        "colours[toy-reference]",
        "mmlu[toy-reference]",
        "colours[toy-quantized]",
        "mmlu[toy-quantized]",
    ]


def test_blocking_is_what_the_niche_calls_so() -> None:
    blocking = {item.benchmark.name: item.blocking for item in planner_of(niche_of()).items()}
    assert blocking == {"colours": True, "mmlu": False}


@pytest.mark.parametrize(
    ("model", "variants"),
    [
        ({"quantized": "demo:q"}, ["quantized"]),
        ({"quantized": "demo:q", "baseline": "demo:b"}, ["quantized"]),
        ({"reference": "demo:r"}, ["reference"]),
        ({"baseline": "demo:b"}, ["baseline"]),
        (ALL_MODELS, ["reference", "quantized"]),
        (None, ["quantized"]),
    ],
)
def test_the_default_variants_are_those_that_the_niche_has(
    model: dict[str, str] | None, variants: list[str]
) -> None:
    items = planner_of(niche_of(model=model)).items()
    assert [item.variant for item in items if item.blocking] == variants


@pytest.mark.parametrize("model", [{}, {"version": "1.2"}])
def test_a_niche_whose_entry_names_no_weights_is_not_dropped_in_silence(model: dict[str, str]) -> None:
    planner = planner_of(niche_of(model=model))
    assert planner.items() or planner.problems()


@pytest.mark.parametrize(
    ("asked", "variants"),
    [
        ("baseline", ["baseline"]),
        ("reference", ["reference"]),
        ("quantized", ["quantized"]),
        ("all", ["baseline", "reference", "quantized"]),
    ],
)
def test_variants_that_are_asked_for_are_measured_in_order(asked: str, variants: list[str]) -> None:
    planner = planner_of(niche_of(), variant=asked)
    assert [item.variant for item in planner.items() if item.blocking] == variants
    assert planner.problems() == []


def test_all_variants_are_those_that_there_are() -> None:
    planner = planner_of(niche_of(model={"quantized": "demo:q"}), variant="all")
    assert [item.variant for item in planner.items() if item.blocking] == ["quantized"]
    assert planner.problems() == []


def test_a_variant_that_a_niche_lacks_is_a_problem_that_names_the_key() -> None:
    planner = planner_of(
        niche_of("one", {"quantized": "demo:q"}),
        niche_of("two"),
        niche_of("three", None),
        variant="reference",
    )
    first, second = planner.problems()
    assert first.where == second.where == "--gnus-variant=reference"
    assert first.found == "no model.reference in config/specialists/one.yaml"
    assert second.found == "no model.reference in config/specialists/three.yaml"
    assert first.allowed == "quantized"


def test_by_default_a_variant_that_is_missing_is_no_problem() -> None:
    assert planner_of(niche_of(model={"quantized": "demo:q"})).problems() == []


def test_a_niche_without_an_entry_has_its_weights_in_the_usual_place() -> None:
    items = planner_of(niche_of("code", None)).items()
    assert {item.model for item in items} == {ModelSpec("mlx", str(ROOT / "models/specialists_mlx/code"))}


def test_niches_come_in_the_order_asked_for() -> None:
    planner = planner_of(niche_of("b"), niche_of("a"), variant="quantized")
    assert [item.niche for item in planner.items()] == ["b", "b", "a", "a"]


def test_a_model_given_by_option_replaces_quantized_only() -> None:
    models = {variant: item_for(variant, model="demo:other").model for variant in VARIANT_ORDER}
    assert models == {
        "quantized": ModelSpec("demo", "other"),
        "reference": ModelSpec("demo", "r"),
        "baseline": ModelSpec("demo", "b"),
    }


def test_a_model_given_by_option_makes_quantized_where_there_was_none() -> None:
    planner = planner_of(niche_of(model={"reference": "demo:r"}), model="demo:other")
    assert [item.variant for item in planner.items() if item.blocking] == ["reference", "quantized"]


def test_a_model_given_by_option_is_relative_to_where_it_was_typed() -> None:
    assert item_for(model="mlx:./weights").model == ModelSpec("mlx", str(SHELL / "weights"))
    assert item_for(entry={"quantized": "mlx:./weights"}).model == ModelSpec("mlx", str(ROOT / "weights"))


FULL_ENTRY = {
    **ALL_MODELS,
    "adapter": "./lora",
    "model_manifest": "manifests/model.json",
    "sgfp4_manifest": "manifests/sgfp4.json",
    "version": "1.2",
}


@pytest.mark.parametrize(
    ("variant", "version", "has_sgfp4"), [("quantized", "1.2", True), ("reference", "1.2", False)]
)
def test_manifests_and_version_are_the_specialists(variant: Variant, version: str, has_sgfp4: bool) -> None:
    item = item_for(variant, entry=FULL_ENTRY)
    assert item.model_version == version
    assert item.model_manifest == ROOT / "manifests/model.json"
    assert item.sgfp4_manifest == (ROOT / "manifests/sgfp4.json" if has_sgfp4 else None)


@pytest.mark.parametrize(("variant", "model"), [("baseline", None), ("quantized", "demo:other")])
def test_other_weights_than_the_specialists_have_none_of_its_manifests(
    variant: Variant, model: str | None
) -> None:
    item = item_for(variant, entry=FULL_ENTRY, model=model)
    assert (item.model_version, item.model_manifest, item.sgfp4_manifest) == (None, None, None)


def test_the_reference_keeps_its_manifest_beside_a_model_given_by_option() -> None:
    assert item_for("reference", entry=FULL_ENTRY, model="demo:other").model_version == "1.2"


def test_the_adapter_is_laid_over_the_specialist_and_not_over_its_backbone() -> None:
    lora = str(ROOT / "lora")
    adapters = {variant: item_for(variant, entry=FULL_ENTRY).model.adapter for variant in VARIANT_ORDER}
    assert adapters == {"quantized": lora, "reference": lora, "baseline": None}


def test_a_model_given_by_option_gets_no_adapter() -> None:
    assert item_for(entry=FULL_ENTRY, model="demo:other").model.adapter is None


DIAGNOSTIC = {
    "num_fewshot": 5,
    "chat_template": False,
    "limit": 100,
    "dataset": {"revision": "main", "local": "own"},
    "diagnostic": {
        "task": {"doc_to_text": "x"},
        "num_fewshot": 0,
        "fewshot_seed": 7,
        "chat_template": True,
        "system_instruction": "Be brief.",
        "generation_kwargs": {"temperature": 0.7},
        "dataset": {"revision": "dev", "local": "other"},
        "limit": 10,
    },
}


def test_a_canonical_run_ignores_the_diagnostic_overrides() -> None:
    request = item_for(colours=DIAGNOSTIC, source="local").request
    assert request.mode == "canonical"
    assert (request.num_fewshot, request.fewshot_seed, request.chat_template) == (5, FEWSHOT_SEED, False)
    assert (request.system_instruction, request.generation_kwargs, request.task_overrides) == (None, {}, {})
    assert (request.revision, request.limit) == ("main", 100)
    assert request.local == LocalData(ROOT / "data/benchmarks/own", ROOT / "data/benchmarks")


def test_a_diagnostic_run_takes_them_all() -> None:
    request = item_for(colours=DIAGNOSTIC, source="local", mode="diagnostic").request
    assert request.mode == "diagnostic"
    assert (request.num_fewshot, request.fewshot_seed, request.chat_template) == (0, 7, True)
    assert (request.system_instruction, request.generation_kwargs) == ("Be brief.", {"temperature": 0.7})
    assert request.task_overrides == {"doc_to_text": "x"}
    assert (request.revision, request.limit) == ("dev", 10)
    assert request.local == LocalData(ROOT / "data/benchmarks/other", ROOT / "data/benchmarks")


def test_a_diagnostic_run_without_overrides_is_measured_as_a_canonical_one() -> None:
    colours = {key: value for key, value in DIAGNOSTIC.items() if key != "diagnostic"}
    canonical = item_for(colours=colours).request
    assert replace(item_for(colours=colours, mode="diagnostic").request, mode="canonical") == canonical


def test_an_override_of_zero_or_false_is_an_override() -> None:
    colours = {
        "num_fewshot": 5,
        "chat_template": True,
        "diagnostic": {"num_fewshot": 0, "chat_template": False},
    }
    request = item_for(colours=colours, mode="diagnostic").request
    assert (request.num_fewshot, request.chat_template) == (0, False)


@pytest.mark.parametrize(
    ("override", "revision", "folder"),
    [({"revision": "dev"}, "dev", "own"), ({"local": "other"}, "main", "other"), ({}, "main", "own")],
)
def test_overriding_one_key_of_the_data_set_leaves_the_other(
    override: dict[str, str], revision: str, folder: str
) -> None:
    colours = {"dataset": {"revision": "main", "local": "own"}, "diagnostic": {"dataset": override}}
    request = item_for(colours=colours, mode="diagnostic", source="local").request
    assert request.local is not None
    assert (request.revision, request.local.folder.name) == (revision, folder)


@pytest.mark.parametrize(
    ("mode", "limit", "expected"),
    [("canonical", None, 100), ("canonical", 3, 3), ("diagnostic", None, 10), ("diagnostic", 3, 3)],
)
def test_the_command_lines_limit_is_over_the_diagnostic_one_over_the_benchmarks(
    mode: str, limit: int | None, expected: int
) -> None:
    item = item_for(colours=DIAGNOSTIC, mode=mode, limit=limit)
    assert (item.request.limit, item.run_limit) == (expected, limit)


def test_a_limit_larger_than_the_benchmarks_still_marks_the_run() -> None:
    item = item_for(colours=DIAGNOSTIC, limit=1000)
    assert (item.request.limit, item.run_limit, item.is_gated) == (1000, 1000, False)


@pytest.mark.parametrize(
    ("options", "gated", "why"),
    [
        ({}, True, None),
        ({"colours": {"limit": 5}}, True, None),
        ({"limit": 5}, False, "limited to 5 documents by --gnus-limit: never gated as canonical"),
        ({"mode": "diagnostic"}, False, "a diagnostic run is never gated (D-03)"),
    ],
)
def test_only_whole_canonical_runs_are_gated(options: dict[str, Any], gated: bool, why: str | None) -> None:
    item = item_for(**options)
    assert (item.is_gated, item.not_gated_because) == (gated, why)


def test_a_diagnostic_benchmark_is_not_gated_though_the_run_is() -> None:
    (item,) = [i for i in planner_of(niche_of(), variant="quantized").items() if i.benchmark.name == "mmlu"]
    assert (item.is_gated, item.not_gated_because) == (False, None)


@pytest.mark.parametrize(
    ("pipeline", "asked", "source"),
    [(None, None, "huggingface"), ("local", None, "local"), ("local", "huggingface", "huggingface")],
)
def test_the_source_is_the_command_lines_over_the_pipelines(
    pipeline: str | None, asked: str | None, source: str
) -> None:
    item = item_for(pipeline=Pipeline.model_validate({"source": pipeline} if pipeline else {}), source=asked)
    assert item.request.source == source
    assert (item.request.local is not None) is (source == "local")


def test_local_data_lie_in_a_folder_of_the_benchmarks_name() -> None:
    assert item_for(source="local").request.local == LocalData(
        ROOT / "data/benchmarks/colours", ROOT / "data/benchmarks"
    )


def test_a_niches_thresholds_are_the_items() -> None:
    planner = planner_of(niche_of(gates={"hard_floor": 0.4}), colours={"gates": {"hard_floor": 0.2}})
    assert {item.thresholds.hard_floor for item in planner.items()} == {0.4}


TEMPLATE = item_for()


def ordered(*items: tuple[str, Variant, str]) -> list[BenchmarkItem]:
    """Items of a niche, a variant and a model each."""
    return [
        replace(
            TEMPLATE,
            niche=niche,
            variant=variant,
            model=ModelSpec("demo", model),
            benchmark=Benchmark(name=f"b{number}", task="t"),
        )
        for number, (niche, variant, model) in enumerate(items)
    ]


def models(items: Sequence[BenchmarkItem], order: Sequence[int]) -> list[str]:
    """The models of items in an order, each run of the same one told once."""
    return [name for name, _ in groupby(items[index].model.name for index in order)]


def test_items_of_a_model_are_put_together() -> None:
    items = ordered(
        ("t", "reference", "r"), ("t", "quantized", "q"), ("t", "reference", "r"), ("t", "quantized", "q")
    )
    assert by_model(items) == [0, 2, 1, 3]


def test_the_given_order_of_unrelated_models_is_kept() -> None:
    items = ordered(("c", "quantized", "x"), ("a", "quantized", "z"), ("b", "quantized", "y"))
    assert by_model(items) == [0, 1, 2]


def test_the_reference_comes_before_quantized_whatever_was_given() -> None:
    items = ordered(("t", "quantized", "q"), ("t", "reference", "r"), ("t", "baseline", "b"))
    assert by_model(items) == [2, 1, 0]


def test_the_reference_comes_before_quantized_in_a_model_that_is_both() -> None:
    items = ordered(("t", "quantized", "same"), ("t", "reference", "same"))
    assert by_model(items) == [1, 0]


def test_a_backbone_that_niches_share_is_loaded_once() -> None:
    items = ordered(
        ("a", "baseline", "backbone"),
        ("a", "quantized", "qa"),
        ("b", "baseline", "backbone"),
        ("b", "quantized", "qb"),
    )
    assert models(items, by_model(items)) == ["backbone", "qa", "qb"]


def test_models_that_would_each_have_to_be_first_keep_the_given_order() -> None:
    items = ordered(
        ("a", "reference", "x"), ("a", "quantized", "y"), ("b", "reference", "y"), ("b", "quantized", "x")
    )
    assert by_model(items) == [0, 1, 2, 3]


def test_nothing_is_ordered_as_nothing() -> None:
    assert by_model([]) == []


some_items = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(VARIANT_ORDER), st.sampled_from("uvwx")), max_size=10
).map(lambda entries: ordered(*entries))


@given(some_items)
def test_every_order_is_a_permutation_and_repeats(items: list[BenchmarkItem]) -> None:
    order = by_model(items)
    assert sorted(order) == list(range(len(items)))
    assert by_model(items) == order


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(VARIANT_ORDER)), max_size=12),
    st.booleans(),
)
def test_without_a_cycle_each_model_is_loaded_once_and_references_come_first(
    entries: list[tuple[str, Variant]], shared_backbone: bool
) -> None:
    """Each niche's variants are models of their own, but perhaps for one backbone."""
    items = ordered(
        *((n, v, "backbone" if v == "baseline" and shared_backbone else f"{n}-{v}") for n, v in entries)
    )
    order = by_model(items)
    loads = models(items, order)
    assert len(loads) == len(set(loads))
    for niche in "abc":
        ranks = [VARIANT_ORDER.index(items[index].variant) for index in order if items[index].niche == niche]
        assert ranks == sorted(ranks)
    for model in set(loads):
        indices = [index for index in order if items[index].model.name == model]
        assert indices == sorted(indices)


def test_thresholds_of_an_item_are_complete() -> None:
    assert item_for().thresholds == Thresholds(
        max_relative_drop=0.10,
        max_relative_drop_from_previous=0.10,
        max_relative_drop_from_baseline=0.20,
        truncated_max_share=0.0,
    )
