"""What handlers ask FastAPI for: the runtime, the model of the path, the caller with a scope, the expected epoch."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Depends, Header, Path, Request

from service.errors import EpochRequiredError, EpochStaleError
from service.models import Model
from service.rest.access import Principal
from service.runtime import Runtime


def _runtime(request: Request) -> Runtime:
    runtime: Runtime = request.app.state.runtime
    return runtime


def _model(request: Request, runtime: Annotated[Runtime, Depends(_runtime)]) -> Model:
    return runtime.models.get(request.path_params.get("model"))


class _Needs:
    def __init__(self, scope: str) -> None:
        self._scope = scope

    def __call__(self, request: Request) -> Principal:
        principal: Principal = request.scope["principal"]
        principal.require(self._scope)
        return principal


def model_in_path(model: Annotated[str, Path(description="Name of the model.")]) -> None:
    """Document the path parameter of routes below /v1/models/{model}."""


def _expected_epoch(
    if_match: Annotated[
        str | None, Header(description="The ETag of GET …/revisions that this change is based on. Required.")
    ] = None,
) -> int:
    if if_match is None:
        raise EpochRequiredError(
            "Moving the active revision needs the epoch that it is based on.",
            where="If-Match",
            found="no header",
            expected="the ETag of GET …/revisions",
            remedy="Read the revisions and send their ETag back as If-Match.",
        )
    text = if_match.strip().strip('"')
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise EpochStaleError(
            "If-Match is not an epoch.", where="If-Match", found=if_match, expected="the ETag of GET …/revisions"
        )
    return int(text)


RuntimeDep = Annotated[Runtime, Depends(_runtime)]
ModelDep = Annotated[Model, Depends(_model)]
EpochDep = Annotated[int, Depends(_expected_epoch)]
Reader = Annotated[Principal, Depends(_Needs("predict"))]
Feeder = Annotated[Principal, Depends(_Needs("feedback"))]
Recalibrator = Annotated[Principal, Depends(_Needs("calibrate"))]
Approver = Annotated[Principal, Depends(_Needs("approve"))]
