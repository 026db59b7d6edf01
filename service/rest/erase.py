"""POST /v1/models/{model}/erase: delete what the log holds of one subject."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from pydantic import ConfigDict, Field
from pydantic.config import JsonDict
from starlette.concurrency import run_in_threadpool

from service.decisions.split import cluster_hash
from service.errors import InputValueError, StateUnavailableError
from service.rest import answers
from service.rest.dependencies import Caller, ModelDep, RuntimeDep
from service.rest.schema import Body, Text
from service.state.erasure import Kind, Subject, erase

_FLUSH_S = 10.0
_EXAMPLE: JsonDict = {"group": "card-5"}


class EraseBody(Body):
    """Whose rows: one of the three."""

    group: Text | None = Field(None, description="The entity key that predictions were sent with in `groups`.")
    reference: Text | None = Field(None, description="Your own reference of predictions, or of labels.")
    prediction_id: Text | None = Field(None, description="A prediction's id.")
    model_config = ConfigDict(json_schema_extra={"example": _EXAMPLE})


async def erase_subject(runtime: RuntimeDep, model: ModelDep, by: Caller, body: EraseBody) -> dict[str, Any]:
    """Delete what the log holds of one subject: predictions, kept inputs, labels, and receipts of what brought them.

    What was predicted before the call is erased, whether or not this replica has written it down yet; what another
    replica has still to write is not: ask again when `candor_log_depth` has been 0 on each. The audit log keeps the
    counts and a keyed hash, not the name. Calibrators that were fitted stay as they are, and so do labelled sets that
    were uploaded: `labelled_sets` names those with rows of the group, to be deleted whole.
    """
    names: dict[Kind, str | None] = {
        "group": body.group,
        "reference": body.reference,
        "prediction_id": body.prediction_id,
    }
    subjects = [Subject(kind, name) for kind, name in names.items() if name is not None]
    if len(subjects) != 1:
        raise InputValueError(
            "One subject is erased at a time.",
            where="/",
            found=[subject.kind for subject in subjects] or "none",
            expected="one of group, reference, prediction_id",
        )
    if not await run_in_threadpool(runtime.log.flush, _FLUSH_S):
        raise StateUnavailableError(
            "Predictions wait to be written down, and may be this subject's.",
            found=f"{runtime.log.depth} waiting",
            remedy="Try again when the state database answers.",
        )
    erased = await run_in_threadpool(erase, runtime.database, model.name, subjects[0], by=by.name)
    holding: tuple[str, ...] = ()
    if body.group is not None:
        cluster = cluster_hash(runtime.database.secret, body.group)
        holding = await run_in_threadpool(runtime.labelled_sets.holding, model.name, cluster)
    return {"model": model.name, **asdict(erased), "labelled_sets": holding}


def add_to(router: APIRouter) -> None:
    """Mount the endpoint."""
    counts = answers.documented(answers.Erased)
    router.add_api_route("/erase", erase_subject, methods=["POST"], tags=["models"], responses=counts)
