"""Revisions, the pointer that says which one is active, and the count of looks at held-out rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Row, and_, func, insert, select

from service.errors import EpochRequiredError, EpochStaleError, RevisionStateError, UnknownRevisionError
from service.revision import Basis, Revision
from service.state import audit
from service.state.database import SET_BACK_US, Database, now_us
from service.state.numbering import number_in, take_number
from service.state.tables import activations, exposures, feedback_batches, rejections, revisions

_SOLUTIONS_PER_FETCH = 20  # the one that is looked for is nearly always among the newest

RevisionState = Literal["active", "previous", "proposed", "refused", "rejected", "superseded"]


@dataclass(frozen=True, slots=True)
class Pointer:
    """Which revision of a model is active.

    Attributes:
        active: Id of the active revision.
        previous: Id of the revision that a rollback goes to, None when there is none.
        epoch: Grows with every activation and rollback of any model.
    """

    active: str
    previous: str | None
    epoch: int


@dataclass(frozen=True, slots=True)
class Solution:
    """A revision's solved policies and what they were solved with, without its report."""

    id: str
    parent: str | None
    cause: str
    calibrator: dict[str, Any]
    policies: dict[str, dict[str, Any]]


class RevisionStore:
    """Revisions of all models; every change is one transaction with its audit entry.

    All methods raise StateUnavailableError when the database does not answer.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def propose(self, **fields: Any) -> Revision:
        """Store a new revision under the model's next id.

        Args:
            **fields: What `Revision` takes, without `id` and, if now will do, without `created_at`.
        """
        fields = {"created_at": now_us()} | fields
        with self._database.begin() as connection:
            number = take_number(connection, f"revision/{fields['model']}")
            revision = Revision(id=f"r{number}", **fields)
            row = {name: getattr(revision, name) for name in _FIELDS}
            connection.execute(insert(revisions).values(number=number, **row))
            detail = {"cause": revision.cause, "gate": revision.gate, "parent": revision.parent}
            audit.append(
                connection, model=revision.model, by=revision.by, action="propose", subject=revision.id, detail=detail
            )
        return revision

    def get(self, model: str, id: str) -> Revision:  # noqa: A002
        """Return one revision.

        Raises:
            UnknownRevisionError: The model has none of that id.
        """
        with self._database.connect() as connection:
            return _get(connection, model, id)

    def list(self, model: str, limit: int = 100, before: str | None = None) -> tuple[Revision, ...]:
        """Return a model's newest revisions, newest first.

        Args:
            model: The model.
            limit: At most so many.
            before: Only revisions older than this id: the last id of the page before.
        """
        query = _SELECT.where(revisions.c.model == model).order_by(revisions.c.number.desc()).limit(limit)
        if before is not None:
            query = query.where(revisions.c.number < _number(model, before))
        with self._database.connect() as connection:
            return tuple(_revision(row) for row in connection.execute(query))

    def of_job(self, model: str, job_id: str) -> Revision | None:
        """Return the newest revision whose report names the job, None when there is none."""
        query = _SELECT.where(revisions.c.model == model, revisions.c.report["job"].as_string() == job_id)
        with self._database.connect() as connection:
            row = connection.execute(query.order_by(revisions.c.number.desc()).limit(1)).one_or_none()
            return None if row is None else _revision(row)

    def bundle_versions(self, model: str) -> set[int]:
        """Return the versions of the bundles that the model's revisions were made from."""
        with self._database.connect() as connection:
            query = select(revisions.c.bundle_version).where(revisions.c.model == model).distinct()
            return set(connection.scalars(query))

    def solutions(self, model: str, bundle_id: str) -> Iterator[Solution]:
        """Yield the solved policies of a bundle's revisions, newest first."""
        columns = (
            revisions.c.number,
            revisions.c.parent,
            revisions.c.cause,
            revisions.c.calibrator,
            revisions.c.policies,
        )
        query = select(*columns).where(revisions.c.model == model, revisions.c.bundle_id == bundle_id)
        query = query.order_by(revisions.c.number.desc()).execution_options(yield_per=_SOLUTIONS_PER_FETCH)
        with self._database.connect() as connection:
            for row in connection.execute(query):
                yield Solution(f"r{row.number}", row.parent, row.cause, row.calibrator, row.policies)

    def new_policy_version(self, model: str, policy: str) -> int:
        """Return the next version of a policy, given to nobody else."""
        with self._database.begin() as connection:
            return take_number(connection, f"policy/{model}/{policy}")

    def states(self, model: str) -> dict[str, RevisionState]:
        """Return the state of every revision of a model.

        active and previous are what the pointer says; superseded was active once; refused did not pass its gate and was
        never active; rejected was turned down and never active; proposed is every other.
        """
        with self._database.connect() as connection:
            pointer = _pointer(connection, model)
            rows = connection.execute(select(revisions.c.number, revisions.c.gate).where(revisions.c.model == model))
            gates = {f"r{number}": gate for number, gate in rows}
            rejected = set(connection.scalars(select(rejections.c.revision).where(rejections.c.model == model)))
            used = set(connection.scalars(select(activations.c.active).where(activations.c.model == model)))
        states: dict[str, RevisionState] = {}
        for id_, gate in gates.items():
            if pointer is not None and id_ == pointer.active:
                states[id_] = "active"
            elif pointer is not None and id_ == pointer.previous:
                states[id_] = "previous"
            elif id_ in used:
                states[id_] = "superseded"
            elif id_ in rejected:
                states[id_] = "rejected"
            else:
                states[id_] = "refused" if gate == "refused" else "proposed"
        return states

    def reject(self, model: str, id: str, *, by: str, reason: str) -> Revision:  # noqa: A002
        """Turn a proposal down: it stays as it is, and takes a reason to be activated all the same.

        Raises:
            UnknownRevisionError: The model has none of that id.
            RevisionStateError: It was in service, or has been rejected already.
        """
        with self._database.begin() as connection:
            take_number(connection, f"rejection/{model}")  # of two at once, the second sees the first
            revision = _get(connection, model, id)
            of_it = (activations.c.model == model, activations.c.active == id)
            used = connection.execute(select(activations.c.epoch).where(*of_it).limit(1)).first() is not None
            same = (rejections.c.model == model, rejections.c.revision == id)
            if used or connection.execute(select(rejections.c.at).where(*same)).first() is not None:
                raise RevisionStateError(
                    f"Revision {id} of {model} is no proposal that could be rejected.",
                    found="it was in service" if used else "rejected already",
                    expected="a proposal",
                    remedy="Roll back to take it out of service." if used else None,
                )
            row = {"model": model, "revision": id, "at": now_us(), "by": by, "reason": reason}
            connection.execute(insert(rejections).values(**row))
            audit.append(connection, model=model, by=by, action="reject", subject=id, detail={"reason": reason})
        return revision

    def pointer(self, model: str) -> Pointer | None:
        """Return the model's pointer, None before its first activation."""
        with self._database.connect() as connection:
            return _pointer(connection, model)

    def pointers(self) -> dict[str, Pointer]:
        """Return the pointer of every model that has one."""
        newest = select(func.max(activations.c.epoch)).group_by(activations.c.model)
        query = select(activations).where(activations.c.epoch.in_(newest))
        with self._database.connect() as connection:
            return {row.model: Pointer(row.active, row.previous, row.epoch) for row in connection.execute(query)}

    def check_epoch(self, model: str, expected: int) -> None:
        """Refuse a change that is based on another epoch than the model's, before anything is done for it.

        Raises:
            EpochStaleError: The epoch moved on; `found` is the current one, `expected` the caller's.
        """
        with self._database.connect() as connection:
            _check_epoch(connection, model, expected)

    def epoch(self) -> int:
        """Return the largest epoch of any model, 0 before the first activation: cheap, for polling."""
        with self._database.connect() as connection:
            return int(connection.execute(select(func.max(activations.c.epoch))).scalar() or 0)

    def activate(
        self,
        model: str,
        id: str,  # noqa: A002
        *,
        expected_epoch: int | None,
        by: str,
        reason: str | None = None,
    ) -> Pointer:
        """Make a revision the active one; of several that expect the same epoch, exactly one succeeds.

        Args:
            model: The model.
            id: The revision.
            expected_epoch: The pointer's epoch as the caller saw it, 0 where there was no pointer. None does not check,
                and is only for the first activation of a model.
            by: Who does it.
            reason: Why, for the audit log.

        Raises:
            EpochStaleError: The epoch moved on; `found` is the current one, `expected` the caller's.
            EpochRequiredError: No epoch was given, and the model has an active revision already.
            UnknownRevisionError: The model has none of that id.
            RevisionStateError: It is the active one already.
        """
        with self._database.begin() as connection:
            epoch = take_number(connection, "epoch")
            pointer = _check_epoch(connection, model, expected_epoch)
            _get(connection, model, id)
            if pointer is not None and pointer.active == id:
                raise RevisionStateError(
                    f"Revision {id} of {model} is active already.", found="active", expected="any other state"
                )
            moved = Pointer(id, pointer.active if pointer else None, epoch)
            _move(connection, model, moved, by=by, action="activate", reason=reason, from_=pointer)
        return moved

    def rollback(self, model: str, *, expected_epoch: int | None, by: str, reason: str | None = None) -> Pointer:
        """Go back to the pointer's `previous`; a second rollback goes back one further, never forward again.

        Args:
            model: The model.
            expected_epoch: The pointer's epoch as the caller saw it.
            by: Who does it.
            reason: Why, for the audit log.

        Raises:
            EpochStaleError: The epoch moved on; `found` is the current one, `expected` the caller's.
            EpochRequiredError: No epoch was given.
            RevisionStateError: There is nothing to go back to.
        """
        with self._database.begin() as connection:
            epoch = take_number(connection, "epoch")
            pointer = _check_epoch(connection, model, expected_epoch)
            if pointer is None or pointer.previous is None:
                raise RevisionStateError(
                    f"{model} has no earlier revision to go back to.",
                    found="no previous revision",
                    expected="a revision that was active before the present one",
                    remedy="Activate a revision by its id instead.",
                )
            before = (
                select(activations.c.previous)
                .where(activations.c.model == model, activations.c.active == pointer.previous)
                .order_by(activations.c.epoch.desc())
                .limit(1)
            )
            moved = Pointer(pointer.previous, connection.execute(before).scalar_one(), epoch)
            _move(connection, model, moved, by=by, action="rollback", reason=reason, from_=pointer)
        return moved

    def expose(
        self,
        model: str,
        model_digest: str,
        rows: Literal["gate", "certify"],
        basis: Basis,
        scope: str,
        *,
        earliest_row_us: int,
        at: int,
        by: str = "system",
    ) -> int:
        """Record that held-out rows are about to be shown, and return the number of this look (STATISTICS.md, "Looks").

        An earlier look may have shown some of these rows unless it came before the oldest of them; the number of a set
        of rows thus never falls, whatever else is looked at in between. Call it before the result is computed: whoever
        sees it has spent the look.

        Reference rows are a model file's own. Labels of the traffic, or of an upload, stay the same labels whichever
        model file scores their inputs, so that looks at these count over all of a model's files.

        Args:
            model: The model.
            model_digest: What made the rows' logits.
            rows: Role of the rows.
            basis: Where the rows come from.
            scope: What the rows are looked at for: a policy's positive class; "" for the gate.
            earliest_row_us: Time of the oldest row shown; 0 for reference rows, of which every look counts.
            at: Time of this look.
            by: For whom.

        Returns:
            1 + the number of earlier looks at this model, role, basis and scope, and for reference rows at this
            digest, that were not before `earliest_row_us`.
        """
        key = {"model": model, "model_digest": model_digest, "rows": rows, "basis": basis, "scope": scope}
        counted = key if basis == "reference" else {name: key[name] for name in key if name != "model_digest"}
        same = and_(*(exposures.c[name] == value for name, value in counted.items()))
        with self._database.begin() as connection:
            take_number(connection, f"exposure/{model}")
            last = connection.execute(select(func.max(exposures.c.at)).where(same)).scalar()
            # A clock that was set back makes no row fresh: neither one of an earlier look, nor one labelled since.
            received = feedback_batches.c.received_at
            known = (feedback_batches.c.model == model, received <= at + SET_BACK_US)
            labelled = connection.execute(select(func.max(received)).where(*known)).scalar()
            at = max(at, last or 0, labelled or 0)
            count = select(func.count()).where(same, exposures.c.at >= earliest_row_us)
            look = connection.execute(count).scalar_one() + 1
            connection.execute(insert(exposures).values(**key, look=look, earliest_row=earliest_row_us, at=at))
            detail = {"basis": basis, "scope": scope, "model_digest": model_digest, "look": look}
            audit.append(connection, model=model, by=by, action="look", subject=rows, detail=detail)
        return look


