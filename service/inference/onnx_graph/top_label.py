"""Maps of the confidence alone: the largest logit's class gets a new probability, the others share the rest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calibrators import Histogram, ScalingBinning, Spline
from service.inference.onnx_graph.curves import above_rounding_of, interpolated, last_at_most, stepped
from service.inference.onnx_graph.rows import Rows, confidence_below, confidence_replaced
from service.inference.onnx_graph.values import Doubles, Value, absolute


def histogram(rows: Rows, calibrator: Histogram) -> Value:
    """A step function of the confidence."""
    confidence = _binned(rows, rows.below, calibrator.edges_[0], calibrator.values_[0], lambda margin: margin)
    return confidence_replaced(rows.others.below, rows.others, rows, confidence)


def scaling_binning(rows: Rows, calibrator: ScalingBinning) -> Value:
    """A step function of the confidence at a temperature."""
    heat = calibrator.temperature_
    confidence = _binned(rows, rows.below / heat, calibrator.edges_, calibrator.values_, lambda margin: margin / heat)
    return confidence_replaced(rows.others.below / heat, rows.others, rows, confidence)


def spline(rows: Rows, calibrator: Spline) -> Value:
    """A piecewise linear curve of the confidence."""
    confidence = interpolated(rows.confidence, [calibrator.inputs_], [calibrator.outputs_])
    return confidence_replaced(rows.others.below, rows.others, rows, confidence)


def _binned(rows: Rows, below: Value, edges: Doubles, values: Doubles, scaled: Callable[[Doubles], Doubles]) -> Value:
    """The value (N, 1) of the bin that the confidence of logits (N, K), whose maxima are zero, falls in."""
    if rows.classes > 2:
        confidence = confidence_below(below, rows.classes)
        return stepped(confidence, [edges[1:-1] + above_rounding_of(edges[1:-1])], [values])

    def score(margin: Doubles) -> Doubles:
        return np.where(margin < 0, -1.0, 1 / (1 + np.exp(-scaled(np.abs(margin)))))

    return stepped(absolute(rows.log_odds), [last_at_most(score, edges[1:-1])], [values])
