"""FastAPI dependencies: the runtime, the model in the path, the caller, the expected epoch."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Depends, Header, Path, Request

from service.errors import CandorError, EpochRequiredError, EpochStaleError, InputValueError
from service.operations.principal import Principal
from service.places import in_header
from service.rest.exchange import unknown_parameter
from service.runtime import Runtime
from service.serving.labels import MultiLabel
from service.serving.model import Model

_EPOCH = re.compile(r'(?:W/)?"?([0-9]{1,18})"?')
_ENTITY_TAG = re.compile(r'(?:W/)?"[!\x23-\x7e\x80-\xff]*"')  # RFC 9110, section 8.8.3


def _runtime(request: Request) -> Runtime:
    runtime: Runtime = request.app.state.runtime
    return runtime


def _model(request: Request, runtime: Annotated[Runtime, Depends(_runtime)]) -> Model:
    return runtime.models.get(request.path_params.get("model"))


def _model_or_labels(request: Request, runtime: Annotated[Runtime, Depends(_runtime)]) -> Model | MultiLabel:
    name = request.path_params.get("model")
    return runtime.models.multilabels.get(name) or runtime.models.get(name)


def _caller(request: Request) -> Principal:
    principal: Principal = request.scope["principal"]
    return principal


def model_in_path(model: Annotated[str, Path(description="Name of the model.")]) -> None:
    """Document the path parameter of routes below /v1/models/{model}."""


async def known_query(request: Request) -> None:
    """Refuse query parameters that the endpoint does not have: a filter with a mistyped name would list everything.

    Raises:
        InputValueError: A parameter is unknown.
    """
    known = {parameter.alias for parameter in request.scope["route"].dependant.query_params}
    if unknown := sorted(request.query_params.keys() - known):
        raise unknown_parameter(unknown[0], sorted(known))


def _expected_epoch(
    request: Request,
    _: Annotated[
        str | None,
        Header(alias="if-match", description="The ETag of GET …/revisions that this change is based on. Required."),
    ] = None,
) -> int:
    """Return the epoch of a request; several lines of If-Match are one list."""
    return epoch_of(", ".join(request.headers.getlist("if-match")).strip())


def epoch_of(if_match: str) -> int:
    """Return the epoch that a change is based on.

    Args:
        if_match: Value of the header; "" without one.

    Raises:
        EpochRequiredError: It is missing, or fits any epoch.
        InputValueError: It is not an entity tag, or has several.
        EpochStaleError: It is the entity tag of something else.
    """
    match = _EPOCH.fullmatch(if_match)
    if match is not None:
        return int(match[1])
    kind: type[CandorError]
    kind, said = EpochStaleError, "If-Match is not an epoch."
    if if_match in ("", "*"):
        kind, said = EpochRequiredError, "Moving the active revision needs the epoch that it is based on."
    elif _ENTITY_TAG.fullmatch(if_match) is None:
        kind, said = InputValueError, "If-Match is not one entity tag."
    raise kind(
        said,
        where=in_header("If-Match"),
        found=if_match or "no header",
        expected="the ETag of GET …/revisions",
        remedy="Read the revisions and send their ETag back as If-Match.",
    )


RuntimeDep = Annotated[Runtime, Depends(_runtime)]
ModelOrLabelsDep = Annotated[Model | MultiLabel, Depends(_model_or_labels)]
ModelDep = Annotated[Model, Depends(_model)]
EpochDep = Annotated[int, Depends(_expected_epoch)]
Caller = Annotated[Principal, Depends(_caller)]
