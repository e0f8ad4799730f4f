"""`gnus quantize`: makes an SGFP4 package and says what was lost, or describes what is there."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path

from tabulate import tabulate

from pytest_gnus.models.sgfp4_package import UNQUANTIZED, QuantizeReport, is_package, quantize
from pytest_gnus.sgfp4 import ContainerInfo, EncodeOptions, describe
from pytest_gnus.sgfp4.errors import SGFP4Error
from pytest_gnus.sgfp4.manifest import MANIFEST_NAME, Manifest, read_manifest


def run(options: argparse.Namespace) -> str:
    """Make the package that the command line asks for; the table of what was lost.

    Raises:
        GnusError: see `quantize`.
    """
    from tqdm import tqdm

    settings = EncodeOptions(
        policy=options.policy,
        target_bpw=options.target_bpw,
        version=options.container_version,
        layout=options.layout,
        minimum_block=options.minimum_block,
        allow_ternary=not options.no_ternary,
        ternary_preference=options.ternary_preference,
        thresholds=tuple(options.threshold),
    )
    with tqdm(unit="weight", unit_scale=True, desc=options.output.name, leave=False, disable=None) as bar:
        report = quantize(
            options.model,
            options.output,
            settings,
            keep=tuple(options.keep) if options.keep else UNQUANTIZED,
            niche=options.niche,
            begin=lambda weights: bar.reset(total=weights),
            advance=bar.update,
        )
    lines = [_lost(report), f"{len(report.kept)} tensors stay unquantized"]
    over = [tensor.name for tensor in report.tensors if not tensor.report.within_target]
    if over:
        lines.append(
            f"{len(over)} tensors are above --target-bpw {options.target_bpw}: no shorter container "
            f"is possible with these options ({', '.join(over[:3])}{', …' if len(over) > 3 else ''})"
        )
    return "\n".join([*lines, str(options.output)])


_HEADERS = ("tensor", "shape", "layouts", "ternary", "mse", "relative", "bits/weight")


def _lost(report: QuantizeReport) -> str:
    rows = [
        [
            tensor.name,
            "x".join(map(str, tensor.shape)),
            _layouts([tensor.report.container]),
            f"{tensor.report.ternary_share:.1%}",
            f"{tensor.report.mse:.3e}",
            f"{tensor.report.relative_mse:.4f}",
            f"{tensor.report.bits_per_weight:.3f}",
        ]
        for tensor in report.tensors
    ]
    stats = report.stats()
    relative = stats["relative_mse"]
    rows.append(
        [
            "total",
            f"{report.weights:,}",
            _layouts(tensor.report.container for tensor in report.tensors),
            f"{stats['t158_ratio']:.1%}",
            f"{stats['mse']:.3e}",
            "-" if relative is None else f"{relative:.4f}",
            f"{stats['effective_bpw']:.3f}",
        ]
    )
    return tabulate(rows, headers=_HEADERS, disable_numparse=True, colalign=("left",) + ("right",) * 6)


def _layouts(infos: Iterable[ContainerInfo]) -> str:
    """Shares of macroblocks by layout, the largest first: `mixed 61%, 64 39%`."""
    counts: dict[str, int] = {}
    for info in infos:
        for name, count in info.layout_counts.items():
            counts[name] = counts.get(name, 0) + count
    total = sum(counts.values())
    ordered = sorted(counts.items(), key=lambda entry: -entry[1])
    return ", ".join(f"{name} {count / total:.0%}" for name, count in ordered)


def inspect(path: Path) -> str:
    """What a package, a manifest or a container holds, as a table.

    Raises:
        SGFP4Error: it cannot be read, or breaks a rule of the format.
    """
    if path.is_dir():
        if not is_package(path):
            raise SGFP4Error(f"the directory has no {MANIFEST_NAME}", source=str(path))
        return _manifest(read_manifest(path / MANIFEST_NAME))
    if path.suffix == ".json":
        return _manifest(read_manifest(path))
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SGFP4Error(f"cannot be read: {error.strerror}", source=str(path)) from error
    return _table({path.name: describe(data, source=str(path))})


def _manifest(manifest: Manifest) -> str:
    infos = {
        entry.name: describe(entry.read(), entry.shape, source=str(entry.path), tensor=entry.name)
        for entry in manifest.tensors
    }
    encoder = manifest.content.get("encoder")
    made = encoder if isinstance(encoder, Mapping) else {}
    lines = [
        f"base model   {manifest.content.get('base_model')}",
        f"niche        {manifest.content.get('niche')}",
        f"made by      {made.get('name', 'unknown')} {made.get('version', '')}".rstrip(),
        f"sha256       {manifest.sha256}",
        "",
        _table(infos),
    ]
    return "\n".join(lines)


def _table(infos: Mapping[str, ContainerInfo]) -> str:
    rows = [
        [
            name,
            "x".join(map(str, info.shape)) if info.shape else f"{info.macroblocks} macroblocks",
            f"v{info.version}",
            _layouts([info]),
            f"{info.ternary_share:.1%}",
            f"{info.bits_per_weight:.3f}",
        ]
        for name, info in infos.items()
    ]
    headers = ("tensor", "shape", "version", "layouts", "ternary", "bits/weight")
    return tabulate(rows, headers=headers, disable_numparse=True, colalign=("left",) + ("right",) * 5)
