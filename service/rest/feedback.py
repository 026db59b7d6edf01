"""POST …/feedback: true labels of earlier predictions, durable before they are acknowledged."""

from __future__ import annotations

import hashlib
from typing import Annotated, Final

from fastapi import APIRouter, Header, Response
from starlette.concurrency import run_in_threadpool

from candor.contract.feedback import FeedbackReceipt, FeedbackStatus
from service.operations import feedback as operations
from service.rest.dependencies import Caller, ModelDep, RuntimeDep
from service.rest.feedback_body import REQUEST_BODY, SentDep
from service.rest.responses import sent
from service.state.feedback import FeedbackItem

_MANY: Final = 100  # items; more are handled off the event loop


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
        digest = hashlib.sha256(received.body).digest() if idempotency_key else None
        return operations.checked(received.entries, labels, received.place, by=by), digest

    many = len(received.entries) > _MANY
    items, digest = await run_in_threadpool(checked) if many else checked()
    receipt = await operations.store(
        runtime, model.name, items, by=by, idempotency_key=idempotency_key, body_digest=digest
    )

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

    return await run_in_threadpool(answer) if many else answer()


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
