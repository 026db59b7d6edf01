"""The map of each calibrator, and calibrators made of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from calibrators import (
    BBQ,
    ENIR,
    Auto,
    Beta,
    CalibrationDataError,
    Calibrator,
    CentredIsotonic,
    Dirichlet,
    EnsembleTemperature,
    Histogram,
    Identity,
    Isotonic,
    IsotonicMulticlass,
    Matrix,
    Platt,
    PriorShift,
    Quadratic,
    ScalingBinning,
    Spline,
    StructuredMatrix,
    StructuredVector,
    Temperature,
    Vector,
    VennAbers,
)
from calibrators.methods.pool import Pool
from service.inference.onnx_graph import affine, one_vs_rest, top_label
from service.inference.onnx_graph.curves import interpolated
from service.inference.onnx_graph.rows import Rows, row_sum_as_numpy
from service.inference.onnx_graph.values import Value, exp, greater, greatest, log, row_maximum, row_sum, where

# As in `calibrators.methods.isotonic_multiclass`.
_SLOPE = 1e-9
_LEAD = 1 + 5e-7


def probabilities(rows: Rows, calibrator: Calibrator) -> Value:
    """Calibrated probabilities (N, K) float64.

    Raises:
        CalibrationDataError: Fitted for another number of classes, or no calibrator of this project.
        CalibrationFitError: Not fitted.
    """
    if type(calibrator) not in MAPS:
        _refuse(calibrator)
    calibrator.check_fitted(rows.classes)
    return MAPS[type(calibrator)](rows, calibrator)


def _histogram(rows: Rows, calibrator: Histogram) -> Value:
    make = top_label.histogram if calibrator.top_label_only else one_vs_rest.histogram_per_class
    return make(rows, calibrator)


def _isotonic_multiclass(rows: Rows, calibrator: IsotonicMulticlass) -> Value:
    """One piecewise linear curve of all probabilities, the largest logit's class kept ahead."""
    shares = exp(rows.below)
    before = shares / row_sum_as_numpy(shares, rows.classes)
    curve = interpolated(before, [calibrator.inputs_], [calibrator.outputs_])
    chances = where(rows.possible, curve + before * _SLOPE, 0.0)
    others = where(rows.top, 0.0, chances)
    chances = where(rows.top, greatest(chances, row_maximum(others) * _LEAD), chances)
    return chances / row_sum(chances)


def _prior_shift(rows: Rows, calibrator: PriorShift) -> Value:
    """Another calibrator's probabilities, re-weighted."""
    before = probabilities(rows, calibrator.calibrator_)
    if not calibrator.adapted_:
        return before
    with np.errstate(divide="ignore"):
        scores = log(before) + (np.log(calibrator.target_priors_) - np.log(calibrator.source_priors_))
    largest = row_maximum(scores)
    # A row that only classes with a prior of zero could be keeps its probabilities.
    open_rows = greater(largest, -np.inf)
    shares = where(open_rows, exp(scores - where(open_rows, largest, 0.0)), before)
    return shares / row_sum(shares)


def _auto(rows: Rows, calibrator: Auto) -> Value:
    """The chosen method, of logits raised to the floor if there is one."""
    if calibrator.floor_ > 0:
        lowest = rows.maxima + (log(row_sum(exp(rows.below))) + np.log(calibrator.floor_))
        rows = Rows(greatest(rows.logits, lowest), rows.classes)
    return probabilities(rows, calibrator.calibrator_)


def _pool(rows: Rows, calibrator: Pool) -> Value:
    """The weighted mean of the members' probabilities."""
    mixed = [
        probabilities(rows, one) * float(share)
        for share, one in zip(calibrator.weights, calibrator.members, strict=True)
    ]
    total = mixed[0]
    for one in mixed[1:]:
        total = total + one
    return total


def _refuse(calibrator: object) -> NoReturn:
    raise CalibrationDataError(
        "No graph",
        where="calibrator",
        found=f"a {type(calibrator).__name__}",
        expected="one of " + ", ".join(repr(known.name) for known in MAPS),
    )


MAPS: dict[type[Calibrator], Callable[[Rows, Any], Value]] = {
    Identity: affine.identity,
    Temperature: affine.temperature,
    Vector: affine.affine,
    Matrix: affine.affine,
    Dirichlet: affine.dirichlet,
    Platt: one_vs_rest.platt,
    Beta: one_vs_rest.beta,
    Isotonic: one_vs_rest.piecewise,
    CentredIsotonic: one_vs_rest.piecewise,
    Histogram: _histogram,
    ScalingBinning: top_label.scaling_binning,
    BBQ: one_vs_rest.bbq,
    ENIR: one_vs_rest.piecewise,
    EnsembleTemperature: affine.ensemble_temperature,
    IsotonicMulticlass: _isotonic_multiclass,
    Spline: top_label.spline,
    StructuredVector: affine.structured,
    StructuredMatrix: affine.structured,
    Quadratic: one_vs_rest.quadratic,
    VennAbers: one_vs_rest.venn_abers,
    PriorShift: _prior_shift,
    Auto: _auto,
    Pool: _pool,
}
