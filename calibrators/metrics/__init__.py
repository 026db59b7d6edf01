"""Calibration errors, proper scores, refinement and tests, as functions of probabilities and labels.

A calibration error alone means little: `calibration_test` gives the error of a calibrated model on the same rows.

Metrics share these arguments, and raise `CalibrationDataError` for wrong shapes, types, values or options:

- ``probabilities``: (N, K), N ≥ 1, K ≥ 2, rows sum to one. ``labels``: (N,) integers in 0 … K−1.
- ``sample_weight``: (N,) weights of 0 or more, or None for equal weights.
- ``weight_kind``: ``"importance"``, or ``"frequency"``: weights are whole numbers, how often each row was seen.
- ``predicted``: (N,) predicted labels of a top-label method. Default: the class of the largest probability.
- ``positive``: A class whose own probability is judged in every row. Default: the predicted label is judged.
- ``bins``: Number of bins, at most 1,000,000. ``scheme``: ``"width"`` (equal width over [0, 1]) or ``"mass"`` (equal
  numbers of rows; equal confidences are never split).
- ``resamples``, ``seed``: Number of random draws, and the seed of the random generator.
"""

from __future__ import annotations

from calibrators.metrics.bootstrap import bootstrap_interval
from calibrators.metrics.calibration_error import (
    classwise_calibration_error,
    debiased_calibration_error,
    expected_calibration_error,
)
from calibrators.metrics.corp import CorpCurve, CorpDecomposition, corp_decomposition, corp_reliability
from calibrators.metrics.ece_decomposition import EceDecomposition, ece_decomposition
from calibrators.metrics.intervals import Interval, paired_interval
from calibrators.metrics.kernel_calibration import KernelCalibrationTest, kernel_calibration_test
from calibrators.metrics.kolmogorov_smirnov import kolmogorov_smirnov_error
from calibrators.metrics.null_test import CalibrationTest, calibration_test
from calibrators.metrics.overconfidence import overconfidence_error
from calibrators.metrics.precision_recall import PrecisionRecallCurve, precision_recall_curve
from calibrators.metrics.refinement import refinement_aupr, refinement_auroc
from calibrators.metrics.reliability import ReliabilityCurve, reliability_curve
from calibrators.metrics.risk_coverage import area_under_risk_coverage, excess_area_under_risk_coverage
from calibrators.metrics.scoring import (
    BrierDecomposition,
    accuracy,
    brier_decomposition,
    brier_score,
    log_losses,
    negative_log_likelihood,
    squared_errors,
)
from calibrators.metrics.slope_intercept import SlopeIntercept, calibration_slope_intercept
from calibrators.metrics.smooth_calibration import smooth_calibration_error
from calibrators.metrics.spiegelhalter import SpiegelhalterTest, spiegelhalter_test
from calibrators.metrics.total_variation import total_variation_calibration_error

__all__ = [
    "BrierDecomposition",
    "CalibrationTest",
    "CorpCurve",
    "CorpDecomposition",
    "EceDecomposition",
    "Interval",
    "KernelCalibrationTest",
    "PrecisionRecallCurve",
    "ReliabilityCurve",
    "SlopeIntercept",
    "SpiegelhalterTest",
    "accuracy",
    "area_under_risk_coverage",
    "bootstrap_interval",
    "brier_decomposition",
    "brier_score",
    "calibration_slope_intercept",
    "calibration_test",
    "classwise_calibration_error",
    "corp_decomposition",
    "corp_reliability",
    "debiased_calibration_error",
    "ece_decomposition",
    "excess_area_under_risk_coverage",
    "expected_calibration_error",
    "kernel_calibration_test",
    "kolmogorov_smirnov_error",
    "log_losses",
    "negative_log_likelihood",
    "overconfidence_error",
    "paired_interval",
    "precision_recall_curve",
    "refinement_aupr",
    "refinement_auroc",
    "reliability_curve",
    "smooth_calibration_error",
    "spiegelhalter_test",
    "squared_errors",
    "total_variation_calibration_error",
]
