"""Batches of predictions and their conversion to database rows."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import compress, repeat
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from bundle.split import group_hash
from bundle.table import Cell
from candor.contract.conditions import REVIEW
from service.errors import StateUnavailableError
from service.state.database import Database
from service.state.inputs import packed
from service.state.insertion import insert_for, insert_new
from service.state.partitions import cover, day_of
from service.state.reviewed import COLUMNS as CASE_COLUMNS
from service.state.reviewed import Reviewed, Undecided, case_rows, select_reviews
from service.state.tables import cases, inputs, origins, predictions

_ROW_BYTES, _CELL_BYTES = 200, 100  # of carried cells, besides their texts

KeepInputs = Literal["off", "sought", "all"]
_LOG = np.uint64(0x9E3779B97F4A7C15)
CHALLENGERS = np.uint64(0xD1B54A32D192ED03)
"""Salt of the sample of challengers."""


@dataclass(frozen=True, slots=True)
class PredictionBatch:
    """Predictions of one batch; the arrays are not copied, so do not change them afterwards.

    Attributes:
        model: Model name.
        model_digest: sha256 of the bundle's model.onnx.
        revision: Revision id, such as "r7".
        policy: "id@version" of the policy; None without one.
        created_at: Microseconds since the epoch, UTC.
        ids: N prediction ids (ULIDs).
        references: N references of the client, each may be None.
        groups: N group keys of the client, each may be None.
        inputs: (N, …), any dtype; hashed for rows without a group.
        logits: float32 (N, K).
        labels: Integer (N,): the top label, in 0 … K − 1.
        confidence: Float (N,) in [0, 1].
        actions: N actions, None without a policy.
        propensities: N probabilities in [0, 1] that a label is sought; None if unknown.
        sought: Whether each row's label is sought; None if unknown.
        segments: N segments of the client, each may be None; None without any.
        amounts: N amounts at stake, each may be None; None without any.
        input_spec: The model's input, see `service.inference.specification`; None if not needed.
        carried: Cells of each row that only challengers need, by column; None without any.
        reviewed: What the review queue needs; None without one. Where it has a daily capacity, the propensities of rows
            sent to review are None, and whether they are sought is None: the writer decides.
    """

    model: str
    model_digest: str
    revision: str
    policy: str | None
    created_at: int
    ids: Sequence[str]
    references: Sequence[str | None]
    groups: Sequence[str | None]
    inputs: NDArray[Any]
    logits: NDArray[np.float32]
    labels: NDArray[np.integer]
    confidence: NDArray[np.floating]
    actions: Sequence[str | None]
    propensities: Sequence[float | None]
    sought: Sequence[bool | None]
    segments: Sequence[str | None] | None = None
    amounts: Sequence[float | None] | None = None
    input_spec: str | None = None
    carried: Sequence[Mapping[str, Cell] | None] | None = None
    reviewed: Reviewed | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """Bytes of the inputs and logits, and about those of the carried cells."""
        return self.inputs.nbytes + self.logits.nbytes + bytes_of(self.carried)


def bytes_of(carried: Iterable[Mapping[str, Cell] | None] | None) -> int:
    """Return about how much memory carried cells take."""
    size = 0
    for cells in filter(None, carried or ()):
        texts = sum(len(cell) for cell in cells.values() if isinstance(cell, str))
        size += _ROW_BYTES + _CELL_BYTES * len(cells) + texts
    return size


After = Callable[[PredictionBatch, Sequence[int], Sequence[int]], None]
"""Called with a batch once it is durable, the rows that were written, and the groups' numbers of all its rows."""


