"""The router of the control plane: the routes below /v1, and the short forms on the default model."""

from __future__ import annotations

from typing import Final

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
from service.rest.dependencies import known_query, model_in_path
from service.rest.documents import DocumentRoute

_OF_MODEL: Final = "/v1/models/{model}"


def router() -> APIRouter:
    """Return the routes below /v1, and the short forms on the default model."""
    recalibrations, of_model = APIRouter(prefix=_OF_MODEL), APIRouter(prefix=_OF_MODEL, route_class=DocumentRoute)
    whole, others = APIRouter(), APIRouter(dependencies=[Depends(known_query)], route_class=DocumentRoute)
    for subject in (revisions, policies, cases, labelled_sets, prior_shift, challengers, models):
        subject.add_to(of_model)
    others.include_router(of_model, dependencies=[Depends(model_in_path)])
    models.add_list_to(others)
    for subject in (labels, kserve, jobs):
        subject.add_to(others)
    recalibrate.add_to(recalibrations)
    recalibrate.add_to(whole)
    whole.include_router(recalibrations, dependencies=[Depends(model_in_path)])  # it reads its query itself
    whole.include_router(others)
    return whole
