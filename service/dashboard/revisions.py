"""Revisions and proposals: the list, one of them before and after, and the forms that move the pointer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from candor.contract.certificates import SolvedPolicy
from candor.contract.challengers import ChallengerComparison
from candor.contract.revisions import ActivationRequest, MoveRequest, RejectionRequest
from candor.contract.traffic import TrafficChange
from service.dashboard import forms, positive, words
from service.dashboard.charts.difference import difference
from service.dashboard.diagrams import drawn
from service.dashboard.model import diagrams_of
from service.dashboard.pages import page
from service.dashboard.promises import promises
from service.decisions.approval import source_of
from service.operations import activation
from service.operations.challengers import comparisons
from service.operations.revisions import get_revision, list_revisions
from service.operations.revisions import reject as reject_proposal
from service.rest.dependencies import Caller, ModelDep, RuntimeDep
from service.serving.model import Model

_PAGE = 50
_LEAST_SHARE = 1e-12
Policies = dict[str, SolvedPolicy]


def revisions(request: Request, runtime: RuntimeDep, model: ModelDep, before: str | None = None) -> Response:
    """List a model's revisions."""
    listed = list_revisions(runtime, model, limit=_PAGE, before=before)
    return page(request.scope, "revisions.html", model=model.name, listed=listed, older=before is not None)


def revision_page(request: Request, runtime: RuntimeDep, model: ModelDep, revision: str) -> Response:
    """Show one revision beside its parent."""
    listed = list_revisions(runtime, model, limit=1)
    chosen = get_revision(runtime, model, revision)
    parent = None if chosen.parent is None else get_revision(runtime, model, chosen.parent)
    basis, own = diagrams_of(model, chosen)
    changed_from, changed_to = _changed(None if parent is None else parent.policies, chosen.policies)
    report = chosen.document["report"]
    return page(
        request.scope,
        "revision.html",
        model=model.name,
        listed=listed,
        revision=chosen,
        parent=parent,
        report=report,
        source=source_of(chosen.cause, report),
        measures=_measures(report),
        before=drawn(report, "before", f"revision {chosen.parent}"),
        after=own,
        basis=basis,
        promised_before=promises(changed_from),
        promised_after=promises(changed_to),
        caps=_caps(report),
        priors=_priors(report),
        positive=positive.drawn(report),
    )


def _changed(before: Policies | None, after: Policies) -> tuple[Policies, Policies]:
    """Return the solved policies that differ between both sides; all of them without another side."""
    if before is None:
        return {}, after
    differ = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    return {key: before[key] for key in differ & before.keys()}, {key: after[key] for key in differ & after.keys()}


def _measures(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the metrics of a report as rows of a table."""
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
    """Return the caps of a report as rows of a table."""
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
    """Return the class frequencies that a prior shift changes, largest change first."""
    rows = [{"label": label, **found} for label, found in report.get("priors", {}).items()]
    return sorted(rows, key=lambda row: -abs(math.log(max(row["target"], _LEAST_SHARE) / row["source"])))


def confirm_activate(
    request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller, revision: str, epoch: int
) -> Response:
    """Ask whether to put a revision into service."""
    by.require("approve")
    found = activation.prospect(runtime, model, revision, expected_epoch=epoch)
    beside = [one for one in comparisons(runtime, model) if one.revision == revision]
    return _confirm(
        request,
        model,
        "activate",
        revision,
        epoch,
        doubt=found.doubt,
        summary=found.revision.summary,
        source=source_of(found.revision.cause, found.revision.report),
        change=found.change,
        beside=beside,
        ask=found.must_accept,
    )


async def activate(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller, revision: str) -> Response:
    """Put a revision into service."""
    fields = await forms.read(request)
    accepted = fields.get("accept_change") == "yes"
    guard = {"window": fields["guard"]} if "guard" in fields else None
    wanted = forms.body(ActivationRequest, reason=fields.get("reason"), accept_change=accepted, guard=guard)
    move = partial(activation.activate, expected_epoch=forms.epoch(fields), by=by)
    await run_in_threadpool(move, runtime, model, revision, wanted)
    return forms.see(f"{_address(model, revision)}?notice=activated")


def confirm_rollback(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller, epoch: int) -> Response:
    """Ask whether to go back to the previous revision."""
    by.require("approve")
    runtime.revisions.check_epoch(model.name, epoch)
    return _confirm(request, model, "rollback", model.pointer.previous, epoch)


async def rollback(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller) -> Response:
    """Go back to the previous revision."""
    fields = await forms.read(request)
    wanted = forms.body(MoveRequest, reason=fields.get("reason"))
    move = partial(activation.rollback, expected_epoch=forms.epoch(fields), reason=wanted.reason, by=by)
    moved = await run_in_threadpool(move, runtime, model)
    return forms.see(f"{_address(model, moved.active)}?notice=rolled-back")


def confirm_reject(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller, revision: str) -> Response:
    """Ask whether to reject a proposal."""
    by.require("approve")
    summary = get_revision(runtime, model, revision).summary
    return _confirm(request, model, "reject", revision, model.pointer.epoch, summary=summary)


async def reject(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller, revision: str) -> Response:
    """Reject a proposal."""
    fields = await forms.read(request)
    wanted = forms.body(RejectionRequest, reason=fields.get("reason", ""))
    await run_in_threadpool(partial(reject_proposal, runtime, model, revision, reason=wanted.reason, by=by))
    return forms.see(f"{_address(model, revision)}?notice=rejected")


def _confirm(
    request: Request,
    model: Model,
    doing: Literal["activate", "rollback", "reject"],
    revision: str | None,
    epoch: int,
    *,
    doubt: str | None = None,
    summary: str | None = None,
    source: str | None = None,
    change: TrafficChange | None = None,
    ask: bool = False,
    beside: Sequence[ChallengerComparison] = (),
) -> Response:
    active = model.pointer.active
    return page(
        request.scope,
        "confirm.html",
        model=model.name,
        revision=revision,
        epoch=epoch,
        doing=doing,
        doubt=doubt,
        active=active,
        summary=summary,
        source=source,
        change=change,
        ask=ask,
        challengers=beside,
    )


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
