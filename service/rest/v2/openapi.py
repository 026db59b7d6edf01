"""What /docs says of the protocol: the schema and an example of every request and answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bundle.open_inference import BYTES
from service.inference.per_row import NAMES
from service.open_inference.datatypes import BOOL, DATATYPES
from service.open_inference.metadata import EXTENSIONS
from service.open_inference.named import INPUT
from service.open_inference.request import CLASSIFIED, OUTPUTS, SET
from service.rest.openapi import Protocol

Schema = dict[str, Any]
Described = tuple[Schema, Any]
"""A schema, and an example of it."""

_TEXT: Final[Schema] = {"type": "string"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}


def _object(properties: Mapping[str, Schema], required: tuple[str, ...] = (), description: str = "") -> Schema:
    schema: Schema = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = list(required)
    if description:
        schema["description"] = description
    return schema


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _closed(properties: Mapping[str, Schema]) -> Schema:
    return {**_object(properties), "additionalProperties": False}


def _said(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


def _ref(name: str) -> Schema:
    """Return a reference to one of the document's schemas."""
    return {"$ref": f"#/components/schemas/{name}"}


ERROR: Final[Schema] = {
    "description": "Problem, place, what was found, what was expected, and remedy, in one text.",
    "content": {
        "application/json": {
            "schema": _ref("InferenceError"),
            "example": {
                "error": "The model takes examples of shape [8, 8, 1]. Where: row 0 of /inputs/0. "
                "Found: [28, 28]. Expected: [8, 8, 1]. Send one example of that shape, or a batch of them with one "
                "more axis in front."
            },
        }
    },
}
"""The answer to whatever cannot be done, for `components/responses`."""

_SHAPE: Final = _list(_COUNT)
_DATA: Final = _said(_list({}), "Values in row-major order, flat or nested like the shape.")
_BINARY_SIZE: Final = _said(_COUNT, "Size in bytes of the tensor after the JSON, in place of `data`.")

_IGNORED: Final = {
    "content_type": _said(_TEXT, "No effect; clients of MLServer send it."),
    "headers": {"type": "object", "description": "No effect; clients of MLServer send it."},
}
_NO_SEQUENCE: Final = "Must be {}: models keep no state between requests."

_REQUEST: Final = {
    "InferenceRequest": _object(
        {
            "id": _said(_TEXT, "Your name of the request, repeated in the answer."),
            "parameters": _ref("RequestParameters"),
            "inputs": _said(
                _list(_ref("InputTensor")),
                "The tensors that the metadata lists: one per column of a table, one per input of an imported graph, "
                f"scores under their name, else `{INPUT}` (for a table of numbers too, with codes for categories). And "
                f"{', '.join(f'`{name}`' for name in NAMES)} if you name rows: BYTES, one entry per row, empty for no "
                "name; `amounts` if you know what is at stake: numbers, one per row, NaN or null for unknown.",
            ),
            "outputs": _said(_list(_ref("RequestedOutput")), "What is wanted; all of them where this is missing."),
        },
        ("inputs",),
    ),
    "RequestParameters": _closed(
        {
            "binary_data_output": _said({"type": "boolean"}, "Whether outputs follow the JSON as binary data."),
            "policy": _said(_TEXT, "Policy to decide with; also accepted in the query."),
            "segment": _said(_TEXT, "Segment of all rows; also accepted in the query."),
            "references": _said(_TEXT, "As the tensor `references`: the text of a JSON array with a text per row."),
            "groups": _said(_TEXT, "As the tensor `groups`: the text of a JSON array with a text per row."),
            "timeout": _said(_COUNT, "Queueing deadline in microseconds; 0 uses the deadline of the service."),
            "priority": _said(_COUNT, "Must be 0: requests are answered in order of arrival."),
            "sequence_id": _said({"type": ["integer", "string"]}, _NO_SEQUENCE.format("0 or empty")),
            "sequence_start": _said({"type": "boolean"}, _NO_SEQUENCE.format("false")),
            "sequence_end": _said({"type": "boolean"}, _NO_SEQUENCE.format("false")),
            "triton_enable_empty_final_response": _said({"type": "boolean"}, "No effect."),
            **_IGNORED,
        }
    ),
    "InputTensor": _object(
        {
            "name": _TEXT,
            "shape": _SHAPE,
            "datatype": {"type": "string", "enum": [*DATATYPES, BOOL, BYTES]},
            "parameters": _ref("InputParameters"),
            "data": _DATA,
        },
        ("name", "shape", "datatype"),
    ),
    "InputParameters": _closed({"binary_data_size": _BINARY_SIZE, **_IGNORED}),
    "RequestedOutput": _object(
        {"name": {"type": "string", "enum": [*OUTPUTS, SET]}, "parameters": _ref("OutputParameters")}, ("name",)
    ),
    "OutputParameters": _closed(
        {
            "binary_data": _said({"type": "boolean"}, "Whether it follows the JSON as binary data."),
            "classification": _said(
                _COUNT,
                "Number of classes to return instead of the tensor, largest values first, each as value:index:label; "
                f"for {' and '.join(CLASSIFIED)}.",
            ),
            **_IGNORED,
        }
    ),
}

