"""Read logged predictions as `Rows`: the mapping from database columns to theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Select, select

from service.decisions.rows import NO_LABEL, Rows, came
from service.state.columns import (
    Codes,
    Converter,
    ascii_texts,
    booleans,
    integers,
    numbers,
    read_columns,
    vectors,
)
from service.state.rescoring import Rescoring
from service.state.row_cells import RowCells
from service.state.tables import inputs, predictions
from service.state.window import Arising

Further = Mapping[str, tuple[ColumnElement[Any], Converter]]
"""Columns by name, and how their values are converted."""


class RowReader:
    """Reads columns of predictions and further columns.

    Args:
        classes: Number K of the model's labels.
        again: Scores stored inputs again; None for the logged logits.
        ids: Whether to read prediction ids.
        others: Further columns by name, beyond those of `Rows`.
        arising: Rows whose silence is a label.
        cells: Reads columns of the rows from their stored inputs; None without.
    """

    def __init__(
        self,
        classes: int,
        *,
        again: Rescoring | None = None,
        ids: bool = False,
        others: Further | None = None,
        arising: Sequence[Arising] = (),
        cells: RowCells | None = None,
    ) -> None:
        self._cells = cells
        self._finish = None if again is None else again.finish
        self._silent = [one for one in arising if one.silence is not None]
        self._texts = {"segment": Codes(), "action": Codes()}
        logged = predictions.c
        self._columns: dict[str, tuple[ColumnElement[Any], Converter]] = {
            **({"id": (logged.id, ascii_texts)} if ids else {}),
            "logits": (logged.logits, vectors(classes)) if again is None else (inputs.c.content, again.add),
            "group": (logged.cluster, integers),
            "propensity": (logged.propensity, numbers),
            "sought": (logged.sought, booleans),
            "amount": (logged.amount, numbers),
            "segment": (logged.segment, self._texts["segment"]),
            "action": (logged.action, self._texts["action"]),
            "predicted_at": (logged.created_at, integers),
            **({"origin": (logged.origin, integers)} if self._silent else {}),
            **({} if cells is None else {"stored": (_stored(), cells.read)}),
            **(others or {}),
        }

    def query(self) -> Select[Any]:
        """Return a query of the columns; the caller joins the tables."""
        return select(*(column for column, _ in self._columns.values()))

    def read(self, connection: Connection, queries: Sequence[Select[Any]]) -> dict[str, NDArray[Any]]:
        """Return the concatenated columns of queries by name; texts as codes."""
        arrays = read_columns(connection, queries, [converter for _, converter in self._columns.values()])
        columns = dict(zip(self._columns, arrays, strict=True))
        if self._finish is not None:
            columns["logits"] = self._finish(columns["logits"])
        return columns

    def converted(self, values: Mapping[str, Sequence[Any]]) -> dict[str, NDArray[Any]]:
        """Return columns as `read` does, from their values by name, as a database driver returns them."""
        return {name: convert(values[name]) for name, (_, convert) in self._columns.items() if name in values}

    def silence(
        self, columns: Mapping[str, NDArray[Any]], which: NDArray[Any] | slice = slice(None)
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the label that silence is, `NO_LABEL` where it is none, and the age from which it is, int64 (N,).

        Args:
            columns: From `read`.
            which: Index or slice of them; N rows.
        """
        action = self._texts["action"].values_of(columns["action"][which])
        found, ages = np.full(len(action), NO_LABEL), np.zeros(len(action), np.int64)
        for one in self._silent:
            mature = columns["predicted_at"][which] < one.before_us
            covered = mature & (columns["origin"][which] == one.origin)
            if one.actions:
                covered &= np.isin(action.astype(np.str_), list(one.actions))
            found[covered], ages[covered] = one.silence, one.age_us
        return found, ages

    def rows(
        self,
        columns: Mapping[str, NDArray[Any]],
        which: NDArray[Any] | slice = slice(None),
        *,
        label: NDArray[np.int64] | None = None,
        labelled_at: NDArray[np.int64] | None = None,
    ) -> Rows:
        """Return some of the rows from `read`.

        Args:
            columns: From `read`.
            which: Index or slice of them; N rows.
            label: int64 of shape (N,); None without labels.
            labelled_at: int64 of shape (N,), in microseconds since the epoch.
        """
        own: dict[str, Any] = {name: columns[name][which] for name in columns if name in Rows.__slots__}
        for name, codes in self._texts.items():
            own[name] = codes.values_of(own[name])
        if self._cells is not None:
            own["cells"] = self._cells.complete(columns["stored"][which])
        if label is None:
            label = np.broadcast_to(np.int64(NO_LABEL), len(own["group"]))
        if labelled_at is not None:
            own["labelled_at"] = labelled_at
        if self._silent:
            silence, age = self.silence(columns, which)
            unheard = (label == NO_LABEL) & (own.get("labelled_at", 0) == 0)  # else the model lacks the label
            presumed = unheard & (silence != NO_LABEL)
            label = np.where(presumed, silence, label)
            own["labelled_at"] = np.where(presumed, own["predicted_at"] + age, own.get("labelled_at", 0))
        labelled = came(label, own["sought"], own["propensity"])
        return Rows(**{**own, "label": label, "labelled": labelled})


def _stored() -> ColumnElement[Any]:
    """Return the stored input of each prediction, null without one; it joins no table."""
    own = inputs.alias("own")
    return select(own.c.content).where(own.c.id == predictions.c.id).scalar_subquery().label("stored")


def joined(parts: Sequence[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Return columns of a reader, one part behind the other."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
