"""Top labels of rows as a fit sees them, and whether their confidences hold."""

from __future__ import annotations

import numpy as np

from calibrators.arrays import ArrayLike, Doubles, Labels
from calibrators.calibrator import Calibrator
from calibrators.chunks import row_chunks
from calibrators.effective_rows import WeightKind
from calibrators.metrics.null_test import calibration_test
from calibrators.validation import LabelledRows, labelled_rows

_RESAMPLES = 400


class Tops:
    """Confidences of the calibrated top labels of N rows, and whether they are right; filled part by part."""

    def __init__(self, rows: int) -> None:
        self._confidence = np.empty(rows)
        self._right = np.empty(rows, np.bool_)

    def fill(self, fitted: Calibrator, rows: LabelledRows, index: Labels) -> Doubles:
        """Predict the rows with the numbers ``index`` (n,), and return the probabilities (n,) of their labels."""
        own = np.empty(len(index))
        for chunk in row_chunks(len(index), rows.logits.shape[1]):
            part = index[chunk]
            logits, labels = rows.logits[part], rows.labels[part]
            probabilities = fitted.predict_proba(logits)
            predicted, self._confidence[part] = fitted.top_label(logits, probabilities)
            self._right[part] = predicted == labels
            own[chunk] = probabilities[np.arange(len(part)), labels]
        return own

    def warning(self, weight: Doubles | None, cluster: Labels, kind: WeightKind) -> str | None:
        """Return a warning if the ECE of the first row of each cluster is above its null's 95 % quantile."""
        rows = np.unique(cluster, return_index=True)[1]
        confidence = self._confidence[rows]
        return calibration_test(
            np.stack([confidence, 1 - confidence], axis=1),
            np.where(self._right[rows], 0, 1),
            sample_weight=None if weight is None else weight[rows],
            predicted=np.zeros(len(rows), np.int64),
            resamples=_RESAMPLES,
            weight_kind=kind,
        ).warning


def calibration_warning(
    fitted: Calibrator,
    logits: ArrayLike,
    labels: ArrayLike,
    groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> str | None:
    """Return a warning if the ECE of a calibrator's top labels is above 95 % of calibrated models, else None.

    Call it after every fit, best on rows that the fit did not see: on its own rows the ECE is too small. Of each group
    the first row counts. `auto` does this itself, out of fold (`warnings_`).

    Args:
        fitted: A fitted calibrator.
        logits: (N, K) raw scores.
        labels: (N,) integers in 0 … K−1.
        groups: (N,) integers or strings, equal for rows that belong together; None: each row is its own.
        sample_weight: (N,) weights of 0 or more, or None.

    Raises:
        CalibrationDataError: As `Calibrator.fit_grouped`.
        CalibrationFitError: Not fitted yet.

    Example:
        >>> import numpy as np
        >>> from calibrators import Identity
        >>> calibration_warning(Identity(), np.array([[0.0, 3.0]] * 100), np.array([0, 1] * 50))
        'Not calibrated: the ECE is 45.3%. On these rows, 95 % of calibrated models have less than 3.7%.'
    """
    rows = labelled_rows(logits, labels, sample_weight, groups)
    numbers = np.arange(len(rows.labels))
    seen = Tops(len(numbers))
    seen.fill(fitted, rows, numbers)
    return seen.warning(rows.weight, numbers if rows.groups is None else rows.groups, fitted.weight_kind)
