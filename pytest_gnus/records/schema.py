"""The JSON Schema of the D-02 record, which ships beside this module."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

from pytest_gnus.errors import RecordError

SCHEMA_VERSION = 1


def validate(record: Any) -> None:
    """Check a record against its schema.

    Raises:
        RecordError: naming each place and what is wrong there, or a schema version newer than this package.
    """
    if isinstance(record, Mapping):
        version = record.get("schema_version")
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise RecordError(
                f"written with schema version {version}, newer than {SCHEMA_VERSION}: upgrade pytest-gnus"
            )
    endless = [path for path, value in _numbers(record, "record") if not math.isfinite(value)]
    if endless:
        raise RecordError(f"not a valid record: {', '.join(endless)}: not a finite number")
    validator = _validator()
    if validator.is_valid(record):
        return
    faults = sorted(validator.iter_errors(record), key=lambda fault: list(map(str, fault.instance_path)))
    raise RecordError(
        "not a valid record: "
        + "; ".join(f"{'.'.join(map(str, f.instance_path)) or 'record'}: {f.message[:200]}" for f in faults)
    )


def _numbers(value: Any, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, float):
        yield path, value
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _numbers(entry, f"{path}.{key}")
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _numbers(entry, f"{path}[{index}]")


def load_schema() -> dict[str, Any]:
    """The schema itself, as JSON."""
    text = resources.files("pytest_gnus.records").joinpath("record.schema.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


@cache
def _validator() -> Any:
    # A run may look through hundreds of records: this validator takes microseconds for one.
    import jsonschema_rs

    return jsonschema_rs.Draft202012Validator(load_schema())
