"""Spline calibration: the slope of a smooth cumulative curve of right answers."""

from __future__ import annotations

from typing import Any, ClassVar, Self, final

import numpy as np
import numpy.typing as npt
import scipy

from calibrators.arrays import Doubles
from calibrators.calibrator import Calibrator
from calibrators.chunks import row_chunks
from calibrators.documents import Document, written
from calibrators.effective_rows import WEIGHT_KINDS, WeightKind, counting_weight
from calibrators.fitting.curves import interpolate
from calibrators.fitting.sorted_scores import sort_scores
from calibrators.fitting.top_confidence import replace_confidence, row_confidence, top_confidences
from calibrators.validation import LabelledRows, check_choice, check_count

# Maximum points of the calibrated curve, evenly spread over the rows.
_POINTS = 1024


@final
class Spline(Calibrator):
    """Calibrate the confidence without bins: the slope of a spline through cumulated right answers.

    With rows sorted by confidence and t the share of rows so far, D(t) is the mean over all rows of (right −
    confidence) up to t; its slope is the error of the confidence there. A natural cubic spline with evenly spaced knots
    in t is fitted to D by least squares, tied to its two ends. The calibrated confidence of a row is its confidence
    plus the spline's slope over the row's own share, linear between rows (at most 1,024 points) and constant beyond. So
    the mean calibrated confidence of the fitted rows is their accuracy, up to clipping to [½ / (n + 1), (n + ½) / (n +
    1)] for n rows.

    The confidence is that of the class with the largest logit, and the other classes share the rest in their old
    proportions; one of them may end up larger: `top_label` still returns the raw label, with its calibrated confidence.

    Preserves: the label; nothing else: the slope may fall as confidence rises.
    When to use: with a thousand labels or more, if the curve is smooth but follows no formula.

    Args:
        knots: Number of knots, 2 or more; 2 shift all confidences alike.
        weight_kind: Meaning of sample weights in n: ``"importance"`` (the Kish effective number of rows) or
            ``"frequency"`` (a weight of 3 is a row seen three times).

    Attributes:
        inputs_: (M,) increasing confidences.
        outputs_: (M,) calibrated confidences there, in (0, 1).

    Raises:
        CalibrationDataError: Fewer than two knots, or an unknown weight kind.

    References:
        Gupta, Rahimi, Ajanthan, Mensink, Sminchisescu, Hartley (2021), Calibration of neural networks using splines,
        section 3.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[2.0, 0.0]] * 4)
        >>> Spline().fit(logits, np.array([0, 0, 0, 1])).predict_proba(logits[:1]).round(6)
        array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "spline"

    inputs_: Doubles
    outputs_: Doubles

    def __init__(self, knots: int = 6, weight_kind: WeightKind = "importance") -> None:
        check_count(knots, "knots", least=2)
        check_choice(weight_kind, WEIGHT_KINDS, "weight_kind")
        self.knots = int(knots)
        self.weight_kind = weight_kind
        self.top_label_only = True

    def _fit(self, rows: LabelledRows) -> None:
        confidence, predicted = top_confidences(rows)
        weight = rows.weight
        counted = None if weight is None else counting_weight(weight, len(confidence), self.weight_kind)
        self.inputs_, self.outputs_ = _fit_curve(confidence, predicted == rows.labels, counted, self.knots)
        self.classes_ = rows.logits.shape[1]

    def _transform(self, logits: Doubles, maxima: Doubles) -> Doubles:
        return replace_confidence(logits, interpolate(row_confidence(logits, maxima), self.inputs_, self.outputs_))

    def _parameters(self) -> dict[str, Any]:
        return written(self, "classes", "knots", "weight_kind", "inputs", "outputs")

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls(document.count("knots", least=2), document.weight_kind())
        calibrator.classes_ = document.classes()
        calibrator.inputs_, calibrator.outputs_ = document.curve("inputs", "outputs")
        return calibrator


def _fit_curve(
    confidence: Doubles, hits: npt.NDArray[np.bool_], weight: Doubles | None, knots: int
) -> tuple[Doubles, Doubles]:
    """Fit the curve to confidences, hits and weights (N,); return its points (M,)."""
    rows = sort_scores(confidence, hits, weight)
    starts = rows.distinct()
    inputs, (mass, right) = rows.scores[starts], rows.totals(starts)
    total = float(mass.sum())
    share = mass / total
    ends = np.cumsum(share)
    ends[-1] = 1.0
    drift = np.cumsum(right / total - share * inputs)
    kept = np.arange(len(inputs))
    if len(inputs) > _POINTS:
        kept = np.unique(np.append(np.searchsorted(ends, np.linspace(0, 1, _POINTS)), [0, len(inputs) - 1]))
    if min(knots, len(inputs) + 1) > 2:
        curve = _least_squares_spline(ends, drift, share, min(knots, len(inputs) + 1))
        before = np.where(kept > 0, ends[kept - 1], 0.0)
        # The mean slope over a row's own share, unless rounding dominates the share.
        slopes, widths = curve(ends[kept], 1), ends[kept] - before
        np.divide(curve(ends[kept]) - curve(before), widths, out=slopes, where=widths > 1e-12)
    else:
        slopes = np.full(len(kept), drift[-1])
    lowest = 0.5 / (total + 1)
    return inputs[kept], np.clip(inputs[kept] + slopes, lowest, 1 - lowest)


def _least_squares_spline(at: Doubles, heights: Doubles, share: Doubles, knots: int) -> scipy.interpolate.CubicSpline:
    """Return the natural cubic spline over [0, 1] nearest to the points, tied to 0 and to the last of them.

    Args:
        at: (U,) increasing from above 0 to 1.
        heights: (U,).
        share: (U,) weight of each point's squared distance.
        knots: 3 or more, evenly spaced.
    """
    places = np.linspace(0, 1, knots)
    # A spline is linear in its heights: one basis spline per inner knot, and one for the right end.
    basis = scipy.interpolate.CubicSpline(places, np.eye(knots), bc_type="natural")
    moments, pull = np.zeros((knots - 2, knots - 2)), np.zeros(knots - 2)
    for part in row_chunks(len(at), knots):
        columns = basis(at[part])
        weighted = columns[:, 1:-1] * share[part, None]
        moments += weighted.T @ columns[:, 1:-1]
        pull += weighted.T @ (heights[part] - heights[-1] * columns[:, -1])
    inner = np.linalg.lstsq(moments, pull, rcond=None)[0]
    return scipy.interpolate.CubicSpline(places, np.concatenate([[0.0], inner, heights[-1:]]), bc_type="natural")
