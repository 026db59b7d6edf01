"""Whether a state is whole: no half of anything, every step in the audit log, nothing that was there before changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, select, text

from calibrators import from_dict as calibrator_from_dict
from service.decisions.solved import SolvedPolicy
from service.state.tables import (
    activations,
    audit,
    exposures,
    feedback,
    feedback_batches,
    jobs,
    labelled_rows,
    labelled_sets,
    predictions,
    revisions,
)

APPEND_ONLY = (activations, audit, exposures, revisions)
_AT_ONCE = 500


class History:
    """What the tables that only grow held at the last look; a row that changes or goes is found out."""

    def __init__(self) -> None:
        self._seen: dict[str, list[bytes]] = {table.name: [] for table in APPEND_ONLY}

    def problems(self, connection: Connection) -> list[str]:
        """Return what changed that never may, and remember what there is now."""
        found = []
        for table in APPEND_ONLY:
            rows = [_digest(row) for row in connection.execute(select(table).order_by(*table.primary_key))]
            before = self._seen[table.name]
            if rows[: len(before)] != before:
                found.append(f"rows of {table.name} have changed or gone")
            self._seen[table.name] = rows
        return found


def _digest(row: Sequence[Any]) -> bytes:
    return sha256(repr(tuple(row)).encode()).digest()


def half_done(connection: Connection, model: str) -> list[str]:
    """Return what of a model's state does not fit together."""
    found = [f"audit: {line}" for line in _audit(connection, model)]
    names = set()
    for row in connection.execute(select(revisions).where(revisions.c.model == model)):
        names.add(f"r{row.number}")
        if row.parent is not None and row.parent not in names:
            found.append(f"r{row.number} comes from {row.parent}, which is not there")
        calibrator_from_dict(row.calibrator)
        for document in row.policies.values():
            SolvedPolicy.from_dict(document)
    before: str | None = None
    for move in connection.execute(select(activations).where(activations.c.model == model).order_by("epoch")):
        if not {move.active, move.previous or move.active} <= names:
            found.append(f"epoch {move.epoch} names a revision that is not there")
        if move.active == before:
            found.append(f"epoch {move.epoch} moves from {before} to itself")
        before = move.active
    of_job = Counter(row.report["job"] for row in connection.execute(select(revisions)) if "job" in row.report)
    found += [f"{job} made {count} revisions" for job, count in of_job.items() if count > 1]
    for row in connection.execute(select(jobs)):
        if row.state == "done" and (row.result or {}).get("revision") not in names | {None}:
            found.append(f"the result of j{row.number} names a revision that is not there")
        if row.state in ("done", "failed") and (row.result is None) == (row.error is None):
            found.append(f"j{row.number} has ended with neither a result nor an error, or with both")
    sets = {row.number: row for row in connection.execute(select(labelled_sets))}
    stored: Counter[int] = Counter()
    for row in connection.execute(select(labelled_rows.c.set, labelled_rows.c.rows)):
        stored[row.set] += row.rows
    if set(stored) - set(sets):
        found.append("rows of labelled sets that are not there")
    for number, row in sets.items():
        if not row.whole or stored[number] != row.rows:
            found.append(f"labelled set ls{number} has {stored[number]} of {row.rows} rows")
    batches = set(connection.scalars(select(feedback_batches.c.batch).where(feedback_batches.c.model == model)))
    if set(connection.scalars(select(feedback.c.batch).distinct())) - batches:
        found.append("labels of a request that is not there")
    if connection.engine.dialect.name == "sqlite":
        integrity = connection.execute(text("PRAGMA integrity_check")).scalars().all()
        found += [] if integrity == ["ok"] else [f"SQLite: {line}" for line in integrity]
    return found


def _audit(connection: Connection, model: str) -> list[str]:
    """Compare the audit log with what it is about."""
    entries = connection.execute(select(audit).where(audit.c.model == model)).all()
    of = {
        action: Counter(entry.subject for entry in entries if entry.action == action)
        for action in ("propose", "recalibrate", "upload")
    }
    made = {
        "propose": [f"r{n}" for n in connection.scalars(select(revisions.c.number))],
        "recalibrate": [f"j{n}" for n in connection.scalars(select(jobs.c.number))],
        "upload": [f"ls{n}" for n in connection.scalars(select(labelled_sets.c.number))],
    }
    found = [f"{action}: differs" for action, subjects in made.items() if of[action] != Counter(subjects)]
    moved = [
        (entry.detail["epoch"], entry.subject, entry.detail["from"])
        for entry in entries
        if entry.action in ("activate", "rollback")
    ]
    moves = connection.execute(select(activations).where(activations.c.model == model).order_by("epoch")).all()
    froms = [None, *(move.active for move in moves)]
    if sorted(moved) != [(move.epoch, move.active, before) for move, before in zip(moves, froms, strict=False)]:
        found.append("activations: differ")
    looks = Counter(
        (entry.subject, entry.detail["basis"], entry.detail["scope"], entry.detail["look"])
        for entry in entries
        if entry.action == "look"
    )
    spent = Counter((row.rows, row.basis, row.scope, row.look) for row in connection.execute(select(exposures)))
    return found if looks == spent else [*found, "looks: differ"]


def missing_predictions(connection: Connection, ids: Sequence[str]) -> int:
    """Return how many of these predictions are not there."""
    there = 0
    for start in range(0, len(ids), _AT_ONCE):
        there += len(
            connection.execute(
                select(predictions.c.id).where(predictions.c.id.in_(ids[start : start + _AT_ONCE]))
            ).all()
        )
    return len(ids) - there


def label_counts(connection: Connection) -> Counter[str]:
    """Return how many labels there are of each prediction."""
    return Counter(connection.scalars(select(feedback.c.target)))
