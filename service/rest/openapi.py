"""The OpenAPI document: FastAPI's routes, the hot path, problem documents and the key scheme."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from candor.contract.problem import Problem
from service.rest import feedback, kserve, predict_openapi
from service.rest.compression import ENCODINGS
from service.rest.paths import OPEN, V2
from service.rest.schemas import ref, schemas

_CONTENT_ENCODING: Final = {
    "name": "Content-Encoding",
    "in": "header",
    "required": False,
    "description": "Compression of the body. The size limit applies to the unpacked body.",
    "schema": {"$ref": "#/components/schemas/ContentEncoding"},
}
_SCHEMAS: Final = {
    "ContentEncoding": {"type": "string", "enum": [*ENCODINGS, "identity"]},
    "PredictionForm": predict_openapi.FORM,
    **kserve.SCHEMAS,
}
_SHORT: Final = "/recalibrate"  # on the default model, like /predict
_PROBLEM: Final = {
    "description": "A problem document (RFC 9457): what was found, what was expected, and what to do.",
    "content": {"application/problem+json": {"schema": ref(Problem)}},
}


def operation_id(route: APIRoute) -> str:
    """Return the name of an operation, from which generators make the names of functions and files.

    >>> operation_id(APIRoute("/v2/models/{model}", lambda: None, name="model_metadata"))
    'v2_model_metadata'
    >>> operation_id(APIRoute("/recalibrate", lambda: None, name="recalibrate"))
    'recalibrate_default'
    """
    if V2.fullmatch(route.path):
        return f"v2_{route.name}"
    return f"{route.name}_default" if route.path == _SHORT else route.name


@dataclass(frozen=True)
class Protocol:
    """What another protocol has in the document.

    Attributes:
        paths: Path items that FastAPI does not see.
        schemas: Schemas by name.
        error: Its response to a refused request.
    """

    paths: Mapping[str, dict[str, Any]]
    schemas: dict[str, Any]
    error: Mapping[str, Any]


def document(api: FastAPI, v2: Protocol) -> dict[str, Any]:
    """Return the complete OpenAPI document, with the Open Inference Protocol."""
    if api.openapi_schema is None:
        document = get_openapi(title=api.title, version=api.version, summary=api.summary, routes=api.routes)
        paths = {
            "/v1/models/{model}/predict": predict_openapi.path_item(default=False),
            "/predict": predict_openapi.path_item(default=True),
            "/v1/multilabel/{model}/predict": predict_openapi.labels_path_item(),
            "/v1/models/{model}:predict": kserve.path_item(),
            "/v1/models/{model}/feedback": feedback.path_item(default=False),
            "/feedback": feedback.path_item(default=True),
            **deepcopy(v2.paths),  # completed below
        }
        document["paths"] = {**paths, **document["paths"]}
        components = document["components"]
        components["schemas"] = schemas() | _SCHEMAS | v2.schemas | components["schemas"]
        for unused in ("HTTPValidationError", "ValidationError"):  # FastAPI's own words for what is a Problem here
            del components["schemas"][unused]
        components["parameters"] = {"ContentEncoding": _CONTENT_ENCODING}
        components["responses"] = {"Problem": _PROBLEM, "V2Error": v2.error}
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": "cnd_…"}}
        document["security"] = [{"key": []}]
        for path, item in document["paths"].items():
            error = {"$ref": f"#/components/responses/{'V2Error' if V2.fullmatch(path) else 'Problem'}"}
            for operation in item.values():
                if "requestBody" in operation:
                    encoding = {"$ref": "#/components/parameters/ContentEncoding"}
                    operation["parameters"] = [*operation.get("parameters", ()), encoding]
                operation["responses"].pop("422", None)
                operation["responses"].setdefault("4XX", error)
                operation["responses"].setdefault("5XX", error)
                if OPEN.fullmatch(path):
                    operation["security"] = []
        api.openapi_schema = document
    return api.openapi_schema
