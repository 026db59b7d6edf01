"""KServe's V1 protocol: predictions as lists of probabilities, and the readiness of a model."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.routing import APIRoute
from starlette.routing import Match

from bundle import Columns, Scores
from service.errors import InputError, InputValueError, MalformedBodyError
from service.inference.encoded import absent_in
from service.inference.names import check_name
from service.places import Place, in_body, in_query
from service.rest.bodies import Scope
from service.rest.dependencies import ModelDep, RuntimeDep, model_in_path
from service.rest.exchange import query_values
from service.rest.payloads import NAMES, Payload, load_json, of_document
from service.serving.plane import Answer, Served

_FIELDS: Final = ("instances", "inputs")
_QUERY: Final = ("policy", "segment")
_ANY: Final = {"type": "array", "items": {}, "minItems": 1}
_NAMES: Final = {"type": "array", "items": {"type": ["string", "null"]}, "description": "One per instance."}

SCHEMAS: Final[dict[str, Any]] = {
    "InstancesRequest": {
        "type": "object",
        "description": "Instances of KServe's V1 protocol: what `inputs` of a prediction are.",
        "properties": {
            "instances": _ANY | {"description": 'Inputs; an image is base64 or {"b64": base64}.'},
            "inputs": _ANY | {"description": "Another name of `instances`."},
            **dict.fromkeys(NAMES, _NAMES),
        },
    },
    "InstancePredictions": {
        "type": "object",
        "description": "One prediction per instance, in order.",
        "required": ["predictions", "labels", "prediction_ids", "decisions"],
        "properties": {
            "predictions": {
                "type": "array",
                "items": {"type": "array", "items": {"type": "number"}},
                "description": "Calibrated probabilities of each instance, in the order of `labels`.",
            },
            "labels": {"type": "array", "items": {"type": "string"}, "description": "Names of the classes."},
            "prediction_ids": {"type": "array", "items": {"type": "string"}, "description": "Ids for feedback."},
            "decisions": {
                "type": "array",
                "items": {"type": ["string", "null"]},
                "description": "Action of the policy for each instance; null without a policy.",
            },
        },
    },
    "ModelReadiness": {
        "type": "object",
        "description": "Whether a model is ready.",
        "required": ["name", "ready"],
        "properties": {"name": {"type": "string"}, "ready": {"type": "boolean"}},
    },
}
"""Schemas by name, for the components of the document."""


class _Named(APIRoute):
    """A route whose model has no colon in its name: `…:predict` is another path."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return (Match.NONE, {}) if ":" in scope["path"] else super().matches(scope)


async def predict_instances(
    request: Request,
    runtime: RuntimeDep,
    model: ModelDep,
    policy: Annotated[str | None, Query(description="Policy to decide with.")] = None,
    segment: Annotated[str | None, Query(description="Segment of all instances.")] = None,
) -> Response:
    """Predict in KServe's V1 protocol: a list of calibrated probabilities per instance.

    Inputs, names of the rows and limits are those of …/predict with JSON.
    """
    query_values(request.scope["query_string"], _QUERY)
    if segment is not None:
        check_name(segment, "A segment has", in_query("segment"))
    served = model.served
    model.plane.check_room(served)
    body, began = await request.body(), time.perf_counter()
    settings, decoders = runtime.settings, request.app.state.decoders
    read = partial(_read, body, served, settings.max_rows_per_request, settings.max_pixels)
    with _as_instances():
        payload, inputs = await decoders.run(read, len(body))
        if segment is not None and payload.segments is not None:
            raise InputValueError(
                "The segment is given twice.", where=in_body("segments"), found="?segment=", expected="one"
            )
        decoded = time.perf_counter()
        answer = await model.plane.predict(
            served,
            inputs,
            deadline_s=settings.deadline_s - (decoded - began),
            policy=policy,
            references=payload.references,
            groups=payload.groups,
            segments=segment if payload.segments is None else payload.segments,
        )
    answered = time.perf_counter()
    runtime.metrics.predicted(answer, answered - decoded)
    if isinstance(served.encoder, Columns):
        absent = absent_in(inputs, served.encoder) if payload.absent is None else payload.absent
        runtime.metrics.absent(model.name, absent)
    content = await decoders.finish(partial(_written, answer), answer.logits.nbytes)
    encoded = time.perf_counter()
    model.plane.stages.decode.add(decoded - began)
    model.plane.stages.encode.add(encoded - answered)
    request.scope["answer"] = answer
    request.scope["times"] = (began, decoded, answered, encoded)
    headers = {"x-candor-revision": served.revision.id}
    return Response(content, headers=headers, media_type="application/json")


async def model_readiness(model: ModelDep) -> dict[str, Any]:
    """Report whether a model is ready, in KServe's V1 protocol; 503 if it is not."""
    _ = model.served  # raises if none is active
    if model.remote is not None:
        model.remote.check_ready()
    return {"name": model.name, "ready": True}


def add_to(router: APIRouter) -> None:
    """Mount the endpoints."""

    def answering(name: str) -> dict[int | str, dict[str, Any]]:
        return {200: {"content": {"application/json": {"schema": _ref(name)}}}}

    content = {"application/json": {"schema": _ref("InstancesRequest")}}
    named = [Depends(model_in_path)]
    router.add_api_route(
        "/v1/models/{model}:predict",
        predict_instances,
        methods=["POST"],
        tags=["predict"],
        dependencies=named,
        responses=answering("InstancePredictions"),
        openapi_extra={"requestBody": {"required": True, "content": content}},
    )
    router.add_api_route(
        "/v1/models/{model}",
        model_readiness,
        methods=["GET"],
        tags=["models"],
        dependencies=named,
        responses=answering("ModelReadiness"),
        route_class_override=_Named,
    )


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _read(body: bytes, served: Served, max_rows: int, max_pixels: int) -> tuple[Payload, Any]:
    """Return the content of a body, and its inputs as an array."""
    document = load_json(body)
    given = [name for name in _FIELDS if name in document]
    if len(given) != 1:
        raise MalformedBodyError(
            "The body requires `instances`.", where=in_body("instances"), found=sorted(document), expected=["instances"]
        )
    rows = document.pop(given[0])
    if served.input.kind == "image" and isinstance(rows, list):
        rows = [row["b64"] if isinstance(row, dict) and row.keys() == {"b64"} else row for row in rows]
    field = served.encoder.field if isinstance(served.encoder, Scores) else "inputs"
    payload = of_document({field: rows, **document}, served.input, served.encoder, max_rows)
    return payload, payload.array(served.input, max_pixels=max_pixels)


@contextmanager
def _as_instances() -> Iterator[None]:
    """Name the places of errors as the request has them."""
    try:
        yield
    except InputError as error:
        if isinstance(error.place, Place) and error.place.kind == "body" and error.place.parts[:1] == ("inputs",):
            error.place = in_body("instances", *error.place.parts[1:])
        raise


def _written(answer: Answer) -> bytes:
    document = {
        "predictions": answer.probabilities,
        "labels": answer.served.labels,
        "prediction_ids": answer.ids,
        "decisions": answer.actions,
    }
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