_FIELDS = tuple(field.name for field in dataclasses.fields(Revision) if field.name != "id")
_SELECT = select(revisions.c.number, *(revisions.c[name] for name in _FIELDS))


def _revision(row: Row[Any]) -> Revision:
    return Revision(f"r{row.number}", **{name: getattr(row, name) for name in _FIELDS})


def _number(model: str, id_: str) -> int:
    number = number_in("r", id_)
    if number is None:
        raise UnknownRevisionError(f"{model} has no revision {id_}.", found=id_, expected='"r" and a number')
    return number


def _get(connection: Connection, model: str, id_: str) -> Revision:
    query = _SELECT.where(revisions.c.model == model, revisions.c.number == _number(model, id_))
    row = connection.execute(query).one_or_none()
    if row is None:
        raise UnknownRevisionError(
            f"{model} has no revision {id_}.", found=id_, remedy=f"List the revisions of {model} to see those it has."
        )
    return _revision(row)


def _pointer(connection: Connection, model: str) -> Pointer | None:
    query = (
        select(activations.c.active, activations.c.previous, activations.c.epoch)
        .where(activations.c.model == model)
        .order_by(activations.c.epoch.desc())
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else Pointer(row.active, row.previous, row.epoch)


def _check_epoch(connection: Connection, model: str, expected: int | None) -> Pointer | None:
    """Return the pointer when it is the one that the caller saw; the caller has locked the epoch."""
    pointer = _pointer(connection, model)
    found = pointer.epoch if pointer else 0
    if expected is None:
        if pointer is not None:
            raise EpochRequiredError(
                f"{model} has an active revision, so a change must name the epoch that it is based on.",
                found="no epoch",
                expected=found,
                remedy="Read the model's revisions, and send their ETag as If-Match.",
            )
    elif expected != found:
        raise EpochStaleError(
            f"{model} is at epoch {found}, the request is based on epoch {expected}.",
            found=found,
            expected=expected,
            remedy="Read the model's revisions again, and decide anew.",
        )
    return pointer


def _move(
    connection: Connection,
    model: str,
    to: Pointer,
    *,
    by: str,
    action: str,
    reason: str | None,
    from_: Pointer | None,
) -> None:
    row = {"model": model, "active": to.active, "previous": to.previous, "epoch": to.epoch}
    connection.execute(insert(activations).values(**row, at=now_us(), by=by, reason=reason))
    detail = {"epoch": to.epoch, "from": from_.active if from_ else None, "reason": reason}
    audit.append(connection, model=model, by=by, action=action, subject=to.active, detail=detail)
