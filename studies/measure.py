"""Measurements of a trained network, as functions of its logits on calibration and test rows."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from bundle import LabelledLogits
from calibrators import CalibrationDataError, Calibrator, Histogram, Identity, Temperature, metrics, softmax
from training.evaluate import BINS

METHODS = ("none", "temperature", "histogram_width", "histogram_mass")
DENSITY_BINS = 50
_EPOCH_GROUPS = 4
_LEAST_T, _LARGEST_T = 0.1, 10.0  # search range of the report on LeNet-5
_SAMPLES = 10  # subsets of calibration rows of each size


@dataclass(frozen=True)
class PostHoc:
    """The post-hoc methods of the sources, fitted.

    Attributes:
        temperature: The T that minimises the NLL.
        methods: All methods by name, `METHODS`.
    """

    temperature: float
    methods: dict[str, Calibrator]


def post_hoc(calibration: LabelledLogits) -> PostHoc:
    """Fit the post-hoc methods of the sources on calibration rows."""
    logits, labels = calibration.logits, calibration.labels
    scaling = Temperature().fit(logits, labels)
    methods: dict[str, Calibrator] = {
        "none": Identity().fit(logits, labels),
        "temperature": scaling,
        "histogram_width": Histogram(BINS, "width").fit(logits, labels),
        "histogram_mass": Histogram(BINS, "mass").fit(logits, labels),
    }
    return PostHoc(float(scaling.temperature_), methods)


def evaluation(method: Calibrator, rows: LabelledLogits) -> dict[str, Any]:
    """Return all metrics of one method on rows that it was not fitted on.

    Returns:
        Plain values by name. `ece_null_mean`, `ece_null_q95` and `ece_p_value` describe the ECE of a calibrated model
        with the same confidences. `squared_error` is the debiased squared calibration error and `l2_high` the root of
        its interval's upper end. `terms` are those of equation 9.
    """
    probabilities = method.predict_proba(rows.logits)
    labels = rows.labels
    predicted, confidence = method.top_label(rows.logits, probabilities)
    test = metrics.calibration_test(probabilities, labels, BINS, predicted=predicted)
    squared_error = functools.partial(metrics.debiased_calibration_error, bins=BINS, predicted=predicted)
    interval = metrics.bootstrap_interval(squared_error, probabilities, labels)
    found: dict[str, Any] = {
        "accuracy": metrics.accuracy(probabilities, labels, predicted=predicted),
        "confidence": float(np.mean(confidence, dtype=np.float64)),
        "nll": metrics.negative_log_likelihood(probabilities, labels),
        "brier": metrics.brier_score(probabilities, labels),
        "ece": test.error,
        "ece_null_mean": test.null_mean,
        "ece_null_q95": test.null_quantile,
        "ece_p_value": test.p_value,
        "squared_error": {"estimate": interval.estimate, "low": interval.low, "high": interval.high},
        "l2_high": float(np.sqrt(max(interval.high, 0.0))),
    }
    try:
        found["auroc"] = metrics.refinement_auroc(probabilities, labels, predicted=predicted)
        found["terms"] = asdict(metrics.ece_decomposition(probabilities, labels, predicted=predicted))
    except CalibrationDataError:  # all rows right, or all wrong: refinement is not defined
        found["auroc"], found["terms"] = None, None
    return found


def brent_temperature(rows: LabelledLogits) -> float:
    """Return the T in [0.1, 10] that minimises the NLL by Brent's bounded search, as in the report on LeNet-5."""

    def nll(temperature: float) -> float:
        return float(metrics.negative_log_likelihood(softmax(rows.logits / np.float32(temperature)), rows.labels))

    return float(optimize.minimize_scalar(nll, bounds=(_LEAST_T, _LARGEST_T), method="bounded").x)


def ece_against_temperature(rows: LabelledLogits) -> dict[str, list[float]]:
    """Return the ECE of softmax(logits / T) for 49 T from 0.25 to 4, evenly spaced in log T."""
    temperatures = np.geomspace(0.25, 4.0, 49)
    return {
        "temperature": temperatures.tolist(),
        "ece": [
            float(metrics.expected_calibration_error(softmax(rows.logits / np.float32(t)), rows.labels, BINS))
            for t in temperatures
        ],
    }


