"""Both sides of a refit in numbers, on the rows that the gate has compared: metrics with intervals, and diagrams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from calibrators import CalibrationError, metrics
from service.decisions.binomial import share_interval
from service.decisions.gate import GateResult, interval
from service.decisions.refinement import compare_refinement
from service.refit_report import Side

BINS: Final = 15


def compared_metrics(
    verdict: GateResult,
    before: Side,
    after: Side,
    truth: npt.NDArray[np.int64],
    cluster: npt.NDArray[np.int64],
    seed: int,
) -> dict[str, Any]:
    """Return metrics of both sides, by name: `before`, `after`, and 95 % intervals where there are valid ones.

    Args:
        verdict: Holds the losses and their intervals.
        before: The revision in service, on the N rows that the verdict has compared.
        after: The refit, on the same rows.
        truth: int64 (N,), true labels.
        cluster: int64 (N,), of the groups that the intervals are clustered by.
        seed: Of the draws behind the null of the ECE.

    Returns:
        `nll`, `brier`, `accuracy`, `refinement_auroc` and `debiased_calibration_error` (squared) with
        `interval_before` and `interval_after`, all but the last with `difference_interval`; `ece` with its mean and
        95 % quantile under perfect calibration, since no interval of it covers. An interval is None where the rows
        allow none.
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
    group = np.unique(cluster, return_inverse=True)[1]
    rights = [side.labels == truth for side in (before, after)]
    compared["accuracy"] = {
        "before": float(rights[0].mean()),
        "after": float(rights[1].mean()),
        "interval_before": list(share_interval(rights[0], group)),
        "interval_after": list(share_interval(rights[1], group)),
        "difference_interval": _of_difference(rights[0], rights[1], group),
    }
    found = asdict(compare_refinement((before.confidence, rights[0]), (after.confidence, rights[1]), cluster))
    compared["refinement_auroc"] = {
        key: list(value) if isinstance(value, tuple) else value for key, value in found.items()
    }
    errors = [_debiased_error(side, truth, cluster) for side in (before, after)]
    compared["debiased_calibration_error"] = {
        "before": errors[0][0],
        "after": errors[1][0],
        "interval_before": errors[0][1],
        "interval_after": errors[1][1],
    }
    tests = [
        metrics.calibration_test(side.probabilities, truth, predicted=side.labels, seed=seed)
        for side in (before, after)
    ]
    compared["ece"] = {
        "before": tests[0].error,
        "after": tests[1].error,
        "null": {"mean": tests[1].null_mean, "q95": tests[1].null_quantile},
        "null_before": {"mean": tests[0].null_mean, "q95": tests[0].null_quantile},
    }
    return compared


def decompositions(before: Side, after: Side, truth: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Return what the Brier score and the calibration error of both sides are made of.

    Args:
        before: The revision in service, on N rows.
        after: The refit, on the same rows.
        truth: int64 (N,), true labels.

    Returns:
        `brier` (`score`, `calibration`, `refinement`, `within_bins`) and `ece` (`confidence`, `refinement`, `constant`,
        `value`, `gap`), each with `before` and `after`; the latter None where all answers are right, or all wrong.
    """

    def of_error(side: Side) -> dict[str, float] | None:
        try:
            return asdict(metrics.ece_decomposition(side.probabilities, truth, predicted=side.labels))
        except CalibrationError:
            return None

    def of_score(side: Side) -> dict[str, float]:
        return asdict(metrics.brier_decomposition(side.probabilities, truth))

    return {"brier": _both(of_score, before, after), "ece": _both(of_error, before, after)}


def reliability(
    before: Side, after: Side, truth: npt.NDArray[np.int64], cluster: npt.NDArray[np.int64]
) -> dict[str, Any]:
    """Return the reliability diagrams of both sides: a point for each bin of confidence that holds a row.

    Args:
        before: The revision in service, on N rows.
        after: The refit, on the same rows.
        truth: int64 (N,), true labels.
        cluster: int64 (N,), of the groups that the intervals are clustered by.

    Returns:
        `before` and `after`: lists `confidence` (mean), `accuracy`, `count`, and `lower` and `upper`, the ends of a
        95 % interval of the accuracy.
    """
    group = np.unique(cluster, return_inverse=True)[1]

    def of(side: Side) -> dict[str, list[float]]:
        curve = metrics.reliability_curve(side.probabilities, truth, BINS, predicted=side.labels)
        right = side.labels == truth
        index = np.searchsorted(_edges(BINS)[1:-1], side.confidence, side="left")
        intervals = [share_interval(right[rows], group[rows]) for rows in (index == bin_ for bin_ in np.unique(index))]
        return {
            "confidence": curve.confidence.tolist(),
            "accuracy": curve.accuracy.tolist(),
            "count": curve.count.tolist(),
            "lower": [low for low, _ in intervals],
            "upper": [high for _, high in intervals],
        }

    return _both(of, before, after)


def confidence_histogram(before: Side, after: Side, truth: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Return how the confidences of right and of wrong answers are spread, on both sides.

    Args:
        before: The revision in service, on N rows.
        after: The refit, on the same rows.
        truth: int64 (N,), true labels.

    Returns:
        `edges` of the bins (one more than bins), and for `before` and `after` the counts `right` and `wrong`.
    """

    def of(side: Side) -> dict[str, list[int]]:
        index = np.searchsorted(_edges(BINS)[1:-1], side.confidence, side="left")
        right = side.labels == truth
        kinds = (("right", right), ("wrong", ~right))
        return {name: np.bincount(index[rows], minlength=BINS).tolist() for name, rows in kinds}

    return {"edges": (np.arange(BINS + 1) / BINS).tolist(), **_both(of, before, after)}


def _both(of: Callable[[Side], Any], before: Side, after: Side) -> dict[str, Any]:
    return {"before": of(before), "after": of(after)}


def _edges(bins: int) -> npt.NDArray[np.float32]:
    return (np.arange(bins + 1) / bins).astype(np.float32)


def _of_difference(
    before: npt.NDArray[np.bool_], after: npt.NDArray[np.bool_], group: npt.NDArray[np.intp]
) -> list[float] | None:
    """Return a 95 % interval of the change in accuracy; None where no answer turned right or wrong."""
    if (before == after).all():
        return None
    sums = np.bincount(group, after.astype(np.float64) - before).astype(np.float64)
    low, high = interval(sums, np.bincount(group).astype(np.float64))
    return [float(low), float(high)]


def _debiased_error(
    side: Side, truth: npt.NDArray[np.int64], cluster: npt.NDArray[np.int64]
) -> tuple[float | None, list[float] | None]:
    """Return the squared calibration error without its bias, and a 95 % interval; None where rows are too few."""
    error = partial(metrics.debiased_calibration_error, bins=BINS, predicted=side.labels)
    try:
        found = metrics.bootstrap_interval(error, side.probabilities, truth, groups=cluster)
    except CalibrationError:
        return None, None
    return found.estimate, [found.low, found.high]
