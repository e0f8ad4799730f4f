"""Which synthetic patents train the demonstration model, and which ones test it.

Pure Python, like `pytest_gnus.demo.texts`: the shipped benchmark files can be written again, byte for byte,
without MLX.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from random import Random

from pytest_gnus.demo.texts import SECTIONS, Patent, write_patents

TRAINING_COUNT = 6_000
"""Patents written for training; a few are dropped where they meet a test document."""

SUMMARIZATION_COUNT = 48
CLASSIFICATION_COUNT_PER_SECTION = 20

# One stream of patents per use: seeds 3n, 3n + 1, 3n + 2 never meet, whatever the two values of n.
_TRAINING, _SUMMARIZATION, _CLASSIFICATION = range(3)


def training_patents(seed: int) -> list[Patent]:
    """The training patents, none of which shares an abstract or a description with a test document."""
    tests = summarization_patents(seed) + classification_patents(seed)
    abstracts = {patent.abstract for patent in tests}
    descriptions = {patent.description for patent in tests}
    return [
        patent
        for patent in write_patents(TRAINING_COUNT, _stream(seed, _TRAINING))
        if patent.abstract not in abstracts and patent.description not in descriptions
    ]


def summarization_patents(seed: int) -> list[Patent]:
    """The documents of ``bigpatent``."""
    return _unique(write_patents(2 * SUMMARIZATION_COUNT, _stream(seed, _SUMMARIZATION)))[
        :SUMMARIZATION_COUNT
    ]


def classification_patents(seed: int) -> list[Patent]:
    """The documents of ``uspto_classification``: equally many of every section, shuffled."""
    # Ten times as many as needed: the sections are drawn uniformly, so every section gets its share.
    pool = _unique(
        write_patents(
            10 * CLASSIFICATION_COUNT_PER_SECTION * len(SECTIONS),
            _stream(seed, _CLASSIFICATION),
        )
    )
    chosen = [
        patent
        for section in SECTIONS
        for patent in [one for one in pool if one.section == section][:CLASSIFICATION_COUNT_PER_SECTION]
    ]
    Random(seed).shuffle(chosen)
    return chosen


def benchmark_files(seed: int) -> dict[str, str]:
    """Relative path to content of every file under ``data/benchmarks`` that this package writes."""
    return {
        "bigpatent/test.jsonl": _json_lines(
            {"description": patent.description, "abstract": patent.abstract}
            for patent in summarization_patents(seed)
        ),
        "bigpatent/README.md": _readme(
            "Summarization: synthetic patent descriptions (`description`) with their abstracts (`abstract`)."
        ),
        "uspto_classification/test.jsonl": _json_lines(
            {"text": patent.abstract, "label": SECTIONS.index(patent.section)}
            for patent in classification_patents(seed)
        ),
        "uspto_classification/README.md": _readme(
            "Classification: synthetic patent abstracts (`text`) with their CPC section"
            " (`label`, 0 to 7 for A to H), 20 per section."
        ),
    }


def _stream(seed: int, use: int) -> int:
    return 3 * seed + use


def _unique(patents: list[Patent]) -> list[Patent]:
    """The first patent of every abstract, in the given order."""
    return list({patent.abstract: patent for patent in reversed(patents)}.values())[::-1]


def _json_lines(rows: Iterable[Mapping[str, str | int]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _readme(subject: str) -> str:
    return (
        f"{subject}\n"
        "Written by this project (Apache-2.0); no text is taken from a patent, nor from the data set of this"
        " name.\n"
        "Regenerated, together with the demonstration model, by `python -m pytest_gnus.demo.train`.\n"
    )
