"""All pages and forms of the dashboard. They are not part of the API or of its OpenAPI document."""

from __future__ import annotations

import re
from typing import Final

from fastapi import APIRouter

from service.dashboard import audit, cases, jobs, login, model, overview, revisions, simulator, trends

OWN: Final = re.compile(r"/dashboard(?:/.*)?")
OPEN: Final = re.compile(r"/dashboard/(?:login(?:/begin|/callback)?|theme|static/[^/]+)")
"""Paths that need no session."""


def routers() -> tuple[APIRouter, APIRouter]:
    """Return the routes below /dashboard, and those of a model there.

    One inside the other would count requests under the path of the inner one.
    """
    of_model = APIRouter(prefix="/dashboard/models/{model}", include_in_schema=False)
    model.add_to(of_model)
    revisions.add_to(of_model)
    simulator.add_to(of_model)
    trends.add_to(of_model)
    cases.add_to(of_model)
    jobs.add_to_model(of_model)
    whole = APIRouter(prefix="/dashboard", include_in_schema=False)
    for part in (overview, login, jobs, audit):
        part.add_to(whole)
    return whole, of_model
