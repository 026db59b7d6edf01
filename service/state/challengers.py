"""Challengers of models, and what those of other bundles made of predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Row, delete, select

from service.decisions.rows import Rows
from service.errors import RevisionStateError, UnknownChallengerError
from service.state import audit
from service.state.columns import ascii_texts, read_columns, vectors
from service.state.database import Database, now_us
from service.state.deletion import ROWS_PER_TRANSACTION
from service.state.insertion import insert_for, insert_new
from service.state.numbering import take_number
from service.state.tables import challenger_scores, challengers, compared_groups, predictions
from service.state.window import origins_of

MOST: Final = 8
"""Maximum number of challengers of a model."""
AMOUNTS: Final = 10_000
"""Newest predictions whose amounts limit what a comparison counts."""
SHARE_WITHIN: Final = 0.999
"""Share of their amounts that are within the limit."""


@dataclass(frozen=True, slots=True)
class Challenger:
    """A revision that is scored beside the active one.

    Attributes:
        model: Its model.
        name: Its name.
        number: Identifies this revision under this name; a change has a new one.
        revision: Id of the revision.
        share: Share of the groups that it scores, in (0, 1].
        since: When it was put, microseconds since the epoch, UTC.
        by: Who put it.
        columns: Columns of its table; empty for other models.
    """

    model: str
    name: str
    number: int
    revision: str
    share: float
    since: int
    by: str
    columns: tuple[str, ...] = ()


class ChallengerStore:
    """The challengers of all models; every change is one transaction with its audit entry.

    All methods raise StateUnavailableError when the database does not answer.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[Challenger]:
        """Return every challenger, by model and name."""
        with self._database.connect() as connection:
            return [_challenger(row) for row in connection.execute(_SELECT)]

    def of(self, model: str) -> list[Challenger]:
        """Return a model's challengers by name."""
        with self._database.connect() as connection:
            return [_challenger(row) for row in connection.execute(_SELECT.where(_of(model)))]

    def get(self, model: str, name: str) -> Challenger:
        """Return a challenger.

        Raises:
            UnknownChallengerError: The model has no challenger of that name.
        """
        known = {one.name: one for one in self.of(model)}
        if name not in known:
            raise _unknown(model, name, sorted(known))
        return known[name]

    def put(
        self, model: str, name: str, *, revision: str, share: float, by: str, columns: Sequence[str] = ()
    ) -> tuple[Challenger, bool]:
        """Score a revision beside the active one; return it, and whether that is new.

        Nothing changes if it is there already with the same revision and share.

        Raises:
            RevisionStateError: The model has the maximum number of challengers.
        """
        with self._database.begin() as connection:
            number = take_number(connection, "challengers")  # of two at once, the second sees the first
            known = {row.name: _challenger(row) for row in connection.execute(_SELECT.where(_of(model)))}
            before = known.get(name)
            if before is not None and (before.revision, before.share) == (revision, share):
                return before, False
            if before is None and len(known) >= MOST:
                raise RevisionStateError(
                    f"Model {model} has the maximum number of challengers.",
                    where="name",
                    found=len(known) + 1,
                    expected=f"at most {MOST}",
                    remedy="Remove one first: candor challenger remove NAME",
                )
            found = Challenger(model, name, number, revision, share, now_us(), by, tuple(columns))
            values = {key: getattr(found, key) for key in ("number", "revision", "share", "since", "by")}
            values["columns"] = list(columns) or None
            upsert = insert_for(connection, challengers).values(model=model, name=name, **values)
            connection.execute(upsert.on_conflict_do_update(index_elements=["model", "name"], set_=values))
            detail = {"revision": revision, "share": share, "replaces": None if before is None else before.revision}
            audit.append(connection, model=model, by=by, action="put_challenger", subject=name, detail=detail)
        if before is not None:
            self.drop_scores(before.number)
        return found, True

    def delete(self, model: str, name: str, *, by: str) -> Challenger:
        """Stop scoring a challenger. Its comparison ends, and what it made of predictions is deleted.

        Raises:
            UnknownChallengerError: The model has no challenger of that name.
        """
        found = self.get(model, name)
        with self._database.begin() as connection:
            same = _of(model) & (challengers.c.name == name) & (challengers.c.number == found.number)
            if connection.execute(delete(challengers).where(same)).rowcount != 1:
                raise _unknown(model, name, [])
            audit.append(connection, model=model, by=by, action="delete_challenger", subject=name)
        self.drop_scores(found.number)
        return found

    def drop_scores(self, number: int) -> None:
        """Delete what a challenger made of predictions, a few rows at a time."""
        oldest = select(challenger_scores.c.id).where(challenger_scores.c.challenger == number)
        oldest = oldest.order_by(challenger_scores.c.created_at).limit(ROWS_PER_TRANSACTION)
        more = True
        while more:
            with self._database.begin() as connection:
                ids = list(connection.scalars(oldest))
                gone = delete(challenger_scores).where(challenger_scores.c.challenger == number)
                connection.execute(gone.where(challenger_scores.c.id.in_(ids)))
            more = len(ids) == ROWS_PER_TRANSACTION

    def add_scores(
        self, number: int, ids: Sequence[str], created_at: Sequence[int], logits: NDArray[np.float32]
    ) -> int:
        """Write what a challenger made of logged predictions, unless it is gone; return the rows written.

        Predictions that were erased meanwhile are left out. PostgreSQL skips rows that another transaction is deleting,
        and what this one has read cannot be deleted before it ends: no score is left behind.

        Args:
            number: The challenger.
            ids: N prediction ids.
            created_at: The N predictions' times.
            logits: float32 (N, K).
        """
        content = np.ascontiguousarray(logits, dtype="<f4")
        written = 0
        with self._database.begin() as connection:
            here = select(challengers.c.name).where(challengers.c.number == number)
            if connection.scalar(here.with_for_update(read=True, skip_locked=True)) is None:
                return 0
            for start in range(0, len(ids), ROWS_PER_TRANSACTION):
                part = ids[start : start + ROWS_PER_TRANSACTION]
                logged = select(predictions.c.id).where(predictions.c.id.in_(part))
                locked = logged.with_for_update(read=True, key_share=True, skip_locked=True)
                there = set(connection.scalars(locked))
                rows = [
                    (id_, number, created_at[start + at], content[start + at].tobytes())
                    for at, id_ in enumerate(part)
                    if id_ in there
                ]
                if rows:
                    insert_new(connection, challenger_scores, ("id", "challenger", "created_at", "logits"), rows)
                written += len(rows)
        return written


