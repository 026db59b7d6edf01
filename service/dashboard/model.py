"""A model's page: what is in service, how well calibrated it is, what its policies promise."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from calibrators import PriorShift
from service.dashboard.diagrams import Diagrams, drawn, on_reference
from service.dashboard.pages import page
from service.dashboard.promises import promises
from service.dashboard.watch import watched
from service.models import Model
from service.rest import control, monitoring
from service.rest.dependencies import ModelDep, RuntimeDep

_NEWEST = 50


async def model_page(request: Request, runtime: RuntimeDep, model: ModelDep, revision: str | None = None) -> Response:
    """Show a model; `revision` chooses whose calibration is drawn."""
    item = next(item for item in (await control.list_models(runtime))["items"] if item["model"] == model.name)
    listed = await control.list_revisions(runtime, model, Response(), limit=_NEWEST, before=None)
    active = await control.get_revision(runtime, model, listed["active"]) if listed["active"] else None
    chosen = active if revision is None else await control.get_revision(runtime, model, revision)
    basis, shown = ("", None) if chosen is None else await run_in_threadpool(diagrams_of, model, chosen)
    told = None if model.plane.served is None else await monitoring.monitoring(runtime, model)
    return page(
        request.scope,
        "model.html",
        watched=[] if told is None else watched(told),
        estimates=None if told is None else told["estimates"],
        model=item,
        listed=listed,
        active=active,
        chosen=chosen,
        basis=basis,
        shown=shown,
        promises=[] if active is None else promises(active["policies"]),
    )


def diagrams_of(model: Model, revision: dict[str, Any]) -> tuple[str, Diagrams | None]:
    """Return what a revision's diagrams are drawn from, in words, and the diagrams; or why there are none, and None."""
    title = f"revision {revision['id']}"
    shown = drawn(revision["report"], "after", title)
    if shown is not None:
        return "the gate rows of its refit: labelled traffic that did not fit it", shown
    if revision["calibrator"]["method"] == PriorShift.name:  # reference rows have the shares that it corrects
        return "it assumes shares of classes that its bundle's held-out rows do not have", None
    measured = on_reference(model, revision["bundle_id"], revision["calibrator"])
    if measured is None:
        return f"the bundle of revision {revision['id']} is not loaded, and no refit has measured it", None
    return "the held-out rows of its bundle that did not fit it", drawn(measured, "after", title)


def add_to(router: APIRouter) -> None:
    """Mount the page."""
    router.add_api_route("", model_page, methods=["GET"])
