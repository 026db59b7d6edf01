"""Calibration slope and intercept: a straight line between stated and true log-odds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from calibrators.arrays import ArrayLike, Doubles
from calibrators.chunks import CHUNK_ENTRIES, probability_chunks
from calibrators.effective_rows import WeightKind
from calibrators.errors import CalibrationDataError
from calibrators.fitting.logistic import fit_logistic
from calibrators.metrics.rows import check_positive, check_rows, check_weight_kind, noise_weight
from calibrators.validation import as_labels


@dataclass(frozen=True, slots=True)
class SlopeIntercept:
    """The line log-odds(event) = intercept + slope · log-odds(stated); (0, 1) is calibrated.

    Attributes:
        slope: Below 1: probabilities too extreme (overconfident); above 1: underconfident.
        intercept: The true log-odds at a stated 0.5.
        slope_error: Standard error of the slope.
        intercept_error: Standard error of the intercept.
        in_the_large: The intercept with the slope held at 1; above 0 the event is more frequent than stated.
        p_value: Of the joint hypothesis slope = 1 and intercept = 0 (likelihood ratio). A large one is not a proof of
            calibration.
    """

    slope: float
    intercept: float
    slope_error: float
    intercept_error: float
    in_the_large: float
    p_value: float


def calibration_slope_intercept(
    probabilities: ArrayLike,
    labels: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
    positive: int | None = None,
    weight_kind: WeightKind = "importance",
) -> SlopeIntercept:
    """Fit a logistic regression of the outcome on the stated log-odds.

    The event is that the judged label is right, and its odds are the probability against the sum of all others, so a
    float32 probability that rounds to one keeps its place. A row with a certain event (0 or 1) and that outcome is left
    out; certain and wrong is refused. Standard errors come from per-row influence (sandwich) with the Kish effective
    number of rows; with few events they are too small. The p-value is that of the likelihood ratio, scaled for
    importance weights: it keeps its level with as few as 8 events, where a Wald test rejects three times too often at 1
    %.

    Raises:
        CalibrationDataError: Also if all outcomes are alike, fewer than two log-odds differ, the log-odds separate the
            outcomes perfectly (no finite line), or a certain event failed.
        CalibrationFitError: No convergence.

    References:
        Cox (1958), Two further applications of a model for binary regression; Van Calster et al. (2019), Calibration:
        the Achilles heel of predictive analytics; sandwich: White (1982); the scaled likelihood ratio: Rao, Scott
        (1984), On chi-squared tests for multiway contingency tables.

    Example:
        >>> import numpy as np
        >>> p = np.repeat([0.2, 0.8], 5)
        >>> happened = [0, 0, 1, 0, 1, 1, 1, 0, 1, 0]
        >>> line = calibration_slope_intercept(np.stack([1 - p, p], axis=1), happened, positive=1)
        >>> round(line.slope, 4), round(abs(line.intercept), 4)
        (0.2925, 0.0)
    """
    log_odds, event, weight = _stated_log_odds(probabilities, labels, sample_weight, predicted, positive)
    check_weight_kind(sample_weight, weight_kind)
    _check_line_exists(log_odds, event)
    share = np.full(len(event), 1 / len(event)) if weight is None else weight / weight.sum()
    centre = float(share @ log_odds)
    scale = math.sqrt(float(share @ (log_odds - centre) ** 2))
    features = np.stack([np.ones(len(event)), (log_odds - centre) / scale], axis=1)
    targets = event.astype(np.float64)
    theta = fit_logistic(features, targets, weight, start=np.array([0.0, scale]))
    slope, intercept = theta[1] / scale, theta[0] - theta[1] * centre / scale
    total = float(len(event)) if weight is None else float(weight.sum())
    noise = noise_weight(weight, len(event), weight_kind) / total**2
    covariance = _covariance(features, targets, share, noise, theta)
    back = np.array([[1, -centre / scale], [0, 1 / scale]])
    covariance = back @ covariance @ back.T
    return SlopeIntercept(
        float(slope),
        float(intercept),
        math.sqrt(covariance[1, 1]),
        math.sqrt(covariance[0, 0]),
        _shift(log_odds, targets, share),
        _p_value(features, targets, share, noise, theta, np.array([centre, scale])),
    )


def _stated_log_odds(
    probabilities: ArrayLike,
    labels: ArrayLike,
    sample_weight: ArrayLike | None,
    predicted: ArrayLike | None,
    positive: int | None,
) -> tuple[Doubles, npt.NDArray[np.bool_], Doubles | None]:
    """Return finite log-odds (n,), whether the event happened, and weights, of the rows that are not certain."""
    matrix, truth, weight = check_rows(probabilities, labels, sample_weight)
    rows, classes = matrix.shape
    if positive is not None:
        check_positive(positive, classes, predicted)
        predicted = np.full(rows, positive)
    chosen = None if predicted is None else as_labels(predicted, rows, classes, "predicted")
    log_odds, event = np.empty(rows), np.empty(rows, np.bool_)
    for part, chunk in probability_chunks(matrix):
        index = np.argmax(chunk, axis=1) if chosen is None else chosen[part]
        others = chunk.astype(np.float64)
        own = (np.arange(len(index)), index)
        stated = others[own]
        others[own] = 0
        with np.errstate(divide="ignore"):
            log_odds[part] = np.log(stated) - np.log(np.add.reduce(others, axis=1))
        event[part] = index == truth[part]
    certain = np.isinf(log_odds)
    counted = np.ones(rows, np.bool_) if weight is None else weight > 0
    failed = counted & certain & (event != (log_odds > 0))
    if failed.any():
        row = int(np.argmax(failed))
        raise CalibrationDataError(
            "Certain and wrong",
            where=f"probabilities[{row}]",
            found="certain (0 or 1), but the outcome contradicts it",
            expected="a probability inside (0, 1)",
        )
    kept = counted & ~certain
    return log_odds[kept], event[kept], None if weight is None else weight[kept]


def _check_line_exists(log_odds: Doubles, event: npt.NDArray[np.bool_]) -> None:
    found = ""
    if event.all() or not event.any():
        found = f"{len(event)} rows with an uncertain event, all with the same outcome"
    elif log_odds.min() == log_odds.max():
        found = "one log-odds in every row"
    elif log_odds[event].min() >= log_odds[~event].max() or log_odds[event].max() <= log_odds[~event].min():
        found = "log-odds that separate the outcomes perfectly"
    if found:
        raise CalibrationDataError(
            "No calibration line", where="probabilities", found=found, expected="outcomes that overlap in log-odds"
        )


def _covariance(features: Doubles, targets: Doubles, share: Doubles, noise: Doubles, theta: Doubles) -> Doubles:
    """Return the sandwich covariance (2, 2), with the degrees of freedom of the effective number of rows."""
    curvature, scatter = np.zeros((2, 2)), np.zeros((2, 2))
    for start in range(0, len(targets), CHUNK_ENTRIES):
        part = slice(start, start + CHUNK_ENTRIES)
        rows = features[part]
        chance = scipy.special.expit(rows @ theta)
        curvature += (rows * (share[part] * chance * (1 - chance))[:, None]).T @ rows
        scatter += (rows * (noise[part] * (targets[part] - chance) ** 2)[:, None]).T @ rows
    bread = np.linalg.inv(curvature)
    effective = 1 / float(noise.sum())
    return np.asarray(bread @ scatter @ bread * (effective / max(effective - 2, 1.0)))


def _p_value(
    features: Doubles, targets: Doubles, share: Doubles, noise: Doubles, theta: Doubles, calibrated: Doubles
) -> float:
    """Return the p-value of the likelihood ratio between the fitted line and the calibrated one.

    Under calibration its mean is tr(H⁻¹ V), with H the curvature and V the covariance of the slope of the mean log
    likelihood, both at the stated probabilities; divided by the mean eigenvalue it is about χ² with two degrees of
    freedom.
    """
    curvature, scatter, gain = np.zeros((2, 2)), np.zeros((2, 2)), 0.0
    for start in range(0, len(targets), CHUNK_ENTRIES):
        part = slice(start, start + CHUNK_ENTRIES)
        rows = features[part]
        stated, fitted = rows @ calibrated, rows @ theta
        loss = np.logaddexp(0, stated) - np.logaddexp(0, fitted) - targets[part] * (stated - fitted)
        gain += float(share[part] @ loss)
        chance = scipy.special.expit(stated)
        spread = chance * (1 - chance)
        curvature += (rows * (share[part] * spread)[:, None]).T @ rows
        scatter += (rows * (noise[part] * spread)[:, None]).T @ rows
    widening = float(np.trace(np.linalg.solve(curvature, scatter))) / 2
    return float(scipy.special.chdtrc(2, 2 * max(gain, 0.0) / widening))


def _shift(log_odds: Doubles, targets: Doubles, share: Doubles) -> float:
    """Return the a at which the mean of σ(a + log-odds) is the event's frequency, by bracketed Newton steps."""
    wanted = float(share @ targets)
    low, high = scipy.special.logit(wanted) - log_odds.max(), scipy.special.logit(wanted) - log_odds.min()
    shift = 0.0 if low <= 0 <= high else (low + high) / 2
    for _ in range(200):
        chance = scipy.special.expit(log_odds + shift)
        gap = float(share @ chance) - wanted
        low, high = (low, shift) if gap > 0 else (shift, high)
        slope = float(share @ (chance * (1 - chance)))
        following = shift - gap / slope if slope > 0 else math.inf
        if not low <= following <= high:
            following = (low + high) / 2
        if abs(following - shift) <= 1e-12 * (1 + abs(shift)):
            return float(following)
        shift = following
    return float(shift)
