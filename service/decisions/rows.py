"""Rows of predictions as columns: one type from the database to the report, with or without a policy's scores."""

# ruff: noqa: RUF009 — `_column` is a call of `field`
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from bundle import LabelledLogits
from bundle.split import one_per_group
from service.errors import InputValueError
from service.times import iso

NO_LABEL: Final = -1
"""In `label`: no label has come."""

_SMALLEST, _LARGEST = float(np.finfo(np.float64).tiny), float(np.finfo(np.float64).max)
_MOST_ROWS: Final = 2**40
_UNSCORED: Final = (-math.inf, math.inf, "Leave out the rows that have no score.")


def _column(value: NDArray[Any] | None, within: tuple[float, float, str] | None = None) -> Any:
    """Declare a column that a caller may leave out: all rows then share one value, which takes no memory.

    Args:
        value: This value, of shape (1, …); None for a number of its own for each row.
        within: Smallest and largest value of the column where they are bounded, and the remedy for others.
    """
    # Cut to size, since a view made for each of many small sets of rows costs more than what is done with them.
    shared = None if value is None else np.broadcast_to(value, (_MOST_ROWS, *value.shape[1:]))
    return field(default=None, metadata={"value": shared, "within": within})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """N predictions, and what is known of their labels.

    A new column needs one line here; `take` and `concat` carry it.

    Attributes:
        id: Prediction ids, ASCII bytes of shape (N,).
        logits: float32 of shape (N, K); (N, 0) once they are no longer needed.
        label: Index of the label, int64 of shape (N,), `NO_LABEL` where none has come, or one that the model lacks.
        group: Keyed hash of the group, else of the input, int64 of shape (N,); by default each row is its own group.
        propensity: Probability in [0, 1] with which the row's label was sought, NaN where unknown, shape (N,); by
            default 1: every label was sought.
        sought: Whether the row's label was sought, bool of shape (N,), True wherever `labelled` is; None when all
            labels that were sought have come, those of propensity 1 aside.
        labelled: Whether the row's label was sought and has come, bool of shape (N,); None when all rows are labelled.
            Where labels are sought for some rows only, a claim about traffic needs the others here as well.
        segment: The request's segment, str or object of shape (N,), "" or None where it named none.
        amount: Amount at stake, float64 of shape (N,), NaN where unknown.
        cells: Cells of named columns, for calibrators that read them: a structured array (N,), see `Columns.cells_of`.
            None where none does.
        action: What a policy decided, object of shape (N,), None where none did.
        predicted_at: Time of the prediction in microseconds since the epoch, int64 of shape (N,).
        labelled_at: When the row's first label was received, int64 of shape (N,); 0 where none has come.
        whole: Whether the row is from a time from which every row is here, bool of shape (N,). Others are a selection:
            with their inverse propensities they fit, and are used for nothing else.
        drawn: Whether the row's group is in a sample of the groups whose rows are all here, bool of shape (N,). Of the
            other groups only labelled rows are here: they fit and gate, and stand for no unlabelled row.
        weight: Weight of the row in a fit and in estimates from fit rows, above 0, shape (N,). Certify rows are never
            weighted.

    Raises:
        InputValueError: Shapes disagree, a weight is not above 0, a propensity is not in [0, 1], or a label came of a
            row whose propensity is 0.
    """

    id: NDArray[np.bytes_] = _column(np.zeros(1, "S1"))
    logits: NDArray[np.float32] = _column(np.zeros((1, 0), np.float32))
    label: NDArray[np.int64] = _column(np.full(1, NO_LABEL))
    group: NDArray[np.int64] = _column(None)
    propensity: NDArray[np.float64] = _column(
        np.ones(1), (0.0, 1.0, "It is a probability; where nobody knows it, give NaN.")
    )
    sought: NDArray[np.bool_] | None = None
    labelled: NDArray[np.bool_] | None = None
    segment: NDArray[np.str_] | NDArray[np.object_] = _column(np.full(1, None))
    amount: NDArray[np.float64] = _column(np.full(1, np.nan))
    cells: NDArray[np.void] | None = None
    action: NDArray[np.object_] = _column(np.full(1, None))
    predicted_at: NDArray[np.int64] = _column(np.zeros(1, np.int64))
    labelled_at: NDArray[np.int64] = _column(np.zeros(1, np.int64))
    whole: NDArray[np.bool_] = _column(np.ones(1, np.bool_))
    drawn: NDArray[np.bool_] = _column(np.ones(1, np.bool_))
    weight: NDArray[np.float64] = _column(
        np.ones(1), (_SMALLEST, _LARGEST, "Leave out rows that are to count for nothing.")
    )

    def __post_init__(self) -> None:
        given = {name: column for name, column in self.columns().items() if column is not None}
        size = len([*given.values()][-1]) if given else 0
        for name, column in given.items():
            if len(column) != size or (column.ndim != 1 and name != "logits"):
                raise InputValueError(
                    "Rows have unequal shapes.",
                    where=name,
                    found=column.shape,
                    expected=(size,),
                    remedy="Give each column one value for each row.",
                )
        for declared in self.__dataclass_fields__.values():  # `fields` would make a tuple for each few rows
            if declared.name in given and declared.metadata.get("within") is not None:
                _check_within(declared.name, given[declared.name], *declared.metadata["within"])
            elif declared.name not in given and "value" in declared.metadata:
                value = declared.metadata["value"]
                object.__setattr__(self, declared.name, np.arange(size) if value is None else value[:size])
        self._check_sought()

    def __len__(self) -> int:
        return len(self.group)

    @classmethod
    def of_reference(cls, part: LabelledLogits) -> Self:
        """Return reference rows of a bundle, with their groups, segments, weights and times."""
        given: dict[str, Any] = part.given()
        if "time" in given:
            given["predicted_at"] = given.pop("time")
        return cls(logits=part.logits, label=part.labels, **given)

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of all parts, one part behind the other. Groups of the same number are one group."""
        filled = [part for part in parts if len(part)] or list(parts[:1])
        if len(filled) == 1:
            return filled[0]
        columns: dict[str, Any] = {}
        for name in filled[0].columns():
            values = [getattr(part, name) for part in filled]
            if name == "labelled" and any(value is not None for value in values):
                values = [part.known() for part in filled]
            elif name == "sought" and any(value is not None for value in values):
                values = [part.was_sought() for part in filled]
            columns[name] = _joined(values)
        return cls(**columns)

    def take(self, rows: NDArray[Any] | slice) -> Self:
        """Return the rows that an index, mask or slice selects."""
        group = self.group[rows]
        columns: dict[str, Any] = {
            name: column if column is None else _repeated(column, len(group)) if _shared(column) else column[rows]
            for name, column in self.columns().items()
            if name != "group"
        }
        return type(self)(group=group, **columns)

    def without(self, *names: str) -> Self:
        """Return the rows without some columns: they get their defaults, which take no memory."""
        absent: dict[str, Any] = dict.fromkeys(names)
        return replace(self, **absent)

    def since(self, us: int) -> Self:
        """Return the rows predicted at or after a time in microseconds; `predicted_at` ascends."""
        return self.take(slice(int(np.searchsorted(self.predicted_at, us)), None))

    def window(self) -> tuple[str, str] | None:
        """Return the times of the first and the last prediction (ISO 8601, UTC); None without rows."""
        if not len(self):
            return None
        return iso(int(self.predicted_at.min())), iso(int(self.predicted_at.max()))

    def of_segment(self, value: str) -> Self:
        """Return the rows of one segment."""
        return self.take(self.segment == value)

    def known(self) -> NDArray[np.bool_]:
        """Return whether the label of each row was sought and has come."""
        return np.ones(len(self), dtype=bool) if self.labelled is None else self.labelled

    def was_sought(self) -> NDArray[np.bool_]:
        """Return whether the label of each row was sought, come or not; at propensity 1 it always was."""
        sought: NDArray[np.bool_] = self.known() if self.sought is None else self.sought
        certain: NDArray[np.bool_] = self.propensity == 1.0
        return sought | certain

    def sample(self, seed: int, *, known_propensity: bool) -> NDArray[np.intp] | slice:
        """Return which rows test: one of each group, drawn without regard to labels.

        Args:
            seed: Fixed before any label is seen.
            known_propensity: Whether rows of unknown propensity are left out.

        Returns:
            What `take` takes.
        """
        which: NDArray[np.intp] | slice = slice(None)
        if known_propensity and (unknown := np.isnan(self.propensity)).any():
            which = np.flatnonzero(~unknown)
        group = self.group[which]
        ordered = np.sort(group)
        if not (ordered[1:] == ordered[:-1]).any():
            return which
        chosen = one_per_group(group, seed)
        return chosen if isinstance(which, slice) else which[chosen]

    def missing_share(self) -> float:
        """Return the share of the labels that were sought and have not come."""
        sought = self.was_sought()
        return int((sought & ~self.known()).sum()) / max(int(sought.sum()), 1)

    def columns(self) -> dict[str, NDArray[Any] | None]:
        """Return all columns by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def _check_sought(self) -> None:
        impossible = self.known() & (self.propensity == 0)
        if impossible.any():
            raise InputValueError(
                "A row has a label although its propensity is 0, so nobody sought one.",
                where="propensity",
                found=f"{int(impossible.sum())} such rows",
                expected="a propensity above 0 wherever `labelled` is True",
                remedy="Give the probability with which the label was sought, or NaN where nobody knows it.",
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoredRows(Rows):
    """N rows as a policy sees them.

    Attributes:
        probability: From `decide.score_rows`, float32 of shape (N,).
        score: From `decide.score_rows`, float32 of shape (N,).
        positive: Whether the label is the positive class, or the predicted label is right; bool of shape (N,). Not
            read where `labelled` is False.

    Raises:
        InputValueError: As `Rows`, or a probability or score is NaN.
    """

    probability: NDArray[np.float32] = field(metadata={"within": _UNSCORED})
    score: NDArray[np.float32] = field(metadata={"within": _UNSCORED})
    positive: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        rows: Rows,
        *,
        probability: NDArray[np.float32],
        score: NDArray[np.float32],
        positive: NDArray[np.bool_],
    ) -> Self:
        """Add scores to rows, and leave out the columns that no policy reads."""
        columns: dict[str, Any] = rows.without("logits", "label", "labelled_at", "action", "cells").columns()
        return cls(**columns, probability=probability, score=score, positive=positive)


