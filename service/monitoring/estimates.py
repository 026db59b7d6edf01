"""Estimates from labels and confidences: base rates, accuracy, confidence, label counts and delays.

A row whose label was sought with propensity π stands for 1/π rows, so estimates are about all traffic that can be
labelled. Sought labels that have not arrived are assumed missing at random; their number is reported. Intervals are
pointwise, 95 %, clustered by group; intervals of frequencies are conservative if weights differ much.

References:
    Särndal, Swensson & Wretman (1992), Model assisted survey sampling, section 5.7 (the ratio of weighted sums).
    Wilson (1927), with the effective number of rows of Korn & Graubard (1998).
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import scipy
from numpy.typing import NDArray

from service.decisions.calibrated import Calibrated

MOST_LABELS: Final = 20
"""Maximum labels with a base rate; the most frequent ones."""


def from_labels(seen: Calibrated) -> dict[str, Any]:
    """Return estimates for the traffic that can be labelled.

    Args:
        seen: All predictions of a time span with mature labels.

    Returns:
        Counts; `accuracy` and `mean_confidence` on the same rows; `overconfidence`, their difference (with the
        accuracy's interval, as confidences are known); `base_rate` of the `MOST_LABELS` most frequent labels;
        `delay_s`. None stands for an estimate without labels.
    """
    rows = seen.rows
    seekable, known = rows.propensity > 0, rows.known()
    weight = 1.0 / rows.propensity[known]
    group = np.unique(rows.group[known], return_inverse=True)[1]
    n, sought = int(known.sum()), int((rows.was_sought() & seekable).sum())
    document: dict[str, Any] = {
        "rows": len(rows),
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
    label = rows.label[known]
    rates = np.bincount(label, weight, len(seen.names))
    frequent = np.argsort(-rates, kind="stable")[:MOST_LABELS]
    delay = np.quantile((rows.labelled_at - rows.predicted_at)[known] / 1e6, [0.5, 0.9])
    accuracy = share(seen.right[known], weight, group)
    stated = mean(seen.confidence[known].astype(np.float64), weight, group)
    low, high = accuracy["interval"]
    over = {"value": stated["value"] - accuracy["value"], "interval": [stated["value"] - high, stated["value"] - low]}
    return document | {
        "accuracy": accuracy,
        "mean_confidence": stated,
        "overconfidence": over,
        "base_rate": {seen.names[place]: share(label == place, weight, group) for place in frequent.tolist()},
        "delay_s": {"median": float(delay[0]), "q90": float(delay[1])},
    }


def without_labels(seen: Calibrated) -> dict[str, Any]:
    """Return the accuracy estimated from recent confidences; correct if they are calibrated."""
    size = len(seen.rows)
    group = np.unique(seen.rows.group, return_inverse=True)[1]
    found = mean(seen.confidence.astype(np.float64), np.ones(size), group) if size else None
    return {"rows": size, "mean_confidence": found, "estimated_accuracy": found, "assumes": "calibration"}


def mean(values: NDArray[np.float64], weight: NDArray[np.float64], group: NDArray[np.int64]) -> dict[str, Any]:
    """Return a weighted mean with its 95 % interval; None for an interval from too few groups.

    Args:
        values: (N,), N ≥ 1.
        weight: Above 0, (N,).
        group: Numbers of the groups, from 0 on, int64 (N,).
    """
    value, variance, groups = _linearised(values, weight, group)
    if groups < 2:
        return {"value": value, "interval": None}
    reach = float(scipy.special.stdtrit(groups - 1, 0.975)) * math.sqrt(variance)
    return {"value": value, "interval": [value - reach, value + reach]}


def share(hits: NDArray[np.bool_], weight: NDArray[np.float64], group: NDArray[np.int64]) -> dict[str, Any]:
    """Return a weighted frequency with its 95 % interval within [0, 1]; arguments as for `mean`."""
    value, variance, groups = _linearised(hits.astype(np.float64), weight, group)
    if groups < 2:
        return {"value": value, "interval": [0.0, 1.0]}
    totals = np.bincount(group, weight)
    n = float(
        totals.sum() ** 2 / (totals**2).sum()
    )  # Kish's effective size, because the variance may miss rare errors of large weight
    if variance > 0:
        n = min(value * (1 - value) / variance, n)
    z = float(scipy.special.stdtrit(groups - 1, 0.975))
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
