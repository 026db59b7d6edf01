"""POST …/feedback: true labels of earlier predictions, durable before they are acknowledged."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from typing import Annotated, Final

from fastapi import APIRouter, Header, Response
from starlette.concurrency import run_in_threadpool

from candor.contract.feedback import FeedbackReceipt, FeedbackStatus
from service.errors import FeedbackError, MalformedPredictionIdError, UnknownLabelError
from service.ids import is_prediction_id
from service.rest.dependencies import Caller, ModelDep, RuntimeDep
from service.rest.feedback_body import REQUEST_BODY, Sent, SentDep
from service.rest.responses import sent
from service.state.database import now_us
from service.state.feedback import FeedbackItem
from service.times import iso, microseconds

_MANY: Final = 100  # items; more are handled off the event loop
_CLOCKS_DIFFER_US = 5 * 60 * 1_000_000


async def feedback(
    runtime: RuntimeDep,
    model: ModelDep,
    by: Caller,
    received: SentDep,
    idempotency_key: Annotated[
        str | None, Header(min_length=1, max_length=200, description="Makes a repeated request harmless.")
    ] = None,
) -> Response:
    """Store true labels of earlier predictions, all of the request or none. They are durable when the answer comes.

    NDJSON and CSV hold the same items as JSON; what is wrong in them is named by line and column.
    """
    labels = model.served.labels

    def checked() -> tuple[list[FeedbackItem], bytes | None]:
        return _items(received, labels, by.source), hashlib.sha256(received.body).digest() if idempotency_key else None

    items, digest = await run_in_threadpool(checked) if len(received.entries) > _MANY else checked()
    receipt = await asyncio.wrap_future(
        runtime.feedback.submit(
            model.name, items, by=by.name, by_key=by.prefix, idempotency_key=idempotency_key, body_digest=digest
        )
    )
    if receipt.batch is None:
        runtime.metrics.feedback.add(model.name, "replayed", len(receipt.items))
    else:
        for status, number in Counter(item.status for item in receipt.items).items():
            runtime.metrics.feedback.add(model.name, status, number)
        runtime.labels.stored(model.name, receipt.batch, items)

    def answer() -> Response:
        return sent(
            FeedbackReceipt(
                stored=receipt.stored,
                pending=receipt.pending,
                duplicates=receipt.duplicates,
                conflicts=receipt.conflicts,
                items=tuple(FeedbackStatus(status=item.status) for item in receipt.items),
            )
        )

    return await run_in_threadpool(answer) if len(items) > _MANY else answer()


def _items(sent: Sent, labels: tuple[str, ...], own: str | None) -> list[FeedbackItem]:
    """Return checked items; `own` is the only source that the key may send, None for any."""
    known = set(labels)
    items = []
    for index, entry in enumerate(sent.entries):
        if (entry.prediction_id is None) == (entry.reference is None):
            raise FeedbackError(
                "An item names its prediction either by prediction_id or by reference.",
                where=sent.place(index),
                found="neither" if entry.reference is None else "both",
                expected="one of prediction_id and reference",
            )
        if entry.prediction_id is not None and not is_prediction_id(entry.prediction_id):
            raise MalformedPredictionIdError(
                "This cannot be a prediction id of ours.",
                where=sent.place(index, "prediction_id"),
                found=entry.prediction_id[:64],
                expected="26 characters as in a prediction's answer",
                remedy="Your own names go into `reference`.",
            )
        if entry.label not in known:
            raise UnknownLabelError(
                "The model has no such label.",
                where=sent.place(index, "label"),
                found=entry.label[:200],
                expected=list(labels),
            )
        labelled_at = None if entry.labelled_at is None else microseconds(entry.labelled_at)
        if labelled_at is not None and labelled_at > now_us() + _CLOCKS_DIFFER_US:  # it would win for good
            raise FeedbackError(
                "The label is from the future.",
                where=sent.place(index, "labelled_at"),
                found=entry.labelled_at,
                expected=f"at most {iso(now_us())}",
            )
        source = entry.source
        if own is not None:
            if "source" in entry.model_fields_set and source != own:
                raise FeedbackError(
                    "The API key may send labels of its own source only.",
                    where=sent.place(index, "source"),
                    found=source,
                    expected=own,
                )
            source = own
        items.append(FeedbackItem(entry.prediction_id, entry.reference, entry.label, source, labelled_at))
    return items


def add_to(router: APIRouter) -> None:
    """Mount the endpoint."""
    router.add_api_route(
        "/feedback",
        feedback,
        methods=["POST"],
        tags=["feedback"],
        response_model=FeedbackReceipt,
        openapi_extra={"requestBody": REQUEST_BODY},
    )
