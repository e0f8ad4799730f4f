"""What the options of a session come to, resolved once into one frozen dataclass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from pytest_gnus.errors import Problem, did_you_mean, listed
from pytest_gnus.models.registry import BUILT_IN
from pytest_gnus.options import DTYPES, MODES, SOURCES, VARIANTS, is_experiment

if TYPE_CHECKING:
    import pytest

    from pytest_gnus.models.provider import Providers
    from pytest_gnus.schema import Mode, Source, Variant

#: Shown for `--gnus-source=api` and raised by the Python API.
API_SOURCE = (
    "the source 'api' is judge-only (D-01): a specialist under test always runs locally, and its documents "
    "come from 'huggingface' or 'local'"
)

#: As `pytest_gnus.schema.MOST`, which is not imported for a session without benchmarks.
_MOST = 2**31 - 1


@dataclass(frozen=True)
class Settings:
    """What one run was asked to do. `None` means: not asked, the next level decides."""

    niches: tuple[str, ...] = ()
    variant: str | None = None
    mode: Mode = "canonical"
    source: Source | None = None
    force_download: bool = False
    model: str | None = None
    limit: int | None = None
    dtype: str | None = None
    batch_tokens: int | None = None
    workers_per_device: int = 1
    artifacts: Path = field(default_factory=lambda: Path("artifacts"))
    history: str | None = None

    @property
    def variants(self) -> tuple[Variant, ...] | None:
        """The variants asked for by name; `None` for the default choice."""
        if self.variant is None:
            return None
        if self.variant == "all":
            return cast("tuple[Variant, ...]", _all_variants())
        return (cast("Variant", self.variant),)


def _all_variants() -> tuple[str, ...]:
    from pytest_gnus.schema import Variant

    return get_args(Variant)


def resolve(
    config: pytest.Config, root: Path, known_niches: Sequence[str], providers: Providers = BUILT_IN
) -> tuple[Settings, list[Problem]]:
    """The settings of a session, and every problem of theirs (empty when they can be used)."""
    reader = _OptionReader(config, providers)
    niches = reader.niches(known_niches)
    variant = reader.choice("variant", VARIANTS)
    mode = reader.choice("mode", MODES) or "canonical"
    source = reader.source()
    model = reader.model() if not is_experiment(config) else None
    limit = reader.count("limit")
    dtype = reader.choice("dtype", DTYPES)
    batch_tokens = reader.count("batch_tokens")
    artifacts = reader.text("artifacts")
    settings = Settings(
        niches=niches,
        variant=variant,
        mode=cast("Mode", mode),
        source=cast("Source | None", source),
        force_download=bool(reader.value("force_download")),
        model=model,
        limit=limit,
        dtype=dtype,
        batch_tokens=batch_tokens,
        workers_per_device=reader.count("workers_per_device") or 1,
        artifacts=reader.directory("artifacts", artifacts) if artifacts else root / "artifacts",
        history=reader.history(),
    )
    return settings, reader.problems


class _OptionReader:
    """Reads options with their ini fallback and collects what is wrong."""

    def __init__(self, config: pytest.Config, providers: Providers) -> None:
        self._config = config
        self._providers = providers
        self.problems: list[Problem] = []

    def value(self, name: str) -> Any:
        given = self._config.getoption(f"gnus_{name}")
        return given if given is not None else self._config.getini(f"gnus_{name}")

    def text(self, name: str) -> str | None:
        value = self.value(name)
        text = str(value).strip() if value is not None else ""
        if not text and self._config.getoption(f"gnus_{name}") is not None:
            self._say_empty(name)
        return text or None

    def _say_empty(self, name: str) -> None:
        """An option without a value, as an unset variable of a CI leaves it, is not as good as no option."""
        problem = Problem(self._where(name), "", "nothing", "a value; or leave the option out")
        if problem not in self.problems:
            self.problems.append(problem)

    def history(self) -> str | None:
        """The URL of the history: a folder without `://` is one of this machine."""
        text = self.text("history")
        if text is None:
            return None
        from pytest_gnus.errors import RecordError
        from pytest_gnus.records.remote import RemoteHistory, history_url

        url = history_url(text, self.base("history"))
        try:
            RemoteHistory.open(url)
        except RecordError as error:
            allowed = "a folder, or a URL that fsspec knows: file, s3, gs, hf, memory, ..."
            self.problems.append(Problem(self._where("history"), "", str(error), allowed))
            return None
        return url

    def directory(self, name: str, text: str) -> Path:
        """A directory as typed: relative to where pytest was started, or to the ini file for the setting."""
        return self.base(name) / Path(text).expanduser()

    def base(self, name: str) -> Path:
        given = self._config.getoption(f"gnus_{name}") is not None
        return self._config.invocation_params.dir if given else self._config.rootpath

    def _where(self, name: str) -> str:
        if self._config.getoption(f"gnus_{name}") is not None:
            return "--niche" if name == "niche" else f"--gnus-{name.replace('_', '-')}"
        return f"ini setting gnus_{name}"

    def niches(self, known: Sequence[str]) -> tuple[str, ...]:
        asked = list(dict.fromkeys(self.value("niche")))
        if "all" in asked:
            return tuple(known)
        for name in asked:
            if name not in known:
                hint = did_you_mean(name, known)
                self.problems.append(
                    Problem(self._where("niche"), "", repr(name), listed([*known, "all"]), hint)
                )
        return tuple(asked)

    def choice(self, name: str, choices: Sequence[str]) -> str | None:
        value = self.text(name)
        if value is None or value in choices:
            return value
        self.problems.append(
            Problem(self._where(name), "", repr(value), listed(choices), did_you_mean(value, choices))
        )
        return None

    def source(self) -> str | None:
        if self.text("source") == "api":
            self.problems.append(Problem(self._where("source"), "", "'api'", listed(SOURCES), API_SOURCE))
            return None
        return self.choice("source", SOURCES)

    def model(self) -> str | None:
        given = self._config.getoption("gnus_model")
        text = given[0].strip() if given else self.text("model")
        if given and not text:
            self._say_empty("model")
        if not text:
            return None
        from pytest_gnus.models.spec import parse_problem

        problem = parse_problem(text, self._where("model"), providers=self._providers)
        if problem is not None:
            self.problems.append(problem)
            return None
        return text

    def count(self, name: str) -> int | None:
        value = self.value(name)
        if self._config.getoption(f"gnus_{name}") is None and not value:
            return None
        try:
            number = int(value)
        except ValueError:
            number = 0
        if 1 <= number <= _MOST:
            return number
        allowed = "a whole number from 1 up" if number < 1 else f"a whole number from 1 to {_MOST}"
        self.problems.append(Problem(self._where(name), "", repr(value), allowed))
        return None
