"""Metrics and diagrams of a recalibration before and after, on the gate's rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from calibrators import CalibrationError, metrics
from candor.contract.gate import Gate
from service.decisions.binomial import share_interval
from service.decisions.calibrated import Calibrated
from service.decisions.mean_bounds import interval
from service.decisions.refinement import compare_refinement

BINS: Final = 15


def compared_metrics(verdict: Gate, before: Calibrated, after: Calibrated, seed: int) -> dict[str, Any]:
    """Return metrics of both sides by name: `before`, `after`, and 95 % intervals if valid.

    Args:
        verdict: The gate's verdict with losses and intervals.
        before: The gate's rows, scored by the active revision; intervals are clustered by their groups.
        after: The same rows, scored by the recalibrated revision.
        seed: Seed of the null distribution of the ECE.

    Returns:
        `nll`, `brier`, `accuracy`, `refinement_auroc` and `debiased_calibration_error` (squared) with
        `interval_before` and `interval_after`, all but the last with `difference_interval`; `ece` with its mean and
        95 % quantile under perfect calibration, because no interval of the ECE is valid. An interval is None if the
        rows do not allow one.
    """
    compared: dict[str, Any] = {
        name: {
            "before": loss.before,
            "after": loss.after,
            "interval_before": list(loss.interval_before),
            "interval_after": list(loss.interval_after),
            "interval": list(loss.interval),
            "difference_interval": list(loss.interval),
        }
        for name, loss in (("nll", verdict.nll), ("brier", verdict.brier))
    }
    group = _group(before)
    rights = before.right, after.right
    compared["accuracy"] = {
        "before": float(rights[0].mean()),
        "after": float(rights[1].mean()),
        "interval_before": list(share_interval(rights[0], group)),
        "interval_after": list(share_interval(rights[1], group)),
        "difference_interval": _of_difference(rights[0], rights[1], group),
    }
    found = asdict(compare_refinement((before.confidence, rights[0]), (after.confidence, rights[1]), before.rows.group))
    compared["refinement_auroc"] = {
        key: list(value) if isinstance(value, tuple) else value for key, value in found.items()
    }
    errors = [_debiased_error(side) for side in (before, after)]
    compared["debiased_calibration_error"] = {
        "before": errors[0][0],
        "after": errors[1][0],
        "interval_before": errors[0][1],
        "interval_after": errors[1][1],
    }
    tests = [
        metrics.calibration_test(side.probabilities, side.rows.label, predicted=side.predicted, seed=seed)
        for side in (before, after)
    ]
    compared["ece"] = {
        "before": tests[0].error,
        "after": tests[1].error,
        "null": {"mean": tests[1].null_mean, "q95": tests[1].null_quantile},
        "null_before": {"mean": tests[0].null_mean, "q95": tests[0].null_quantile},
    }
    return compared


def decompositions(before: Calibrated, after: Calibrated) -> dict[str, Any]:
    """Return the decompositions of the Brier score and the calibration error of both sides.

    Args:
        before: Rows scored by the active revision.
        after: The same rows, scored by the recalibrated revision.

    Returns:
        `brier` (`score`, `calibration`, `refinement`, `within_bins`) and `ece` (`confidence`, `refinement`, `constant`,
        `value`, `gap`), each with `before` and `after`; `ece` is None if all predictions are right, or all are wrong.
    """

    def of_error(side: Calibrated) -> dict[str, float] | None:
        try:
            found = metrics.ece_decomposition(side.probabilities, side.rows.label, predicted=side.predicted)
        except CalibrationError:
            return None
        return asdict(found)

    def of_score(side: Calibrated) -> dict[str, float]:
        return asdict(metrics.brier_decomposition(side.probabilities, side.rows.label))

    return {"brier": _both(of_score, before, after), "ece": _both(of_error, before, after)}


def reliability(before: Calibrated, after: Calibrated) -> dict[str, Any]:
    """Return the reliability diagrams of both sides: a point for each nonempty bin of confidence.

    Args:
        before: Rows scored by the active revision; intervals are clustered by their groups.
        after: The same rows, scored by the recalibrated revision.

    Returns:
        `before` and `after`: lists `confidence` (mean), `accuracy`, `count`, and `lower` and `upper`, the ends of a
        95 % interval of the accuracy.
    """
    group = _group(before)

    def of(side: Calibrated) -> dict[str, list[float]]:
        curve = metrics.reliability_curve(side.probabilities, side.rows.label, BINS, predicted=side.predicted)
        index = np.searchsorted(_edges(BINS)[1:-1], side.confidence, side="left")
        right = side.right
        intervals = [share_interval(right[rows], group[rows]) for rows in (index == bin_ for bin_ in np.unique(index))]
        return {
            "confidence": curve.confidence.tolist(),
            "accuracy": curve.accuracy.tolist(),
            "count": curve.count.tolist(),
            "lower": [low for low, _ in intervals],
            "upper": [high for _, high in intervals],
        }

    return _both(of, before, after)


def confidence_histogram(before: Calibrated, after: Calibrated) -> dict[str, Any]:
    """Return histograms of the confidences of right and of wrong predictions, on both sides.

    Args:
        before: Rows scored by the active revision.
        after: The same rows, scored by the recalibrated revision.

    Returns:
        `edges` of the bins (one more than bins), and for `before` and `after` the counts `right` and `wrong`.
    """

    def of(side: Calibrated) -> dict[str, list[int]]:
        index = np.searchsorted(_edges(BINS)[1:-1], side.confidence, side="left")
        kinds = (("right", side.right), ("wrong", ~side.right))
        return {name: np.bincount(index[rows], minlength=BINS).tolist() for name, rows in kinds}

    return {"edges": (np.arange(BINS + 1) / BINS).tolist(), **_both(of, before, after)}


def _group(side: Calibrated) -> npt.NDArray[np.intp]:
    """Return the number of each row's group, from 0."""
    return np.unique(side.rows.group, return_inverse=True)[1]


def _both(of: Callable[[Calibrated], Any], before: Calibrated, after: Calibrated) -> dict[str, Any]:
    return {"before": of(before), "after": of(after)}


def _edges(bins: int) -> npt.NDArray[np.float32]:
    return (np.arange(bins + 1) / bins).astype(np.float32)


def _of_difference(
    before: npt.NDArray[np.bool_], after: npt.NDArray[np.bool_], group: npt.NDArray[np.intp]
) -> list[float] | None:
    """Return a 95 % interval of the change in accuracy; None if no prediction changed to right or wrong."""
    if (before == after).all():
        return None
    sums = np.bincount(group, after.astype(np.float64) - before).astype(np.float64)
    low, high = interval(sums, np.bincount(group).astype(np.float64))
    return [float(low), float(high)]


def _debiased_error(side: Calibrated) -> tuple[float | None, list[float] | None]:
    """Return the debiased squared calibration error and a 95 % interval; None for too few rows."""
    error = partial(metrics.debiased_calibration_error, bins=BINS, predicted=side.predicted)
    try:
        found = metrics.bootstrap_interval(error, side.probabilities, side.rows.label, groups=side.rows.group)
    except CalibrationError:
        return None, None
    return found.estimate, [found.low, found.high]
