"""Revisions, which never change, and their states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import func, insert, select

from service.decisions.approval import holder
from service.decisions.begun import Made
from service.decisions.revision import Revision
from service.errors import RevisionStateError
from service.state import audit, guards
from service.state.database import Database, now_us
from service.state.guards import Watch
from service.state.numbering import take_number
from service.state.pointers import Pointer, checked_pointer, move, pointer_in
from service.state.revision_rows import (
    ENTRIES,
    FIELDS,
    SELECT,
    Entry,
    Solution,
    check_known,
    number_of,
    revision_in,
    revision_of,
)
from service.state.tables import activations, approvals, challengers, rejections, revisions

_SOLUTIONS_PER_FETCH = 20  # the match is nearly always among the newest

_NEEDED = ("active", "previous", "proposed")
_OF_BASE = ("model", "bundle_id", "bundle_version", "model_digest")
RevisionState = Literal["active", "previous", "proposed", "refused", "rejected", "superseded"]


class RevisionStore:
    """Revisions of all models; every change is one transaction with its audit entry.

    All methods raise StateUnavailableError when the database does not answer.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def propose(self, base: Revision | None = None, **fields: Any) -> Revision:
        """Store a new revision under the model's next id.

        Args:
            base: Revision that becomes its parent, and whose model and bundle it has; None to give these as fields.
            **fields: The other fields of `Revision` except `id`; `created_at` is optional.
        """
        if base is not None:
            fields |= {name: getattr(base, name) for name in _OF_BASE} | {"parent": base.id}
        fields = {"created_at": now_us()} | fields
        with self._database.begin() as connection:
            number = take_number(connection, f"revision/{fields['model']}")
            revision = Revision(id=f"r{number}", **fields)
            row = {name: getattr(revision, name) for name in FIELDS} | {
                "calibrator": revision.calibrator.to_dict(),
                "policies": {key: solved.to_dict() for key, solved in revision.policies.items()},
            }
            connection.execute(insert(revisions).values(number=number, **row))
            detail = {"cause": revision.cause, "gate": revision.gate, "parent": revision.parent}
            audit.append(
                connection, model=revision.model, by=revision.by, action="propose", subject=revision.id, detail=detail
            )
        return revision

    def get(self, model: str, id_: str) -> Revision:
        """Return one revision.

        Raises:
            UnknownRevisionError: The model does not have this revision.
            RevisionStateError: Its calibrator or a policy cannot be read.
        """
        with self._database.connect() as connection:
            return revision_in(connection, model, id_)

    def list(self, model: str, limit: int = 100, before: str | None = None) -> tuple[Entry, ...]:
        """Return a model's newest revisions, newest first.

        Args:
            model: The model.
            limit: Maximum revisions.
            before: Only revisions older than this id (the last id of the previous page).
        """
        query = ENTRIES.where(revisions.c.model == model).order_by(revisions.c.number.desc()).limit(limit)
        if before is not None:
            query = query.where(revisions.c.number < number_of(model, before))
        with self._database.connect() as connection:
            return tuple(Entry(f"r{row.number}", *row[1:]) for row in connection.execute(query))

    def of_job(self, model: str, job_id: str) -> Revision | None:
        """Return the newest revision whose report names the job; None without one."""
        query = SELECT.where(revisions.c.model == model, revisions.c.report["job"].as_string() == job_id)
        with self._database.connect() as connection:
            row = connection.execute(query.order_by(revisions.c.number.desc()).limit(1)).one_or_none()
            return None if row is None else revision_of(row)

    def bundle_versions(self, model: str) -> set[int]:
        """Return the bundle versions of the model's revisions."""
        with self._database.connect() as connection:
            query = select(revisions.c.bundle_version).where(revisions.c.model == model).distinct()
            return set(connection.scalars(query))

    def bundles_needed(self) -> set[tuple[str, int]]:
        """Return model and version of the bundles of all active, previous and proposed revisions and challengers."""
        with self._database.connect() as connection:
            query = select(revisions.c.model, revisions.c.number, revisions.c.bundle_version)
            rows = [(model, f"r{number}", version) for model, number, version in connection.execute(query)]
            beside = set(map(tuple, connection.execute(select(challengers.c.model, challengers.c.revision))))
        states = {model: self.states(model) for model in {row[0] for row in rows}}
        return {
            (model, version)
            for model, id_, version in rows
            if states[model].get(id_) in _NEEDED or (model, id_) in beside
        }

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
        with self._database.connect() as connection, connection.execute(query) as rows:
            for row in rows:
                yield Solution(f"r{row.number}", row.parent, row.cause, row.calibrator, row.policies)

    def made(self, model: str) -> tuple[Made, ...]:
        """Return what the promises of a model's revisions depend on, oldest first."""
        columns = (revisions.c.number, revisions.c.bundle_id, revisions.c.created_at)
        query = select(*columns, revisions.c.calibrator, revisions.c.policies).where(revisions.c.model == model)
        with self._database.connect() as connection:
            rows = connection.execute(query.order_by(revisions.c.number))
            return tuple(Made(f"r{row.number}", *row[1:]) for row in rows)

    def activations(self, model: str) -> tuple[tuple[int, str], ...]:
        """Return when revisions of a model became active, in microseconds since the epoch, and their ids, in order."""
        query = select(activations.c.at, activations.c.active).where(activations.c.model == model)
        with self._database.connect() as connection:
            return tuple((row.at, row.active) for row in connection.execute(query.order_by(activations.c.epoch)))

    def new_policy_version(self, model: str, policy: str) -> int:
        """Return a new, unique version of a policy."""
        with self._database.begin() as connection:
            return take_number(connection, f"policy/{model}/{policy}")

    def states(self, model: str) -> dict[str, RevisionState]:
        """Return the state of every revision of a model.

        active and previous come from the pointer; superseded was active once; refused failed its gate and rejected was
        rejected by a person, neither ever active; proposed is every other.
        """
        with self._database.connect() as connection:
            pointer = pointer_in(connection, model)
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

    def reject(self, model: str, id_: str, *, by: str, reason: str) -> None:
        """Reject a proposal: it does not change, but activating it then requires a reason.

        Raises:
            UnknownRevisionError: The model does not have this revision.
            RevisionStateError: It was active, or is already rejected.
        """
        with self._database.begin() as connection:
            take_number(connection, f"rejection/{model}")  # of two at once, the second sees the first
            check_known(connection, model, id_)
            of_it = (activations.c.model == model, activations.c.active == id_)
            used = connection.execute(select(activations.c.epoch).where(*of_it).limit(1)).first() is not None
            same = (rejections.c.model == model, rejections.c.revision == id_)
            if used or connection.execute(select(rejections.c.at).where(*same)).first() is not None:
                raise RevisionStateError(
                    f"Revision {id_} of {model} is not an open proposal.",
                    found="it was active" if used else "already rejected",
                    expected="a proposal",
                    remedy="If it is active, roll back instead." if used else None,
                )
            row = {"model": model, "revision": id_, "at": now_us(), "by": by, "reason": reason}
            connection.execute(insert(rejections).values(**row))
            audit.append(connection, model=model, by=by, action="reject", subject=id_, detail={"reason": reason})

    def approve(self, model: str, id_: str, *, by: str, by_key: str | None, reason: str | None) -> bool:
        """Record that a key wants a revision active; return whether a key of another person wants it too.

        Args:
            model: The model.
            id_: The revision.
            by: Name of the key. Keys of one name are one person's, however it is spelled.
            by_key: Prefix of the key; None without one.
            reason: Reason for the audit log.
        """
        with self._database.begin() as connection:
            take_number(connection, f"approval/{model}")  # of two at once, the second sees the first
            of_it = (approvals.c.model == model, approvals.c.revision == id_)
            found = {holder(row.by): row.by_key for row in connection.execute(select(approvals).where(*of_it))}
            own = holder(by)
            if own not in found:
                row = {"model": model, "revision": id_, "by": by, "by_key": by_key, "at": now_us(), "reason": reason}
                connection.execute(insert(approvals).values(**row))
                audit.append(connection, model=model, by=by, action="approve", subject=id_, detail={"reason": reason})
        return any(name != own and (key is None or key != by_key) for name, key in found.items())

    def pointer(self, model: str) -> Pointer | None:
        """Return the model's pointer; None before its first activation."""
        with self._database.connect() as connection:
            return pointer_in(connection, model)

    def pointers(self) -> dict[str, Pointer]:
        """Return all pointers by model."""
        newest = select(func.max(activations.c.epoch)).group_by(activations.c.model)
        query = select(activations).where(activations.c.epoch.in_(newest))
        with self._database.connect() as connection:
            return {row.model: Pointer(row.active, row.previous, row.epoch) for row in connection.execute(query)}

    def check_epoch(self, model: str, expected: int) -> None:
        """Refuse a change with the wrong epoch.

        Raises:
            EpochStaleError: The epoch moved on; `found` is the current one, `expected` the caller's.
        """
        with self._database.connect() as connection:
            checked_pointer(connection, model, expected)

    def epoch(self) -> int:
        """Return the largest epoch of any model (0 before the first activation), cheaply enough to poll."""
        with self._database.connect() as connection:
            return int(connection.execute(select(func.max(activations.c.epoch))).scalar() or 0)

    def activate(
        self,
        model: str,
        id_: str,
        *,
        expected_epoch: int | None,
        by: str,
        reason: str | None = None,
        accepted: Sequence[str] = (),
        watch: Watch | None = None,
    ) -> Pointer:
        """Activate a revision; among concurrent calls with the same epoch exactly one succeeds.

        Args:
            model: The model.
            id_: The revision.
            expected_epoch: The pointer's epoch as the caller read it, 0 without a pointer; None skips the check, for a
                model's first activation only.
            by: Actor.
            reason: Reason for the audit log.
            accepted: Changes of the traffic that the actor accepts, for the audit log.
            watch: The guard to start with it; None for none, as for a first activation.

        Raises:
            EpochStaleError: The epoch moved on; `found` is the current one, `expected` the caller's.
            EpochRequiredError: No epoch was given, and the model has an active revision already.
            UnknownRevisionError: The model does not have this revision.
            RevisionStateError: It is already active.
        """
        with self._database.begin() as connection:
            epoch = take_number(connection, "epoch")
            pointer = checked_pointer(connection, model, expected_epoch)
            check_known(connection, model, id_)
            if pointer is not None and pointer.active == id_:
                raise RevisionStateError(
                    f"Revision {id_} of {model} is already active.", found="active", expected="any other state"
                )
            moved = Pointer(id_, pointer.active if pointer else None, epoch)
            detail: dict[str, Any] = {"accepted": list(accepted)} if accepted else {}
            if watch is not None:
                detail["guard"] = {"window": watch.window_us / 1e6, "max_change": watch.max_change}
            move(connection, model, moved, by=by, action="activate", reason=reason, from_=pointer, detail=detail)
            if watch is not None and moved.previous is not None:
                guards.begin(connection, model, watch, epoch=epoch, revision=id_, previous=moved.previous)
        return moved

    def rollback(
        self,
        model: str,
        *,
        expected_epoch: int | None,
        by: str,
        reason: str | None = None,
        guard: Mapping[str, Any] | None = None,
    ) -> Pointer:
        """Activate the pointer's `previous`; a second rollback goes back one further, never forward.

        Args:
            model: The model.
            expected_epoch: The pointer's epoch as the caller read it.
            by: Actor.
            reason: Reason for the audit log.
            guard: Document of the guard that is the cause; None without one.

        Raises:
            EpochStaleError: The epoch moved on; `found` is the current one, `expected` the caller's.
            EpochRequiredError: The epoch is missing.
            RevisionStateError: The model has no previous revision.
        """
        with self._database.begin() as connection:
            epoch = take_number(connection, "epoch")
            pointer = checked_pointer(connection, model, expected_epoch)
            if pointer is None or pointer.previous is None:
                raise RevisionStateError(
                    f"{model} has no previous revision.",
                    found="no previous revision",
                    expected="a revision that was active before the current one",
                    remedy="Activate a revision by its id instead.",
                )
            before = (
                select(activations.c.previous)
                .where(activations.c.model == model, activations.c.active == pointer.previous)
                .order_by(activations.c.epoch.desc())
                .limit(1)
            )
            moved = Pointer(pointer.previous, connection.execute(before).scalar_one(), epoch)
            if guard is not None:
                guards.fire(connection, model, pointer.epoch, guard)
            detail = {"cause": "guard"} if guard is not None else {}
            move(connection, model, moved, by=by, action="rollback", reason=reason, from_=pointer, detail=detail)
        return moved
