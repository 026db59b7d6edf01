"""Multi-label models: predictions and feedback of all labels of a row at once."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    StrictBool,
    ValidationError,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from candor.contract.documents import Answer, Body, Entry, Text
from candor.contract.feedback import FeedbackStatus
from candor.contract.predictions import AppliedPolicy, Decision, RowsRequest
from candor.contract.times import Time

MOST_ROWS: Final = 1_000
"""Maximum number of rows in one request of labels."""


class LabelsScoredRequest(RowsRequest):
    """A batch of scores of a multi-label model that others run."""

    scores: list[list[float]] = Field(min_length=1, description="One score per label and row, in the labels' order.")


class LabelModel(Answer):
    """The model of one label."""

    model: str = Field(description="Name of the label's own model: its revisions, policies, feedback, monitors.")
    revision: str
    policy: AppliedPolicy | None = Field(description="The policy that decided; null for none.")


class MultiLabelModel(Answer):
    """A multi-label model."""

    model: str
    labels: dict[str, str] = Field(description="Name of each label's own model, by label.")
    problem: str | None = Field(description="Why it does not answer; null when it does.")


class MultiLabelModels(Answer):
    """All multi-label models."""

    items: tuple[MultiLabelModel, ...]


class LabelsPrediction(Answer):
    """The prediction of all labels for one input."""

    prediction_id: str = Field(description="Id that feedback of labels refers to.")
    reference: str | None = Field(description="Your own id of the input.")
    probabilities: dict[str, float] = Field(
        description="Calibrated probability that the input has the label, by label; they do not add up to 1."
    )
    decisions: dict[str, Decision | None] = Field(description="By label; null where no policy decided.")


class LabelsPredictions(Answer):
    """One prediction per input, in order."""

    model: str
    labels: dict[str, LabelModel] = Field(description="What answered, by label.")
    predictions: tuple[LabelsPrediction, ...]


Presence = StrictBool | Literal[0, 1] | None


def _first_wrong(labels: Any) -> Any:
    """Refuse the first value that is not a presence; thousands of errors would hold up the event loop."""
    if isinstance(labels, dict):
        for label, value in labels.items():
            if not (value is None or (isinstance(value, int | float) and value in (0, 1))):
                context = {"expected": "true, false, 1, 0 or null"}
                error = PydanticCustomError("presence", "A label must be {expected}", context)
                details = InitErrorDetails(type=error, loc=(label,), input=value)
                raise ValidationError.from_exception_data("labels", [details])
    return labels


class LabelsEntry(Entry):
    """The true labels of one earlier prediction, named by its id or by your own reference."""

    prediction_id: str | None = Field(None, description="Id from the prediction's answer.")
    reference: Text | None = Field(None, max_length=200, description="Your own id of the row.")
    labels: Annotated[dict[str, Presence], BeforeValidator(_first_wrong)] = Field(
        min_length=1,
        description="By label: true (or 1) if the row has it, false (or 0) if it lacks it. A label that is null or "
        "left out stays unknown.",
    )
    source: Text = Field("client", max_length=100, description="Source of the labels: reviewer, system, client …")
    labelled_at: Time | None = Field(None, description="When the labels became known; default: now.")


class LabelsFeedback(Body):
    """True labels of earlier predictions of a multi-label model."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"items": [{"reference": "post-7", "labels": {"toxic": True, "threat": False, "insult": None}}]}
        }
    )

    items: Annotated[list[LabelsEntry], FailFast()] = Field(min_length=1, max_length=MOST_ROWS)


class LabelsStatus(Answer):
    """What became of one item."""

    labels: dict[str, FeedbackStatus] = Field(description="By label that was given.")


class LabelsReceipt(Answer):
    """What became of the items. Everything counted here is on disk."""

    stored: int
    pending: int
    duplicates: int
    conflicts: int
    items: tuple[LabelsStatus, ...] = Field(description="One for each item, in order.")
