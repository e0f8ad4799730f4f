"""Builds the D-02 record of an item from what happened to it."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_gnus.compatibility import untested
from pytest_gnus.errors import ModelError
from pytest_gnus.gates.result import GateResult
from pytest_gnus.gates.verdict import Status
from pytest_gnus.measurement import Measurement
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.models.registry import SENTINELS, local_directory
from pytest_gnus.models.spec import ModelSpec
from pytest_gnus.plan import FEWSHOT_SEED, BenchmarkItem, Weights
from pytest_gnus.records.fingerprint import (
    Fingerprint,
    canonical_sha256,
    directory_sha256,
    file_sha256,
    fingerprint,
)
from pytest_gnus.records.schema import SCHEMA_VERSION
from pytest_gnus.sgfp4.manifest import MANIFEST_NAME, Manifest, read_manifest
from pytest_gnus.versions import package_versions


class Manifests:
    """Digests of models, each computed once."""

    def __init__(self) -> None:
        self._digests: dict[ModelSpec, str] = {}

    def of(self, item: BenchmarkItem, model: LoadedModel) -> tuple[str | None, str | None]:
        """`model_manifest_sha256` and `sgfp4_manifest_sha256` of an item.

        Raises:
            ModelError: a manifest file that the niche names is not there.
        """
        if item.model_manifest is not None:
            digest: str | None = _file_digest(item, "model_manifest")
        elif is_sgfp4(model) and (manifest := _manifest(model)) is not None:
            digest = _source_digest(model, manifest)
        elif model.directories:
            digest = self._of_directories(model.spec, model.directories)
        else:
            digest = canonical_sha256(model.identity) if model.identity else None
        if item.sgfp4_manifest is not None:
            return digest, _file_digest(item, "sgfp4_manifest")
        if not is_sgfp4(model) or (manifest := _manifest(model)) is None:
            return digest, None
        return digest, manifest.sha256

    def of_weights(self, weights: Weights) -> str | None:
        """`model_manifest_sha256` of a model that is not in memory; None where only loading it would tell."""
        spec = weights.model
        directory = local_directory(spec) if spec.provider in ("mlx", "demo") else None
        adapter = Path(spec.adapter) if spec.adapter else None
        try:
            if weights.manifest is not None:
                return file_sha256(weights.manifest)
            if directory is None or (directory / MANIFEST_NAME).is_file():
                return None
            directories = {"model": directory} | ({"adapter": adapter} if adapter else {})
            return self._of_directories(spec, directories)
        except OSError:
            return None

    def of_files(self, spec: ModelSpec) -> str | None:
        """The digest of a model's files on this machine, its adapter's included; None where there are none.

        Raises:
            OSError: a file cannot be read.
        """
        if spec.provider == "demo" and spec.name in SENTINELS:
            return canonical_sha256(str(spec))
        directory = local_directory(spec)
        if directory is None:
            return None
        adapter = {"adapter": Path(spec.adapter)} if spec.adapter else {}
        return self._of_directories(spec, {"model": directory, **adapter})

    def _of_directories(self, spec: ModelSpec, directories: Mapping[str, Path]) -> str:
        if spec not in self._digests:
            self._digests[spec] = directory_sha256(directories)
        return self._digests[spec]


def _manifest(model: LoadedModel) -> Manifest | None:
    path = model.directories["model"] / MANIFEST_NAME
    return read_manifest(path) if path.is_file() else None


def _source_digest(model: LoadedModel, manifest: Manifest) -> str | None:
    """The digest of the model that a package was made from, with that of the adapter over it."""
    source = manifest.content.get("base_model_sha256")
    adapter = model.directories.get("adapter")
    if not isinstance(source, str):
        return None
    return canonical_sha256([source, directory_sha256({"adapter": adapter})]) if adapter else source


def _file_digest(item: BenchmarkItem, key: str) -> str:
    path = getattr(item, key)
    if not path.is_file():
        raise ModelError(f"config/specialists/{item.niche}.yaml: model.{key}: there is no file {path}")
    return file_sha256(path)


def item_fingerprint(
    item: BenchmarkItem, measurement: Measurement, model: LoadedModel, manifests: Manifests
) -> Fingerprint:
    """The 11 fields of a measured item."""
    model_digest, sgfp4_digest = manifests.of(item, model)
    fields = asdict(measurement.protocol) | {
        "model_manifest_sha256": model_digest,
        "sgfp4_manifest_sha256": sgfp4_digest,
    }
    return fingerprint(fields, is_sgfp4=is_sgfp4(model))


def is_sgfp4(model: LoadedModel | None) -> bool:
    """Whether a model's weights are in SGFP4."""
    return bool(model and model.quantization and model.quantization.get("format") == "sgfp4")


