"""Revisions, policies and models over HTTP, and the router that holds the whole control plane."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from fastapi import Body as JsonBody
from starlette.concurrency import run_in_threadpool

from bundle import Columns
from service.decisions.certificates import warnings
from service.decisions.policy import Policy
from service.decisions.solved import SolvedPolicy
from service.errors import InputValueError, UnknownPolicyError
from service.models import Model
from service.rest import (
    answers,
    approval,
    erase,
    feedback,
    jobs,
    labelled_sets,
    monitoring,
    prior_shift,
    recalibrate,
    simulate,
)
from service.rest.dependencies import Caller, ModelDep, RuntimeDep, model_in_path
from service.revision import Revision
from service.times import iso


async def list_revisions(
    runtime: RuntimeDep,
    model: ModelDep,
    response: Response,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[str | None, Query(description="`next` of the page before.")] = None,
) -> dict[str, Any]:
    """List revisions, newest first. The ETag is the epoch that activate and rollback want back as If-Match."""
    pointer = await run_in_threadpool(runtime.revisions.pointer, model.name) or model.pointer
    page = await run_in_threadpool(runtime.revisions.list, model.name, limit=limit + 1, before=before)
    states = await run_in_threadpool(runtime.revisions.states, model.name)  # read second: it has all of the page
    response.headers["etag"] = f'"{pointer.epoch}"'
    return {
        "active": pointer.active,
        "previous": pointer.previous,
        "epoch": pointer.epoch,
        "items": [_summary(revision, states[revision.id]) for revision in page[:limit]],
        "next": page[limit - 1].id if len(page) > limit else None,
    }


async def get_revision(runtime: RuntimeDep, model: ModelDep, revision: str) -> dict[str, Any]:
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


async def get_policy(model: ModelDep, policy: str) -> dict[str, Any]:
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
    by: Caller,
    response: Response,
    policy: str,
    document: Annotated[dict[str, Any], JsonBody()],
) -> dict[str, Any]:
    """Propose a new or changed policy. It is solved on the reference rows and takes force when it is activated.

    `warnings` say where nothing is certified, what the rows get then, and how many labels are missing. Of segments
    nothing is certified here, since reference rows are of none: a refit on labelled traffic does that.
    """
    wanted = Policy.from_dict({"id": policy, **document})
    if wanted.id != policy:
        raise InputValueError("The policy's id is not that of the path.", where="/id", found=wanted.id, expected=policy)
    revision = await run_in_threadpool(runtime.models.propose_policy, model.name, wanted, by=by.name, by_key=by.prefix)
    states = await run_in_threadpool(runtime.revisions.states, model.name)
    response.status_code = 200 if states[revision.id] == "active" else 201  # in force already: nothing was made
    response.headers["location"] = f"/v1/models/{model.name}/revisions/{revision.id}"
    solved = revision.policies[policy]
    said = warnings(SolvedPolicy.from_dict(solved))
    return {**_summary(revision, states[revision.id]), "policy": solved, "warnings": said}


async def list_models(runtime: RuntimeDep) -> dict[str, Any]:
    """List the models: what each serves, and why one that should serve does not."""
    return {"items": [_model(model) for model in runtime.models.all()]}


async def load_model(runtime: RuntimeDep, by: Caller, model: str) -> dict[str, Any]:
    """Serve a model, on every replica; newer bundles in its folder become proposals, `refused` says which do not."""
    refused = await run_in_threadpool(runtime.models.load, model, by=by.name)
    return {**_model(runtime.models.get(model)), "refused": {str(version): why for version, why in refused.items()}}


async def unload_model(runtime: RuntimeDep, by: Caller, model: str) -> dict[str, Any]:
    """Serve a model no longer, on any replica. What it has taken on is answered, and its state stays as it is."""
    await run_in_threadpool(runtime.models.unload, model, by=by.name)
    return _model(runtime.models.get(model))


def _model(model: Model) -> dict[str, Any]:
    served = model.plane.served
    encoder = served and served.encoder
    in_service = served and {
        "revision": served.revision.id,
        "bundle": served.revision.bundle_version,
        "provider": served.session.provider,
        "labels": list(served.labels),
        "input": served.input.model_dump(mode="json"),
        "columns": [column.name for column in encoder.columns] if isinstance(encoder, Columns) else None,
        "policies": sorted(served.policies),
    }
    return {
        "model": model.name,
        "loaded": model.desired.loaded,
        "epoch": model.pointer.epoch,
        **(in_service or {"revision": None}),
        "problem": model.problem,
    }


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


def router() -> APIRouter:
    """Return the routes below /v1, and the short forms on the default model."""
    of_model = APIRouter(prefix="/v1/models/{model}", dependencies=[Depends(model_in_path)])
    short = APIRouter()
    for routes in (of_model, short):
        feedback.add_to(routes)
        recalibrate.add_to(routes)
    page, whole_revision = answers.documented(answers.RevisionPage), answers.documented(answers.Revision)
    of_model.add_api_route("/revisions", list_revisions, methods=["GET"], tags=["revisions"], responses=page)
    of_model.add_api_route(
        "/revisions/{revision}", get_revision, methods=["GET"], tags=["revisions"], responses=whole_revision
    )
    approval.add_to(of_model)
    solved = answers.documented(answers.SolvedPolicy)
    of_model.add_api_route("/policies/{policy}", get_policy, methods=["GET"], tags=["policies"], responses=solved)
    of_model.add_api_route(
        "/policies/{policy}",
        put_policy,
        methods=["PUT"],
        status_code=201,
        tags=["policies"],
        responses=answers.documented(answers.ProposedPolicy, 201, 200),
    )
    simulate.add_to(of_model)
    monitoring.add_to(of_model)
    erase.add_to(of_model)
    labelled_sets.add_to(of_model)
    prior_shift.add_to(of_model)
    loaded, state = answers.documented(answers.LoadedModel), answers.documented(answers.ModelState)
    of_model.add_api_route("/load", load_model, methods=["POST"], tags=["models"], responses=loaded)
    of_model.add_api_route("/unload", unload_model, methods=["POST"], tags=["models"], responses=state)
    whole = APIRouter()
    whole.include_router(of_model)
    whole.include_router(short)
    models = answers.documented(answers.ModelPage)
    whole.add_api_route("/v1/models", list_models, methods=["GET"], tags=["models"], responses=models)
    jobs.add_to(whole)
    return whole
