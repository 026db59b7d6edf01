"""Erasure: delete everything stored about one subject."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from candor.contract.documents import Answer, Body, Text


class ErasureRequest(Body):
    """The subject to erase, named by exactly one of the three fields."""

    model_config = ConfigDict(json_schema_extra={"example": {"group": "card-5"}})

    group: Text | None = Field(None, description="Group that predictions were sent with in `groups`.")
    reference: Text | None = Field(None, description="Your own reference of predictions or labels.")
    prediction_id: Text | None = Field(None, description="Id of a prediction.")


class Erasure(Answer):
    """Number of rows erased for a subject."""

    model: str
    predictions: int
    inputs: int = Field(description="Stored inputs.")
    labels: int
    receipts: int = Field(description="Receipts of the feedback requests that brought the labels.")
    cases: int = Field(description="Cases of the review queue.")
    labelled_sets: tuple[str, ...] = Field(
        description="Labelled sets that contain rows of the group. They are kept; delete them whole."
    )
