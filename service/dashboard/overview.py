"""The front page: every model, what it serves, how it fares, and what waits for somebody."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from service.dashboard.charts.traffic import traffic
from service.dashboard.pages import page
from service.models import Model
from service.rest import control
from service.rest.dependencies import RuntimeDep
from service.runtime import Runtime
from service.state.database import now_us
from service.state.jobs import JobStore
from service.state.traffic import MOST_PER_HOUR, Traffic

_NEWEST = 50  # revisions among which open proposals are looked for


async def overview(request: Request, runtime: RuntimeDep) -> Response:
    """Show every model."""
    listed = (await control.list_models(runtime))["items"]
    counter: Traffic = request.app.state.traffic
    models = [
        await _model(runtime, runtime.models.get(item["model"]), item, counter, number)
        for number, item in enumerate(listed)
    ]
    return page(
        request.scope,
        "overview.html",
        models=models,
        problems=runtime.models.problems(),
        never_loaded=await run_in_threadpool(runtime.models.never_loaded),
        stale_for_s=runtime.models.stale_for_s,
        stale=runtime.models.stale_for_s > max(5.0, 10 * runtime.settings.poll_interval_s),
        log=runtime.log,
        jobs=await run_in_threadpool(JobStore(runtime.database).unfinished),
    )


async def _model(runtime: Runtime, model: Model, item: dict[str, Any], counter: Traffic, number: int) -> dict[str, Any]:
    listed = await control.list_revisions(runtime, model, Response(), limit=_NEWEST, before=None)
    hours = await run_in_threadpool(counter.hours, model.name, now_us())
    return {
        **item,
        "queued": model.plane.queued_rows,
        "actions": runtime.metrics.rows_by_action(model.name),
        "proposals": [revision for revision in listed["items"] if revision["state"] == "proposed"],
        "traffic": traffic(f"traffic-{number}", f"Predictions of {model.name}", hours, MOST_PER_HOUR),
        "day": sum(hours),
        "capped": any(count >= MOST_PER_HOUR for count in hours),
    }


def add_to(router: APIRouter) -> None:
    """Mount the page."""
    router.add_api_route("", overview, methods=["GET"])
