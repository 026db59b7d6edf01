"""Revisions and proposals: the list, one of them before and after, and the forms that move the pointer."""

from __future__ import annotations

import math
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from service.dashboard import forms, words
from service.dashboard.charts.difference import difference
from service.dashboard.diagrams import drawn
from service.dashboard.model import diagrams_of
from service.dashboard.pages import page
from service.dashboard.promises import promises
from service.models import Model
from service.rest import approval, control
from service.rest.dependencies import Caller, ModelDep, RuntimeDep

_PAGE = 50
_LEAST_SHARE = 1e-12
Policies = dict[str, dict[str, Any]]


async def revisions(request: Request, runtime: RuntimeDep, model: ModelDep, before: str | None = None) -> Response:
    """List a model's revisions."""
    listed = await control.list_revisions(runtime, model, Response(), limit=_PAGE, before=before)
    return page(request.scope, "revisions.html", model=model.name, listed=listed, older=before is not None)


async def revision_page(request: Request, runtime: RuntimeDep, model: ModelDep, revision: str) -> Response:
    """Show one revision, beside the one that it was made from."""
    listed = await control.list_revisions(runtime, model, Response(), limit=1, before=None)
    chosen = await control.get_revision(runtime, model, revision)
    parent = None if chosen["parent"] is None else await control.get_revision(runtime, model, chosen["parent"])
    basis, own = await run_in_threadpool(diagrams_of, model, chosen)
    changed_from, changed_to = _changed(None if parent is None else parent["policies"], chosen["policies"])
    return page(
        request.scope,
        "revision.html",
        model=model.name,
        listed=listed,
        revision=chosen,
        parent=parent,
        report=chosen["report"],
        measures=_measures(chosen["report"]),
        before=drawn(chosen["report"], "before", f"revision {chosen['parent']}"),
        after=own,
        basis=basis,
        promised_before=promises(changed_from),
        promised_after=promises(changed_to),
        caps=_caps(chosen["report"]),
        priors=_priors(chosen["report"]),
    )


def _changed(before: Policies | None, after: Policies) -> tuple[Policies, Policies]:
    """Return the solved policies that are not the same on both sides; all of them where there is no other side."""
    if before is None:
        return {}, after
    differ = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    return {key: before[key] for key in differ & before.keys()}, {key: after[key] for key in differ & after.keys()}


def _measures(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the metrics of a refit's report as rows of a table."""
    rows = []
    for name, said in words.MEASURES.items():
        found = report.get("metrics", {}).get(name)
        if found is None:
            continue
        ends = found.get("difference_interval")
        change = None if found["before"] is None or found["after"] is None else found["after"] - found["before"]
        rows.append(
            {
                "name": said,
                "found": found,
                "change": change,
                "ends": ends,
                "chart": None
                if change is None or ends is None
                else difference(f"change-{name}", f"Change of {said}", change, *ends),
            }
        )
    return rows


def _caps(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the bounds of a refit's report as rows of a table."""
    return [
        {
            "policy": cap["policy"],
            "said": words.CAPS[cap["name"]],
            "seen": words.bound(cap["name"], cap["value"])
            if cap["policy"] is None
            else f"{words.count(cap['count'])} / {words.count(cap['of'])}",
            "upper": words.bound(cap["name"], cap["upper"]),
            "at_most": "any" if cap["at_most"] is None else words.bound(cap["name"], cap["at_most"]),
        }
        for cap in report.get("gate", {}).get("caps", ())
    ]


def _priors(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the shares of the classes that a prior shift changes, those that change most first."""
    rows = [{"label": label, **found} for label, found in report.get("priors", {}).items()]
    return sorted(rows, key=lambda row: -abs(math.log(max(row["target"], _LEAST_SHARE) / row["source"])))


async def confirm_activate(
    request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller, revision: str, epoch: int
) -> Response:
    """Ask whether to put a revision into service."""
    by.require("approve")
    await run_in_threadpool(runtime.revisions.check_epoch, model.name, epoch)
    chosen = await run_in_threadpool(runtime.revisions.get, model.name, revision)
    states = await run_in_threadpool(runtime.revisions.states, model.name)
    alarm = await run_in_threadpool(runtime.monitors.last_alarm, model.name)
    return page(
        request.scope,
        "confirm.html",
        model=model.name,
        revision=revision,
        epoch=epoch,
        doing="activate",
        doubt=approval.doubt(chosen, model, states[revision], alarm),
        active=model.pointer.active,
        summary=chosen.report.get("summary"),
    )


async def activate(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller, revision: str) -> Response:
    """Put a revision into service."""
    fields = await forms.read(request)
    reason = forms.body(approval.ReasonBody, reason=fields.get("reason"))
    await approval.activate(runtime, model, by, forms.epoch(fields), Response(), revision, reason)
    return forms.see(f"{_address(model, revision)}?notice=activated")


async def confirm_rollback(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller, epoch: int) -> Response:
    """Ask whether to go back to the revision before."""
    by.require("approve")
    await run_in_threadpool(runtime.revisions.check_epoch, model.name, epoch)
    return page(
        request.scope,
        "confirm.html",
        model=model.name,
        revision=model.pointer.previous,
        epoch=epoch,
        doing="rollback",
        doubt=None,
        active=model.pointer.active,
        summary=None,
    )


async def rollback(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller) -> Response:
    """Go back to the revision before."""
    fields = await forms.read(request)
    reason = forms.body(approval.ReasonBody, reason=fields.get("reason"))
    moved = await approval.rollback(runtime, model, by, forms.epoch(fields), Response(), reason)
    return forms.see(f"{_address(model, moved['active'])}?notice=rolled-back")


async def confirm_reject(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller, revision: str) -> Response:
    """Ask whether to turn a proposal down."""
    by.require("approve")
    chosen = await run_in_threadpool(runtime.revisions.get, model.name, revision)
    return page(
        request.scope,
        "confirm.html",
        model=model.name,
        revision=revision,
        epoch=model.pointer.epoch,
        doing="reject",
        doubt=None,
        active=model.pointer.active,
        summary=chosen.report.get("summary"),
    )


async def reject(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller, revision: str) -> Response:
    """Turn a proposal down."""
    fields = await forms.read(request)
    reason = forms.body(approval.RejectBody, reason=fields.get("reason", ""))
    await approval.reject(runtime, model, by, revision, reason)
    return forms.see(f"{_address(model, revision)}?notice=rejected")


def _address(model: Model, revision: str) -> str:
    return f"/dashboard/models/{forms.part(model.name)}/revisions/{forms.part(revision)}"


def add_to(router: APIRouter) -> None:
    """Mount the pages and forms."""
    router.add_api_route("/revisions", revisions, methods=["GET"])
    router.add_api_route("/revisions/{revision}", revision_page, methods=["GET"])
    router.add_api_route("/revisions/{revision}/activate", confirm_activate, methods=["GET"])
    router.add_api_route("/revisions/{revision}/activate", activate, methods=["POST"])
    router.add_api_route("/revisions/{revision}/reject", confirm_reject, methods=["GET"])
    router.add_api_route("/revisions/{revision}/reject", reject, methods=["POST"])
    router.add_api_route("/rollback", confirm_rollback, methods=["GET"])
    router.add_api_route("/rollback", rollback, methods=["POST"])
