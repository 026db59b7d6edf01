"""What the protocol says of the server and its models: metadata, configuration, statistics."""

from __future__ import annotations

import json
from typing import Any, Final

from service.inference.statistics import Statistics, Tally
from service.models import Model
from service.plane import Served
from service.rest.v2.datatypes import BYTES, OF_DTYPE
from service.rest.v2.request import CLASSIFIED, DECISION, INPUT, OUTPUTS
from service.rest.v2.versions import loaded_versions, served_version, version_of
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


def server() -> dict[str, Any]:
    """Return the server's metadata."""
    return {"name": "candor", "version": VERSION, "extensions": list(EXTENSIONS)}


def of_model(model: Model, version: str | None) -> dict[str, Any]:
    """Return a model's metadata; without a version that of the active revision, and all versions that answer.

    Raises:
        NotReadyError: Nothing is in service.
        UnknownRevisionError: No revision of that version is loaded.
    """
    served = served_version(model, version)
    return {
        "name": model.name,
        "versions": sorted(loaded_versions(model), key=int) if version is None else [version_of(served.revision)],
        "platform": _PLATFORM,
        # Not the names of rows: the protocol has no word for an optional input, and clients send all that is listed.
        "inputs": [{"name": INPUT, "datatype": OF_DTYPE[served.input.dtype], "shape": [-1, *served.input.shape]}],
        "outputs": [
            {"name": name, "datatype": _datatype(name), "shape": [-1, *_dims(name, served)]} for name in OUTPUTS
        ],
    }


def configuration(model: Model, version: str | None, settings: Settings) -> dict[str, Any]:
    """Return a model's configuration in the words of Triton's `ModelConfig`, with the names of its classes.

    Raises:
        NotReadyError: Nothing is in service.
        UnknownRevisionError: No revision of that version is loaded.
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
                "name": INPUT,
                "data_type": f"TYPE_{OF_DTYPE[served.input.dtype]}",
                "format": "FORMAT_NHWC" if image else "FORMAT_NONE",
                "dims": list(served.input.shape),
            }
        ],
        "output": [
            {
                "name": name,
                "data_type": "TYPE_STRING" if name == DECISION else f"TYPE_{_datatype(name)}",
                "dims": _dims(name, served),
            }
            for name in OUTPUTS
        ],
        "instance_group": [
            {"name": model.name, "kind": "KIND_GPU" if served.session.provider == "cuda" else "KIND_CPU", "count": 1}
        ],
        "dynamic_batching": {"max_queue_delay_microseconds": round(settings.batch_delay_s * 1e6)},
        "parameters": {"labels": {"string_value": json.dumps(served.labels, ensure_ascii=False)}},
    }


def statistics(model: Model, version: str | None) -> list[dict[str, Any]]:
    """Return what a model has done since the start, one entry for each version that answers.

    Raises:
        NotReadyError: A version is named, and nothing is in service.
        UnknownRevisionError: No revision of that version is loaded.
    """
    if version is not None:
        chosen = [served_version(model, version)]
    else:
        loaded = loaded_versions(model)
        chosen = [loaded[key] for key in sorted(loaded, key=int)]
    return [_statistics_of(model, served) for served in chosen]


def _statistics_of(model: Model, served: Served) -> dict[str, Any]:
    counts = model.plane.statistics.get(served.revision.id, Statistics())
    return {
        "name": model.name,
        "version": version_of(served.revision),
        "last_inference": counts.last_at_ms,
        "inference_count": counts.rows,
        "execution_count": counts.runs,
        "inference_stats": {
            "success": _duration(counts.success),
            "fail": _duration(counts.failure),
            "queue": _duration(counts.queue),
            "compute_input": {"count": counts.infer.count, "ns": 0},  # counted with what follows it
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


def _datatype(output: str) -> str:
    return BYTES if output == DECISION else "FP32"


def _dims(output: str, served: Served) -> list[int]:
    return [len(served.labels)] if output in CLASSIFIED else []
