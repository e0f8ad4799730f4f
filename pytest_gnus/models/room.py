"""How much memory a model takes, before it is loaded."""

from __future__ import annotations

import json
from pathlib import Path

from pytest_gnus.models.registry import local_directory
from pytest_gnus.models.spec import SGFP4_MANIFEST, ModelSpec

#: How many times larger than its files a model may be in memory: 16 bits become 32 on a CPU, 4 bits too.
_GROWTH = 2
_GROWTH_QUANTIZED = 8


def size_in_memory(spec: ModelSpec) -> int | None:
    """Bytes that a model takes at most once it is loaded; None where its files are not here."""
    directory = local_directory(spec)
    if directory is None:
        return 0 if spec.provider == "demo" else None
    adapter = Path(spec.adapter) if spec.adapter else None
    files = [
        path for folder in (directory, adapter) if folder for path in folder.rglob("*") if path.is_file()
    ]
    stored = sum(path.stat().st_size for path in files)
    return stored * (_GROWTH_QUANTIZED if _is_quantized(directory) else _GROWTH)


def _is_quantized(directory: Path) -> bool:
    if (directory / SGFP4_MANIFEST).is_file():
        return True
    try:
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return True  # the model will not load; until then it is not taken for small
    return isinstance(config, dict) and bool(config.get("quantization") or config.get("quantization_config"))
