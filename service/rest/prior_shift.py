"""Prior shift over HTTP: adjust the active calibrator to new class frequencies, without labels."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from candor.contract.prior_shift import PriorShift, PriorShiftRequest
from service.operations.prior_shift import shift
from service.rest.dependencies import Caller, ModelDep, RuntimeDep
from service.rest.responses import sent


def prior_shift(runtime: RuntimeDep, model: ModelDep, by: Caller, body: PriorShiftRequest) -> Response:
    """Adjust the active calibrator to new class frequencies, known or estimated.

    Reference rows cannot certify precision, selective risk or flag rate of the result (recall and false-positive rate
    stand), no gate compares anything, and activating it requires a person and a reason.
    """
    found = shift(runtime, model, body, by=by)
    if found.revision is None:
        return sent(found)
    return sent(found, 201, location=f"/v1/models/{model.name}/revisions/{found.revision}")


def add_to(router: APIRouter) -> None:
    """Mount the endpoint below a model."""
    proposed: dict[int | str, dict[str, Any]] = {201: {"model": PriorShift, "description": "Kept as a proposal."}}
    router.add_api_route(
        "/prior-shift",
        prior_shift,
        methods=["POST"],
        tags=["recalibration"],
        response_model=PriorShift,
        responses=proposed,
    )