class RowWriter:
    """Writes batches of predictions, all of them or a sample.

    Args:
        database: The state.
        sample: Share of the groups (and of inputs without a group) to write.
        keep_inputs: Rows whose inputs are stored: none, those whose label is sought, or all.
    """

    def __init__(self, database: Database, *, sample: float, keep_inputs: KeepInputs) -> None:
        self._database = database
        self._sample = sample
        self._keep_inputs = keep_inputs
        self.after: After | None = None
        self._origins: dict[tuple[str, str, str, str], int] = {}
        self._covered: set[int] = set()
        self._draw = random.Random()  # noqa: S311 — keeps no secret
        self._selected: dict[str, PredictionBatch] = {}  # by first id, until their rows are written

    def write(self, batches: Sequence[PredictionBatch]) -> int:
        """Write the sampled rows, and the cases among them, in one transaction; return their number.

        Rows for a review queue with a daily capacity are selected before, in a transaction of its own: what an attempt
        has selected stays when it is repeated.
        """
        try:
            written = self._write(self._select(batches))
        except StateUnavailableError:
            raise  # the same batches come again
        except BaseException:
            self._selected.clear()
            raise
        self._selected.clear()
        return written

    def _write(self, batches: Sequence[PredictionBatch]) -> int:
        rows: list[tuple[Any, ...]] = []
        kept: list[tuple[str, int, bytes]] = []
        waiting: list[tuple[Any, ...]] = []
        written: list[tuple[PredictionBatch, Sequence[int], list[int]]] = []
        names: Sequence[str] = ()
        for batch in batches:
            columns, group = self._columns(batch)
            names = tuple(columns)
            table: Iterable[tuple[Any, ...]] = zip(*columns.values(), strict=True)
            which: Sequence[int] = range(len(batch))
            if self._sample < 1:
                chosen = in_sample(np.array(group, dtype=np.int64), self._sample)
                table, which = compress(table, chosen.tolist()), np.flatnonzero(chosen).tolist()
            rows += table
            if batch.reviewed is not None:
                waiting += case_rows(batch.model, batch.reviewed, batch.ids, batch.created_at, group, which)
            if self.after is not None:
                written.append((batch, which, group))
            if self._keep_inputs != "off":
                kept += [
                    (batch.ids[row], batch.created_at, packed(batch.inputs[row]))
                    for row in which
                    if batch.sought[row] or self._keep_inputs == "all"
                ]
        if rows:
            with self._database.begin() as connection:
                days = self._cover(connection, batches)
                insert_new(connection, predictions, names, rows)
                if kept:
                    insert_new(connection, inputs, ("id", "created_at", "content"), kept)
                if waiting:
                    insert_new(connection, cases, CASE_COLUMNS, waiting)
            self._covered |= days  # after the commit, which may fail
        if self.after is not None:
            for batch, which, group in written:
                self.after(batch, which, group)
        return len(rows)

    def _select(self, batches: Sequence[PredictionBatch]) -> list[PredictionBatch]:
        """Return the batches with the reason of each case, and with what their rows still lack."""
        new = [batch for batch in batches if batch.reviewed is not None and batch.ids[0] not in self._selected]
        limited = {batch.ids[0]: rows for batch in new if (rows := self._undecided(batch)) is not None}
        if limited:
            with self._database.begin() as connection:
                found = dict(zip(limited, select_reviews(connection, list(limited.values()), self._draw), strict=True))
        for batch in new:
            propensities, sought = list(batch.propensities), list(batch.sought)
            arising: Set[str] = frozenset() if batch.reviewed is None else batch.reviewed.arising
            whys: list[str | None] = [
                None if not wanted else "all" if action == REVIEW else None if action in arising else "explored"
                for action, wanted in zip(batch.actions, sought, strict=True)
            ]
            if (rows := limited.get(batch.ids[0])) is not None:
                for row, propensity, why in zip(rows.rows, *found[batch.ids[0]], strict=True):
                    seeks = (1.0, True) if REVIEW in arising else (propensity, why is not None)
                    (propensities[row], sought[row]), whys[row] = seeks, why
            reviewed = None if batch.reviewed is None else replace(batch.reviewed, selected=whys)
            self._selected[batch.ids[0]] = replace(batch, propensities=propensities, sought=sought, reviewed=reviewed)
        return [self._selected.get(batch.ids[0], batch) for batch in batches]

    def _undecided(self, batch: PredictionBatch) -> Undecided | None:
        """Return the rows that wait for a decision whether a label is sought, None without any."""
        rows = [row for row, sought in enumerate(batch.sought) if sought is None]
        if rows and self._sample < 1:
            groups = group_numbers(self._database.secret, batch.groups, batch.inputs)
            logged = in_sample(np.array(groups, dtype=np.int64), self._sample)
            rows = [row for row in rows if logged[row]]
        if not rows or batch.reviewed is None:
            return None
        return Undecided(batch.model, batch.reviewed, rows, batch.created_at)

    def _cover(self, connection: Connection, batches: Sequence[PredictionBatch]) -> set[int]:
        """Make the partitions that are missing, which should be there; return the days of the rows."""
        if connection.dialect.name != "postgresql":
            return set()
        days = {day_of(start) for start in {id_[:10] for batch in batches for id_ in batch.ids}}
        if days - self._covered:
            cover(connection, days)
        return days

    def _columns(self, batch: PredictionBatch) -> tuple[dict[str, Iterable[Any]], list[int]]:
        """Return the values of each table column, and the groups' numbers."""
        logits = np.ascontiguousarray(batch.logits, dtype="<f4")
        width = logits.itemsize * logits.shape[1]
        content, count = logits.tobytes(), len(batch)
        group = group_numbers(self._database.secret, batch.groups, batch.inputs)
        return {
            "id": batch.ids,
            "origin": repeat(self._origin(batch), count),
            "created_at": repeat(batch.created_at, count),
            "reference": batch.references,
            "cluster": group,
            "logits": [content[start : start + width] for start in range(0, len(content), width)],
            "label": batch.labels.tolist(),
            "confidence": batch.confidence.tolist(),
            "action": batch.actions,
            "propensity": batch.propensities,
            "sought": batch.sought,
            "segment": repeat(None, count) if batch.segments is None else batch.segments,
            "amount": repeat(None, count) if batch.amounts is None else batch.amounts,
            "in_history": repeat(None, count)
            if batch.reviewed is None
            else [True if own not in (None, id_) else None for own, id_ in zip(batch.groups, batch.ids, strict=True)],
        }, group

    def _origin(self, batch: PredictionBatch) -> int:
        key = batch.model, batch.model_digest, batch.revision, batch.policy or ""
        if key not in self._origins:
            names = ("model", "model_digest", "revision", "policy")
            with self._database.begin() as connection:
                values = dict(zip(names, key, strict=True), input_spec=batch.input_spec)
                insert = insert_for(connection, origins).values(values)
                insert = insert.on_conflict_do_update(index_elements=names, set_={"input_spec": batch.input_spec})
                connection.execute(insert)
                same = (origins.c[name] == value for name, value in zip(names, key, strict=True))
                found = connection.execute(select(origins.c.id).where(*same)).scalar_one()
            self._origins[key] = found  # after the commit, which may fail
        return self._origins[key]