_REQUEST_EXAMPLE: Final = {
    "id": "42",
    "parameters": {"policy": "auto-read"},
    "inputs": [
        {"name": INPUT, "shape": [1, 2, 4, 1], "datatype": "UINT8", "data": [0, 0, 80, 208, 0, 176, 255, 64]},
        {"name": "references", "shape": [1], "datatype": BYTES, "data": ["scan-91"]},
    ],
    "outputs": [
        {"name": "probabilities", "parameters": {"classification": 2}},
        {"name": "confidence"},
        {"name": "decision"},
    ],
}

_ANSWER_EXAMPLE: Final = {
    "model_name": "digits",
    "model_version": "7",
    "id": "42",
    "parameters": {"prediction_ids": "01K0ZJ6Z3V8Q2W4X6Y8A0C2E4G", "policy": "auto-read@3"},
    "outputs": [
        {"name": "probabilities", "datatype": BYTES, "shape": [1, 2], "data": ["0.9312:7:7", "0.0411:9:9"]},
        {"name": "confidence", "datatype": "FP32", "shape": [1], "data": [0.9312]},
        {"name": "decision", "datatype": BYTES, "shape": [1], "data": ["accept"]},
    ],
}

_BINARY_REQUEST_EXAMPLE: Final = (
    '{"parameters": {"binary_data_output": true}, "inputs": [{"name": "input", "shape": [1, 2, 4, 1], '
    '"datatype": "UINT8", "parameters": {"binary_data_size": 8}}]}<8 bytes>'
)
_BINARY_ANSWER_EXAMPLE: Final = (
    '{"model_name": "digits", "model_version": "7", "parameters": {"prediction_ids": "01K0ZJ6Z3V8Q2W4X6Y8A0C2E4G"}, '
    '"outputs": [{"name": "confidence", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}}]}'
    "<4 bytes>"
)

_REPOSITORY: Final = {
    "IndexRequest": _object({"ready": _said({"type": "boolean"}, "Whether to list ready versions only.")}),
    "LoadRequest": _object(
        {"parameters": _object({}, description="A bundle is loaded as it is, without `config` or files.")}
    ),
    "UnloadRequest": _object(
        {"parameters": _object({"unload_dependents": _said({"type": "boolean"}, "Has no effect.")})}
    ),
}

_DESCRIPTIONS: Final = {
    "InferenceRequest": "Input tensors of N rows, and the outputs that are wanted.",
    "RequestParameters": "Parameters of a request. Others are refused.",
    "InputTensor": "An input tensor, with its values in `data` or behind the JSON.",
    "InputParameters": "Parameters of an input tensor. Others are refused.",
    "RequestedOutput": "An output that is wanted.",
    "OutputParameters": "Parameters of a requested output. Others are refused.",
    "IndexRequest": "Which models to list.",
    "LoadRequest": "How to load a model.",
    "UnloadRequest": "How to unload a model.",
}
SCHEMAS: Final = {name: _said(schema, _DESCRIPTIONS[name]) for name, schema in (_REQUEST | _REPOSITORY).items()}
"""Schemas of requests by name, for the components of the document; the contract has those of answers."""

