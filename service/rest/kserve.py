"""KServe's V1 protocol: predictions as lists of probabilities, and the readiness of a model."""

from __future__ import annotations

from typing import Any, Final

import orjson
from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute
from starlette.routing import Match

from bundle import Scores
from candor.contract.expressions import LARGEST_AMOUNT
from service.errors import InputError, MalformedBodyError
from service.inference.amounts import AMOUNTS
from service.inference.per_row import NAMES
from service.operations.predicting import Predicting, Prediction, most_at_once
from service.places import Place, in_body
from service.rest.bodies import Scope
from service.rest.dependencies import ModelDep, model_in_path
from service.rest.exchange import Written
from service.rest.payloads import Payload, check_fields, load_rows, of_document, some_of
from service.rest.predict import JSON_HEADERS, Predicted
from service.rest.predict_openapi import MODEL

_FIELDS: Final = ("instances", "inputs")
_QUERY: Final = ("policy", "segment")
_SIGNATURE: Final = "serving_default"  # what clients of TensorFlow Serving name
_ANY: Final = {"type": "array", "items": {}, "minItems": 1}
_NAMES: Final = {"type": "array", "items": {"type": ["string", "null"]}, "description": "One per instance."}

SCHEMAS: Final[dict[str, Any]] = {
    "InstancesRequest": {
        "type": "object",
        "description": "Instances of KServe's V1 protocol: what `inputs` of a prediction are.",
        "properties": {
            "instances": _ANY | {"description": 'Inputs; an image is base64 or {"b64": base64}.'},
            "inputs": _ANY | {"description": "Another name of `instances`."},
            "signature_name": {"type": "string", "enum": [_SIGNATURE], "description": "The only one; no effect."},
            **dict.fromkeys(NAMES, _NAMES),
            AMOUNTS: {
                "type": ["array", "null"],
                "items": {"type": ["number", "null"], "minimum": 0, "maximum": LARGEST_AMOUNT},
                "description": "Amount at stake, one per instance.",
            },
        },
    },
}
"""Schemas by name, for the components of the document."""


class _Named(APIRoute):
    """A route whose model has no colon in its name: `…:predict` is another path."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return (Match.NONE, {}) if ":" in scope["path"] else super().matches(scope)


class PredictInstances(Predicting):
    """Answer prediction requests in KServe's V1 protocol: a list of calibrated probabilities per instance.

    Inputs, names of the rows and limits are those of …/predict with JSON.
    """

    def asked(self, scope: Scope, model_name: str | None) -> Prediction[Payload, Written]:
        """Return the prediction that a request asks for, before its body is read.

        Raises:
            CandorError: The request cannot be answered.
        """
        model = self.models.get(model_name)
        served = model.served
        model.plane.check_room(served)
        return _Prediction(self, model, served, scope, _QUERY)


class _Prediction(Predicted):
    """A request of …:predict."""

    def quick(self, body: bytes) -> bool:
        """Return whether the body is small."""
        return len(body) <= most_at_once(self.served.encoder)

    def _read(self, body: bytes) -> Payload:
        served, beyond, most = self.served, self.model.beyond, self._predicting.max_rows
        document = load_rows(body, served.input, most, beyond)
        if (signature := document.pop("signature_name", _SIGNATURE)) != _SIGNATURE:
            raise MalformedBodyError(
                "A model has one signature.",
                where=in_body("signature_name"),
                found=str(signature)[:100],
                expected=_SIGNATURE,
            )
        given = [name for name in _FIELDS if name in document]
        field = served.encoder.field if isinstance(served.encoder, Scores) else "inputs"
        if len(given) != 1 or field in document.keys() - {*given}:
            raise MalformedBodyError(
                "The body requires `instances`, and no other rows.",
                where=in_body("instances"),
                found=some_of(document),
                expected=["instances"],
            )
        check_fields(document, given[0])
        rows = document.pop(given[0])
        if served.input.kind == "image" and isinstance(rows, list):
            rows = [row["b64"] if isinstance(row, dict) and row.keys() == {"b64"} else row for row in rows]
        try:
            return of_document({field: rows, **document}, served.input, served.encoder, most, beyond)
        except InputError as error:
            self.place(error)
            raise

    def place(self, error: InputError) -> None:
        """Name `instances` instead of the field that a request of Candor's own has."""
        encoder = self.served.encoder
        field = encoder.field if isinstance(encoder, Scores) else "inputs"
        if isinstance(error.place, Place) and error.place.kind == "body" and error.place.parts[:1] == (field,):
            error.place = in_body("instances", *error.place.parts[1:])

    def write(self) -> Written:
        """Return the answer as JSON."""
        answer = self.answer
        document = {
            "predictions": answer.probabilities,
            "labels": answer.served.labels,
            "prediction_ids": answer.ids,
            "decisions": answer.actions,
        }
        return Written(orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY), JSON_HEADERS)


async def model_readiness(model: ModelDep) -> dict[str, Any]:
    """Report whether a model is ready, in KServe's V1 protocol; 503 if it is not."""
    _ = model.served  # raises if none is active
    if model.remote is not None:
        model.remote.check_ready()
    return {"name": model.name, "ready": True}


def add_to(router: APIRouter) -> None:
    """Mount the endpoint of readiness."""
    router.add_api_route(
        "/v1/models/{model}",
        model_readiness,
        methods=["GET"],
        tags=["models"],
        dependencies=[Depends(model_in_path)],
        responses={200: {"content": _content("ModelReadiness")}},
        route_class_override=_Named,
    )


def path_item() -> dict[str, Any]:
    """Return the OpenAPI path item of …:predict, which FastAPI does not see."""
    return {
        "post": {
            "tags": ["predict"],
            "operationId": "predict_instances",
            "summary": "Predict Instances",
            "description": "Predict in KServe's V1 protocol: a list of calibrated probabilities per instance. Inputs, "
            "names of the rows and limits are those of …/predict with JSON.",
            "parameters": [
                MODEL,
                {
                    "name": "policy",
                    "in": "query",
                    "schema": {"type": "string"},
                    "description": "Policy to decide with.",
                },
                {
                    "name": "segment",
                    "in": "query",
                    "schema": {"type": "string"},
                    "description": "Segment of all instances.",
                },
            ],
            "requestBody": {"required": True, "content": _content("InstancesRequest")},
            "responses": {
                "200": {
                    "description": "One prediction per instance, in order.",
                    "content": _content("InstancePredictions"),
                }
            },
        }
    }


def _content(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
