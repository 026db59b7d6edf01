"""Which rows of a matured cohort a monitor counts, and in which order.

A cohort is *all* predictions of a span of time, taken when the last of its labels had the time to come. In order of
arrival the quickly labelled rows would stand first, and these may be the wrong ones: then a perfect calibrator looks
bad at any time. In order of prediction it does not matter which label came when.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.decisions.rows import ScoredRows
from service.errors import InputValueError


def counted(
    rows: ScoredRows, time: NDArray[np.int64], since: int, through: int, *, known_propensity: bool
) -> NDArray[np.intp]:
    """Return the first row of each group, in order of prediction.

    Args:
        rows: All predictions of the span, N of them, with and without labels.
        time: When each was made, int64 of shape (N,), microseconds since the epoch, not falling.
        since: Where the span begins, itself included.
        through: Where it ends, itself not included.
        known_propensity: Whether rows of which nobody knows how their labels came are left out.

    Returns:
        Indices in ascending order.

    Raises:
        InputValueError: The span is not the next one, or rows are not in order or outside of it.
    """
    if through <= since:
        raise InputValueError(
            "These rows were counted already, or the cohort is empty.",
            where="through",
            found=through,
            expected=f"a time after {since}, where the monitor stands",
            remedy="Give each span of time once, one after the other.",
        )
    if time.shape != (len(rows),) or time.dtype != np.int64:
        raise InputValueError(
            "Rows and times do not match.",
            where="time",
            found=[str(time.dtype), *time.shape],
            expected=["int64", len(rows)],
            remedy="Give one time for each row, in microseconds since the epoch.",
        )
    if len(time) and (time[0] < since or time[-1] >= through):
        raise InputValueError(
            "A row is outside of the cohort.",
            where="time",
            found=[int(time[0]), int(time[-1])],
            expected=f"times from {since} to before {through}",
            remedy="Give the rows of the span that `through` ends, and only these.",
        )
    if (np.diff(time) < 0).any():
        at = int(np.argmax(np.diff(time) < 0)) + 1
        raise InputValueError(
            "Rows are not in order of prediction.",
            where=f"time[{at}]",
            found=int(time[at]),
            expected=f"at least {int(time[at - 1])}, the time before",
            remedy="Sort the rows by the time of their prediction, not by that of their label.",
        )
    which: NDArray[np.intp] = np.arange(len(rows))
    if known_propensity and rows.propensity is not None:
        which = which[~np.isnan(rows.propensity)]
    if rows.group is not None:
        which = which[np.sort(np.unique(rows.group[which], return_index=True)[1])]
    return which


def weights(rows: ScoredRows, floor: float) -> NDArray[np.float64]:
    """Return what each row's factor is damped by: floor/propensity where its label was sought, shape (N,).

    0 where it was not sought, and where the propensity is below the floor: what becomes of those is for the monitor to
    say.

    Args:
        rows: Rows of known propensity.
        floor: Smallest propensity that is weighed, in (0, 1].
    """
    propensity = np.ones(len(rows)) if rows.propensity is None else rows.propensity
    weighed = rows.asked() & (propensity >= floor)
    return np.divide(floor, propensity, out=np.zeros(len(rows)), where=weighed)
