"""A tiny patent specialist that ships with the package, so that the release gate runs without a download.

`pytest_gnus.demo.train` makes it; this module only says where it lies, and imports nothing heavy.
"""

from __future__ import annotations

from pathlib import Path

VARIANTS = ("quantized", "reference", "baseline")
"""The SGFP4 package, the float16 model it was quantized from, and the untrained backbone of both."""

MODELS_DIRECTORY = Path(__file__).resolve().parent / "models" / "patents"


def model_directory(variant: str) -> Path:
    """The directory of one variant, in the layout that ``mlx_lm.load`` opens.

    The baseline ships without weights: its ``initialization.json`` says how to draw them.
    """
    if variant not in VARIANTS:
        raise ValueError(f"unknown variant {variant!r}; valid ones are {', '.join(VARIANTS)}")
    return MODELS_DIRECTORY / variant
