"""Answers of KServe's V1 protocol."""

from __future__ import annotations

from pydantic import Field

from candor.contract.documents import Answer


class InstancePredictions(Answer):
    """One prediction per instance, in order."""

    predictions: tuple[tuple[float, ...], ...] = Field(
        description="Calibrated probabilities of each instance, in the order of `labels`."
    )
    labels: tuple[str, ...] = Field(description="Names of the classes.")
    prediction_ids: tuple[str, ...] = Field(description="Ids for feedback.")
    decisions: tuple[str | None, ...] = Field(
        description="Action of the policy for each instance; null without a policy."
    )


class ModelReadiness(Answer):
    """Whether a model is ready."""

    name: str
    ready: bool
