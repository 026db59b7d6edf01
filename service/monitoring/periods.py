"""Bets on the sums of groups over periods: valid where groups come back, and their rows are alike.

A period ends with the first cohort with which it has so many rows that say something, or 8 times as many in all. In it,
each group has a sum X of the values of its rows. If the promise is kept, X has a mean of at most 0, whatever ties the
rows of a group together, and groups are independent: for each bet b, the product of 1 + (b/M) X over the groups of a
period has a mean of at most 1. M is the largest group of earlier periods of this length; X ≥ −2M is assumed. Periods of
eight lengths run beside each other. They share groups, so their products must not be multiplied: the k-th of a length
has the share 1/(8 k (k + 1)) of the capital, and all of these add up to 1.

Per group, X is the value of the group's first row in the period, and 0 if that says nothing: chosen among the rows that
say something, a group would count the more probably the more rows it has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from candor.contract.conditions import Per
from service.decisions.numbers import number, whole
from service.errors import InputValueError
from service.monitoring.documents import array_of, text_of

LENGTHS: Final = 100 * 2 ** np.arange(8)
"""Rows with which a period ends."""

_SILENT: Final = 8
"""Rows that say nothing count as one: per group, they take their group's place and must be remembered."""

_SUM: Final = np.dtype([("group", "<i8"), ("size", "<f4"), ("value", "<f4")])


@dataclass(slots=True)
class _Length:
    """Periods of one length: first sum and rows of the open one, number of those tested, and M."""

    first: int
    rows: int
    tested: int
    limit: float


class Periods:
    """The open period of each length.

    Args:
        bets: Bets b in (0, 1/2], shape (J,).
        per: What the promise counts; per `group`, the first row of each group in a period, also one of size 0.
    """

    def __init__(self, bets: NDArray[np.float64], per: Per) -> None:
        self._bets = bets
        self._first_only = per == "group"
        self._sums = np.empty(0, _SUM)
        # Without earlier periods nothing is known of the size of groups: the first of a length only shows it.
        self._lengths = [_Length(0, 0, 0, 1.0 if self._first_only else 0.0) for _ in LENGTHS]

    def add(self, group: NDArray[np.int64], size: NDArray[np.float64], value: NDArray[np.float64]) -> float | None:
        """Count the rows of a cohort.

        Args:
            group: Their groups, in order of prediction, shape (N,).
            size: Largest amount by which each may count for the promise, shape (N,); 0 if it says nothing.
            value: Value of each, with mean at most 0 if the promise is kept, shape (N,); at least −size, or per group
                above −size − 1 where labels may be wrong.

        Returns:
            The largest evidence of a period that ends here, in nats, after its share; None if none ends or is tested.
        """
        if not len(group):
            return None
        cohort = np.empty(len(group), _SUM)
        cohort["group"], cohort["size"], cohort["value"] = group, size, value
        self._sums = np.concatenate([self._sums, self._summed(cohort)])
        told = max(int(np.count_nonzero(size)), -(-len(group) // _SILENT))
        found = []
        for length, of in zip(LENGTHS.tolist(), self._lengths, strict=True):
            of.rows += told
            if of.rows < length:
                continue
            sums = self._summed(self._sums[of.first :])
            if of.limit > 0:
                of.tested += 1
                found.append(self._evidence(sums, of.limit) - math.log(len(LENGTHS) * of.tested * (of.tested + 1)))
            of.limit = max(of.limit, float(sums["size"].max()))
            of.first, of.rows = len(self._sums), 0
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
        for name in ("size", "value"):
            sums[name] = np.bincount(of, rows[name].astype(np.float64), len(found))
        return sums

    def _evidence(self, sums: NDArray[Any], limit: float) -> float:
        bet = self._bets[:, None] * (sums["value"].astype(np.float64) / limit)
        with np.errstate(divide="ignore"):
            products = np.log1p(np.maximum(bet, -1.0)).sum(axis=1)
        return max(float(np.logaddexp.reduce(products)) - math.log(len(products)), -1e6)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document."""
        lengths = [[of.first, of.rows, of.tested, of.limit] for of in self._lengths]
        return {"sums": text_of(self._sums), "lengths": lengths}

    @classmethod
    def from_dict(cls, document: Any, bets: NDArray[np.float64], per: Per) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            InputValueError: It is not such a document.
        """
        periods = cls(bets, per)
        if not isinstance(document, Mapping) or len(document.get("lengths") or ()) != len(LENGTHS):
            raise InputValueError(
                "Expected the open periods of a monitor.",
                where="periods",
                found=document,
                expected={"sums": "", "lengths": [[0, 0, 0, 0.0]] * len(LENGTHS)},
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
            )
            for first, rows, tested, limit in document["lengths"]
        ]
        return periods
