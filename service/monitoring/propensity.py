"""Monitor whether labels are sought as often as the log says. Its alarm voids certificates that rest on traffic.

H₀: given all rows before, the label of a row with propensity π is sought with probability π, whatever its score. A bet
is a shift of the log-odds of π, for all rows or for those of one band of the score:

    f = π′/π if the label was sought, (1 − π′)/(1 − π) if not,   logit π′ = logit π + shift.

Each factor has mean 1; below 1 where π is nearer to 0 or 1 than 1e-9. Certificates, fits and monitors weigh or thin by
propensities: where errors are sought less often than logged, everything looks better than it is, and no label tells.
Whether a label was sought is known of every row; errors are rarer at high scores, so a share that depends on the label
shows in a band.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from service.decisions.numbers import whole
from service.decisions.rows import ScoredRows
from service.monitoring.alarm import FIELDS, Alarm
from service.monitoring.cohorts import counted
from service.monitoring.documents import VERSION, fields_of

_SHIFTS: Final = tuple(sign * size for size in (0.125, 0.25, 0.5, 1.0, 2.0) for sign in (-1, 1))
_EDGES: Final = (-1.0, 0.05, 0.2, 0.5, 0.8, 0.95, 1.0)
_GLOBAL: Final = [(shift, -1.0, 1.0) for shift in _SHIFTS]
_LOCAL: Final = [(shift, low, high) for low, high in pairwise(_EDGES) for shift in _SHIFTS]
_BETS: Final = np.array(_GLOBAL + _LOCAL).T
LOG_WEIGHTS: Final = -np.log(2.0 * np.repeat([len(_GLOBAL), len(_LOCAL)], [len(_GLOBAL), len(_LOCAL)]))
_BLOCK: Final = 1024


def log_factors(
    probability: NDArray[np.float32], propensity: NDArray[np.float64], sought: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return ln f of each row and bet, shape (N, J).

    Args:
        probability: Calibrated probabilities in [0, 1], shape (N,).
        propensity: Logged propensities in [0, 1], shape (N,).
        sought: Whether each label was sought, shape (N,).
    """
    shift, low, high = _BETS
    p = probability[:, None]
    logged = propensity[:, None]
    stated = np.clip(logged, 1e-9, 1.0 - 1e-9)
    expit, moved = scipy.special.expit, scipy.special.logit(stated) + shift
    # What is logged, where it is more than stated: else the mean of a factor would be above 1.
    of_sought = np.log(expit(moved) / np.maximum(stated, logged))
    of_others = np.log(expit(-moved) / np.maximum(1.0 - stated, 1.0 - logged))
    found = np.where(sought[:, None], of_sought, of_others)
    return np.where((p > low) & (p <= high), found, 0.0)


class PropensityMonitor:
    """Evidence against "labels are sought with the logged propensities".

    Args:
        level: Probability in (0, 1) that the monitor ever fires while H₀ holds.
        since: Start, microseconds since the epoch, UTC; not before the activation.

    Attributes:
        alarm: The evidence and its alarm.

    Raises:
        InputValueError: An option is out of range.

    Example:
        >>> audit = PropensityMonitor(level=0.05, since=0)
        >>> time, p = np.arange(400), np.full(400, 0.9, np.float32)
        >>> rows = ScoredRows(
        ...     predicted_at=time, probability=p, score=p, positive=time < 0, propensity=np.full(400, 0.5),
        ...     sought=time % 4 == 0, labelled=time < 0,
        ... )
        >>> audit.update(rows, through=400)
        >>> audit.alarm.fired_at is not None
        True
    """

    def __init__(self, *, level: float, since: int) -> None:
        self.alarm = Alarm(LOG_WEIGHTS, level, since)

    def update(self, rows: ScoredRows, *, through: int) -> None:
        """Count the next cohort: *all* predictions from the end of the previous cohort to before `through`.

        Args:
            rows: N predictions in order, with the policy's probability. Those of unknown propensity do not count.
            through: End of the cohort, exclusive.

        Raises:
            InputValueError: The cohort is not the next one, or rows are not in order; nothing is counted then.
        """
        through = whole(through, "through", least=0)
        rows = rows.take(counted(rows, self.alarm.through, through, known_propensity=True))
        self.alarm.take(self._blocks(rows), through)

    def _blocks(self, rows: ScoredRows) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64], int]]:
        sought = rows.known() if rows.sought is None else rows.sought
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            factors = log_factors(rows.probability[part], rows.propensity[part], sought[part])
            yield factors, rows.predicted_at[part], 0

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document that `from_dict` restores exactly."""
        return {"kind": "propensity", "version": VERSION, **self.alarm.to_dict()}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            InputValueError: The document is of another kind or inconsistent.
        """
        fields = fields_of(document, "propensity", FIELDS)
        monitor = cls(level=fields["level"], since=fields["through"])
        monitor.alarm = Alarm.from_dict(fields, LOG_WEIGHTS)
        return monitor
