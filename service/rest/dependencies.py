"""FastAPI dependencies: the runtime, the model in the path, the caller, the expected epoch."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Depends, Header, Path, Request

from service.errors import EpochRequiredError, EpochStaleError
from service.operations.principal import Principal
from service.places import in_header
from service.rest.exchange import unknown_parameter
from service.runtime import Runtime
from service.serving.labels import MultiLabel
from service.serving.model import Model

_EPOCH = re.compile(r'(?:W/)?"?([0-9]{1,18})"?')


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


def expected_epoch(
    if_match: Annotated[
        str | None, Header(description="The ETag of GET …/revisions that this change is based on. Required.")
    ] = None,
) -> int:
    """Return the epoch that the change is based on.

    Raises:
        EpochRequiredError: If-Match is missing.
        EpochStaleError: If-Match is not an epoch.
    """
    if if_match is None:
        raise EpochRequiredError(
            "Moving the active revision needs the epoch that it is based on.",
            where=in_header("If-Match"),
            found="no header",
            expected="the ETag of GET …/revisions",
            remedy="Read the revisions and send their ETag back as If-Match.",
        )
    match = _EPOCH.fullmatch(if_match.strip())
    if match is None:
        raise EpochStaleError(  # an entity tag of something else does not match
            "If-Match is not an epoch.",
            where=in_header("If-Match"),
            found=if_match,
            expected="the ETag of GET …/revisions",
        )
    return int(match[1])


RuntimeDep = Annotated[Runtime, Depends(_runtime)]
ModelOrLabelsDep = Annotated[Model | MultiLabel, Depends(_model_or_labels)]
ModelDep = Annotated[Model, Depends(_model)]
EpochDep = Annotated[int, Depends(expected_epoch)]
Caller = Annotated[Principal, Depends(_caller)]
