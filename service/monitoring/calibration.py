"""Monitor whether probabilities are still calibrated. Its alarm voids nothing; it proposes a recalibration.

H₀: given all rows before, a row with probability p is positive with a mean rate in [p − ε, p + ε]. (With ε = 0 every
monitor fires in the end: no calibration is exact.) A bet is a curve p ↦ p′ of possible new rates. If p′ > p + ε it bets
on p′ against p + ε, if p′ < p − ε against p − ε, and otherwise not:

    v = p′/u − 1 for a positive row, (1 − p′)/(1 − u) − 1 for another, u = p ± ε the nearest rate that H₀ allows.

v has mean at most 0 for every rate that H₀ allows: it is linear in the rate, 0 at u, and below 0 on the side of p. A
row whose label was sought with propensity π ≥ φ has f = 1 + (φ/π) v; a row whose label was not sought has f = 1. A
sought label that has not arrived counts as the label with the smaller v.

References:
    Henzi & Ziegel (2022; arXiv 2103.08402 of 2021), Valid sequential inference on probability forecast performance, and
        its correction, Biometrika 109, 1181, on delayed labels.
    Arnold, Henzi & Ziegel (2023; arXiv 2109.11761 of 2021), Sequentially valid tests for forecast calibration.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from service.decisions.numbers import number, whole
from service.decisions.rows import ScoredRows
from service.monitoring.alarm import FIELDS, Alarm
from service.monitoring.cohorts import counted, weights
from service.monitoring.documents import VERSION, fields_of
from service.monitoring.groups import FEW, Groups

TOLERANCE: Final = 0.02
"""Default tolerated miscalibration ε."""

_LEAST_TOLERANCE: Final = 0.001
"""Minimum ε: below it a single row with p = 0 would decide."""

_EDGES: Final = (-1.0, 0.05, 0.2, 0.5, 0.8, 0.95, 1.0)
_SHIFTS: Final = tuple(sign * 2.0 ** (step / 2) for step in range(-6, 5) for sign in (-1, 1))  # 1/8 … 4
_SLOPES: Final = tuple(2.0 ** (sign * step) for step in (0.25, 0.5, 0.75, 1.0, 1.5) for sign in (-1, 1))
_LOCAL_SHIFTS: Final = (-2.0, -1.0, -0.5, -0.25, 0.25, 0.5, 1.0, 2.0)

# Every bet as logit p′ = slope · logit p + shift for p in (low, high], and p′ = p elsewhere.
_GLOBAL: Final = [(1.0, shift, -1.0, 1.0) for shift in _SHIFTS] + [(slope, 0.0, -1.0, 1.0) for slope in _SLOPES]
_LOCAL: Final = [(1.0, shift, low, high) for low, high in pairwise(_EDGES) for shift in _LOCAL_SHIFTS]
_CURVES: Final = np.array(_GLOBAL + _LOCAL).T
LOG_WEIGHTS: Final = -np.log(2.0 * np.repeat([len(_GLOBAL), len(_LOCAL)], [len(_GLOBAL), len(_LOCAL)]))
_BLOCK: Final = 1024


def values(probability: NDArray[np.float64], tolerance: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return v of each row and bet for a positive and for a negative label, both above −1 and of shape (N, J).

    Half of the capital bets on curves for all p (shifts of the log-odds by ±1/8 to ±4, and slopes from 0.35 to 2.8),
    the other half on shifts within one of six ranges of p.

    Args:
        probability: Stated probabilities in [0, 1], shape (N,).
        tolerance: ε in [0.001, 0.5).
    """
    slope, shift, low, high = _CURVES
    p = probability[:, None]
    changed = slope * scipy.special.logit(np.clip(p, 1e-9, 1.0 - 1e-9)) + shift
    curve, rest = scipy.special.expit(changed), scipy.special.expit(-changed)
    here = (p > low) & (p <= high)
    upper, lower = p + tolerance, p - tolerance
    up, down = here & (curve > upper), here & (curve < lower)
    bound = np.where(up, upper, np.where(down, lower, 0.5))
    bet = up | down
    return np.where(bet, curve / bound - 1.0, 0.0), np.where(bet, rest / (1.0 - bound) - 1.0, 0.0)


