"""Revisions over HTTP: their history, activate, roll back, reject, and the audit log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from candor.contract.audit import AuditPage
from candor.contract.revisions import (
    ActivationRequest,
    MoveRequest,
    Pointer,
    Rejection,
    RejectionRequest,
    Revision,
    RevisionPage,
)
from candor.contract.traffic import TrafficChange
from service.operations import activation, revisions
from service.rest.dependencies import Caller, EpochDep, ModelDep, RuntimeDep
from service.rest.responses import sent


def list_revisions(
    runtime: RuntimeDep,
    model: ModelDep,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[str | None, Query(description="`next` of the previous page.")] = None,
) -> Response:
    """List revisions, newest first. The ETag is the epoch that activate and rollback expect as If-Match."""
    page = revisions.list_revisions(runtime, model, limit=limit, before=before)
    return sent(page, etag=_etag(page.epoch))


def get_revision(runtime: RuntimeDep, model: ModelDep, revision: str) -> Response:
    """Return one revision with its calibrator, thresholds, certificates and the report that led to it."""
    return sent(revisions.get_revision(runtime, model, revision))


def activate_revision(
    runtime: RuntimeDep,
    model: ModelDep,
    by: Caller,
    epoch: EpochDep,
    revision: str,
    body: ActivationRequest | None = None,
) -> Response:
    """Put a revision into service. Activating a revision that nothing shows to be harmless requires a reason.

    A reason is required if its gate refused it, it breaks a cap, it was rejected, no gate has compared its model, it
    was made before a monitor's alarm, or it was made from another revision than the active one. Recent predictions
    are replayed first: if an action's share changes beyond the limit, or every row would go to review,
    `accept_change` and a reason are required. `warnings` name the certificates that are lost, and `traffic` has the
    shares. With CANDOR_FOUR_EYES, another key than the one that made a proposal must activate it.
    """
    request = body or ActivationRequest()
    return _moved(activation.activate(runtime, model, revision, request, expected_epoch=epoch, by=by))


def traffic_change(
    runtime: RuntimeDep,
    model: ModelDep,
    revision: str,
    max_change: Annotated[float | None, Query(ge=0, le=1, description="As in an activation.")] = None,
) -> Response:
    """Replay recent predictions under a revision: the share of each action now and then, by policy and segment."""
    return sent(activation.traffic_change(runtime, model, revision, max_change))


def rollback(
    runtime: RuntimeDep, model: ModelDep, by: Caller, epoch: EpochDep, body: MoveRequest | None = None
) -> Response:
    """Put the previous revision back into service."""
    reason = body.reason if body else None
    return _moved(activation.rollback(runtime, model, expected_epoch=epoch, reason=reason, by=by))


def reject_revision(
    runtime: RuntimeDep, model: ModelDep, by: Caller, revision: str, body: RejectionRequest
) -> Response:
    """Reject a proposal. It stays in the history; activating it later requires a reason."""
    return sent(revisions.reject(runtime, model, revision, reason=body.reason, by=by))


def read_audit(
    runtime: RuntimeDep,
    model: ModelDep,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1, description="`next` of the previous page.")] = None,
) -> Response:
    """List what was done to a model, by whom and when, newest first. Entries of this log never change."""
    return sent(revisions.read_audit(runtime, model.name, limit=limit, before=before))


def _moved(pointer: Pointer) -> Response:
    return sent(pointer, etag=_etag(pointer.epoch))


def _etag(epoch: int) -> str:
    return f'"{epoch}"'


def add_to(router: APIRouter) -> None:
    """Mount the endpoints below a model."""
    one = "/revisions/{revision}"
    for path, method, handler, answer in (
        ("/revisions", "GET", list_revisions, RevisionPage),
        (one, "GET", get_revision, Revision),
        (f"{one}/traffic", "GET", traffic_change, TrafficChange),
        (f"{one}/activate", "POST", activate_revision, Pointer),
        (f"{one}/reject", "POST", reject_revision, Rejection),
        ("/rollback", "POST", rollback, Pointer),
        ("/audit", "GET", read_audit, AuditPage),
    ):
        router.add_api_route(path, handler, methods=[method], tags=["revisions"], response_model=answer)
