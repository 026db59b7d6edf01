"""Bets on the sums of groups over periods: valid where groups come back, and their rows are alike.

A period ends with the first cohort with which it has so many rows that say something, or 8 times as many in all. In it,
each group has a sum X of the values of its rows. If the promise is kept, X has a mean of at most 0, whatever ties the
rows of a group together, and groups are independent: for each bet b, the product of 1 + (b/M) X over the groups of a
period has a mean of at most 1. M is the largest group of earlier periods of this length, by what its rows count without
weights: those of groups that are often sought are small. X ≥ −2M is assumed. Periods of eight lengths run beside each
other. They share groups, so their products must not be multiplied: the k-th of a length has the share 1/(8 k (k + 1))
of the capital, and all of these add up to 1.

Per group, X is the value of the group's first row in the period, and 0 if that says nothing: chosen among the rows that
say something, a group would count the more probably the more rows it has.

Labels may be wrong: of those sought in a period as many as if each were with probability w, but the ones that speak
most against the promise. With a tenth of the period's share of the level, these are more than a quantile of the
binomial. So many can have multiplied a product by a known factor each, which is divided out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from candor.contract.conditions import Per
from service.decisions.numbers import number, whole
from service.errors import InputValueError
from service.monitoring.documents import array_of, text_of

LENGTHS: Final = 100 * 2 ** np.arange(8)
"""Rows with which a period ends."""

_SILENT: Final = 8
"""Rows that say nothing count as one: per group, they take their group's place and must be remembered."""

_SUM: Final = np.dtype([("group", "<i8"), ("size", "<f4"), ("value", "<f4"), ("sought", "<i4")])
_TO_COUNT: Final = 0.1
"""Share of the level at which more labels of a period are wrong than are allowed for."""


@dataclass(frozen=True, slots=True, eq=False)
class Lies:
    """Labels that may be wrong.

    Attributes:
        share: Probability w in (0, 1) whose binomial bounds their number.
        factor: Logarithm of the largest factor by which one can multiply a product, for each bet, shape (J,).
        level: Level of the monitor.
    """

    share: float
    factor: NDArray[np.float64]
    level: float

    def cost(self, labels: int, share: float) -> NDArray[np.float64]:
        """Return what to take off the logarithms of a period's products, shape (J,).

        Args:
            labels: Labels sought in the period, also of rows that say nothing: all wrong ones may be others.
            share: The period's share of the capital.
        """
        numbers = np.arange(labels + 1)
        most = int(np.argmax(scipy.special.bdtrc(numbers, labels, self.share) <= _TO_COUNT * self.level * share))
        return self.factor * most - math.log1p(-_TO_COUNT)


@dataclass(slots=True)
class _Length:
    """Periods of one length: first sum, rows and largest row of the open one, number of those tested, and M."""

    first: int
    rows: int
    tested: int
    limit: float
    largest: float = 0.0


class Periods:
    """The open period of each length.

    Args:
        bets: Bets b in (0, 1/2], shape (J,).
        per: What the promise counts; per `group`, the first row of each group in a period, also one of size 0.
        lies: Labels that may be wrong; only per group.
    """

    def __init__(self, bets: NDArray[np.float64], per: Per, lies: Lies | None = None) -> None:
        self._bets = bets
        self._lies = lies
        self._first_only = per == "group"
        self._sums = np.empty(0, _SUM)
        # Without earlier periods nothing is known of the size of groups: the first of a length only shows it.
        self._lengths = [_Length(0, 0, 0, 1.0 if self._first_only else 0.0) for _ in LENGTHS]

    def add(
        self,
        group: NDArray[np.int64],
        size: NDArray[np.float64],
        value: NDArray[np.float64],
        sought: NDArray[np.bool_],
        largest: float = 1.0,
    ) -> float | None:
        """Count the rows of a cohort.

        Args:
            group: Their groups, in order of prediction, shape (N,).
            size: What each counts with, unweighted, shape (N,): 1, or its amount; 0 if it says nothing.
            value: Value of each, with mean at most 0 if the promise is kept, shape (N,); at least −size.
            sought: Whether its label was sought, shape (N,).
            largest: Largest size that a row of the cohort could have, had its label been sought.

        Returns:
            The largest evidence of a period that ends here, in nats, after its share; None if none ends or is tested.
        """
        if not len(group):
            return None
        cohort = np.empty(len(group), _SUM)
        cohort["group"], cohort["size"], cohort["value"], cohort["sought"] = group, size, value, sought
        self._sums = np.concatenate([self._sums, self._summed(cohort)])
        told = max(int(np.count_nonzero(size)), -(-len(group) // _SILENT))
        found = []
        for length, of in zip(LENGTHS.tolist(), self._lengths, strict=True):
            of.rows += told
            of.largest = max(of.largest, largest)
            if of.rows < length:
                continue
            sums = self._summed(self._sums[of.first :])
            if of.limit > 0:
                of.tested += 1
                found.append(self._evidence(sums, of.limit, 1 / (len(LENGTHS) * of.tested * (of.tested + 1))))
            of.limit = max(of.limit, of.largest, float(sums["size"].max()))
            of.first, of.rows, of.largest = len(self._sums), 0, 0.0
        done = min(of.first for of in self._lengths)
        self._sums = self._sums[done:]
        for of in self._lengths:
            of.first -= done
        return max(found, default=None)

    def _summed(self, rows: NDArray[Any]) -> NDArray[Any]:
        found, first, of = np.unique(rows["group"], return_index=True, return_inverse=True)
        if self._first_only:
            return rows[first]
        sums = np.empty(len(found), _SUM)
        sums["group"] = found
        for name in ("size", "value", "sought"):
            sums[name] = np.bincount(of, rows[name].astype(np.float64), len(found))
        return sums

    def _evidence(self, sums: NDArray[Any], limit: float, share: float) -> float:
        bet = self._bets[:, None] * (sums["value"].astype(np.float64) / limit)
        with np.errstate(divide="ignore"):
            products = np.log1p(np.maximum(bet, -1.0)).sum(axis=1)
        if self._lies is not None:
            products -= self._lies.cost(int(sums["sought"].sum()), share)
        return max(float(np.logaddexp.reduce(products)) - math.log(len(products)) + math.log(share), -1e6)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document."""
        lengths = [[of.first, of.rows, of.tested, of.limit, of.largest] for of in self._lengths]
        return {"sums": text_of(self._sums), "lengths": lengths}

    @classmethod
    def from_dict(cls, document: Any, bets: NDArray[np.float64], per: Per, lies: Lies | None = None) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            InputValueError: It is not such a document.
        """
        periods = cls(bets, per, lies)
        if not isinstance(document, Mapping) or len(document.get("lengths") or ()) != len(LENGTHS):
            raise InputValueError(
                "Expected the open periods of a monitor.",
                where="periods",
                found=document,
                expected={"sums": "", "lengths": [[0, 0, 0, 0.0, 0.0]] * len(LENGTHS)},
                remedy="Pass the document unchanged.",
            )
        periods._sums = array_of(document["sums"], _SUM, "periods/sums")
        where = "periods/lengths"
        periods._lengths = [
            _Length(
                whole(first, where, least=0),
                whole(rows, where, least=0),
                whole(tested, where, least=0),
                number(limit, where),
                number(largest, where),
            )
            for first, rows, tested, limit, largest in document["lengths"]
        ]
        return periods
