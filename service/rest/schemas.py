"""Schemas of the contract for the bodies and answers that FastAPI does not see."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from candor.contract.feedback import FeedbackRequest
from candor.contract.predictions import PredictionRequest, Predictions, ScoredRequest
from candor.contract.problem import Problem
from candor.contract.recalibration import RecalibrationRequest

_WHERE: Final = "#/components/schemas/"


def ref(kind: type[BaseModel]) -> dict[str, str]:
    """Return a reference to one of `schemas`."""
    return {"$ref": f"{_WHERE}{kind.__name__}"}


def schemas() -> dict[str, Any]:
    """Return the schemas by name, with those of their parts."""
    _, document = models_json_schema(
        [
            (FeedbackRequest, "validation"),
            (PredictionRequest, "validation"),
            (RecalibrationRequest, "validation"),
            (ScoredRequest, "validation"),
            (Predictions, "serialization"),
            (Problem, "serialization"),
        ],
        ref_template=f"{_WHERE}{{model}}",
    )
    found: dict[str, Any] = document["$defs"]
    return found
