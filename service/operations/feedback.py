"""Labels of earlier predictions: check them, store them durably, count them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from candor.contract.feedback import FeedbackEntry
from service.errors import FeedbackError, MalformedPredictionIdError, UnknownLabelError
from service.ids import is_prediction_id
from service.operations.principal import Principal
from service.places import Place
from service.runtime import Runtime
from service.state.database import now_us
from service.state.feedback import FeedbackItem, FeedbackReceipt, Within
from service.times import iso, microseconds

PlaceOf = Callable[[int, str | None], Place | str]
"""The place of an item in the request, or of one of its fields."""
_CLOCKS_DIFFER_US: Final = 5 * 60 * 1_000_000


def checked(
    entries: Sequence[FeedbackEntry], labels: tuple[str, ...], place: PlaceOf, *, by: Principal
) -> list[FeedbackItem]:
    """Return the labels of a request, all checked.

    Args:
        entries: As they were sent.
        labels: Names of the model's classes.
        place: Names an item in errors.
        by: The caller; its key may be bound to one source.

    Raises:
        FeedbackError: An item does not name one prediction, is from the future, or has a source that the key may not
            send.
        MalformedPredictionIdError: An id cannot be one of Candor's.
        UnknownLabelError: The model lacks a label.
    """
    known = set(labels)
    latest = now_us() + _CLOCKS_DIFFER_US
    items = []
    for index, entry in enumerate(entries):
        if (entry.prediction_id is None) == (entry.reference is None):
            raise FeedbackError(
                "An item names its prediction either by prediction_id or by reference.",
                where=place(index, None),
                found="neither" if entry.reference is None else "both",
                expected="one of prediction_id and reference",
            )
        if entry.prediction_id is not None and not is_prediction_id(entry.prediction_id):
            raise MalformedPredictionIdError(
                "This is not a prediction id of this service.",
                where=place(index, "prediction_id"),
                found=entry.prediction_id[:64],
                expected="26 characters as in a prediction's answer",
                remedy="Send your own ids as `reference`.",
            )
        if entry.label not in known:
            raise UnknownLabelError(
                "The model has no such label.",
                where=place(index, "label"),
                found=entry.label[:200],
                expected=list(labels),
            )
        labelled_at = None if entry.labelled_at is None else microseconds(entry.labelled_at)
        if labelled_at is not None and labelled_at > latest:  # it would win for good
            raise FeedbackError(
                "The label is from the future.",
                where=place(index, "labelled_at"),
                found=entry.labelled_at,
                expected=f"at most {iso(now_us())}",
            )
        source = entry.source
        if by.source is not None:
            if "source" in entry.model_fields_set and source != by.source:
                raise FeedbackError(
                    "The API key may send labels of its own source only.",
                    where=place(index, "source"),
                    found=source,
                    expected=by.source,
                )
            source = by.source
        items.append(FeedbackItem(entry.prediction_id, entry.reference, entry.label, source, labelled_at))
    return items


async def store(
    runtime: Runtime,
    model: str,
    items: Sequence[FeedbackItem],
    *,
    by: Principal,
    idempotency_key: str | None = None,
    body_digest: bytes | None = None,
    within: Within | None = None,
) -> FeedbackReceipt:
    """Store labels, all or none; they are durable, and counted, when this returns.

    Args:
        runtime: Parts of the service.
        model: Name of the model.
        items: Checked labels.
        by: The caller.
        idempotency_key: The caller's key for the request: a repetition returns the first receipt.
        body_digest: Digest of the request's body, to detect a key that is used for another body.
        within: Called in the same transaction, before the labels are stored.

    Raises:
        FeedbackError: The references match too many predictions, or a text cannot be stored.
        IdempotencyConflictError: The caller used the key for another body.
        StateUnavailableError: The database does not answer.
    """
    receipt = await asyncio.wrap_future(
        runtime.feedback.submit(
            model,
            items,
            by=by.name,
            by_key=by.prefix,
            idempotency_key=idempotency_key,
            body_digest=body_digest,
            within=within,
        )
    )
    if receipt.batch is None:
        runtime.metrics.feedback.add(model, "replayed", len(receipt.items))
    else:
        for status, number in Counter(item.status for item in receipt.items).items():
            runtime.metrics.feedback.add(model, status, number)
        runtime.labels.stored(model, receipt.batch, items)
    return receipt
