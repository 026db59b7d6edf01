"""Signs that a trained model is of no use."""

from __future__ import annotations

import numpy as np

from bundle import Reference
from bundle.report import evaluation_rows
from calibrators import Auto, Calibrator, EnsembleTemperature, Temperature, metrics

_SPREAD = 1e-4
_FLOOR = 1e-4


def poor(reference: Reference, calibrator: Calibrator) -> list[str]:
    """Return what makes a model useless, a sentence each.

    Its scores have collapsed, it has no skill, its calibrator is at its bound, or one of two classes has no held-out
    rows.

    Args:
        reference: The held-out rows.
        calibrator: Fitted on its fit rows.
    """
    rows = evaluation_rows(reference)
    differences = rows.logits - rows.logits.mean(axis=1, keepdims=True)
    if np.ptp(differences, axis=0).max() < _SPREAD:
        return ["The model has collapsed: it gives all held-out rows the same scores."]
    problems = []
    classes = rows.logits.shape[1]
    for part, held in (("fit", reference.fit), ("certify", reference.certify)):
        if classes == 2 and len(np.unique(held.labels)) < 2:
            problems.append(f"All {len(held.labels):,} {part} rows have one label: nothing is known of the other.")
    # The floor of every log loss that the report compares, so that one confident error is not infinite.
    stated = (1 - _FLOOR) * calibrator.predict_proba(rows.logits).astype(np.float64) + _FLOOR / classes
    counts = np.bincount(reference.fit.labels, minlength=classes) + 1.0
    loss = float(metrics.log_losses(stated, rows.labels).mean())
    blind = float(-np.log(counts / counts.sum())[rows.labels].mean())
    if loss >= blind:
        problems.append(
            f"The model is no better than the class frequencies: its log loss on {len(rows.labels):,} held-out rows is "
            f"{loss:.4f} after calibration, theirs {blind:.4f}."
        )
    fitted = calibrator.calibrator_ if isinstance(calibrator, Auto) else calibrator
    if isinstance(fitted, Temperature | EnsembleTemperature) and fitted.at_bound_:
        low = fitted.temperature_ < 1
        problems.append(
            f"The calibrator {fitted.name} is at its {'lower' if low else 'upper'} bound, {fitted.temperature_:g}: "
            + (
                "the model makes no errors on the fit rows, so they do not determine its confidence. Use more fit rows."
                if low
                else "the scores carry no confidence, or the fit rows do not determine it."
            )
        )
    return problems
