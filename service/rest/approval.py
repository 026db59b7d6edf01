"""Who puts a revision into service, and who turns one down: activate, roll back, reject, and the log of all that."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from service.decisions.solved import SolvedPolicy
from service.errors import ForbiddenError, RevisionStateError
from service.models import Model
from service.rest import answers
from service.rest.access import Principal
from service.rest.dependencies import Caller, EpochDep, ModelDep, RuntimeDep
from service.rest.schema import Body, Text
from service.revision import Revision
from service.state import audit
from service.state.revisions import Pointer, RevisionState
from service.times import iso

_WAS_IN_SERVICE: tuple[RevisionState, ...] = ("active", "previous", "superseded")


class ReasonBody(Body):
    """Why somebody moves the pointer; it goes into the audit log."""

    reason: Text | None = Field(None, max_length=1000)


class RejectBody(Body):
    """Why somebody turns a proposal down; it goes into the audit log."""

    reason: Text = Field(max_length=1000)


async def activate(
    runtime: RuntimeDep,
    model: ModelDep,
    by: Caller,
    epoch: EpochDep,
    response: Response,
    revision: str,
    body: ReasonBody | None = None,
) -> dict[str, Any]:
    """Put a revision into service. One that nothing shows to be harmless in place of the present one needs a reason.

    That is one that its gate refused or that breaks a cap, one that somebody rejected, one with a model that no gate
    has compared, one that was made before a monitor's alarm, and one that was made from another revision than the one
    in service. `warnings` name the certificates that are lost by it. With CANDOR_FOUR_EYES a proposal takes another key
    than the one that made it.
    """
    reason = body.reason if body else None
    await run_in_threadpool(runtime.revisions.check_epoch, model.name, epoch)  # a doubt is about what is active now
    chosen = await run_in_threadpool(runtime.revisions.get, model.name, revision)
    state = (await run_in_threadpool(runtime.revisions.states, model.name))[chosen.id]
    if runtime.settings.four_eyes and state not in _WAS_IN_SERVICE:
        _check_other_key(chosen, by)
    alarm = await run_in_threadpool(runtime.monitors.last_alarm, model.name)
    why = doubt(chosen, model, state, alarm)
    if reason is None and why is not None:
        raise RevisionStateError(
            why,
            where="/reason",
            found="no reason given",
            expected="a reason",
            remedy='Send {"reason": "…"} to activate it all the same; it goes into the audit log.',
        )
    warned = _lost_certificates(chosen, model)
    pointer = await run_in_threadpool(
        runtime.models.activate, model.name, revision, expected_epoch=epoch, by=by.name, reason=reason
    )
    return {**_moved(response, pointer), "warnings": warned}


async def rollback(
    runtime: RuntimeDep,
    model: ModelDep,
    by: Caller,
    epoch: EpochDep,
    response: Response,
    body: ReasonBody | None = None,
) -> dict[str, Any]:
    """Put the revision before back into service."""
    pointer = await run_in_threadpool(
        runtime.models.rollback,
        model.name,
        expected_epoch=epoch,
        by=by.name,
        reason=body.reason if body else None,
    )
    return _moved(response, pointer)


async def reject(runtime: RuntimeDep, model: ModelDep, by: Caller, revision: str, body: RejectBody) -> dict[str, Any]:
    """Turn a proposal down. It stays in the history, and takes a reason to be activated all the same."""
    await run_in_threadpool(runtime.revisions.reject, model.name, revision, by=by.name, reason=body.reason)
    return {"id": revision, "state": "rejected", "by": by.name, "reason": body.reason}


async def read_audit(
    runtime: RuntimeDep,
    model: ModelDep,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1, description="`next` of the page before.")] = None,
) -> dict[str, Any]:
    """List what was done to a model, by whom and when, newest first. Nothing in this log is ever changed."""
    page = await run_in_threadpool(audit.read, runtime.database, model.name, limit=limit + 1, before=before)
    return {
        "items": [
            {
                "id": entry.id,
                "at": iso(entry.at),
                "by": entry.by,
                "action": entry.action,
                "subject": entry.subject,
                "detail": entry.detail,
            }
            for entry in page[:limit]
        ],
        "next": page[limit - 1].id if len(page) > limit else None,
    }


def _check_other_key(chosen: Revision, by: Principal) -> None:
    # By name too: a key that was rotated keeps its name, and its holder.
    if chosen.cause != "bundle" and (chosen.by == by.name or (by.prefix is not None and chosen.by_key == by.prefix)):
        raise ForbiddenError(
            f"Revision {chosen.id} needs another pair of eyes: this key has proposed it.",
            where="Authorization",
            found=by.prefix or "no key",
            expected=f"a key with scope approve other than {chosen.by_key or 'none'}",
            remedy="Let somebody else activate it; CANDOR_FOUR_EYES asks for that.",
        )


def doubt(chosen: Revision, model: Model, state: RevisionState, alarm: int | None) -> str | None:
    """Return why a revision may do harm in place of the one in service, None when nothing says so.

    Args:
        chosen: The revision.
        model: Its model.
        state: The revision's.
        alarm: When an alarm of the model went off last, in microseconds since the epoch; None without one.
    """
    active = model.served.revision
    if chosen.id in (active.id, model.pointer.previous):
        return None
    if state == "rejected":
        return f"Revision {chosen.id} was rejected."
    if chosen.gate == "refused":
        return f"Revision {chosen.id} was refused by its gate."
    if any(not cap.get("holds", True) for cap in chosen.report.get("gate", {}).get("caps", ())):
        return f"Revision {chosen.id} breaks a cap: {chosen.report['gate']['unattended_reason']}"
    if chosen.model_digest != active.model_digest:
        return f"Revision {chosen.id} brings a model that no gate has compared with the one in service."
    if chosen.cause == "prior_shift":
        return f"Revision {chosen.id} assumes other shares of the classes, and no label has shown it to be better."
    # A dry run that is proposed later has looked at the rows before.
    if alarm is not None and chosen.report.get("read_at", iso(chosen.created_at)) < iso(alarm):
        return f"Revision {chosen.id} was made before the alarm of {iso(alarm)}, and so was all that speaks for it."
    if chosen.parent != active.id:
        return (
            f"Revision {chosen.id} was made from {chosen.parent or 'nothing'}, and {active.id} is in service: what "
            "came in between would be lost, and nothing has compared the two."
        )
    return None


def _lost_certificates(chosen: Revision, model: Model) -> list[str]:
    """Say which certificates of the revision in service are lost with another."""
    active, found = model.served, []
    for key, before in active.policies.items():
        if key not in chosen.policies:
            found.append(f"Policy {key!r} is not part of {chosen.id}.")
            continue
        after = _held(SolvedPolicy.from_dict(chosen.policies[key]))
        for segment, action in sorted(_held(before) - after):
            of = f" for segment {segment!r}" if segment else ""
            found.append(f"Policy {key!r} loses the certificate of {action!r}{of} that {active.revision.id} has.")
    return found


def _held(solved: SolvedPolicy) -> set[tuple[str, str]]:
    """Return the (segment, action) pairs whose promise is certified and in force; "" is no segment."""
    parts = solved.parts or {"": solved}
    return {
        (segment, band.action)
        for segment, part in parts.items()
        for band in part.bands
        if not part.review_all and band.certificate is not None and band.certificate.valid
    }


def _moved(response: Response, pointer: Pointer) -> dict[str, Any]:
    response.headers["etag"] = f'"{pointer.epoch}"'
    return {"active": pointer.active, "previous": pointer.previous, "epoch": pointer.epoch}


def add_to(router: APIRouter) -> None:
    """Mount the endpoints, below a model."""
    moved, rejected, log = (answers.documented(kind) for kind in (answers.Moved, answers.Rejected, answers.AuditPage))
    of_revision = "/revisions/{revision}"
    router.add_api_route(f"{of_revision}/activate", activate, methods=["POST"], tags=["revisions"], responses=moved)
    router.add_api_route(f"{of_revision}/reject", reject, methods=["POST"], tags=["revisions"], responses=rejected)
    router.add_api_route("/rollback", rollback, methods=["POST"], tags=["revisions"], responses=moved)
    router.add_api_route("/audit", read_audit, methods=["GET"], tags=["revisions"], responses=log)
