"""Documents of /v2 about the server and its models: metadata, configuration, statistics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from bundle.open_inference import BYTES
from service.inference.statistics import Statistics, Tally
from service.open_inference.datatypes import BOOL
from service.open_inference.named import declared, own_name
from service.open_inference.request import CLASSIFIED, DECISION, OUTPUTS, SET
from service.open_inference.versions import loaded_versions, served_version, version_of
from service.serving.labels import MultiLabel
from service.serving.model import Model
from service.serving.plane import Served
from service.settings import Settings
from service.version import VERSION

EXTENSIONS: Final = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "parameters",
    "statistics",
)
_PLATFORM: Final = "onnxruntime_onnx"
_NOTHING: Final = {"count": 0, "ns": 0}

Counts = Mapping[tuple[str, str], Statistics]
"""Statistics by model and revision."""


def server() -> dict[str, Any]:
    """Return the metadata of the server."""
    return {"name": "candor", "version": VERSION, "extensions": list(EXTENSIONS)}


def of_model(model: Model, version: str | None) -> dict[str, Any]:
    """Return the metadata of a version, or of the active revision with all loaded versions.

    Raises:
        NotReadyError: No revision is active.
        UnknownRevisionError: The version is not loaded.
    """
    served = served_version(model, version)
    return {
        "name": model.name,
        "versions": sorted(loaded_versions(model), key=int) if version is None else [version_of(served)],
        "platform": _PLATFORM,
        # Without the names of rows: the protocol has no optional inputs, and clients send all listed ones.
        "inputs": [
            {"name": name, "datatype": datatype, "shape": [-1, *shape]}
            for name, datatype, shape in declared(served.input, served.encoder, own_name(served.bundle))
        ],
        "outputs": [
            {"name": name, "datatype": _datatype(name), "shape": [-1, *_dims(name, served)]}
            for name in _outputs(served)
        ],
    }


def of_labels(several: MultiLabel) -> dict[str, Any]:
    """Return the metadata of a multi-label model, whose outputs have a column per label.

    Raises:
        NotReadyError: A label has no active revision.
    """
    active = several.served
    return {
        "name": several.name,
        "versions": [active.revision.id.replace("r", "")],
        "platform": _PLATFORM,
        "inputs": [
            {"name": name, "datatype": datatype, "shape": [-1, *shape]}
            for name, datatype, shape in declared(active.input, active.encoder, own_name(active.bundle))
        ],
        "outputs": [{"name": name, "datatype": _datatype(name), "shape": [-1, len(active.labels)]} for name in OUTPUTS],
    }


def configuration(model: Model, version: str | None, settings: Settings) -> dict[str, Any]:
    """Return the configuration of a model as Triton's `ModelConfig`, with its labels.

    Raises:
        NotReadyError: No revision is active.
        UnknownRevisionError: The version is not loaded.
    """
    served = served_version(model, version)
    image = served.input.kind == "image"
    return {
        "name": model.name,
        "platform": _PLATFORM,
        "backend": "onnxruntime",
        "version_policy": {"specific": {"versions": sorted(map(int, loaded_versions(model)))}},
        "max_batch_size": settings.max_rows_per_request,
        "input": [
            {
                "name": name,
                "data_type": f"TYPE_{datatype}".replace("TYPE_BYTES", "TYPE_STRING"),
                "format": "FORMAT_NHWC" if image else "FORMAT_NONE",
                "dims": list(shape) or [1],
            }
            for name, datatype, shape in declared(served.input, served.encoder, own_name(served.bundle))
        ],
        "output": [
            {
                "name": name,
                "data_type": "TYPE_STRING" if name == DECISION else f"TYPE_{_datatype(name)}",
                "dims": _dims(name, served),
            }
            for name in _outputs(served)
        ],
        "instance_group": [
            {"name": model.name, "kind": "KIND_GPU" if served.session.provider == "cuda" else "KIND_CPU", "count": 1}
        ],
        "dynamic_batching": {"max_queue_delay_microseconds": round(settings.batch_delay_s * 1e6)},
        "parameters": {"labels": {"string_value": json.dumps(served.labels, ensure_ascii=False)}},
    }


def statistics(model: Model, version: str | None, counts: Counts) -> list[dict[str, Any]]:
    """Return the statistics of a model since the start, one entry per loaded version.

    Args:
        model: The model.
        version: The version; None for all that are loaded.
        counts: Statistics of the service by model and revision.

    Raises:
        NotReadyError: A version is named, but no revision is active.
        UnknownRevisionError: The version is not loaded.
    """
    if version is not None:
        chosen = [served_version(model, version)]
    else:
        loaded = loaded_versions(model)
        chosen = [loaded[key] for key in sorted(loaded, key=int)]
    return [_statistics_of(served, counts.get((model.name, served.revision.id), Statistics())) for served in chosen]


def _statistics_of(served: Served, counts: Statistics) -> dict[str, Any]:
    return {
        "name": served.revision.model,
        "version": version_of(served),
        "last_inference": counts.last_at_ms,
        "inference_count": counts.rows,
        "execution_count": counts.runs,
        "inference_stats": {
            "success": _duration(counts.success),
            "fail": _duration(counts.failure),
            "queue": _duration(counts.queue),
            "compute_input": {"count": counts.infer.count, "ns": 0},  # part of compute_infer
            "compute_infer": _duration(counts.infer),
            "compute_output": _duration(counts.finish),
            "cache_hit": _NOTHING,
            "cache_miss": _NOTHING,
        },
        "batch_stats": [
            {
                "batch_size": rows,
                "compute_input": {"count": tally.count, "ns": 0},
                "compute_infer": _duration(tally),
                "compute_output": {"count": tally.count, "ns": 0},
            }
            for rows, tally in sorted(counts.batches.items())
        ],
    }


def _duration(tally: Tally) -> dict[str, int]:
    return {"count": tally.count, "ns": tally.ns}


def _outputs(served: Served) -> tuple[str, ...]:
    makes_sets = any(policy.sets for policy in served.policies.values())
    return (*OUTPUTS, SET) if makes_sets else OUTPUTS


def _datatype(output: str) -> str:
    return {DECISION: BYTES, SET: BOOL}.get(output, "FP32")


def _dims(output: str, served: Served) -> list[int]:
    return [len(served.labels)] if output in (*CLASSIFIED, SET) else []