ALIVE: Final[Described] = (_ref("ServerLive"), {"live": True})
READY: Final[Described] = (_ref("ServerReady"), {"ready": True})
MODEL_READY: Final[Described] = (
    _ref("ModelReady"),
    {"name": "digits", "version": "7", "ready": True},
)
SERVER: Final[Described] = (
    _ref("ServerMetadata"),
    {"name": "candor", "version": "0.1.0", "extensions": list(EXTENSIONS)},
)
MODEL: Final[Described] = (
    _ref("ModelMetadata"),
    {
        "name": "digits",
        "versions": ["6", "7"],
        "platform": "onnxruntime_onnx",
        "inputs": [{"name": INPUT, "datatype": "UINT8", "shape": [-1, 8, 8, 1]}],
        "outputs": [
            {"name": "logits", "datatype": "FP32", "shape": [-1, 10]},
            {"name": "probabilities", "datatype": "FP32", "shape": [-1, 10]},
            {"name": "confidence", "datatype": "FP32", "shape": [-1]},
            {"name": "decision", "datatype": BYTES, "shape": [-1]},
        ],
    },
)
CONFIGURATION: Final[Described] = (
    _ref("ModelConfiguration"),
    {
        "name": "digits",
        "platform": "onnxruntime_onnx",
        "backend": "onnxruntime",
        "version_policy": {"specific": {"versions": [6, 7]}},
        "max_batch_size": 1024,
        "input": [{"name": INPUT, "data_type": "TYPE_UINT8", "format": "FORMAT_NHWC", "dims": [8, 8, 1]}],
        "output": [
            {"name": "logits", "data_type": "TYPE_FP32", "dims": [10]},
            {"name": "probabilities", "data_type": "TYPE_FP32", "dims": [10]},
            {"name": "confidence", "data_type": "TYPE_FP32", "dims": []},
            {"name": "decision", "data_type": "TYPE_STRING", "dims": []},
        ],
        "instance_group": [{"name": "digits", "kind": "KIND_CPU", "count": 1}],
        "dynamic_batching": {"max_queue_delay_microseconds": 0},
        "parameters": {"labels": {"string_value": '["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]'}},
    },
)
STATISTICS: Final[Described] = (
    _ref("Statistics"),
    {
        "model_stats": [
            {
                "name": "digits",
                "version": "7",
                "last_inference": 1_793_188_800_000,
                "inference_count": 64,
                "execution_count": 3,
                "inference_stats": {
                    "success": {"count": 33, "ns": 21_450_000},
                    "fail": {"count": 1, "ns": 31_000},
                    "queue": {"count": 33, "ns": 6_600_000},
                    "compute_input": {"count": 33, "ns": 0},
                    "compute_infer": {"count": 33, "ns": 9_900_000},
                    "compute_output": {"count": 33, "ns": 4_950_000},
                    "cache_hit": {"count": 0, "ns": 0},
                    "cache_miss": {"count": 0, "ns": 0},
                },
                "batch_stats": [
                    {
                        "batch_size": 32,
                        "compute_input": {"count": 2, "ns": 0},
                        "compute_infer": {"count": 2, "ns": 580_000},
                        "compute_output": {"count": 2, "ns": 0},
                    }
                ],
            }
        ]
    },
)
INDEX: Final[Described] = (
    _list(_ref("RepositoryEntry")),
    [
        {"name": "digits", "version": "7", "state": "READY", "reason": ""},
        {"name": "letters", "version": "2", "state": "UNAVAILABLE", "reason": "unloaded"},
    ],
)
DONE: Final[Described] = (_ref("Done"), {})

INDEX_REQUEST: Final[Described] = (
    _ref("IndexRequest"),
    {"ready": True},
)
LOAD_REQUEST: Final[Described] = (
    _ref("LoadRequest"),
    {},
)
UNLOAD_REQUEST: Final[Described] = (
    _ref("UnloadRequest"),
    {"parameters": {"unload_dependents": False}},
)


def answering(described: Described, description: str) -> dict[int | str, dict[str, Any]]:
    """Return FastAPI's `responses` for an answer by its schema and example."""
    schema, example = described
    return {200: {"description": description, "content": {"application/json": {"schema": schema, "example": example}}}}


def reading(described: Described) -> dict[str, Any]:
    """Return FastAPI's `openapi_extra` for a body that may be left out, and that FastAPI does not read."""
    schema, example = described
    content = {"application/json": {"schema": schema, "example": example}}
    return {"requestBody": {"required": False, "content": content}}


def _inference(*, versioned: bool) -> dict[str, Any]:
    """Return the path item of inference, which FastAPI does not see.

    Args:
        versioned: Whether the path names the version.
    """
    binary = _said({"type": "string", "format": "binary"}, "JSON as in application/json, then the binary tensors.")
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _TEXT}
        for name in (("model", "version") if versioned else ("model",))
    ]
    parameters += [
        {"name": "policy", "in": "query", "required": False, "schema": _TEXT, "description": "Policy to decide with."},
        {
            "name": "Inference-Header-Content-Length",
            "in": "header",
            "required": False,
            "schema": _COUNT,
            "description": "Bytes of JSON at the start of the body if tensors follow; 0 for one tensor alone.",
        },
    ]
    return {
        "post": {
            "tags": ["v2"],
            "operationId": f"v2_infer{'_version' * versioned}",
            "summary": f"Infer{' with a version' * versioned}",
            "description": "Calibrated probabilities and decisions, in the Open Inference Protocol. The content type "
            "is ignored. Answers are compressed with gzip or deflate if the client accepts it.",
            "parameters": parameters,
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {"schema": _ref("InferenceRequest"), "example": _REQUEST_EXAMPLE},
                    "application/octet-stream": {"schema": binary, "example": _BINARY_REQUEST_EXAMPLE},
                },
            },
            "responses": {
                "200": {
                    "description": "The outputs, with one entry per row.",
                    "headers": {
                        "Inference-Header-Content-Length": {
                            "description": "Bytes of JSON at the start of the body if tensors follow.",
                            "schema": _COUNT,
                        }
                    },
                    "content": {
                        "application/json": {"schema": _ref("InferenceResponse"), "example": _ANSWER_EXAMPLE},
                        "application/octet-stream": {"schema": binary, "example": _BINARY_ANSWER_EXAMPLE},
                    },
                },
            },
        }
    }


DOCUMENTED: Final = Protocol(
    paths={
        "/v2/models/{model}/infer": _inference(versioned=False),
        "/v2/models/{model}/versions/{version}/infer": _inference(versioned=True),
    },
    schemas=SCHEMAS,
    error=ERROR,
)
"""What FastAPI does not see of the protocol, and its schemas."""
