"""Scores that clients send in place of inputs, and the logits that they stand for."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from bundle.errors import BundleFormatError, RowError
from bundle.manifest import SCORES_FILE
from bundle.schema import Finite, Frozen, first_problem
from bundle.tensors import numbers

Form = Literal["positive", "margin", "probabilities", "logits"]
"""The second class's probability, any number that grows with it, or one per class."""

LARGEST: Final = float(np.finfo(np.float32).max)
"""Largest size of a score: logits are float32."""


class Scores(Frozen):
    """What the scores of a model are.

    Attributes:
        form: `positive`, the second class's probability; `margin`, any number that grows with it; `probabilities`, or
            `logits`, one per class.
        centre: Subtracted from a margin.
        scale: Divisor of a margin after that.
        smallest: Probabilities below this are raised to it, so that exact zeros and ones have logits.
        labels: What the scores of each label of a multi-label model are: one score per label and row, of which a pair
            of logits each. Empty in bundles.

    Example:
        >>> Scores(form="positive").logits([0.5, 1.0]).round(3)
        array([[ -0.693,  -0.693],
               [-16.118,   0.   ]], dtype=float32)
        >>> Scores(form="margin", centre=600.0, scale=50.0).logits([700])
        array([[0., 2.]], dtype=float32)
    """

    form: Form
    centre: Finite = 0.0
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    smallest: Annotated[float, Field(gt=0, lt=0.5)] = 1e-7
    labels: tuple[Scores, ...] = ()

    @property
    def field(self) -> str:
        """Name of the field of a request that holds them."""
        return "scores" if self.form in ("positive", "margin") else self.form

    def logits(self, values: Any, classes: int = 2) -> npt.NDArray[np.float32]:
        """Return logits, float32 (N, K).

        Args:
            values: Numbers (N,), or (N, K) for a number per class.
            classes: Number K of labels.

        Raises:
            RowError: Values are not numbers of at most `LARGEST` in size, have another shape, or are out of range.
        """
        scores = self._array(values, len(self.labels) or classes)
        if self.labels:
            return np.hstack([each.logits(column) for each, column in zip(self.labels, scores.T, strict=True)])
        if self.form == "margin":
            margin = (scores - self.centre) / self.scale
            return np.stack([np.zeros_like(margin), margin], axis=1).astype(np.float32)
        if self.form == "logits":
            return scores.astype(np.float32)
        if (scores < 0).any() or (scores > 1).any():
            raise RowError("a probability is out of range", found=str(_first(scores)), expected="0 to 1")
        if self.form == "positive":
            scores = np.stack([1.0 - scores, scores], axis=1)
        elif (np.abs(scores.sum(axis=1) - 1.0) > 1e-3).any():
            sums = scores.sum(axis=1)
            raise RowError(
                "the probabilities of a row do not add up to 1",
                found=f"{sums[np.abs(sums - 1.0).argmax()]:.6g}",
                expected="1, within 0.001",
            )
        return np.log(np.maximum(scores, self.smallest)).astype(np.float32)

    def dump(self) -> bytes:
        """Return the bytes of `scores.json`."""
        return self.model_dump_json(indent=1).encode() + b"\n"

    @classmethod
    def load(cls, data: bytes) -> Scores:
        """Read `scores.json`; raises BundleFormatError."""
        try:
            return cls.model_validate(json.loads(data))
        except (ValueError, RecursionError) as error:
            raise BundleFormatError(f"invalid scores: {first_problem(error)}", file=SCORES_FILE) from error

    def _array(self, values: Any, classes: int) -> npt.NDArray[np.float64]:
        try:
            array = numbers(values)
        except ValueError:
            array = np.array(None)
        single = self.form in ("positive", "margin") and not self.labels
        expected = "one number per row" if single else f"{classes} numbers per row"
        if array.dtype.kind not in "iuf" or array.ndim != (1 if single else 2):
            raise RowError("the values are not scores", found=str(values)[:100], expected=expected)
        if not single and array.shape[1] != classes:
            raise RowError("a row has the wrong number of scores", found=str(array.shape[1]), expected=expected)
        array = array.astype(np.float64)
        wrong = ~(np.abs(array) <= LARGEST)
        if wrong.any():
            raise RowError("a score is not a finite number", found=f"{array[wrong][0]:g}", expected=expected)
        return array


def _first(scores: npt.NDArray[np.float64]) -> float:
    return float(scores[(scores < 0) | (scores > 1)][0])
