"""Curves of the log-odds: one for two classes, one for each of more, divided by their sum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import special

from calibrators import BBQ, ENIR, Beta, CentredIsotonic, Histogram, Isotonic, Platt, Quadratic, VennAbers
from service.inference.onnx_graph.curves import above_rounding, above_rounding_of, interpolated, last_at_most, stepped
from service.inference.onnx_graph.rows import Rows, clipped, normalised, sigmoids, softmax_below
from service.inference.onnx_graph.values import (
    Value,
    absolute,
    exp,
    greater,
    least,
    less,
    log,
    log1p,
    row_maximum,
    row_sum,
    side_by_side,
    where,
)

# Beyond this the square overflows, and the probability has long been 0 or 1.
_FARTHEST_SQUARED = 1e150
# In units of the others' share, a probability is 0 or 1 to all digits beyond this.
_FARTHEST = 1e5


def platt(rows: Rows, calibrator: Platt) -> Value:
    """σ(a s + c), of the log-odds of every class or of the largest logit's alone."""
    slopes, intercepts = calibrator.slopes_, calibrator.intercepts_
    if calibrator.top_label_only:
        return _margin_calibrated(rows, float(slopes[0]), float(intercepts[0]))
    return _sigmoid_of(rows, lambda scores: scores * slopes + intercepts)


def beta(rows: Rows, calibrator: Beta) -> Value:
    """σ(a log q − b log(1 − q) + c), q = σ(s)."""
    a, b, c = (calibrator.coefficients_[:, i] for i in range(3))

    def calibrated(scores: Value) -> Value:
        half = absolute(scores) * 0.5
        tail = log1p(exp(half * -2.0))
        apart = scores * 0.5
        return (apart - half - tail) * a + (apart + half + tail) * b + c

    return _sigmoid_of(rows, calibrated)


def quadratic(rows: Rows, calibrator: Quadratic) -> Value:
    """σ(a t² + b t + c), t = (s − m) / d."""
    a, b, c = (calibrator.coefficients_[:, i] for i in range(3))

    def calibrated(scores: Value) -> Value:
        standard = (scores - calibrator.centres_) / calibrator.scales_
        standard = clipped(standard, -_FARTHEST_SQUARED, _FARTHEST_SQUARED)
        return (standard * a + b) * standard + c

    return _sigmoid_of(rows, calibrated)


def piecewise(rows: Rows, calibrator: Isotonic | CentredIsotonic | ENIR) -> Value:
    """A piecewise linear curve of q = σ(s)."""

    def evaluate(scores: Value) -> tuple[Value, Value]:
        chances = _sigmoid(scores)
        # A row of zeros alone is treated apart, so a score that ends a plateau of zeros must be seen to lie there.
        slack = None if rows.classes == 2 else chances * (1.0 - chances) * (absolute(scores) + 1.0) * 2e-14
        curve = interpolated(chances, calibrator.inputs_, calibrator.outputs_, slack)
        return curve, 1.0 - curve

    return _evaluated(rows, evaluate)


def bbq(rows: Rows, calibrator: BBQ) -> Value:
    """A step function of q = σ(s)."""
    thresholds = [last_at_most(special.expit, edges[1:-1]) for edges in calibrator.edges_]
    if rows.classes > 2:
        thresholds = [one + above_rounding(one) for one in thresholds]

    def evaluate(scores: Value) -> tuple[Value, Value]:
        curve = stepped(scores, thresholds, calibrator.values_)
        return curve, 1.0 - curve

    return _evaluated(rows, evaluate)


def venn_abers(rows: Rows, calibrator: VennAbers) -> Value:
    """p1 / (1 − p0 + p1) of two step functions p0 and p1 of s."""
    zeros, ones = [curve[0] for curve in calibrator.zeros_], [curve[0] for curve in calibrator.ones_]
    if rows.classes > 2:
        zeros, ones = [one - above_rounding(one) for one in zeros], [one + above_rounding(one) for one in ones]

    def evaluate(scores: Value) -> tuple[Value, Value]:
        first = stepped(scores, zeros, [np.append(0.0, curve[1]) for curve in calibrator.zeros_], "right")
        second = stepped(scores, ones, [np.append(curve[1], 1.0) for curve in calibrator.ones_])
        odds = second / (1.0 - first)
        return 1.0 / (1.0 / odds + 1.0), 1.0 / (odds + 1.0)

    return _evaluated(rows, evaluate)


def histogram_per_class(rows: Rows, calibrator: Histogram) -> Value:
    """A step function of each class's softmax; of two classes, of that of class 1."""
    inner = [edges[1:-1] for edges in calibrator.edges_]
    if rows.classes == 2:
        thresholds = [last_at_most(lambda score: 1 / (1 + np.exp(-score)), edges) for edges in inner]
        chances = stepped(rows.log_odds, thresholds, calibrator.values_)
        return side_by_side(1.0 - chances, chances)
    total = rows.maxima + log(row_sum(exp(rows.below)))
    thresholds = [edges + above_rounding_of(edges) for edges in inner]
    values = stepped(least(exp(rows.logits - total), 1.0), thresholds, calibrator.values_)
    return values / row_sum(values)


def _sigmoid(scores: Value) -> Value:
    return 1.0 / (exp(-scores) + 1.0)


def _sigmoid_of(rows: Rows, calibrated: Callable[[Value], Value]) -> Value:
    chances, rest = sigmoids(_raised(rows.log_odds, calibrated))
    return side_by_side(rest, chances) if rows.classes == 2 else normalised(chances, rows)


def _raised(scores: Value, calibrated: Callable[[Value], Value]) -> Value:
    """Calibrated log-odds of any; what is certain stays so."""
    finite = less(absolute(scores), np.inf)
    return where(finite, calibrated(where(finite, scores, 0.0)), scores)


def _evaluated(rows: Rows, evaluate: Callable[[Value], tuple[Value, Value]]) -> Value:
    """Probabilities by curves that give p and 1 − p of finite log-odds; what is certain stays so."""
    scores = rows.log_odds
    finite = less(absolute(scores), np.inf)
    chances, rest = evaluate(where(finite, scores, 0.0))
    certain = where(greater(scores, 0.0), 1.0, 0.0)
    chances = where(finite, chances, certain)
    if rows.classes > 2:
        return normalised(chances, rows)
    return side_by_side(where(finite, rest, 1.0 - certain), chances)


def _margin_calibrated(rows: Rows, slope: float, intercept: float) -> Value:
    """The largest logit's class by the curve, the others in their old proportions."""
    others = rows.others
    raised = _raised(-(others.largest + others.log_sum), lambda scores: scores * slope + intercept)
    largest = where(others.possible, clipped(raised, -_FARTHEST, _FARTHEST) + others.log_sum, 0.0)
    scores = where(rows.top, largest, others.below)
    return softmax_below(scores - row_maximum(scores))
