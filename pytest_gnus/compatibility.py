"""What of other packages is overridden, replaced or called that they do not promise to keep.

All of it is listed here, with the versions that it was tested with. A version outside of these gives a
warning; one in which something listed looks otherwise is a usage error before anything is measured. The
sources are read, not imported: that is cheap, and done only where the version is not a tested one.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from packaging.version import InvalidVersion, Version

from pytest_gnus.errors import Problem


@dataclass(frozen=True)
class Part:
    """A function or method of another package.

    `overridden` ones must have exactly these parameters, since others call them too. Of those that are only
    called or replaced, more parameters do no harm.
    """

    module: str
    name: str
    parameters: tuple[str, ...]
    overridden: bool = True

    def fits(self, found: tuple[str, ...]) -> bool:
        if self.overridden:
            return found == self.parameters
        return set(self.parameters) <= set(found)


@dataclass(frozen=True)
class Package:
    """A distribution, the oldest and the newest version tested, and what is relied on in it."""

    distribution: str
    oldest: str
    newest: str
    parts: tuple[Part, ...] = ()

    def is_tested(self, version: str) -> bool:
        try:
            return Version(self.oldest) <= Version(version) <= Version(self.newest)
        except InvalidVersion:
            return False

    @property
    def tested(self) -> str:
        return self.oldest if self.oldest == self.newest else f"{self.oldest} to {self.newest}"


def _parts(module: str, owner: str, **methods: str) -> tuple[Part, ...]:
    return tuple(Part(module, f"{owner}.{name}", ("self", *names.split())) for name, names in methods.items())


def _called(module: str, **functions: str) -> tuple[Part, ...]:
    return tuple(
        Part(module, name, tuple(names.split()), overridden=False) for name, names in functions.items()
    )


LM_EVAL = Package(
    "lm_eval",
    "0.4.13",
    "0.4.13",
    (
        *_parts(
            "lm_eval.api.task",
            "ConfigurableTask",
            __init__="data_dir cache_dir download_mode config",
            download="dataset_kwargs kwargs",
            training_docs="",
            validation_docs="",
            test_docs="",
            doc_to_text="doc doc_to_text",
            doc_to_target="doc doc_to_target",
            doc_to_choice="doc doc_to_choice",
            build_qa_turn="q c a gen_prefix tgt_delim few_delim",
            fewshot_context="doc num_fewshot system_instruction apply_chat_template fewshot_as_multiturn "
            "chat_template gen_prefix",
        ),
        # The sampler is wrapped, not subclassed.
        *(
            replace(part, overridden=False)
            for part in _parts(
                "lm_eval.api.samplers",
                "ContextSampler",
                sample="n eval_doc",
                set_rnd="rnd",
                replace_df="df",
            )
        ),
        *_parts(
            "lm_eval.api.model",
            "TemplateLM",
            eot_token_id="",
            prefix_token_id="",
            tok_encode="string add_special_tokens kwargs",
            _encode_pair="context continuation",
            _loglikelihood_tokens="requests kwargs",
            loglikelihood="requests disable_tqdm",
            loglikelihood_rolling="requests disable_tqdm",
            generate_until="requests disable_tqdm",
        ),
        *_parts(
            "lm_eval.api.model",
            "LM",
            __init__="",
            device="",
            tokenizer_name="",
            chat_template="chat_template",
            apply_chat_template="chat_history add_generation_prompt",
            loglikelihood="requests",
            loglikelihood_rolling="requests",
            generate_until="requests",
        ),
        *_parts(
            "lm_eval.models.huggingface",
            "HFLM",
            _loglikelihood_tokens="requests disable_tqdm override_bs",
            generate_until="requests disable_tqdm",
            tok_batch_encode="strings padding_side left_truncate_len truncation",
            _model_generate="context max_length stop generation_kwargs",
        ),
        *_called(
            "lm_eval.loggers.utils",
            get_git_commit_hash="",
            add_env_info="storage",
            add_tokenizer_info="storage lm",
        ),
        *_called(
            "lm_eval.evaluator",
            simple_evaluate="model tasks log_samples apply_chat_template fewshot_random_seed task_manager",
        ),
    ),
)
MLX_LM = Package(
    "mlx-lm",
    "0.32.0",
    "0.32.2",
    (
        *_parts(
            "mlx_lm.models.cache",
            "KVCache",
            __init__="",
            keys_and_values="",
            make_mask="args kwargs",
            update_and_fetch="keys values",
        ),
        *_called("mlx_lm.utils", load_model="model_path lazy strict model_config", load_adapters="model"),
        *_called("mlx_lm.models.activations", swiglu="gate x"),
        *_called(
            "mlx_lm.models.cache", make_prompt_cache="model", create_attention_mask="N offset window_size"
        ),
    ),
)
XDIST = Package(
    "pytest-xdist",
    "3.6.1",
    "3.8.0",
    (
        *_parts(
            "xdist.scheduler.loadscope",
            "LoadScopeScheduling",
            __init__="config log",
            _split_scope="nodeid",
            remove_node="node",
        ),
        Part("xdist.scheduler.loadscope", "LoadScopeScheduling._reschedule", ("self", "node"), False),
    ),
)
#: Relied on is `Config.known_args_namespace`, which is not in pytest's reference: what was asked for, before
#: the first conftest is loaded.
PYTEST = Package("pytest", "8.4.0", "9.2.0")

PACKAGES = (PYTEST, XDIST, LM_EVAL, MLX_LM)


def installed(distribution: str) -> str | None:
    """The version of a distribution, None where it is not there."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def untested(
    packages: Iterable[Package] = PACKAGES, version_of: Callable[[str], str | None] = installed
) -> tuple[str, ...]:
    """A sentence for every installed package whose version was not tested."""
    return tuple(
        f"{package.distribution} {version} was not tested with this pytest-gnus; tested: {package.tested}"
        for package, version in _untested(packages, version_of)
    )