def load_beside(
    connection: Connection, number: int, rows: Rows, *, since_us: int, until_us: int
) -> tuple[Rows, NDArray[np.float32]]:
    """Return the rows that a challenger scored too, and what it made of them: N rows, logits (N, K).

    Args:
        connection: Inside a read transaction.
        number: The challenger.
        rows: Predictions of the active revision, with ids.
        since_us: Start of their span.
        until_us: End of the span, exclusive.
    """
    scores = challenger_scores.c
    query = select(scores.id, scores.logits).where(
        scores.challenger == number, scores.created_at >= since_us, scores.created_at < until_us
    )
    ids, logits = read_columns(connection, [query], [ascii_texts, vectors(rows.logits.shape[1])])
    order = np.argsort(ids)
    places = np.searchsorted(ids, rows.id, sorter=order)
    found = np.flatnonzero(places < len(ids))
    at = order[places[found]]
    same = ids[at] == rows.id[found]
    return rows.take(found[same]), logits[at[same]]


def groups_seen(connection: Connection, monitor: int, groups: NDArray[np.int64]) -> set[int]:
    """Return which groups a comparison has counted with a label."""
    seen: set[int] = set()
    for start in range(0, len(groups), ROWS_PER_TRANSACTION):
        part = groups[start : start + ROWS_PER_TRANSACTION].tolist()
        query = select(compared_groups.c.cluster).where(compared_groups.c.monitor == monitor)
        seen |= set(connection.scalars(query.where(compared_groups.c.cluster.in_(part))))
    return seen


def amount_limit(connection: Connection, model: str, *, before_us: int) -> float:
    """Return the amount that bounds those of the latest `AMOUNTS` predictions of a model, but for a few.

    Args:
        connection: Inside a read transaction.
        model: The model.
        before_us: Only predictions before this time, in microseconds since the epoch.

    Returns:
        The smallest amount that is not exceeded by `SHARE_WITHIN` of them; 0 if none has an amount.
    """
    latest: list[tuple[int, float | None]] = []
    since_us = 0
    # One origin at a time, the newest first: each query reads its index from the end, and no more than it must.
    for origin in sorted(origins_of(connection, model), reverse=True):
        when = predictions.c.created_at
        here = predictions.c.origin == origin, when < before_us, when >= since_us
        query = select(when, predictions.c.amount).where(*here).order_by(when.desc()).limit(AMOUNTS)
        latest += ((at, amount) for at, amount in connection.execute(query))
        if len(latest) >= AMOUNTS:
            latest = sorted(latest, key=lambda row: row[0], reverse=True)[:AMOUNTS]
            since_us = latest[-1][0]
    amounts = [amount for _, amount in latest if amount is not None]
    return float(np.quantile(amounts, SHARE_WITHIN, method="inverted_cdf")) if amounts else 0.0


def add_groups(connection: Connection, monitor: int, groups: NDArray[np.int64]) -> None:
    """Record groups that a comparison has counted with a label."""
    if len(groups):
        rows = [(monitor, group) for group in groups.tolist()]
        insert_new(connection, compared_groups, ("monitor", "cluster"), rows)


def _challenger(row: Row[Any]) -> Challenger:
    values = row._asdict()
    return Challenger(**values | {"columns": tuple(values["columns"] or ())})


def _of(model: str) -> ColumnElement[bool]:
    return challengers.c.model == model


def _unknown(model: str, name: str, known: list[str]) -> UnknownChallengerError:
    return UnknownChallengerError(
        f"Model {model} has no challenger {name!r}.", where="challenger", found=name, expected=known
    )


_SELECT = select(*(challengers.c[name] for name in Challenger.__slots__)).order_by(
    challengers.c.model, challengers.c.name
)
