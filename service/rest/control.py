"""The router of the control plane: the routes below /v1, and the short forms on the default model."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from service.rest import (
    cases,
    challengers,
    jobs,
    kserve,
    labelled_sets,
    labels,
    models,
    policies,
    prior_shift,
    recalibrate,
    revisions,
)
from service.rest.dependencies import model_in_path


def router() -> APIRouter:
    """Return the routes below /v1, and the short forms on the default model."""
    of_model = APIRouter(prefix="/v1/models/{model}", dependencies=[Depends(model_in_path)])
    short = APIRouter()
    for routes in (of_model, short):
        recalibrate.add_to(routes)
    for subject in (revisions, policies, cases, labelled_sets, prior_shift, challengers, models):
        subject.add_to(of_model)
    whole = APIRouter()
    whole.include_router(of_model)
    whole.include_router(short)
    models.add_list_to(whole)
    labels.add_to(whole)
    kserve.add_to(whole)
    jobs.add_to(whole)
    return whole
