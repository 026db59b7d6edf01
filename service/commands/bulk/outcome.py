"""What is written beside a row: its prediction, or why the service refused it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from candor import ApiError
from candor.contract.predictions import Prediction
from service.commands.bulk.tables import Kind
from service.errors import InputValueError


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Columns that a run adds to a file.

    Attributes:
        labels: Labels of the model, in order.
        top: Number of labels with their probability to write, largest first; None for the probability of each label.
    """

    labels: tuple[str, ...]
    top: int | None

    @property
    def kinds(self) -> dict[str, Kind]:
        """Kind of each column, in order."""
        if self.top is None:
            probabilities: dict[str, Kind] = {f"p_{label}": "float" for label in self.labels}
        else:
            probabilities = {}
            for place in range(1, self._shown + 1):
                probabilities |= {f"label_{place}": "text", f"p_{place}": "float"}
        first: dict[str, Kind] = {"prediction_id": "text", "label": "text", "confidence": "float"}
        return {**first, **probabilities, "action": "text", "revision": "text", "error": "text"}

    def of_prediction(self, prediction: Prediction, revision: str) -> dict[str, Any]:
        """Return the values of a predicted row.

        Raises:
            InputValueError: The model has other labels than when the run began.
        """
        found = prediction.probabilities
        if len(found) != (len(self.labels) if self.top is None else self._shown) or not found.keys() <= {*self.labels}:
            raise InputValueError(
                "The labels of the model have changed since the run began.",
                where=revision,
                found=list(found)[:20],
                expected=list(self.labels)[:20],
                remedy="Delete the unfinished file and predict all rows again.",
            )
        decision = prediction.decision
        return {
            "prediction_id": prediction.prediction_id,
            "label": prediction.label,
            "confidence": prediction.confidence,
            **(self._each(found) if self.top is None else self._largest(found)),
            "action": None if decision is None else decision.action,
            "revision": revision,
        }

    @staticmethod
    def of_refusal(error: ApiError) -> dict[str, Any]:
        """Return the values of a row that the service refused."""
        details = [f"{key}: {getattr(error, key)}" for key in ("found", "expected") if getattr(error, key) is not None]
        return {"error": " ".join([str(error), *([f"({', '.join(details)})"] if details else [])])}

    @property
    def _shown(self) -> int:
        return min(self.top or 0, len(self.labels))

    def _each(self, found: dict[str, float]) -> dict[str, float]:
        return {f"p_{label}": found[label] for label in self.labels}

    def _largest(self, found: dict[str, float]) -> dict[str, Any]:
        pairs: Sequence[tuple[str, float]] = list(found.items())
        labels = {f"label_{place}": label for place, (label, _) in enumerate(pairs, 1)}
        return labels | {f"p_{place}": p for place, (_, p) in enumerate(pairs, 1)}
