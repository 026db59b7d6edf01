"""Monitor whether a certificate still holds. Its alarm voids the certificate.

H₀: given all rows before, the next row breaks the promise with a mean rate of at most q (of its metric's denominator).
Each row has a value v with mean at most 0 under H₀,

    v = (1 − q)/q for an error, −1 for another row of the denominator, 0 for all others,

so that f = 1 + b v is a bet on an error rate of q + b(1 − q): its likelihood ratio against q. If the propensity π is at
least φ, f = 1 + (φ/π) b v for a sought label, else 1; the mean over seeking is 1 + φ b E v. If π is below φ, f = 1 +
φ b v. So every region has at most its weight in the traffic, and every factor is at least 1 − b. An unknown v is
replaced by its minimum, so missing labels can weaken the monitor but never make it fire.

References:
    Waudby-Smith & Ramdas (2024), Estimating means of bounded random variables by betting.
    Karampatziakis, Mineiro & Ramdas (2021), Off-policy confidence sequences (bets under propensities).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, Self, get_args

import numpy as np
from numpy.typing import NDArray

from candor.contract.certificates import Threshold
from candor.contract.conditions import Metric
from service.decisions.decide import order_keys
from service.decisions.grid import key_of
from service.decisions.numbers import number, whole
from service.decisions.rows import ScoredRows
from service.errors import InputValueError
from service.monitoring.alarm import FIELDS, Alarm
from service.monitoring.cohorts import counted, weights
from service.monitoring.documents import VERSION, fields_of

_METRICS: Final = get_args(Metric)
_BLOCK: Final = 4096
_SMALLEST_RISE: Final = 1 / 8
"""Smallest rise that a bet is on, as a fraction of the tolerated rate: 9/8 of it."""


def bets(tolerance: float) -> NDArray[np.float64]:
    """Return bets b = 1/2, 1/4, … of equal weight on error rates q + b(1 − q), down to a rise of at most q/8.

    A bet at half the best one still grows three quarters as fast.

    Args:
        tolerance: The tolerated rate q in (0, 1).

    Example:
        >>> bets(0.25)
        array([0.5    , 0.25   , 0.125  , 0.0625 , 0.03125])
    """
    steps = math.ceil(math.log2(1 / (_SMALLEST_RISE * tolerance)))
    return np.ldexp(1.0, -np.arange(1, steps + 1))


def values(
    metric: Metric,
    above: NDArray[np.bool_],
    positive: NDArray[np.bool_],
    known: NDArray[np.bool_],
    tolerance: float,
) -> NDArray[np.float64]:
    """Return each row's v, shape (N,); the minimum possible v for an unknown label.

    Args:
        metric: Metric of the promise.
        above: Whether each row is at or above the certificate's threshold, shape (N,).
        positive: Whether its label is positive; ignored for unknown labels.
        known: Whether its label is known; ignored for a flag rate.
        tolerance: The tolerated rate q.
    """
    error, kept = (1.0 - tolerance) / tolerance, -1.0
    if metric == "flag_rate":
        return np.where(above, error, kept)
    if metric == "recall":
        return np.where(known, np.where(positive, np.where(above, kept, error), 0.0), np.where(above, kept, 0.0))
    if metric == "false_positive_rate":
        return np.where(known, np.where(positive, 0.0, np.where(above, error, kept)), np.where(above, 0.0, kept))
    return np.where(above, np.where(known & ~positive, error, kept), 0.0)


class CertificateMonitor:
    """Evidence against one certificate.

    Args:
        metric: Metric of the certificate.
        tolerance: Tolerated error rate q in (0, 1): 1 − p for a precision or recall of at least p, the limit for a
            false-positive rate or selective risk, and the limit minus exploration for a flag rate
            (`Policy.tolerance`).
        threshold: The certificate's threshold; it is about rows at or above it.
        floor: φ in (0, 1], fixed before the first row. A row with a smaller propensity (or 0) and an unknown label
            counts for the promise. A small floor covers all regions but bets little; the policy's smallest positive
            propensity is a good choice unless few rows have it.
        level: Probability in (0, 1) that the monitor ever fires while the promise holds.
        since: Start, microseconds since the epoch, UTC; not before the activation.

    Attributes:
        alarm: The evidence and its alarm.

    Raises:
        InputValueError: An option is out of range.

    Example:
        >>> promise = CertificateMonitor(
        ...     metric="precision", tolerance=0.05, threshold=Threshold.at(0.9, -math.inf), floor=1.0,
        ...     level=0.05, since=0,
        ... )
        >>> p = np.full(100, 0.95, np.float32)
        >>> errors = np.arange(100) % 4 == 0
        >>> rows = ScoredRows(predicted_at=np.arange(100), probability=p, score=p, positive=~errors)
        >>> promise.update(rows, through=100)
        >>> promise.alarm.fired_at, promise.alarm.p_value < 0.001
        (32, True)
    """

    def __init__(
        self, *, metric: Metric, tolerance: float, threshold: Threshold, floor: float, level: float, since: int
    ) -> None:
        if metric not in _METRICS:
            raise InputValueError(
                f"Unknown metric {metric!r}.",
                where="metric",
                found=metric,
                expected=list(_METRICS),
                remedy="Pass the certificate's metric.",
            )
        self.metric = metric
        self.tolerance = number(tolerance, "tolerance", above=0.0, below=1.0)
        self.threshold = threshold
        self.floor = number(floor, "floor", above=0.0, below=1.0, closed="above")
        self._bets = bets(self.tolerance)
        self.alarm = Alarm(np.full(len(self._bets), -math.log(len(self._bets))), level, since)

    def update(self, rows: ScoredRows, *, through: int) -> None:
        """Count the next mature cohort: *all* predictions from the end of the previous cohort to before `through`.

        The cohort must include rows with a sought label that has not arrived and rows of propensity 0: they count for
        the promise. The first row of each group counts. Rows of unknown propensity count for a flag rate only.

        Args:
            rows: N predictions of the certificate's segment (or of all traffic) in order of prediction, with `positive`
                as the policy defines it.
            through: End of the cohort, exclusive. Later labels for it are ignored.

        Raises:
            InputValueError: The cohort is not the next one, or rows are not in order; nothing is counted then.
        """
        through = whole(through, "through", least=0)
        flags = self.metric == "flag_rate"
        which = counted(rows, self.alarm.through, through, known_propensity=not flags)
        rows = rows.take(which)
        above = order_keys(rows.probability, rows.score) >= key_of(self.threshold)
        if flags:
            weight, known = np.ones(len(rows)), np.ones(len(rows), np.bool_)
        else:
            weight, known = weights(rows, self.floor), rows.known()
            weight[rows.propensity < self.floor] = self.floor
        value = values(self.metric, above, rows.positive, known, self.tolerance)
        # Rows are chosen without their labels, because the numbers of onsets must not depend on labels.
        reached = weight > 0
        if self.metric in ("precision", "selective_risk"):
            reached &= above
        self.alarm.take(self._blocks((weight * value)[reached], rows.predicted_at[reached], ~known[reached]), through)

    def _blocks(
        self, value: NDArray[np.float64], time: NDArray[np.int64], unlabelled: NDArray[np.bool_]
    ) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64], int]]:
        for start in range(0, len(value), _BLOCK):
            part = slice(start, start + _BLOCK)
            yield np.log1p(np.outer(value[part], self._bets)), time[part], int(unlabelled[part].sum())

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document that `from_dict` restores exactly."""
        own = {
            "metric": self.metric,
            "tolerance": self.tolerance,
            "threshold": self.threshold.model_dump(),
            "floor": self.floor,
        }
        return {"kind": "certificate", "version": VERSION, **own, **self.alarm.to_dict()}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            InputValueError: The document is of another kind or inconsistent.
        """
        own = {"metric", "tolerance", "threshold", "floor"}
        fields = fields_of(document, "certificate", own | FIELDS)
        monitor = cls(
            metric=fields["metric"],
            tolerance=fields["tolerance"],
            threshold=_threshold(fields["threshold"]),
            floor=fields["floor"],
            level=fields["level"],
            since=fields["through"],
        )
        monitor.alarm = Alarm.from_dict(fields, monitor.alarm.log_weights)
        return monitor


def _threshold(document: Any) -> Threshold:
    """Read a threshold; a score of None is −∞."""
    if not isinstance(document, Mapping) or set(document) != {"probability", "score"}:
        raise InputValueError(
            "Expected a threshold.",
            where="threshold",
            found=document,
            expected={"probability": 0.9, "score": None},
            remedy="Pass the threshold of the certificate's band.",
        )
    number(document["probability"], "threshold/probability", above=0.0, below=1.0, closed="below, above")
    if document["score"] is not None:
        number(document["score"], "threshold/score")
    return Threshold.model_validate(document)
