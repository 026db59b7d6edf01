"""Choose the rows of a mature cohort that a monitor counts.

A cohort is *all* predictions of a time span, counted once the last of its labels is mature. Rows count in order of
prediction, so that label delays do not matter: in order of arrival, errors that are labelled quickly would come first
and make a perfect calibrator look bad.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.decisions.rows import ScoredRows
from service.errors import InputValueError


def counted(rows: ScoredRows, since: int, through: int, *, known_propensity: bool) -> NDArray[np.intp]:
    """Return which rows of a cohort count, in order of prediction.

    Args:
        rows: All N predictions of the span, with and without labels.
        since: Start of the span, inclusive.
        through: End of the span, exclusive.
        known_propensity: Whether to omit rows of unknown propensity.

    Returns:
        Indices in ascending order.

    Raises:
        InputValueError: The span is not the next one, or rows are not in order or outside it.
    """
    if through <= since:
        raise InputValueError(
            "These rows are already counted, or the cohort is empty.",
            where="through",
            found=through,
            expected=f"a time after {since}, the end of the previous cohort",
            remedy="Pass each time span once, in order.",
        )
    time = rows.predicted_at
    if time.dtype != np.int64:
        raise InputValueError(
            "Times are not integers.",
            where="time",
            found=str(time.dtype),
            expected="int64",
            remedy="Pass times in microseconds since the epoch.",
        )
    if len(time) and (time[0] < since or time[-1] >= through):
        raise InputValueError(
            "A row is outside the cohort.",
            where="time",
            found=[int(time[0]), int(time[-1])],
            expected=f"times from {since} to before {through}",
            remedy="Pass only rows of this time span.",
        )
    if (np.diff(time) < 0).any():
        at = int(np.argmax(np.diff(time) < 0)) + 1
        raise InputValueError(
            "Rows are not in order of prediction.",
            where=f"time[{at}]",
            found=int(time[at]),
            expected=f"at least {int(time[at - 1])}, the previous row's time",
            remedy="Sort rows by prediction time, not by label time.",
        )
    return np.flatnonzero(~np.isnan(rows.propensity)) if known_propensity else np.arange(len(rows))


def weights(rows: ScoredRows, floor: float) -> NDArray[np.float64]:
    """Return each row's weight, shape (N,): floor/propensity for a sought label, else 0.

    The weight is also 0 if the propensity is below the floor.

    Args:
        rows: Rows of known propensity.
        floor: Minimum propensity, in (0, 1].
    """
    weighed = rows.was_sought() & (rows.propensity >= floor)
    return np.divide(floor, rows.propensity, out=np.zeros(len(rows)), where=weighed)
