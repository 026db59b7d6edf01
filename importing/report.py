"""The report of an imported model: the effect of calibration, and how well it finds the class that matters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from bundle import LabelledLogits, Reference
from bundle import report as reports
from calibrators import CALIBRATORS, Calibrator, metrics
from importing.errors import ImportRefusedError

POINTS: Final = 200
"""Largest number of thresholds with a precision and a recall."""

BINS: Final = 10
"""Bins of equal mass; the highest is divided again while it holds `DIVIDED` rows."""

DIVIDED: Final = 200

_NEAR: Final = 1e-12  # a probability of 0 or 1 is drawn as this far from it: its log-odds are infinite


def make_report(
    reference: Reference,
    calibrator: Calibrator,
    labels: Sequence[str],
    positive: str | None = None,
    *,
    test: LabelledLogits | None = None,
) -> dict[str, Any]:
    """Compare the plain softmax with the calibrator on rows that it was not fitted on.

    The document is that of `bundle.report.make_report`. For a model of two classes, and wherever a class is named, it
    has a section `positive` about that class against the others: `label`, `rows`, `positives`, `base_rate`, and
    `before` and `after` calibration each

    - `average_precision` and `auroc`: `value`, null where the rows lack positives or negatives;
    - `precision_recall`: columns `threshold`, `precision`, `recall` and `flagged` (share of the rows at or above the
      threshold), at most `POINTS` thresholds from the strictest to all rows; empty without positives;
    - `reliability`: columns `probability` (mean), `logit` (its log-odds), `rate` of positives, `low`, `high` (95 %
      Clopper–Pearson interval) and `count`, for bins of equal mass.

    Args:
        reference: The reference rows.
        calibrator: Fitted on `reference.fit`.
        labels: Names of the K classes.
        positive: The class that matters; None: of two classes the one that is rarer among the fit rows.
        test: Rows that are neither reference nor training rows; None for none.

    Returns:
        A JSON-able document of finite numbers.

    Raises:
        ImportRefusedError: `positive` is not a label.
    """
    report = reports.make_report(reference, calibrator, test)
    if positive is not None:
        check_positive(positive, labels)
    if positive is None and len(labels) != 2:
        return report
    ones = int(np.count_nonzero(reference.fit.labels))
    index = int(2 * ones <= len(reference.fit.labels)) if positive is None else list(labels).index(positive)
    rows = reports.evaluation_rows(reference)
    identity = CALIBRATORS["identity"]().fit(reference.fit.logits, reference.fit.labels)
    count = int((rows.labels == index).sum())
    report["positive"] = {
        "label": labels[index],
        "rows": len(rows.labels),
        "positives": count,
        "base_rate": count / len(rows.labels),
        "before": _found(identity, rows, index),
        "after": _found(calibrator, rows, index),
    }
    return report


def check_positive(positive: str, labels: Sequence[str]) -> None:
    """Raise ImportRefusedError unless the class is a label."""
    if positive not in labels:
        raise ImportRefusedError(
            f"Unknown class {positive!r}.", where="positive", found=positive, expected=f"one of {', '.join(labels)}"
        )


def _found(calibrator: Calibrator, rows: LabelledLogits, positive: int) -> dict[str, Any]:
    probabilities = calibrator.predict_proba(rows.logits)
    happened = rows.labels == positive
    areas: dict[str, float | None] = {"average_precision": None, "auroc": None}
    if happened.any() and not happened.all():
        areas["average_precision"] = metrics.refinement_aupr(probabilities, rows.labels, positive=positive)
        areas["auroc"] = metrics.refinement_auroc(probabilities, rows.labels, positive=positive)
    return {
        **{name: {"value": value} for name, value in areas.items()},
        "precision_recall": _precision_recall(probabilities, rows.labels, positive),
        "reliability": _reliability(probabilities, rows.labels, positive),
    }


def _precision_recall(
    probabilities: NDArray[np.float32], labels: NDArray[np.int64], positive: int
) -> dict[str, list[float]]:
    names = ("threshold", "precision", "recall", "flagged")
    if not (labels == positive).any():
        return {name: [] for name in names}
    curve = metrics.precision_recall_curve(probabilities, labels, POINTS, positive=positive)
    return {name: getattr(curve, name).tolist() for name in names}


def _reliability(
    probabilities: NDArray[np.float32], labels: NDArray[np.int64], positive: int
) -> dict[str, list[float]]:
    """Return the columns of a reliability diagram, from the lowest probability to the highest."""
    parts: list[dict[str, NDArray[Any]]] = []
    while True:
        curve = metrics.reliability_curve(probabilities, labels, BINS, "mass", positive=positive)
        columns = {
            "probability": curve.confidence,
            "logit": logit(np.clip(curve.confidence, _NEAR, 1 - _NEAR)),
            "rate": curve.accuracy,
            "low": curve.low,
            "high": curve.high,
            "count": curve.count,
        }
        if len(curve.count) == 1 or curve.count[-1] < DIVIDED:
            parts.append(columns)
            return {name: np.concatenate([part[name] for part in parts]).tolist() for name in columns}
        parts.append({name: column[:-1] for name, column in columns.items()})
        # Of a rare class nearly all is in the highest bin.
        highest = probabilities[:, positive] > curve.lower[-1]
        probabilities, labels = probabilities[highest], labels[highest]
