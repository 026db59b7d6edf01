"""The steps of an inference request that all transports share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeVar

from service.errors import InputError
from service.open_inference.errors import name_row
from service.open_inference.request import Inference
from service.operations.predicting import Prediction

W = TypeVar("W")


class Inferring(Prediction[Inference, W]):
    """One inference request."""

    remaining_s: float | None = None
    """Time that the client still waits, None if unknown."""

    def _given(self) -> dict[str, Any]:
        inference = self.read
        limits = (self._predicting.deadline_s, inference.timeout_s, self.remaining_s)
        return {
            "deadline_s": min(limit for limit in limits if limit is not None),
            "policy": inference.policy,
            "segment": inference.segment,
            "per_row": inference.per_row,
        }

    def place(self, error: InputError) -> None:
        """Name the row in the input tensor."""
        name_row(error, self.read.where)

    @property
    def size(self) -> int:
        """Bytes of the logits."""
        return self.answer.logits.nbytes

    @abstractmethod
    def write(self) -> W:
        """Return the content of the answer."""
