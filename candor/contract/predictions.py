"""Predictions: the JSON request, and one prediction for each input."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, StringConstraints

from candor.contract.certificates import AppliedSegment, Certificate, SetCertificate
from candor.contract.documents import Answer, Body
from candor.contract.expressions import LARGEST_AMOUNT

_EXAMPLE: Final[dict[str, Any]] = {
    "model": "digits",
    "revision": "r7",
    "policy": {
        "id": "auto-read@3",
        "certified": {
            "accept": {
                "metric": "precision",
                "at_least": 0.95,
                "at_most": None,
                "delta": 0.025,
                "n": 189,
                "errors": 3,
                "looks": 1,
                "basis": "reference",
                "window": None,
                "valid": True,
                "reason": None,
                "needed": None,
                "per": "row",
                "groups": None,
                "group_limit": None,
                "wrong_labels": 0.0,
                "per_day": None,
                "rows_per_day": None,
                "segment": None,
            }
        },
    },
    "predictions": [
        {
            "prediction_id": "01K0ZJ6Z3V8Q2W4X6Y8A0C2E4G",
            "reference": "scan-91",
            "label": "7",
            "confidence": 0.9312,
            "probabilities": {"7": 0.9312, "9": 0.0411},
            "decision": {"action": "accept", "label_sought": False},
        }
    ],
}

_Input = (
    Annotated[list[Any], Field(description="An example as nested arrays of numbers.")]
    | Annotated[str, Field(description="An image in base64, or a text.")]
    | Annotated[
        dict[str, float | str | list[Any] | bool | None],
        Field(
            description="A table row by column name, where null or a missing entry is a missing value; or the tensors "
            "of an example by name, as nested arrays."
        ),
    ]
    | Annotated[float, Field(description="One number of a single example sent without its batch axis.")]
)
Amounts = list[Annotated[float, Field(ge=0, le=LARGEST_AMOUNT)] | None]
Names = list[Annotated[str, StringConstraints(min_length=1, max_length=200)] | None]


class RowsRequest(Body):
    """What any batch may say of its rows besides their inputs."""

    references: Names | None = Field(None, description="Your own ids, one for each row; feedback can refer to them.")
    groups: Names | None = Field(None, description="What each row belongs to: card, patient …")
    segments: Names | None = Field(None, description="Part of the traffic that each row belongs to: country, shop …")
    amounts: Amounts | None = Field(None, description="What is at stake in each row, in one unit of money.")


class PredictionRequest(RowsRequest):
    """A batch of inputs in JSON."""

    inputs: list[_Input] = Field(min_length=1)


class ScoredRequest(RowsRequest):
    """A batch of scores of a model that others run; the metadata of the model names the field that it takes."""

    scores: list[float] | None = Field(None, min_length=1, description="One score per row.")
    probabilities: list[list[float]] | None = Field(
        None, min_length=1, description="One probability per class and row; they add up to 1."
    )
    logits: list[list[float]] | None = Field(None, min_length=1, description="One logit per class and row.")


class Decision(Answer):
    """What the policy decided for one input."""

    action: str
    label_sought: bool | None = Field(
        description="Whether a label is requested for this prediction; null for a row sent to review by a policy with "
        "a daily capacity (`review.max_per_day`), which selects after the answer."
    )
    segment: str | None = Field(
        None, description="With segments: the policy's segment that the row belongs to; null for none of them."
    )
    set: tuple[str, ...] | None = Field(
        None, description="With `set` in the policy: the prediction set, labels in the model's order; may be empty."
    )


class AppliedPolicy(Answer):
    """The policy that decided."""

    id: str = Field(description="Policy and version, such as `auto-read@3`.")
    certified: dict[str, Certificate] = Field(description="Certificates by action; empty with segments.")
    fallback: str | None = Field(
        None, description="With segments: the action of rows in no certified segment of the policy."
    )
    segments: dict[str, AppliedSegment] = Field(
        {}, description="With segments: what is certified for each segment of the request, by value."
    )
    sets: dict[str, SetCertificate] = Field(
        {}, description="What is certified of the prediction sets, by segment; the empty text stands for all rows."
    )


class Prediction(Answer):
    """The prediction for one input."""

    prediction_id: str = Field(description="Id that feedback refers to.")
    reference: str | None = Field(description="Your own id of the input.")
    label: str = Field(description="The most probable label.")
    confidence: float = Field(description="Calibrated probability of that label.")
    probabilities: dict[str, float] = Field(description="Calibrated probabilities by label; with `top`, the largest.")
    decision: Decision | None = Field(description="Null where no policy decided.")


class Predictions(Answer):
    """One prediction per input, in order, all by one revision."""

    model_config = ConfigDict(json_schema_extra={"example": _EXAMPLE})

    model: str
    revision: str
    policy: AppliedPolicy | None = Field(description="The policy that decided; null for none.")
    predictions: tuple[Prediction, ...]
