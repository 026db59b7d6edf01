"""Schemas of the contract for the bodies and answers that FastAPI does not see."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from candor.contract import kserve, open_inference
from candor.contract.feedback import FeedbackReceipt, FeedbackRequest
from candor.contract.labels import LabelsPredictions, LabelsScoredRequest
from candor.contract.predictions import PredictionRequest, Predictions, ScoredRequest
from candor.contract.problem import Problem
from candor.contract.recalibration import RecalibrationRequest

_PROTOCOLS: Final = (
    kserve.InstancePredictions,
    kserve.ModelReadiness,
    open_inference.Done,
    open_inference.InferenceError,
    open_inference.InferenceResponse,
    open_inference.ModelConfiguration,
    open_inference.ModelMetadata,
    open_inference.ModelReady,
    open_inference.RepositoryEntry,
    open_inference.ServerLive,
    open_inference.ServerMetadata,
    open_inference.ServerReady,
    open_inference.Statistics,
)  # answers of other protocols
_WHERE: Final = "#/components/schemas/"


def ref(kind: type[BaseModel]) -> dict[str, str]:
    """Return a reference to one of `schemas`."""
    return {"$ref": f"{_WHERE}{kind.__name__}"}


def schemas() -> dict[str, Any]:
    """Return the schemas by name, with those of their parts."""
    _, document = models_json_schema(
        [
            (FeedbackRequest, "validation"),
            (LabelsScoredRequest, "validation"),
            (PredictionRequest, "validation"),
            (RecalibrationRequest, "validation"),
            (ScoredRequest, "validation"),
            (FeedbackReceipt, "serialization"),
            (LabelsPredictions, "serialization"),
            (Predictions, "serialization"),
            (Problem, "serialization"),
            *((kind, "serialization") for kind in _PROTOCOLS),
        ],
        ref_template=f"{_WHERE}{{model}}",
    )
    found: dict[str, Any] = document["$defs"]
    return found