def came(label: NDArray[np.int64], sought: NDArray[np.bool_], propensity: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which labels count as `labelled`: sought with a known propensity, and received.

    Nobody knows why other labels came, so they test nothing.
    """
    found: NDArray[np.bool_] = sought & (propensity > 0) & (label != NO_LABEL)
    return found


def _shared(column: NDArray[Any]) -> bool:
    """Return whether all rows of a column share one value in memory."""
    return column.strides[0] == 0


def _repeated(column: NDArray[Any], size: int) -> NDArray[Any]:
    """Return a shared column of another length."""
    return column[:size] if size <= len(column) else np.broadcast_to(column[:1], (size, *column.shape[1:]))


def _joined(columns: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    """Return columns one behind the other; shared where they share the same value."""
    given = [column for column in columns if column is not None]
    if not given:
        return None
    first = given[0][:1]
    if all(_shared(column) and (column[:1] == first).all() for column in given):
        return np.broadcast_to(first, (sum(map(len, given)), *first.shape[1:]))
    return np.concatenate(given)


def _check_within(where: str, column: NDArray[Any], low: float, high: float, remedy: str) -> None:
    values = column[~np.isnan(column)] if where == "propensity" else column
    if len(values) and not (low <= values.min() and values.max() <= high):
        raise InputValueError(
            f"A {where} is out of range.",
            where=where,
            found=[float(values.min()), float(values.max())],
            expected=f"numbers from {low:.3g} to {high:.3g}",
            remedy=remedy,
        )