def confusion(rows: LabelledLogits) -> list[list[int]]:
    """Count the rows by class (first axis) and predicted label (second axis)."""
    classes = rows.logits.shape[1]
    cells = rows.labels * classes + rows.logits.argmax(axis=1)
    counts: list[list[int]] = np.bincount(cells, minlength=classes**2).reshape(classes, classes).tolist()
    return counts


def density(method: Calibrator, rows: LabelledLogits) -> dict[str, list[int]]:
    """Count right and wrong answers by confidence, in 50 equal bins of [0, 1]."""
    predicted, confidence = method.top_label(rows.logits, method.predict_proba(rows.logits))
    right = predicted == rows.labels
    return {
        name: np.histogram(confidence[these], DENSITY_BINS, (0.0, 1.0))[0].tolist()
        for name, these in (("right", right), ("wrong", ~right))
    }


def largest_logits(largest: NDArray[np.float32], learned: NDArray[np.int32]) -> list[dict[str, Any]]:
    """Return the distribution of training rows' largest logit, by learned epoch.

    Args:
        largest: float32 (N,), the largest logit of each training row.
        learned: Learned epoch of each row, int32 (N,).

    Returns:
        For each of up to four equal groups of epochs that has rows: `first` and `last` epoch, number of `rows`, `mean`
        and `deviation` of the largest logit, and `counts` of a histogram over `edges` that all groups share.
    """
    values = largest.astype(np.float64)
    edges = np.linspace(float(values.min()), float(values.max()), 41)
    cuts = np.unique(np.linspace(1, int(learned.max()) + 1, _EPOCH_GROUPS + 1).round().astype(int))
    found = []
    for first, after in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        these = values[(learned >= first) & (learned < after)]
        if len(these):
            found.append(
                {
                    "first": first,
                    "last": after - 1,
                    "rows": len(these),
                    "mean": float(these.mean()),
                    "deviation": float(these.std()),
                    "edges": edges.tolist(),
                    "counts": np.histogram(these, edges)[0].tolist(),
                }
            )
    return found


def by_validation_size(
    calibration: LabelledLogits, test: LabelledLogits, sizes: list[int], seed: int
) -> list[dict[str, Any]]:
    """Return each method's mean test ECE when fitted on fewer calibration rows: ten random subsets of each size."""
    random = np.random.default_rng(seed)
    found = []
    for size in sizes:
        if size > len(calibration.labels):
            continue
        eces: dict[str, list[float]] = {}
        for _ in range(_SAMPLES):
            rows = random.permutation(len(calibration.labels))[:size]
            for name, method in post_hoc(
                LabelledLogits(calibration.logits[rows], calibration.labels[rows])
            ).methods.items():
                probabilities = method.predict_proba(test.logits)
                predicted, _ = method.top_label(test.logits, probabilities)
                ece = metrics.expected_calibration_error(probabilities, test.labels, BINS, predicted=predicted)
                eces.setdefault(name, []).append(float(ece))
        found.append({"rows": size, "ece": {name: float(np.mean(values)) for name, values in eces.items()}})
    return found


def against_people(method: Calibrator, rows: LabelledLogits, shares: NDArray[np.float64]) -> dict[str, float]:
    """Compare probabilities with the shares of people's labels (N, K): cross-entropy and squared distance."""
    probabilities = method.predict_proba(rows.logits).astype(np.float64)
    floor = np.finfo(np.float32).tiny
    return {
        "cross_entropy": float(-(shares * np.log(np.maximum(probabilities, floor))).sum(axis=1).mean()),
        "squared_distance": float(((probabilities - shares) ** 2).sum(axis=1).mean()),
    }


def of_confidences(stated: NDArray[np.float64], right: NDArray[np.int64]) -> dict[str, float]:
    """Return ECE and refinement AUROC of confidences (N,) in labels that are right, 1, or wrong, 0 (N,)."""
    # Two columns, wrong and right; the second holds the stated confidence and the label is always "right".
    probabilities, predicted = np.stack([1 - stated, stated], axis=1), np.ones(len(right), np.int64)
    test = metrics.calibration_test(probabilities, right, BINS, predicted=predicted)
    return {
        "ece": test.error,
        "ece_null_mean": test.null_mean,
        "auroc": metrics.refinement_auroc(probabilities, right, predicted=predicted),
    }


def headline(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the few metrics kept for rows under shift."""
    return {name: found[name] for name in ("accuracy", "nll", "brier", "ece", "ece_null_mean", "auroc")}
