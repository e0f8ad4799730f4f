"""`gnus doctor`: the machine, the packages and the workspace, and what should be done about them."""

from __future__ import annotations

import platform
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from pytest_gnus.compatibility import incompatible, untested
from pytest_gnus.errors import ConfigError
from pytest_gnus.versions import PACKAGES, package_versions

#: Side of the square matrices whose product is timed.
_SIZE = 1024


@dataclass(frozen=True)
class Report:
    """Lines of name and value, and what a person should do."""

    facts: tuple[tuple[str, str], ...]
    advice: tuple[str, ...]

    @property
    def is_well(self) -> bool:
        return not self.advice

    def text(self) -> str:
        width = max(len(name) for name, _ in self.facts)
        lines = [f"{name:{width}}  {value}" for name, value in self.facts]
        return "\n".join([*lines, *(f"! {advice}" for advice in self.advice)])


def examine(directory: Path | None = None) -> Report:
    """Look at this machine, and at the workspace that `directory` (by default the current one) is in."""
    machine, machine_advice = _machine()
    workspace, workspace_advice = _workspace(directory or Path.cwd())
    facts = [
        ("python", f"{platform.python_version()} at {sys.prefix}"),
        ("platform", f"{platform.system()} {platform.machine()}"),
        *((name, package_versions().get(name, "not installed")) for name in PACKAGES),
        *machine,
        *workspace,
    ]
    changed = map(str, incompatible())
    return Report(tuple(facts), (*machine_advice, *untested(), *changed, *workspace_advice))


def _machine() -> tuple[list[tuple[str, str]], list[str]]:
    from pytest_gnus.models.cpu import load_fast_blas, missing_blas

    blas = load_fast_blas()
    import mlx.core as mx

    from pytest_gnus.models.memory import free_memory

    on_cpu = mx.default_device() == mx.Device(mx.cpu)
    free = free_memory()
    facts = [
        ("device", "cpu" if on_cpu else "metal" if mx.metal.is_available() else "cuda"),
        ("dtype", "float32, quantized layers dequantized at load" if on_cpu else "as stored"),
        ("free memory", "not known" if free is None else f"{free / 1e9:.1f} GB"),
        ("matrix products", f"{_speed():.0f} GFLOP/s in float32"),
    ]
    missing = missing_blas() if on_cpu else None
    if on_cpu:
        facts.insert(1, ("blas", f"{blas.name} ({blas.path})" if blas.path else blas.name))
    return facts, [missing] if missing else []


def _speed() -> float:
    """GFLOP/s of MLX's float32 matrix products, the median of five."""
    import mlx.core as mx

    one, other = mx.random.normal((_SIZE, _SIZE)), mx.random.normal((_SIZE, _SIZE))
    mx.eval(one, other, one @ other)
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        mx.eval(one @ other)
        seconds.append(time.perf_counter() - started)
    return 2 * _SIZE**3 / statistics.median(seconds) / 1e9


def _workspace(directory: Path) -> tuple[list[tuple[str, str]], list[str]]:
    from pytest_gnus.workspace import find_root, load_workspace

    root = find_root(directory, directory)
    if root is None:
        return [("workspace", f"none: no folder config/specialists/ in {directory} or above")], []
    try:
        workspace = load_workspace(root)
    except ConfigError as error:
        return [("workspace", str(root))], [str(error)]
    return [
        ("workspace", str(root)),
        ("niches", ", ".join(sorted(workspace.niches)) or "none"),
        ("benchmarks", ", ".join(sorted(workspace.benchmarks)) or "none"),
        ("source", workspace.pipeline.source),
        *(("old names", text) for text in workspace.deprecations),
    ], []