def in_sample(groups: NDArray[np.int64], share: float, *, salt: np.uint64 = _LOG) -> NDArray[np.bool_]:
    """Return which groups are in the sample; a larger share contains every smaller one.

    The groups' numbers also determine roles in a recalibration, so they are mixed (SplitMix64): the sample is
    independent of the role.

    Args:
        groups: int64 (N,), from `group_hash`.
        share: Share of the groups, in [0, 1].
        salt: Samples of different salts are independent.

    Returns:
        bool (N,).

    Example:
        >>> round(float(in_sample(np.arange(100_000), 0.25).mean()), 2)
        0.25
    """
    mixed = groups.view(np.uint64) + salt
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)) * 2.0**-53 < share


def group_numbers(secret: bytes, groups: Sequence[str | None], examples: NDArray[Any]) -> list[int]:
    """Return the number of each row's group, from the client's key or else from the input.

    Args:
        secret: The database's 32 secret bytes.
        groups: N keys, each may be None.
        examples: N inputs, of any shape and dtype.
    """
    content = np.ascontiguousarray(examples).reshape(len(groups), math.prod(examples.shape[1:])).view(np.uint8)
    # SHA-256, for which processors have instructions, after a block with the secret. With such a digest one could
    # extend the input, but none leaves this function.
    keyed = hashlib.sha256(secret.ljust(64, b"\0"))

    def digest(row: int) -> bytes:
        found = keyed.copy()
        found.update(content[row].data)
        return found.digest()

    return [group_hash(secret, digest(row) if group is None else group) for row, group in enumerate(groups)]
