"""No calibration: the plain softmax."""

from __future__ import annotations

from typing import Any, ClassVar, Self, final

from calibrators.arrays import Doubles
from calibrators.calibrator import Calibrator
from calibrators.chunks import logit_chunks
from calibrators.documents import Document
from calibrators.softmax import softmax_in_place
from calibrators.validation import LabelledRows


@final
class Identity(Calibrator):
    """Plain softmax, the model's own probabilities: the baseline for every other method.

    Works for any number of classes, unfitted too: `fit` checks its arguments and learns nothing.

    Preserves: everything, as it returns the raw probabilities.
    When to use: as the baseline, and if no other method is shown to be better.

    Example:
        >>> Identity().predict_proba([[0.0, 0.0]])
        array([[0.5, 0.5]])
    """

    name: ClassVar[str] = "identity"
    preserves_order: ClassVar[bool] = True
    _needs_fit: ClassVar[bool] = False

    def _fit(self, rows: LabelledRows) -> None:
        for _ in logit_chunks(rows.logits):
            pass

    def _transform(self, logits: Doubles, maxima: Doubles) -> Doubles:
        return softmax_in_place(logits, maxima)

    def _parameters(self) -> dict[str, Any]:
        return {}

    @classmethod
    def _restore(cls, document: Document) -> Self:  # noqa: ARG003
        return cls()