class CalibrationMonitor:
    """Evidence against "the probability is off by at most ε".

    H₀ is about rows whose label is sought with a known propensity of at least `floor`; other rows are ignored. Of each
    group, the first row whose label is sought counts: later ones are like it, and would repeat one label as if it were
    many.

    Args:
        tolerance: ε in [0.001, 0.5), absolute. If the positive class is rare, 0.02 detects drift at larger p only.
        floor: φ in (0, 1], fixed before the first row: the minimum propensity.
        level: Probability in (0, 1) that the monitor ever fires while H₀ holds.
        since: Start, microseconds since the epoch, UTC; not before the activation.

    Attributes:
        alarm: The evidence and its alarm.

    Raises:
        InputValueError: An option is out of range.

    Example:
        >>> drift = CalibrationMonitor(floor=1.0, level=0.05, since=0)
        >>> p = np.full(200, 0.9, np.float32)
        >>> time = np.arange(200)
        >>> drift.update(ScoredRows(predicted_at=time, probability=p, score=p, positive=time % 4 != 0), through=200)
        >>> drift.alarm.fired_at is not None, drift.alarm.rows
        (True, 200)
    """

    def __init__(self, *, tolerance: float = TOLERANCE, floor: float, level: float, since: int) -> None:
        self.tolerance = number(tolerance, "tolerance", above=_LEAST_TOLERANCE, below=0.5, closed="below")
        self.floor = number(floor, "floor", above=0.0, below=1.0, closed="above")
        self.alarm = Alarm(LOG_WEIGHTS, level, since)
        self._groups = Groups()

    def update(self, rows: ScoredRows, *, through: int) -> None:
        """Count the next mature cohort: predictions from the end of the previous cohort to before `through`.

        The cohort must include rows with a sought label that has not arrived; it may omit rows whose label was not
        sought.

        Args:
            rows: N predictions in order, with the probability that decisions use, and `positive` as the policy
                defines it.
            through: End of the cohort, exclusive. Later labels for it are ignored.

        Raises:
            InputValueError: The cohort is not the next one, rows are not in order, or a probability is outside [0, 1];
                nothing is counted then.
        """
        through = whole(through, "through", least=0)
        which = counted(rows, self.alarm.through, through, known_propensity=True)
        weight = weights(rows.take(which), self.floor)
        which, weight = which[weight > 0], weight[weight > 0]
        rows = rows.take(which)
        probability = rows.probability.astype(np.float64)
        if len(which):
            for end in (probability.min(), probability.max()):
                number(float(end), "probability", above=0.0, below=1.0, closed="below, above")
        fresh = self._groups.fresh(rows.group)
        if self._groups.forgotten > FEW:  # then only groups of which all are remembered
            fresh &= self._groups.drawn(rows.group)
        self.alarm.take(self._blocks(rows.take(fresh), probability[fresh], weight[fresh]), through)

    def _blocks(
        self, rows: ScoredRows, probability: NDArray[np.float64], weight: NDArray[np.float64]
    ) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64], int]]:
        known, positive = rows.known(), rows.positive
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            right, wrong = values(probability[part], self.tolerance)
            labelled = np.where(positive[part, None], right, wrong)
            value = np.where(known[part, None], labelled, np.minimum(right, wrong))
            yield np.log1p(weight[part, None] * value), rows.predicted_at[part], int((~known[part]).sum())

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document that `from_dict` restores exactly."""
        own = {"tolerance": self.tolerance, "floor": self.floor, "groups": self._groups.to_dict()}
        return {"kind": "calibration", "version": VERSION, **own, **self.alarm.to_dict()}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            InputValueError: The document is of another kind or inconsistent.
        """
        fields = fields_of(document, "calibration", {"tolerance", "floor", "groups"} | FIELDS)
        monitor = cls(
            tolerance=fields["tolerance"], floor=fields["floor"], level=fields["level"], since=fields["through"]
        )
        monitor.alarm = Alarm.from_dict(fields, LOG_WEIGHTS)
        monitor._groups = Groups(fields["groups"])
        return monitor
