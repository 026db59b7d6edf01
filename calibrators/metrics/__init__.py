"""Metrics of calibration, proper scores and refinement; functions of probabilities (N, K) and labels (N,).

A plug-in calibration error means little without its noise: `calibration_test` gives what the same rows would score
under perfect calibration.
"""

from __future__ import annotations

from calibrators.metrics.calibration_error import (
    classwise_calibration_error,
    debiased_calibration_error,
    expected_calibration_error,
)
from calibrators.metrics.intervals import Interval, bootstrap_interval, paired_interval
from calibrators.metrics.null_test import CalibrationTest, calibration_test
from calibrators.metrics.refinement import refinement_auroc
from calibrators.metrics.reliability import ReliabilityCurve, reliability_curve
from calibrators.metrics.scoring import (
    BrierDecomposition,
    accuracy,
    brier_decomposition,
    brier_score,
    log_losses,
    negative_log_likelihood,
    squared_errors,
)

__all__ = [
    "BrierDecomposition",
    "CalibrationTest",
    "Interval",
    "ReliabilityCurve",
    "accuracy",
    "bootstrap_interval",
    "brier_decomposition",
    "brier_score",
    "calibration_test",
    "classwise_calibration_error",
    "debiased_calibration_error",
    "expected_calibration_error",
    "log_losses",
    "negative_log_likelihood",
    "paired_interval",
    "refinement_auroc",
    "reliability_curve",
    "squared_errors",
]
