"""Feedback: true labels of earlier predictions, and what became of them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, FailFast, Field

from candor.contract.documents import Answer, Body, Entry, Text
from candor.contract.times import Time

MOST_ITEMS: Final = 10_000
"""Maximum number of items in one request."""


class FeedbackEntry(Entry):
    """The true label of one earlier prediction, named by its id or by your own reference."""

    prediction_id: str | None = Field(None, description="Id from the prediction's answer.")
    reference: Text | None = Field(None, max_length=200, description="Your own id of the row.")
    label: str = Field(description="True label, one of the model's label names.")
    source: Text = Field("client", max_length=100, description="Source of the label: reviewer, system, client …")
    labelled_at: Time | None = Field(None, description="When the label became known; default: now.")


class FeedbackRequest(Body):
    """True labels of earlier predictions."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "items": [
                    {"prediction_id": "01K0ZJ6Z3V8Q2W4X6Y8A0C2E4G", "label": "7", "source": "reviewer"},
                    {"reference": "scan-88", "label": "1"},
                ]
            }
        }
    )

    items: Annotated[list[FeedbackEntry], FailFast()] = Field(min_length=1, max_length=MOST_ITEMS)


class FeedbackStatus(Answer):
    """What became of one item."""

    status: Literal["stored", "pending", "duplicate", "conflict"] = Field(
        description="`pending`: the prediction is unknown so far; the label is kept and joined when it arrives. "
        "`conflict`: stored, but it differs from the label that was current."
    )


class FeedbackReceipt(Answer):
    """What became of the items. Everything counted here is on disk."""

    stored: int
    pending: int
    duplicates: int
    conflicts: int
    items: tuple[FeedbackStatus, ...] = Field(description="One for each item, in order.")
