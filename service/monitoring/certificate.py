"""Monitor whether a certificate still holds. Its alarm voids the certificate.

H₀: groups are independent, and of what the certificate counts (rows, amounts or groups), at most the share q of its
metric's denominator breaks the promise. Each row has a value v with mean at most 0 under H₀,

    v = (1 − q)/q for an error, −1 for another row of the denominator, 0 for all others,

so that f = 1 + b v is a bet on an error rate of q + b(1 − q): its likelihood ratio against q. If the propensity π is at
least φ, f = 1 + (φ/π) b v for a sought label, else 1; the mean over seeking is 1 + φ b E v. If π is below φ, f = 1 +
φ b v. So every region has at most its weight in the traffic, and every factor is at least 1 − b. An unknown v is
replaced by its minimum, so missing labels can weaken the monitor but never make it fire.

Per row, three quarters of the capital bet row by row. The labels of a group's earlier rows tell those of its next ones,
so a row of a group that was counted before gets the minimum as well, and nothing is bet while such rows are more than a
few. A quarter bets on the sums of groups over periods (`periods`), where such rows count fully. Per amount and per
group, all of it does: amounts have no bound, and groups with many rows come first, so the first rows of new groups are
not a sample of the groups.

A certificate that allows for a share w of wrong labels is about true labels. H₀ is then that v has a mean of at most 0
by these, and that as many of the labels sought are wrong as if each were with probability w, whichever they are.

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
from candor.contract.conditions import Metric, Per
from service.decisions.decide import order_keys
from service.decisions.grid import key_of
from service.decisions.numbers import number, whole
from service.decisions.rows import ScoredRows
from service.errors import InputValueError
from service.monitoring.alarm import FIELDS, Alarm
from service.monitoring.cohorts import counted, weights
from service.monitoring.documents import VERSION, fields_of
from service.monitoring.groups import FEW, Groups
from service.monitoring.periods import Lies, Periods

_METRICS: Final = get_args(Metric)
_UNITS: Final = get_args(Per)
_BLOCK: Final = 4096
ROWS: Final = 0.75
"""Share of the capital that bets row by row, per row."""

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
        known: Whether its label is known.
        tolerance: The tolerated rate q.
    """
    error, kept = (1.0 - tolerance) / tolerance, -1.0
    if metric == "flag_rate":
        return np.where(above & known, error, kept)
    if metric == "recall":
        return np.where(known, np.where(positive, np.where(above, kept, error), 0.0), np.where(above, kept, 0.0))
    if metric == "false_positive_rate":
        return np.where(known, np.where(positive, 0.0, np.where(above, error, kept)), np.where(above, 0.0, kept))
    return np.where(above, np.where(known & ~positive, error, kept), 0.0)


