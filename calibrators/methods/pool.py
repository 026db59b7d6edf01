"""A weighted mean of the probabilities of several calibrators (linear opinion pool)."""

from __future__ import annotations

from typing import Any, ClassVar, Self, final

import numpy as np

from calibrators.arrays import Doubles
from calibrators.calibrator import Calibrator
from calibrators.documents import Document
from calibrators.errors import CalibrationDataError
from calibrators.registry import restored
from calibrators.validation import LabelledRows


@final
class Pool(Calibrator):
    """Mix the probabilities of several calibrators: p = Σ w_m p_m. `auto` makes it; it is not a method by name.

    The log loss of a pool is at most the weighted mean of its members' log losses, row by row. A member that gives a
    class a probability of 0 does no lasting harm if another member does not.

    Args:
        members: The calibrators.
        weights: (M,) 0 or more, with a sum of 1.

    Raises:
        CalibrationDataError: No members, or weights that do not fit.

    References:
        Stone (1961), The opinion pool; Ranjan, Gneiting (2010), Combining probability forecasts.
    """

    name: ClassVar[str] = "pool"

    def __init__(self, members: list[Calibrator], weights: Doubles) -> None:
        shares = np.asarray(weights, np.float64)
        if not members or shares.shape != (len(members),) or (shares < 0).any() or abs(shares.sum() - 1) > 1e-9:
            raise CalibrationDataError(
                "Bad weights",
                where="weights",
                found=f"{shares.tolist()} for {len(members)} members",
                expected="one of 0 or more per member, with a sum of 1",
            )
        self.members = list(members)
        self.weights = shares
        self.classes_ = max(one.classes_ for one in members)

    def _fit(self, rows: LabelledRows) -> None:
        for one in self.members:
            one.fit(rows.logits, rows.labels, rows.weight)
        self.classes_ = rows.logits.shape[1]

    def _transform(self, logits: Doubles, maxima: Doubles) -> Doubles:  # noqa: ARG002
        result = np.zeros_like(logits)
        for weight, one in zip(self.weights, self.members, strict=True):
            result += weight * one.predict_proba(logits)
        return np.minimum(result, 1, out=result)

    def _parameters(self) -> dict[str, Any]:
        members = [one.to_dict() for one in self.members]
        return {"classes": self.classes_, "members": members, "weights": self.weights.tolist()}

    @classmethod
    def _restore(cls, document: Document) -> Self:
        classes = document.classes()
        members = [restored(one, without=("auto", "prior_shift")) for one in document.objects("members")]
        if not members or any(one.classes_ not in (0, classes) for one in members):
            document.refuse("members", f"{len(members)} of other classes", f"one or more for {classes} classes")
        calibrator = cls(members, document.shares("weights", len(members)))
        calibrator.classes_ = classes
        return calibrator
