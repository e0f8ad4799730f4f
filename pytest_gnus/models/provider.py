"""What a provider of models is: the word before the colon in `provider:name`."""

from __future__ import annotations

import abc
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_gnus.errors import ConfigError, Problem, did_you_mean, listed

if TYPE_CHECKING:
    from pytest_gnus.models.compute import ComputeOptions
    from pytest_gnus.models.loaded import LoadedModel
    from pytest_gnus.models.spec import ModelSpec

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]+")
#: lm-eval's output types that are answered with log-probabilities; the other one is `generate_until`.
_LOGLIKELIHOOD_TYPES = frozenset({"multiple_choice", "loglikelihood", "loglikelihood_rolling"})


@dataclass(frozen=True)
class Abilities:
    """What a model can be asked for; `reason` says why not for all."""

    gives_loglikelihood: bool = True
    generates: bool = True
    reason: str = ""

    def lacking(self, output_type: str | None) -> str | None:
        """What a task of an output type needs and is not to be had; None where nothing is lacking."""
        because = f" ({self.reason})" if self.reason else ""
        if output_type in _LOGLIKELIHOOD_TYPES and not self.gives_loglikelihood:
            return f"log-probabilities of given texts{because}"
        if output_type not in _LOGLIKELIHOOD_TYPES and not self.generates:
            return f"generated texts{because}"
        return None


class Provider(abc.ABC):
    """A source of models. Everything but `load` must be instant: it is asked while tests are collected.

    `name` is a letter, then letters, digits or underscores. `example` is shown where a name is wrong.
    `is_local` says that its models are held by this machine's device, of which each process needs its place.
    """

    name: str
    example: str = ""
    is_local: bool = True

    @abc.abstractmethod
    def load(self, spec: ModelSpec, options: ComputeOptions) -> LoadedModel:
        """The model of a spec, in memory.

        Raises:
            ModelError: saying which model and why.
        """

    def problem(self, name: str) -> str | None:
        """What is allowed instead, where a name cannot be one of this provider's; looks at the text only."""
        return (
            None if name.strip() else f"a name after the colon, as in {self.example or self.name + ':NAME'}"
        )

    def located(self, name: str, root: Path) -> str:
        """The name with whatever directories of the project it holds made absolute."""
        return name

    def abilities(self, name: str) -> Abilities:
        """What can be told of a model without loading it; what only loading shows is in `LoadedModel`."""
        return Abilities()


@dataclass(frozen=True)
class Providers:
    """The providers that a run knows."""

    entries: tuple[Provider, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(provider.name for provider in self.entries)

    def get(self, name: str) -> Provider:
        """The provider of a name.

        Raises:
            KeyError: there is none.
        """
        for provider in self.entries:
            if provider.name == name:
                return provider
        raise KeyError(name)

    def abilities(self, spec: ModelSpec) -> Abilities:
        """What can be told of a spec's model without loading it."""
        return self.get(spec.provider).abilities(spec.name)

    def extended(self, more: Iterable[tuple[str, Provider]]) -> Providers:
        """These and others, each with the name of who brings it.

        Raises:
            ConfigError: a name that is no word, or that is taken.
        """
        entries = {provider.name: provider for provider in self.entries}
        problems = []
        for origin, provider in more:
            name = getattr(provider, "name", None)
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                allowed = "a letter, then letters, digits or underscores, at least two in all"
                problems.append(Problem(f"provider of {origin}", "name", repr(name), allowed))
            elif name in entries:
                taken = f"a name that is not taken; taken are {listed(entries)}"
                problems.append(Problem(f"provider of {origin}", "name", repr(name), taken))
            else:
                entries[name] = provider
        if problems:
            raise ConfigError(problems)
        return Providers(tuple(entries.values()))

    def unknown(self, provider: str, text: str, where: str, key: str) -> Problem:
        """The problem of a name whose provider nobody brings."""
        examples = [known.example for known in self.entries if known.example]
        as_in = f", as in {' or '.join(examples[:3])}" if examples else ""
        return Problem(
            where,
            key,
            f"the provider {provider!r} in {text!r}",
            f"a provider of {listed(self.names)}{as_in}",
            did_you_mean(provider, self.names),
        )
