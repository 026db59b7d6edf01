"""Does a certificate still hold? One monitor for each, and the only kind whose alarm voids anything.

H₀: given all rows before, the next row breaks the promise with a mean rate of at most q (of its metric's denominator).
Each row has a value v that has mean 0 at most under H₀,

    v = (1 − q)/q for an error, −1 for a row of the denominator that is none, 0 for all others,

so that f = 1 + b v is a bet on an error rate of q + b(1 − q): its likelihood ratio against q. Where a label is sought
with a propensity π of at least φ, f = 1 + (φ/π) b v if it was sought, else 1; the mean over the seeking is 1 + φ b E v.
Where π is below φ, f = 1 + φ b v. So no region weighs more than it does in the traffic, and no factor comes below 1 −
b. A v that is not known is taken as it speaks least against the promise: labels that stay away for what they are can
weaken the monitor, never make it fire.

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

from service.decisions.conditions import Metric
from service.decisions.decide import order_keys
from service.decisions.rows import ScoredRows
from service.errors import InputValueError
from service.monitoring.alarm import FIELDS, Alarm
from service.monitoring.cohorts import counted, weights
from service.monitoring.documents import VERSION, fields_of, number, whole
from service.revision import Threshold

_METRICS: Final = get_args(Metric)
_BLOCK: Final = 4096
_SMALLEST_RISE: Final = 1 / 8
"""Smallest alternative, as a share of the tolerated rate: bets run down to a rate of about 9/8 of it."""


def bets(tolerance: float) -> NDArray[np.float64]:
    """Return the bets b = 1/2, 1/4, … on error rates q + b(1 − q), down to a rise of q/8 at most; they weigh the same.

    A neighbour at half of the best bet still has three quarters of its growth.

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
    """Return each row's v, shape (N,): the true one where the label is known, else the smallest that it could be.

    Args:
        metric: What is promised.
        above: Whether each row is at or above the certificate's threshold, shape (N,).
        positive: Whether its label is positive; not read where it is not known.
        known: Whether its label is known; not read for a flag rate.
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
        metric: What the certificate promises.
        tolerance: Tolerated rate q in (0, 1) of what counts against it: 1 − p for a precision or recall of at least p,
            the limit itself for a false-positive rate or selective risk, and for a flag rate what exploration leaves of
            it (`Policy.tolerance`).
        threshold: The certificate's threshold; its claim is about rows at or above it.
        floor: φ in (0, 1], fixed before the first row. Rows with a smaller propensity, 0 included, count as if they
            kept the promise unless their label is known. A small floor sees all regions and bets little; the policy's
            smallest positive propensity is a good choice unless few rows have it.
        level: Probability in (0, 1) that the monitor ever fires while the promise holds.
        since: When it begins, microseconds since the epoch, UTC: the activation, never before it.

    Attributes:
        alarm: The evidence and whether it reached its level.

    Raises:
        InputValueError: An option cannot be used.

    Example:
        >>> promise = CertificateMonitor(
        ...     metric="precision", tolerance=0.05, threshold=Threshold(0.9, -math.inf), floor=1.0, level=0.05, since=0
        ... )
        >>> p = np.full(100, 0.95, np.float32)
        >>> errors = np.arange(100) % 4 == 0
        >>> promise.update(ScoredRows(p, p, ~errors), np.arange(100), through=100)
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
                remedy="Give the metric of the certificate.",
            )
        self.metric = metric
        self.tolerance = number(tolerance, "tolerance", above=0.0, below=1.0)
        self.threshold = threshold
        self.floor = number(floor, "floor", above=0.0, below=1.0, closed="above")
        self._bets = bets(self.tolerance)
        self.alarm = Alarm(np.full(len(self._bets), -math.log(len(self._bets))), level, since)

    def update(self, rows: ScoredRows, time: NDArray[np.int64], *, through: int) -> None:
        """Take the next matured cohort: *all* predictions from where the monitor stands to before `through`.

        Rows whose label was sought and has not come must be among them, and so must those of propensity 0: left out,
        they would count for nothing instead of for the promise. Of each group the first row counts. Rows whose
        propensity nobody knows count for a flag rate only.

        Args:
            rows: N predictions of the certificate's segment (of all traffic where it has none), with `positive` as the
                policy means it.
            time: When each was made, int64 of shape (N,), microseconds since the epoch, not falling.
            through: Where the cohort ends, itself not included. Labels that come later are not read any more.

        Raises:
            InputValueError: The cohort is not the next one, or rows are not in order; nothing is counted then.
        """
        through = whole(through, "through", least=0)
        flags = self.metric == "flag_rate"
        which = counted(rows, time, self.alarm.through, through, known_propensity=not flags)
        rows, time = rows.take(which), time[which]
        threshold = order_keys(*(np.array([x]) for x in (self.threshold.probability, self.threshold.score)))
        above = order_keys(rows.probability, rows.score) >= threshold
        if flags:
            weight, known = np.ones(len(rows)), np.ones(len(rows), np.bool_)
        else:
            weight, known = weights(rows, self.floor), rows.known()
            if rows.propensity is not None:
                weight[rows.propensity < self.floor] = self.floor
        value = values(self.metric, above, rows.positive, known, self.tolerance)
        # Which rows count is settled without their labels: onsets must not be numbered by what labels say.
        reached = weight > 0
        if self.metric in ("precision", "selective_risk"):
            reached &= above
        self.alarm.take(self._blocks((weight * value)[reached], time[reached], ~known[reached]), through)

    def _blocks(
        self, value: NDArray[np.float64], time: NDArray[np.int64], unlabelled: NDArray[np.bool_]
    ) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64], int]]:
        for start in range(0, len(value), _BLOCK):
            part = slice(start, start + _BLOCK)
            yield np.log1p(np.outer(value[part], self._bets)), time[part], int(unlabelled[part].sum())

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document from which `from_dict` goes on to the very same numbers."""
        own = {
            "metric": self.metric,
            "tolerance": self.tolerance,
            "threshold": self.threshold.to_dict(),
            "floor": self.floor,
        }
        return {"kind": "certificate", "version": VERSION, **own, **self.alarm.to_dict()}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            InputValueError: It is another document, or contradicts itself.
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
            remedy="Give the threshold of the certificate's band.",
        )
    number(document["probability"], "threshold/probability", above=0.0, below=1.0, closed="below, above")
    if document["score"] is not None:
        number(document["score"], "threshold/score")
    return Threshold.from_dict(dict(document))