def incompatible(
    packages: Iterable[Package] = PACKAGES,
    version_of: Callable[[str], str | None] = installed,
    source_of: Callable[[str], str | None] | None = None,
) -> list[Problem]:
    """What untested versions have changed of that which is relied on.

    Args:
        source_of: gives a module's source, None where there is no such module.
    """
    read = source_of or source
    return [
        Problem(
            package.distribution,
            f"{part.module}.{part.name}",
            f"{_shown(found)} in version {version}",
            f"{_shown(part.parameters)}, as in the versions that work: {package.tested}",
            "Install one of these: pip install "
            f"'{package.distribution}>={package.oldest},<={package.newest}'.",
        )
        for package, version in _untested(packages, version_of)
        for part in package.parts
        if (found := parameters(read(part.module), part.name)) is None or not part.fits(found)
    ]


def _untested(
    packages: Iterable[Package], version_of: Callable[[str], str | None]
) -> list[tuple[Package, str]]:
    return [
        (package, version)
        for package in packages
        if (version := version_of(package.distribution)) is not None and not package.is_tested(version)
    ]


def _shown(names: tuple[str, ...] | None) -> str:
    return "nothing of that name" if names is None else f"({', '.join(names)})"


def source(module: str) -> str | None:
    """The source of a module, found without importing it or the packages that it is in."""
    top, *inner = module.split(".")
    spec = find_spec(top)
    for folder in map(Path, (spec.submodule_search_locations or ()) if spec else ()):
        for path in (folder.joinpath(*inner).with_suffix(".py"), folder.joinpath(*inner, "__init__.py")):
            if path.is_file():
                return path.read_text(encoding="utf-8")
    return None


def parameters(text: str | None, name: str) -> tuple[str, ...] | None:
    """The names of a function's parameters in a source, None where it has no such function."""
    body: list[ast.stmt] = ast.parse(text or "").body
    *owners, function = name.split(".")
    for owner in owners:
        body = next((node.body for node in body if isinstance(node, ast.ClassDef) and node.name == owner), [])
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function:
            given = node.args
            variadic = (one for one in (given.vararg, given.kwarg) if one is not None)
            return tuple(one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, *variadic))
    return None