def _factor(metric: Metric, tolerance: float) -> NDArray[np.float64]:
    """Return the logarithm of the largest factor by which a wrong label can multiply each bet, shape (J,)."""
    bet = bets(tolerance)
    gain, loss = np.log1p(bet * (1.0 - tolerance) / tolerance), -np.log1p(-bet)
    # A right row becomes an error; where labels say which rows count, it leaves these, or another row joins the errors.
    return gain + loss if metric in ("precision", "selective_risk") else np.maximum(gain, loss)


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
        per: What the certificate counts: each row, each unit of the rows' amounts, or each group once.
        amount_when_missing: Amount of a row without one, for a certificate per amount; None for 0.
        wrong_labels: Share w of the labels sought that may be wrong, below the tolerance; above 0 only per group. The
            p-value is then valid at the level only.

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
        self,
        *,
        metric: Metric,
        tolerance: float,
        threshold: Threshold,
        floor: float,
        level: float,
        since: int,
        per: Per = "row",
        amount_when_missing: float | None = None,
        wrong_labels: float = 0.0,
    ) -> None:
        for where, given, known in (("metric", metric, _METRICS), ("per", per, _UNITS)):
            if given not in known:
                raise InputValueError(
                    f"Unknown {where} {given!r}.",
                    where=where,
                    found=given,
                    expected=list(known),
                    remedy=f"Pass the certificate's {where}.",
                )
        self.metric = metric
        self.tolerance = number(tolerance, "tolerance", above=0.0, below=1.0)
        self.threshold = threshold
        self.floor = number(floor, "floor", above=0.0, below=1.0, closed="above")
        self.per = per
        self.amount_when_missing = amount_when_missing
        limit = self.tolerance if per == "group" else 0.0
        self.wrong_labels = number(wrong_labels, "wrong_labels", above=0.0, below=limit, closed="below, above")
        self._bets = bets(self.tolerance)
        self._lies = None if not self.wrong_labels else Lies(self.wrong_labels, _factor(metric, self.tolerance), level)
        self._groups, self._periods = Groups(), Periods(self._bets, per, self._lies)
        self._returned = 0  # rows of groups that were counted before
        self._share = ROWS if per == "row" else 0.0
        self.alarm = Alarm(np.full(len(self._bets), -math.log(len(self._bets))), level, since, self._share)

    def update(self, rows: ScoredRows, *, through: int) -> None:
        """Count the next mature cohort: *all* predictions from the end of the previous cohort to before `through`.

        The cohort must include rows with a sought label that has not arrived and rows of propensity 0: they count for
        the promise. Rows of unknown propensity count for a flag rate only.

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
        # Rows are chosen without their labels, because the numbers of onsets must not depend on labels.
        reached = weight > 0
        if self.metric in ("precision", "selective_risk"):
            reached &= above
        weight = np.where(reached, weight, 0.0)
        size, largest = self._sizes(rows, above)
        if self.per != "group":  # there, a group's first row takes its place, also if it says nothing
            rows, above, known = rows.take(reached), above[reached], known[reached]
            weight, size = weight[reached], size[reached]
        fresh = self._groups.fresh(rows.group)
        value = np.zeros(len(rows))
        if self.per == "row":
            returned = self._returned + np.cumsum(~fresh)
            share = FEW - self._groups.forgotten
            few = returned - ~fresh <= share * (self.alarm.rows + np.arange(len(rows)))  # before each row
            self._returned += int((~fresh).sum())
            bet = weight * values(self.metric, above, rows.positive, known & fresh, self.tolerance)
            value = np.where(few, bet, 0.0)
        of_groups = weight * size * values(self.metric, above, rows.positive, known, self.tolerance)
        sought = rows.was_sought() & (rows.propensity > 0)
        beside = self._periods.add(rows.group, np.where(weight > 0, size, 0.0), of_groups, sought, largest)
        counts = fresh & (weight > 0) if self.per == "group" else np.ones(len(rows), np.bool_)
        self.alarm.take(
            self._blocks(value[counts], rows.predicted_at[counts], ~known[counts]),
            through,
            None if beside is None else beside + math.log1p(-self._share),
        )

    def _sizes(self, rows: ScoredRows, above: NDArray[np.bool_]) -> tuple[NDArray[np.float64], float]:
        """Return what each row counts, shape (N,), and the largest possible count."""
        if self.per != "amount":
            return np.ones(len(rows)), 1.0
        missing = 0.0 if self.amount_when_missing is None else self.amount_when_missing
        size = np.where(np.isnan(rows.amount), missing, rows.amount)
        counts = above | (self.metric not in ("precision", "selective_risk"))
        return size, float(size.max(where=counts & (rows.propensity > 0), initial=0.0))

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
            "per": self.per,
            "amount_when_missing": self.amount_when_missing,
            "wrong_labels": self.wrong_labels,
            "groups": self._groups.to_dict(),
            "returned": self._returned,
            "periods": self._periods.to_dict(),
        }
        return {"kind": "certificate", "version": VERSION, **own, **self.alarm.to_dict()}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            InputValueError: The document is of another kind or inconsistent.
        """
        own = {"metric", "tolerance", "threshold", "floor", "per", "amount_when_missing", "groups", "returned"}
        own |= {"periods", "wrong_labels"}
        fields = fields_of(document, "certificate", own | FIELDS)
        monitor = cls(
            metric=fields["metric"],
            tolerance=fields["tolerance"],
            threshold=_threshold(fields["threshold"]),
            floor=fields["floor"],
            level=fields["level"],
            since=fields["through"],
            per=fields["per"],
            amount_when_missing=fields["amount_when_missing"],
            wrong_labels=fields["wrong_labels"],
        )
        monitor.alarm = Alarm.from_dict(fields, monitor.alarm.log_weights, monitor._share)
        monitor._groups = Groups(fields["groups"])
        monitor._returned = whole(fields["returned"], "returned", least=0)
        monitor._periods = Periods.from_dict(fields["periods"], monitor._bets, monitor.per, monitor._lies)
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
