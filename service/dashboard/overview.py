"""The front page: every model, its traffic, its problems, and its open proposals."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fastapi import APIRouter, Request, Response

from service.dashboard.charts.traffic import traffic
from service.dashboard.pages import page
from service.operations.jobs import unfinished_jobs
from service.operations.models import get_model
from service.operations.readiness import together
from service.operations.revisions import list_revisions
from service.others import CONDITION
from service.rest.dependencies import Caller, RuntimeDep
from service.runtime import Runtime
from service.serving.model import Model
from service.state.database import now_us
from service.state.traffic import MOST_PER_HOUR
from service.sums import Snapshot, samples_of, value_of

_NEWEST = 50  # revisions among which open proposals are looked for


def overview(request: Request, runtime: RuntimeDep, by: Caller) -> Response:
    """Show every model that the visitor may reach."""
    metrics = runtime.all_metrics()
    models = [
        _model(runtime, model, number, metrics)
        for number, model in enumerate(runtime.models.all())
        if by.sees(model.name)
    ]
    condition = together(runtime.others.ask(CONDITION))
    problems = condition.problems | {each["model"]: each["problem"] for each in models if each["problem"]}
    return page(
        request.scope,
        "overview.html",
        models=models,
        problems={name: problem for name, problem in problems.items() if by.sees(name)},
        never_loaded=[name for name in runtime.models.never_loaded() if by.sees(name)],
        stale_for_s=condition.stale_for_s,
        stale=condition.stale_for_s > max(5.0, 10 * runtime.settings.poll_interval_s),
        log={
            "depth": int(value_of(metrics, "candor_log_depth")),
            "written": int(value_of(metrics, "candor_log_written_total")),
            "dropped": int(value_of(metrics, "candor_log_dropped_total")),
        },
        jobs=unfinished_jobs(runtime, by=by),
    )


def _model(runtime: Runtime, model: Model, number: int, metrics: Snapshot) -> dict[str, Any]:
    listed = list_revisions(runtime, model, limit=_NEWEST)
    hours = runtime.models.traffic.hours(model.name, now_us())
    return {
        **get_model(model).document,
        "queued": int(value_of(metrics, "candor_queue_rows", model=model.name)),
        "actions": _actions(metrics, model.name),
        "proposals": [revision for revision in listed.items if revision.state == "proposed"],
        "traffic": traffic(f"traffic-{number}", f"Predictions of {model.name}", hours, MOST_PER_HOUR),
        "day": sum(hours),
        "capped": any(count >= MOST_PER_HOUR for count in hours),
    }


def _actions(metrics: Snapshot, model: str) -> dict[tuple[str, str], int]:
    """Return the rows of the shown revisions by policy ("" for none) and action."""
    found: Counter[tuple[str, str]] = Counter()
    for labels, rows in samples_of(metrics, "candor_predictions_total"):
        if labels["model"] == model:
            found[labels["policy"], labels["action"]] += int(rows)
    return dict(sorted(found.items()))


def add_to(router: APIRouter) -> None:
    """Mount the page."""
    router.add_api_route("", overview, methods=["GET"])
