"""Rows as a policy sees them: scores, labels where they have come, and how they came to be sought."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.decisions.split import one_per_group
from service.errors import InputValueError

_SMALLEST, _LARGEST = float(np.finfo(np.float64).tiny), float(np.finfo(np.float64).max)


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """N rows, as columns.

    Attributes:
        probability: From `decide.score_rows`, float32 of shape (N,).
        score: From `decide.score_rows`, float32 of shape (N,).
        positive: Whether the label is the positive class, or the predicted label is right; bool of shape (N,). Not
            read where `labelled` is False.
        weight: Weight of each row in estimates from fit rows, above 0; None for equal weights. Certify rows are
            never weighted.
        group: Cluster numbers, int64 of shape (N,); None when every row is its own group.
        propensity: Probability in [0, 1] with which the row's label was sought, NaN where unknown; None when every
            label was sought.
        labelled: Whether the row's label was sought and has come, bool of shape (N,); None when all rows are labelled.
            Where labels are sought for some rows only, a claim about traffic needs the others here as well.
        sought: Whether the row's label was sought, bool of shape (N,), True wherever `labelled` is; None when all
            labels that were sought have come, those of propensity 1 aside.
        segment: The request's segment of each row, str or object of shape (N,), "" or None where it has none; None when
            no row has.

    Raises:
        InputValueError: When shapes disagree, a probability or score is NaN, a weight is not above 0, a propensity is
            not in [0, 1], or a label came of a row whose propensity is 0.
    """

    probability: NDArray[np.float32]
    score: NDArray[np.float32]
    positive: NDArray[np.bool_]
    weight: NDArray[np.float64] | None = None
    group: NDArray[np.int64] | None = None
    propensity: NDArray[np.float64] | None = None
    labelled: NDArray[np.bool_] | None = None
    sought: NDArray[np.bool_] | None = None
    segment: NDArray[np.str_] | NDArray[np.object_] | None = None

    def __post_init__(self) -> None:
        shape = (len(self.probability),)
        for column in fields(self):
            values = getattr(self, column.name)
            if values is not None and values.shape != shape:
                raise InputValueError(
                    "Rows have unequal shapes.", where=column.name, found=values.shape, expected=shape
                )
        for name in ("probability", "score"):
            _within(getattr(self, name), name, -math.inf, math.inf, "Leave out the rows that have no score.")
        if self.weight is not None:
            _within(self.weight, "weight", _SMALLEST, _LARGEST, "Leave out rows that are to count for nothing.")
        if self.propensity is not None:
            known = self.propensity[~np.isnan(self.propensity)]
            _within(known, "propensity", 0.0, 1.0, "It is a probability; where nobody knows it, give NaN.")
            impossible = self.known() & (self.propensity == 0)
            if impossible.any():
                raise InputValueError(
                    "A label came of a row whose label nobody sought: its propensity is 0.",
                    where="propensity",
                    found=f"{int(impossible.sum())} such rows",
                    expected="a propensity above 0 wherever `labelled` is True",
                    remedy="Give the probability with which the label was sought, or NaN where nobody knows it.",
                )

    def __len__(self) -> int:
        return len(self.probability)

    def take(self, rows: NDArray[Any] | slice) -> ScoredRows:
        """Return the rows that an index, mask or slice selects."""
        columns = (getattr(self, column.name) for column in fields(self))
        return ScoredRows(*(None if column is None else column[rows] for column in columns))  # type: ignore[arg-type]

    def of_segment(self, value: str) -> ScoredRows:
        """Return the rows of one segment."""
        here = np.zeros(len(self), dtype=np.bool_) if self.segment is None else self.segment == value
        return self.take(here)

    def known(self) -> NDArray[np.bool_]:
        """Return whether the label of each row was sought and has come."""
        return np.ones(len(self), dtype=bool) if self.labelled is None else self.labelled

    def asked(self) -> NDArray[np.bool_]:
        """Return whether the label of each row was sought, come or not; at propensity 1 it always was."""
        if self.propensity is None:
            return np.ones(len(self), dtype=bool)
        sought: NDArray[np.bool_] = self.known() if self.sought is None else self.sought
        certain: NDArray[np.bool_] = self.propensity == 1.0
        return sought | certain

    def sample(self, seed: int, *, known_propensity: bool) -> NDArray[np.intp] | slice:
        """Return which rows test: one of each group, drawn without regard to labels.

        Args:
            seed: Fixed before any label is seen.
            known_propensity: Whether rows of which nobody knows how their labels came are left out.

        Returns:
            What `take` takes.
        """
        which: NDArray[np.intp] | slice = slice(None)
        if known_propensity and self.propensity is not None:
            which = np.flatnonzero(~np.isnan(self.propensity))
        if self.group is None:
            return which
        group = self.group[which]
        ordered = np.sort(group)
        if not (ordered[1:] == ordered[:-1]).any():
            return which
        chosen = one_per_group(group, seed)
        return chosen if isinstance(which, slice) else which[chosen]

    def missing_share(self) -> float:
        """Return the share of the labels that were sought and have not come."""
        asked = self.asked()
        return int((asked & ~self.known()).sum()) / max(int(asked.sum()), 1)


def _within(values: NDArray[Any], where: str, low: float, high: float, remedy: str) -> None:
    if len(values) and not (low <= values.min() and values.max() <= high):
        raise InputValueError(
            f"A {where} is out of range.",
            where=where,
            found=[float(values.min()), float(values.max())],
            expected=f"numbers from {low:.3g} to {high:.3g}",
            remedy=remedy,
        )
