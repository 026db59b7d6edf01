"""What labels and confidences say of the traffic: base rates, accuracy, confidence, how many labels come and when.

Rows whose label was sought with propensity π stand for 1/π rows each, so that a share of the labelled rows becomes one
of all traffic that can be labelled. Labels that were sought and have not come are left out, as if they stayed away by
chance; how many there are is said beside. Intervals are pointwise, 95 %, clustered by group; where weights differ much,
those of shares cover more.

References:
    Särndal, Swensson & Wretman (1992), Model assisted survey sampling, section 5.7 (the ratio of weighted sums).
    Wilson (1927), with the effective number of rows of Korn & Graubard (1998).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

MOST_LABELS: Final = 20
"""Labels whose base rates are given, the most frequent ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """N predictions as columns.

    Attributes:
        confidence: Calibrated probability of the predicted label, (N,).
        predicted: Its place among the labels, int64 (N,).
        labels: The true one's, int64 (N,), below 0 where none has come.
        propensity: Probability with which the label was sought, (N,), NaN where unknown.
        sought: Whether it was, bool (N,).
        group: Cluster of each row, int64 (N,).
        delay_s: Seconds from prediction to its first label, (N,); not read where none has come.
    """

    confidence: NDArray[np.floating[Any]]
    predicted: NDArray[np.int64]
    labels: NDArray[np.int64]
    propensity: NDArray[np.float64]
    sought: NDArray[np.bool_]
    group: NDArray[np.int64]
    delay_s: NDArray[np.float64]


def from_labels(rows: Observed, label_names: tuple[str, ...]) -> dict[str, Any]:
    """Return what the labelled rows say of the traffic that can be labelled.

    Args:
        rows: All predictions of a span of time whose labels had the time to come.
        label_names: The model's labels.

    Returns:
        Counts; `accuracy`, `mean_confidence` on the same rows, and `overconfidence`, by how much the one is below the
        other (the interval is the accuracy's: confidences are known); `base_rate` by label, the most frequent
        `MOST_LABELS`; `delay_s`. None stands for what no label shows.
    """
    seekable = rows.propensity > 0
    counts = rows.sought & seekable & (rows.labels >= 0)
    weight = 1.0 / rows.propensity[counts]
    group = np.unique(rows.group[counts], return_inverse=True)[1]
    n, sought = int(counts.sum()), int((rows.sought & seekable).sum())
    document: dict[str, Any] = {
        "rows": len(rows.labels),
        "seekable_share": float(seekable.mean()) if len(seekable) else None,
        "sought": sought,
        "labelled": n,
        "labelled_share": n / sought if sought else None,
        "effective_rows": float(weight.sum() ** 2 / (weight**2).sum()) if n else 0.0,
        "accuracy": None,
        "mean_confidence": None,
        "overconfidence": None,
        "base_rate": {},
        "delay_s": None,
    }
    if not n:
        return document
    confidence = rows.confidence[counts].astype(np.float64)
    labels = rows.labels[counts]
    right = labels == rows.predicted[counts]
    rates = np.bincount(labels, weight, len(label_names))
    frequent = np.argsort(-rates, kind="stable")[:MOST_LABELS]
    delay = np.quantile(rows.delay_s[counts], [0.5, 0.9])
    accuracy, stated = share(right, weight, group), mean(confidence, weight, group)
    low, high = accuracy["interval"]
    over = {"value": stated["value"] - accuracy["value"], "interval": [stated["value"] - high, stated["value"] - low]}
    return document | {
        "accuracy": accuracy,
        "mean_confidence": stated,
        "overconfidence": over,
        "base_rate": {label_names[label]: share(labels == label, weight, group) for label in frequent.tolist()},
        "delay_s": {"median": float(delay[0]), "q90": float(delay[1])},
    }


def without_labels(confidence: NDArray[np.floating[Any]], group: NDArray[np.int64]) -> dict[str, Any]:
    """Return the accuracy that confidences promise, which it is as far as they are calibrated.

    Args:
        confidence: Of all recent predictions, (N,).
        group: Cluster of each, int64 (N,).
    """
    weight = np.ones(len(confidence))
    cluster = np.unique(group, return_inverse=True)[1]
    found = mean(confidence.astype(np.float64), weight, cluster) if len(confidence) else None
    return {"rows": len(confidence), "mean_confidence": found, "estimated_accuracy": found, "assumes": "calibration"}


def mean(values: NDArray[np.float64], weight: NDArray[np.float64], group: NDArray[np.int64]) -> dict[str, Any]:
    """Return a weighted mean with its 95 % interval, None where there are too few groups for one.

    Args:
        values: (N,), N ≥ 1.
        weight: Above 0, (N,).
        group: Numbers of the groups, from 0 on, int64 (N,).
    """
    value, variance, groups = _linearised(values, weight, group)
    if groups < 2:
        return {"value": value, "interval": None}
    reach = float(stdtrit(groups - 1, 0.975)) * math.sqrt(variance)
    return {"value": value, "interval": [value - reach, value + reach]}


def share(hits: NDArray[np.bool_], weight: NDArray[np.float64], group: NDArray[np.int64]) -> dict[str, Any]:
    """Return a weighted share with its 95 % interval, within [0, 1]; arguments as for `mean`."""
    value, variance, groups = _linearised(hits.astype(np.float64), weight, group)
    if groups < 2:
        return {"value": value, "interval": [0.0, 1.0]}
    totals = np.bincount(group, weight)
    n = float(
        totals.sum() ** 2 / (totals**2).sum()
    )  # Kish's: rare errors of large weight may be missing from the spread
    if variance > 0:
        n = min(value * (1 - value) / variance, n)
    z = float(stdtrit(groups - 1, 0.975))
    centre, scale = value + z**2 / (2 * n), 1 + z**2 / n
    reach = z * math.sqrt(value * (1 - value) / n + z**2 / (4 * n**2))
    return {"value": value, "interval": [max((centre - reach) / scale, 0.0), min((centre + reach) / scale, 1.0)]}


def _linearised(
    values: NDArray[np.float64], weight: NDArray[np.float64], group: NDArray[np.int64]
) -> tuple[float, float, int]:
    """Return a ratio of weighted sums, its variance by groups, and their number."""
    total = float(weight.sum())
    value = float(weight @ values) / total
    sums = np.bincount(group, weight * (values - value))
    groups = len(sums)
    return value, float(sums @ sums) / total**2 * groups / max(groups - 1, 1), groups