def empty_fingerprint(item: BenchmarkItem) -> Fingerprint:
    """What is known of an item that was not measured; all else is null, so it is not valid."""
    task = item.request.task
    fields = dict.fromkeys(
        (
            "harness_commit",
            "task_revision",
            "dataset_revision",
            "prompt_hash",
            "chat_template_hash",
            "answer_extraction",
            "generation_params",
            "model_manifest_sha256",
            "sgfp4_manifest_sha256",
        )
    )
    name = task if isinstance(task, str) else str(task.get("task", item.benchmark.name))
    return fingerprint(fields | {"task_name": name or None, "fewshot_seed": FEWSHOT_SEED}, is_sgfp4=False)


def build_record(
    item: BenchmarkItem,
    run_id: str,
    status: Status,
    *,
    reason: str | None = None,
    model: LoadedModel | None = None,
    measurement: Measurement | None = None,
    identity: Fingerprint | None = None,
    gates: Sequence[GateResult] = (),
    build_and_settings: str | None = None,
) -> dict[str, Any]:
    """The record as plain JSON, but for its digest, which the store adds.

    Without a measurement there is no score, whatever the status says. `build_and_settings` is the digest of
    what was measured, and how; see `pytest_gnus.release.evidence`.
    """
    known = identity or empty_fingerprint(item)
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": run_id,
        "niche": item.niche,
        "benchmark": item.benchmark.name,
        "variant": item.variant,
        "timestamp_utc": datetime.now(UTC).isoformat(timespec="microseconds"),
        "mode": item.request.mode,
        "source": item.request.source,
        "quantized": item.variant == "quantized",
        "status": status,
        "blocking": item.blocking,
        "limit": item.run_limit,
        "reruns": 0,
        "reason": reason,
        "model_version": item.model_version or (model.version if model else None),
        "model": {
            "provider": item.model.provider,
            "path": item.model.name,
            "adapter": item.model.adapter,
            "dtype": model.dtype if model else None,
            "embedded_demonstration": bool(model and model.demonstration),
            "tokenizer": dict(model.tokenizer) if model and model.tokenizer else None,
        },
        "quantization_config": dict(model.quantization) if model and model.quantization else None,
        "fingerprint": dict(known.fields),
        "fingerprint_hash": known.digest,
        "fingerprint_valid": known.valid,
        "fingerprint_missing": list(known.missing),
        "build_and_settings_sha256": build_and_settings,
        "results": {item.benchmark.name: _results(item, measurement)},
        "gates": [gate.to_record() for gate in gates],
        "timing": timing(model, measurement),
        "counts": asdict(measurement.counts) if measurement else None,
        "flags": list(measurement.flags) if measurement else [],
        "notes": [*measurement.adjustments, *measurement.notes] if measurement else [],
        "environment": environment(model),
        "samples": None,
        "samples_sha256": None,
    }


def _results(item: BenchmarkItem, measurement: Measurement | None) -> dict[str, Any]:
    if measurement is None:
        return {
            "score": None,
            "metric": item.benchmark.metric,
            "stderr": None,
            "ci95": None,
            "n": None,
            "higher_is_better": item.benchmark.higher_is_better,
            "num_fewshot": None,
            "subtasks": None,
            "chance": None,
            "per_category": {},
            "metrics": {},
        }
    return {
        "score": measurement.score,
        "metric": measurement.metric,
        "stderr": measurement.stderr,
        "ci95": list(measurement.ci95) if measurement.ci95 else None,
        "n": measurement.n,
        "higher_is_better": measurement.higher_is_better,
        "num_fewshot": measurement.num_fewshot,
        "subtasks": list(measurement.subtasks) if measurement.subtasks is not None else None,
        "chance": asdict(measurement.chance) if measurement.chance else None,
        "per_category": dict(measurement.per_category),
        "metrics": dict(measurement.metrics),
    }


def timing(model: LoadedModel | None, measurement: Measurement | None) -> dict[str, Any]:
    return {
        "load_s": round(model.load_seconds, 3) if model else None,
        "wait_s": round(model.wait_seconds, 3) if model else None,
        "evaluate_s": round(measurement.evaluate_seconds, 3) if measurement else None,
        "prompt_tokens": measurement.prompt_tokens if measurement else None,
        "generated_tokens": measurement.generated_tokens if measurement else None,
        "tokens_reused": measurement.tokens_reused if measurement else None,
    }


def environment(model: LoadedModel | None) -> dict[str, Any]:
    """Where it ran. Nothing of the process's environment variables, users or host names."""
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()}-{platform.machine()}",
        "device": model.device if model else None,
        "blas": model.blas if model else None,
        "packages": dict(package_versions()),
        "untested": list(untested()),
    }


def sample_records(measurement: Measurement) -> list[Mapping[str, Any]]:
    """The per-document outcomes, a plain mapping each, for the sidecar file."""
    return [outcome.to_record() for outcome in measurement.outcomes]
