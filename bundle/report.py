"""The effect of calibration in numbers: a function of a bundle's reference rows and its calibrator.

Training and imports write it. Importing the package `bundle` does not import this module.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle.reference import LabelledLogits, Reference
from calibrators import CALIBRATORS, Calibrator, metrics
from calibrators.metrics.null_test import above_null

BINS = 15
FLOOR = 1e-4


def make_report(reference: Reference, calibrator: Calibrator, test: LabelledLogits | None = None) -> dict[str, Any]:
    """Compare the plain softmax with the calibrator on rows that it was not fitted on.

    The rows are the certify and gate rows together, so that all versions of a model can be compared. Rows outside the
    bundle have a section of their own. Each calibration error comes with its null: mean and 95 % quantile of a
    calibrated model with the same confidences. Differences are after − before on the same rows, with a 95 % interval
    clustered by group. Weights are for fits: no figure uses them. `warnings` has a sentence if the error after
    calibration is above the null's 95 % quantile.
    NLL and Brier score use (1 − 1e−4) p + 1e−4 / K, as all compared losses in Candor, so that one confident error does
    not make them infinite.

    Args:
        reference: The reference rows.
        calibrator: Fitted on `reference.fit`.
        test: At least two rows that are neither reference nor training rows; None for none.

    Returns:
        A JSON-able document.
    """
    identity = CALIBRATORS["identity"]().fit(reference.fit.logits, reference.fit.labels)
    rows = evaluation_rows(reference)
    report: dict[str, Any] = {
        "schema_version": 1,
        "calibrator": calibrator.to_dict(),
        "rows": {
            "fit": len(reference.fit.labels),
            "evaluated": len(rows.labels),
            "evaluated_on": "the reference's certify and gate rows",
        },
        **_comparison(identity, calibrator, rows),
    }
    warning = above_null(report["after"]["ece"]["value"], report["after"]["ece"]["null"]["q95"])
    report["warnings"] = [] if warning is None else [warning]
    if test is not None:
        report["test"] = {"rows": len(test.labels), **_comparison(identity, calibrator, test)}
    return report


def headline(report: dict[str, Any]) -> dict[str, float]:
    """Return the metrics for the manifest, as `<metric>_<before|after>`."""
    return {
        f"{name}_{side}": report[side][name]["value"]
        for side in ("before", "after")
        for name in ("accuracy", "nll", "brier", "ece")
    } | {f"ece_null_q95_{side}": report[side]["ece"]["null"]["q95"] for side in ("before", "after")}


def evaluation_rows(reference: Reference) -> LabelledLogits:
    """Return the rows of a report, with their groups: certify and gate rows, in this order."""
    parts = (reference.certify, reference.gate)
    groups = [part.group for part in parts if part.group is not None]
    return LabelledLogits(
        np.concatenate([part.logits for part in parts]),
        np.concatenate([part.labels for part in parts]),
        group=np.concatenate(groups) if len(groups) == len(parts) else None,
    )


def _comparison(identity: Calibrator, calibrator: Calibrator, rows: LabelledLogits) -> dict[str, Any]:
    losses = [_losses(each.predict_proba(rows.logits), rows) for each in (identity, calibrator)]
    return {
        "before": _metrics(identity, rows),
        "after": _metrics(calibrator, rows),
        "difference": {
            name: _interval(metrics.paired_interval(after, before, groups=rows.group))
            for name, before, after in zip(("nll", "brier"), *losses, strict=True)
        },
    }


def _losses(probabilities: NDArray[Any], rows: LabelledLogits) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    mixed = (1 - FLOOR) * probabilities.astype(np.float64) + FLOOR / probabilities.shape[1]
    return metrics.log_losses(mixed, rows.labels), metrics.squared_errors(mixed, rows.labels)


def _metrics(calibrator: Calibrator, rows: LabelledLogits) -> dict[str, Any]:
    probabilities = calibrator.predict_proba(rows.logits)
    predicted, confidence = calibrator.top_label(rows.logits, probabilities)
    log_losses, squared_errors = _losses(probabilities, rows)
    test = metrics.calibration_test(probabilities, rows.labels, bins=BINS, predicted=predicted)
    return {
        "accuracy": {"value": metrics.accuracy(probabilities, rows.labels, predicted=predicted)},
        "confidence": {"value": float(confidence.mean(dtype=np.float64))},
        "nll": {"value": float(log_losses.mean())},
        "brier": {"value": float(squared_errors.mean())},
        "ece": {
            "value": test.error,
            "bins": BINS,
            "null": {"mean": test.null_mean, "q95": test.null_quantile},
            "p_value": test.p_value,
        },
    }


def _interval(interval: metrics.Interval) -> dict[str, float]:
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high, "level": interval.level}
