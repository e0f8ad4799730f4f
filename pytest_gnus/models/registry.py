"""The built-in providers, and from a `ModelSpec` to a model in memory."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from pytest_gnus.errors import ModelError, did_you_mean, listed
from pytest_gnus.models.arguments import NamedArguments
from pytest_gnus.models.compute import DEFAULT_OPTIONS, ComputeOptions
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.models.provider import Abilities, Provider, Providers
from pytest_gnus.models.spec import ModelSpec, located

#: `demo:` names of the embedded specialist and the variant each stands for.
_EMBEDDED = {
    "patents": "quantized",
    "patents-reference": "reference",
    "patents-baseline": "baseline",
}
#: `demo:` names of models without weights.
SENTINELS = ("random", "constant")


class _Mlx(Provider):
    """Directories and hub repositories, run by mlx-lm."""

    name = "mlx"
    example = "mlx:DIR"

    def load(self, spec: ModelSpec, options: ComputeOptions) -> LoadedModel:
        from pytest_gnus.models import loading

        return loading.load(spec, options)

    def located(self, name: str, root: Path) -> str:
        return located(name, root)


class _Demo(Provider):
    """The embedded specialist, and two answerers that know nothing."""

    name = "demo"
    example = "demo:patents"

    def load(self, spec: ModelSpec, options: ComputeOptions) -> LoadedModel:
        if spec.name in SENTINELS:
            from pytest_gnus.models import demo_models

            identity = f"demo:{spec.name}"
            return LoadedModel(
                spec=spec, lm=demo_models.SENTINELS[spec.name](), version=identity, identity=identity
            )
        if spec.name not in _EMBEDDED:
            known = [*_EMBEDDED, *SENTINELS]
            hint = did_you_mean(spec.name, known)
            raise ModelError(
                f"there is no demo:{spec.name}; there are {listed(known)}. {hint}".rstrip(". ") + "."
            )
        from pytest_gnus.demo import model_directory
        from pytest_gnus.models import loading

        model = loading.load_directory(spec, model_directory(_EMBEDDED[spec.name]), options)
        return replace(model, version="embedded demonstration", demonstration=True)


class _Torch(Provider):
    """Directories and hub repositories, run by torch as lm-eval's `hf` model runs them."""

    name = "hf"
    example = "hf:DIR"

    def load(self, spec: ModelSpec, options: ComputeOptions) -> LoadedModel:
        from pytest_gnus.models import torch_loading

        return torch_loading.load(spec, options)

    def located(self, name: str, root: Path) -> str:
        return located(name, root)


class _OpenAI(Provider):
    """Any server of OpenAI's completions; where it is and its key are in the environment."""

    name = "openai"
    is_local = False
    example = "openai:NAME,tokenizer=DIR"

    def load(self, spec: ModelSpec, options: ComputeOptions) -> LoadedModel:
        from pytest_gnus.models import completions

        return completions.load(spec)

    def problem(self, name: str) -> str | None:
        return super().problem(name) or NamedArguments.parse(name).problem(_OPENAI_ARGUMENTS)

    def located(self, name: str, root: Path) -> str:
        return str(NamedArguments.parse(name).located(root, ("tokenizer",)))


class _LmEval(Provider):
    """Whatever lm-eval has a model of, by the name and the arguments that it has there."""

    name = "lm_eval"
    example = "lm_eval:NAME,ARGUMENT=VALUE"

    def load(self, spec: ModelSpec, options: ComputeOptions) -> LoadedModel:
        from pytest_gnus.models import harness_model

        return harness_model.load(spec)

    def problem(self, name: str) -> str | None:
        return super().problem(name) or NamedArguments.parse(name).problem()

    def located(self, name: str, root: Path) -> str:
        return str(NamedArguments.parse(name).located(root, LOCAL_ARGUMENTS))

    def abilities(self, name: str) -> Abilities:
        model = NamedArguments.parse(name).name
        if model in _WITHOUT_LOGLIKELIHOOD:
            return Abilities(gives_loglikelihood=False, reason=f"lm-eval's {model} only generates")
        return Abilities()


#: What `openai:NAME` takes behind its name, and the type of each.
_OPENAI_ARGUMENTS: dict[str, type] = {
    "tokenizer": str,
    "max_length": int,
    "num_concurrent": int,
    "timeout": int,
    "think_end_token": str,
}
#: Arguments of lm-eval's models that hold weights, if they are directories.
LOCAL_ARGUMENTS = ("pretrained", "peft", "delta", "tokenizer")
#: lm-eval's models whose `loglikelihood` raises `NotImplementedError`.
_WITHOUT_LOGLIKELIHOOD = frozenset(
    "anthropic-chat anthropic-chat-completions anthropic-completions azure-openai-chat-completions "
    "hf-audiolm-qwen hf-multimodal litellm litellm-chat litellm-chat-completions local-chat-completions "
    "openai-chat-completions".split()
)

BUILT_IN = Providers((_Mlx(), _Torch(), _OpenAI(), _LmEval(), _Demo()))


def load(
    spec: ModelSpec, options: ComputeOptions = DEFAULT_OPTIONS, providers: Providers = BUILT_IN
) -> LoadedModel:
    """Load a model.

    Raises:
        ModelError: saying which model and why.
    """
    started = time.perf_counter()
    model = providers.get(spec.provider).load(spec, options)
    if not isinstance(model, LoadedModel):
        raise ModelError(f"the provider of {spec} gave {model!r}: a pytest_gnus.LoadedModel is needed")
    return replace(model, load_seconds=time.perf_counter() - started)


def local_directory(spec: ModelSpec) -> Path | None:
    """Where the weights of a spec lie on this machine; None for those of the hub, and for what has none."""
    if spec.provider == "demo" and spec.name in _EMBEDDED:
        from pytest_gnus.demo import model_directory

        return model_directory(_EMBEDDED[spec.name])
    return spec.directory
