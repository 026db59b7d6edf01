"""POST …/feedback: true labels of earlier predictions, durable before they are acknowledged."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Request
from pydantic import AwareDatetime, ConfigDict, FailFast, Field
from pydantic.config import JsonDict
from starlette.concurrency import run_in_threadpool

from service.errors import FeedbackError, MalformedPredictionIdError, UnknownLabelError
from service.ids import is_prediction_id
from service.rest.dependencies import Caller, ModelDep, RuntimeDep
from service.rest.schema import Body, Text
from service.state.database import now_us
from service.state.feedback import FeedbackItem
from service.times import iso, microseconds

_EXAMPLE: JsonDict = {
    "items": [
        {"prediction_id": "01K0ZJ6Z3V8Q2W4X6Y8A0C2E4G", "label": "7", "source": "reviewer"},
        {"reference": "scan-88", "label": "1"},
    ]
}


MOST_ITEMS = 10_000
_CLOCKS_DIFFER_US = 5 * 60 * 1_000_000


class FeedbackEntry(Body):
    """The true label of one earlier prediction, named by its id or by the client's own reference."""

    prediction_id: str | None = Field(None, description="Id from the prediction's answer.")
    reference: Text | None = Field(None, max_length=200, description="Your own id of the row.")
    label: str = Field(description="The true label, as the model names it.")
    source: Text = Field("client", max_length=100, description="Who says so: reviewer, system, client …")
    labelled_at: AwareDatetime | None = Field(None, description="When it was found out; left out: now.")


class FeedbackBody(Body):
    """Labels for earlier predictions."""

    items: Annotated[list[FeedbackEntry], FailFast()] = Field(min_length=1, max_length=MOST_ITEMS)
    model_config = ConfigDict(json_schema_extra={"example": _EXAMPLE})


class FeedbackItemStatus(Body):
    """What became of one item."""

    status: Literal["stored", "pending", "duplicate", "conflict"] = Field(
        description="`pending`: the prediction is not known yet; the label is kept and joined when it is. "
        "`conflict`: stored, and it differs from the label that was current."
    )


class FeedbackAnswer(Body):
    """What became of the items; whatever is counted here is on disk."""

    stored: int
    pending: int
    duplicates: int
    conflicts: int
    items: list[FeedbackItemStatus]


async def feedback(
    request: Request,
    runtime: RuntimeDep,
    model: ModelDep,
    by: Caller,
    body: FeedbackBody,
    idempotency_key: Annotated[
        str | None, Header(min_length=1, max_length=200, description="Makes a repeated request harmless.")
    ] = None,
) -> FeedbackAnswer:
    """Store true labels of earlier predictions. They are durable when the answer comes."""
    items = _items(body, model.served.labels)
    digest = hashlib.sha256(await request.body()).digest() if idempotency_key else None
    receipt = await run_in_threadpool(
        runtime.feedback.add, model.name, items, by=by.name, idempotency_key=idempotency_key, body_digest=digest
    )
    for item in receipt.items:
        runtime.metrics.feedback.labels(model.name, item.status).inc()
    return FeedbackAnswer(
        stored=receipt.stored,
        pending=receipt.pending,
        duplicates=receipt.duplicates,
        conflicts=receipt.conflicts,
        items=[FeedbackItemStatus(status=item.status) for item in receipt.items],
    )


def _items(body: FeedbackBody, labels: tuple[str, ...]) -> list[FeedbackItem]:
    known = set(labels)
    items = []
    for index, entry in enumerate(body.items):
        where = f"/items/{index}"
        if (entry.prediction_id is None) == (entry.reference is None):
            raise FeedbackError(
                "An item names its prediction either by prediction_id or by reference.",
                where=where,
                found="neither" if entry.reference is None else "both",
                expected="one of prediction_id and reference",
            )
        if entry.prediction_id is not None and not is_prediction_id(entry.prediction_id):
            raise MalformedPredictionIdError(
                "This cannot be a prediction id of ours.",
                where=f"{where}/prediction_id",
                found=entry.prediction_id[:64],
                expected="26 characters as in a prediction's answer",
                remedy="Your own names go into `reference`.",
            )
        if entry.label not in known:
            raise UnknownLabelError(
                "The model has no such label.", where=f"{where}/label", found=entry.label[:200], expected=list(labels)
            )
        labelled_at = None if entry.labelled_at is None else microseconds(entry.labelled_at)
        if labelled_at is not None and labelled_at > now_us() + _CLOCKS_DIFFER_US:  # it would win for good
            raise FeedbackError(
                "The label is from the future.",
                where=f"{where}/labelled_at",
                found=entry.labelled_at,
                expected=f"at most {iso(now_us())}",
            )
        items.append(FeedbackItem(entry.prediction_id, entry.reference, entry.label, entry.source, labelled_at))
    return items


def add_to(router: APIRouter) -> None:
    """Mount the endpoint."""
    router.add_api_route("/feedback", feedback, methods=["POST"], tags=["feedback"])
