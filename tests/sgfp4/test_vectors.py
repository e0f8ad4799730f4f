"""The conformance vectors of the format, where they are beside the repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_gnus.sgfp4 import SGFP4Error, decode, describe
from tests.sgfp4.slow_format import decode_slowly

FOLDER = Path(__file__).parents[2].parent / "shared" / "sgfp4"
INDEX = FOLDER / "index.json"
ENTRIES: list[dict[str, Any]] = json.loads(INDEX.read_text(encoding="utf-8")) if INDEX.is_file() else []

pytestmark = pytest.mark.skipif(not ENTRIES, reason="no conformance vectors in ../shared/sgfp4")

VALID = [entry for entry in ENTRIES if "expected" in entry]
BROKEN = [entry for entry in ENTRIES if "error" in entry]


@pytest.mark.parametrize("entry", VALID, ids=lambda entry: entry["name"])
def test_a_container_decodes_bit_for_bit(entry: dict[str, Any]) -> None:
    data, expected = (FOLDER / entry["file"]).read_bytes(), np.load(FOLDER / entry["expected"])
    weights = decode(data, tuple(entry["shape"]))
    assert (weights.dtype, weights.shape) == (expected.dtype, expected.shape)
    assert weights.tobytes() == expected.tobytes()
    assert decode_slowly(data, tuple(entry["shape"])).tobytes() == expected.tobytes()


@pytest.mark.parametrize("entry", BROKEN, ids=lambda entry: entry["name"])
def test_a_broken_container_is_refused_for_its_fault(entry: dict[str, Any]) -> None:
    data, shape = (FOLDER / entry["file"]).read_bytes(), tuple(entry["shape"])
    with pytest.raises(SGFP4Error) as caught:
        decode(data, shape, source=entry["file"])
    for word in entry["error"].removesuffix(" or range").split():
        assert word in caught.value.rule
    with pytest.raises(SGFP4Error):
        describe(data, shape)
