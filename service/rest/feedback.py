"""POST …/feedback: true labels of earlier predictions, durable before they are acknowledged.

It bypasses FastAPI: clients that post labels one by one would spend more on routing and dependencies than on storing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Response
from starlette.concurrency import run_in_threadpool

from candor.contract.feedback import FeedbackReceipt, FeedbackStatus
from service.errors import InputError
from service.operations import feedback as operations
from service.operations.predicting import LARGE
from service.operations.principal import Principal
from service.places import in_header
from service.rest.bodies import Scope, header
from service.rest.exchange import query_values
from service.rest.feedback_body import REQUEST_BODY, media_type_in, read_feedback
from service.rest.predict_openapi import MODEL
from service.rest.responses import sent
from service.rest.schemas import ref
from service.runtime import Runtime
from service.state.feedback import FeedbackItem

_MANY: Final = 100  # items; more are handled off the event loop
_LONGEST_KEY: Final = 200


@dataclass(frozen=True, slots=True)
class Labelling:
    """A request with labels before its body is read.

    Attributes:
        model: The model.
        labels: Names of its classes.
        by: The caller.
        key: Idempotency key.
        media_type: Of the body.
    """

    model: str
    labels: tuple[str, ...]
    by: Principal
    key: str | None
    media_type: str


def labelling(runtime: Runtime, model_name: str | None, scope: Scope) -> Labelling:
    """Return what a request says before its body is read.

    Args:
        runtime: Parts of the service.
        model_name: The model, None for the default model.
        scope: Scope of the request.

    Raises:
        CandorError: The request cannot be answered.
    """
    model = runtime.models.get(model_name)
    scope["path_params"] = {"model": model.name}  # for the log
    query_values(scope["query_string"], ())
    return Labelling(model.name, model.served.labels, scope["principal"], _idempotency_key(scope), media_type_in(scope))


async def store(runtime: Runtime, request: Labelling, body: bytes) -> Response:
    """Store true labels of earlier predictions, all of the request or none. They are durable when this returns.

    Args:
        runtime: Parts of the service.
        request: The request.
        body: Its body, unpacked.

    Raises:
        CandorError: The labels are refused.
    """

    def checked() -> tuple[list[FeedbackItem], bytes | None]:
        received = read_feedback(body, request.media_type)
        items = operations.checked(received.entries, request.labels, received.place, by=request.by)
        return items, hashlib.sha256(body).digest() if request.key else None

    items, digest = await run_in_threadpool(checked) if len(body) > LARGE // 8 else checked()
    receipt = await operations.store(
        runtime, request.model, items, by=request.by, idempotency_key=request.key, body_digest=digest
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

    return await run_in_threadpool(answer) if len(receipt.items) > _MANY else answer()


def _idempotency_key(scope: Scope) -> str | None:
    key = header(scope, b"idempotency-key")
    if key is not None and not 1 <= len(key) <= _LONGEST_KEY:
        raise InputError(
            "The idempotency key has the wrong length.",
            where=in_header("Idempotency-Key"),
            found=f"{len(key)} characters",
            expected=f"1 to {_LONGEST_KEY}",
        )
    return key


_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Makes a repeated request harmless.",
    "schema": {"type": "string", "minLength": 1, "maxLength": _LONGEST_KEY},
}


def path_item(*, default: bool) -> dict[str, Any]:
    """Return the OpenAPI path item; `default` is that of /feedback, for the default model."""
    return {
        "post": {
            "tags": ["feedback"],
            "operationId": "feedback_default" if default else "feedback",
            "summary": "Send labels" + (" of the default model" if default else ""),
            "description": "Store true labels of earlier predictions, all of the request or none. They are durable "
            "when the answer comes. NDJSON and CSV hold the same items as JSON; errors name their line and column.",
            "parameters": [_KEY] if default else [MODEL, _KEY],
            "requestBody": REQUEST_BODY,
            "responses": {
                "200": {
                    "description": "What was stored, and the status of each item.",
                    "content": {"application/json": {"schema": ref(FeedbackReceipt)}},
                }
            },
        }
    }
