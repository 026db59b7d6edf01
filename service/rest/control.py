"""Revisions, policies and models over HTTP, and the router that holds the whole control plane."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from fastapi import Body as JsonBody
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from service.decisions.policy import Policy
from service.errors import InputValueError, RevisionStateError, UnknownPolicyError
from service.rest import feedback, recalibrate
from service.rest.dependencies import Approver, EpochDep, ModelDep, Reader, Recalibrator, RuntimeDep, model_in_path
from service.rest.schema import Body, Text
from service.revision import Revision
from service.state.revisions import Pointer
from service.times import iso


class ReasonBody(Body):
    """Why somebody moves the pointer; it goes into the audit log."""

    reason: Text | None = Field(None, max_length=1000)


async def list_revisions(
    runtime: RuntimeDep,
    model: ModelDep,
    _: Reader,
    response: Response,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[str | None, Query(description="`next` of the page before.")] = None,
) -> dict[str, Any]:
    """List revisions, newest first. The ETag is the epoch that activate and rollback want back as If-Match."""
    pointer = await run_in_threadpool(runtime.revisions.pointer, model.name) or model.pointer
    states = await run_in_threadpool(runtime.revisions.states, model.name)
    page = await run_in_threadpool(runtime.revisions.list, model.name, limit=limit + 1, before=before)
    response.headers["etag"] = f'"{pointer.epoch}"'
    return {
        "active": pointer.active,
        "previous": pointer.previous,
        "epoch": pointer.epoch,
        "items": [_summary(revision, states[revision.id]) for revision in page[:limit]],
        "next": page[limit - 1].id if len(page) > limit else None,
    }


async def get_revision(runtime: RuntimeDep, model: ModelDep, _: Reader, revision: str) -> dict[str, Any]:
    """Return one revision whole: calibrator, thresholds, certificates and the report that led to it."""
    states = await run_in_threadpool(runtime.revisions.states, model.name)
    chosen = await run_in_threadpool(runtime.revisions.get, model.name, revision)
    return {
        **_summary(chosen, states[chosen.id]),
        "model": chosen.model,
        "bundle_id": chosen.bundle_id,
        "model_digest": chosen.model_digest,
        "calibrator": chosen.calibrator,
        "policies": chosen.policies,
        "report": chosen.report,
    }


async def activate(
    runtime: RuntimeDep,
    model: ModelDep,
    by: Approver,
    epoch: EpochDep,
    response: Response,
    revision: str,
    body: ReasonBody | None = None,
) -> dict[str, Any]:
    """Put a revision into service. One that its gate refused, or a new model that no gate compared, needs a reason."""
    reason = body.reason if body else None
    chosen = await run_in_threadpool(runtime.revisions.get, model.name, revision)
    untested = chosen.cause == "bundle" and chosen.gate == "not_run"
    already = chosen.id == model.pointer.active  # the state says so, more plainly
    if reason is None and not already and (untested or chosen.gate == "refused"):
        raise RevisionStateError(
            f"Revision {revision} brings a model that no gate has compared with the one in service."
            if untested
            else f"Revision {revision} was refused by its gate.",
            where="/reason",
            found=f"gate {chosen.gate}, no reason given",
            expected="a reason",
            remedy='Send {"reason": "…"} to activate it all the same; it goes into the audit log.',
        )
    pointer = await run_in_threadpool(
        runtime.models.activate, model.name, revision, expected_epoch=epoch, by=by.name, reason=reason
    )
    return _moved(response, pointer)


async def rollback(
    runtime: RuntimeDep,
    model: ModelDep,
    by: Approver,
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


async def get_policy(model: ModelDep, _: Reader, policy: str) -> dict[str, Any]:
    """Return a policy as it is in force, with its thresholds and certificates."""
    served = model.served
    if policy not in served.policies:
        raise UnknownPolicyError(
            f"Revision {served.revision.id} has no policy {policy!r}.",
            where="policy",
            found=policy,
            expected=sorted(served.policies),
        )
    return served.policies[policy].to_dict()


async def put_policy(
    runtime: RuntimeDep,
    model: ModelDep,
    by: Recalibrator,
    response: Response,
    policy: str,
    document: Annotated[dict[str, Any], JsonBody()],
) -> dict[str, Any]:
    """Propose a new or changed policy. It is solved on the reference rows and takes force when it is activated."""
    wanted = Policy.from_dict({"id": policy, **document})
    if wanted.id != policy:
        raise InputValueError("The policy's id is not that of the path.", where="/id", found=wanted.id, expected=policy)
    revision = await run_in_threadpool(runtime.models.propose_policy, model.name, wanted, by=by.name)
    response.status_code = 201
    response.headers["location"] = f"/v1/models/{model.name}/revisions/{revision.id}"
    return {**_summary(revision, "proposed"), "policy": revision.policies[policy]}


async def list_models(runtime: RuntimeDep, _: Reader) -> dict[str, Any]:
    """List the models in service."""
    items = []
    for model in runtime.models.all():
        served = model.served
        items.append(
            {
                "model": model.name,
                "revision": served.revision.id,
                "epoch": model.pointer.epoch,
                "bundle": served.revision.bundle_version,
                "provider": served.session.provider,
                "labels": list(served.labels),
                "input": served.input.model_dump(mode="json"),
                "policies": sorted(served.policies),
                "problem": model.problem,
            }
        )
    return {"items": items}


def _summary(revision: Revision, state: str) -> dict[str, Any]:
    return {
        "id": revision.id,
        "state": state,
        "parent": revision.parent,
        "bundle": revision.bundle_version,
        "cause": revision.cause,
        "by": revision.by,
        "gate": revision.gate,
        "created_at": iso(revision.created_at),
        "summary": revision.report.get("summary"),
    }


def _moved(response: Response, pointer: Pointer) -> dict[str, Any]:
    response.headers["etag"] = f'"{pointer.epoch}"'
    return {"active": pointer.active, "previous": pointer.previous, "epoch": pointer.epoch}


def router() -> APIRouter:
    """Return the routes below /v1, and the short forms on the default model."""
    of_model = APIRouter(prefix="/v1/models/{model}", dependencies=[Depends(model_in_path)])
    short = APIRouter()
    for routes in (of_model, short):
        feedback.add_to(routes)
        recalibrate.add_to(routes)
    of_model.add_api_route("/revisions", list_revisions, methods=["GET"], tags=["revisions"])
    of_model.add_api_route("/revisions/{revision}", get_revision, methods=["GET"], tags=["revisions"])
    of_model.add_api_route("/revisions/{revision}/activate", activate, methods=["POST"], tags=["revisions"])
    of_model.add_api_route("/rollback", rollback, methods=["POST"], tags=["revisions"])
    of_model.add_api_route("/policies/{policy}", get_policy, methods=["GET"], tags=["policies"])
    of_model.add_api_route("/policies/{policy}", put_policy, methods=["PUT"], status_code=201, tags=["policies"])
    whole = APIRouter()
    whole.include_router(of_model)
    whole.include_router(short)
    whole.add_api_route("/v1/models", list_models, methods=["GET"], tags=["models"])
    whole.add_api_route("/v1/jobs/{job}", recalibrate.job, methods=["GET"], tags=["recalibration"])
    return whole
