"""The review queue: claims with leases, and their ends.

A case has one row, which every change locks, and each change names the state that it expects. So if two people act on
one case, one of them is refused, whichever replicas they use. A claim is a time in that row, so it ends by itself if a
process dies.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, Connection, Row, and_, case, false, func, or_, select, true, tuple_, update

from service.errors import CaseStateError, UnknownCaseError
from service.ids import is_prediction_id
from service.places import in_body
from service.state import audit
from service.state.database import Database, now_us
from service.state.tables import cases, feedback, origins, predictions
from service.times import iso

Order = Literal["priority", "due"]
State = Literal["open", "claimed", "labelled", "skipped"]
_IDS_PER_QUERY: Final = 2_000
REVIEWER: Final = "reviewer"
"""Source of the labels that people give to cases."""
_WAITS: Final = cases.c.done_at.is_(None)
_PLACES: Final = {"priority": cases.c.place, "due": cases.c.due_at}
_NOTHING: Final = dict.fromkeys(("outcome", "label", "reason", "done_by", "done_at", "claimed_by", "lease_until"))
_REOPENED: Final = {**_NOTHING, "lease": cases.c.lease + 1}


@dataclass(frozen=True, slots=True)
class Case:
    """A case with its prediction; times are microseconds since the epoch, UTC.

    Attributes:
        id: Id of the prediction.
        policy: Policy that decided.
        selected: Why its label is sought: "all", "ranked", "random" or "explored".
        created_at: When the prediction was made.
        due_at: When the case is overdue.
        cluster: Keyed hash of its group.
        place: Place in the queue by priority, smallest first.
        probability: Probability of the positive class; for "top", of a wrong answer.
        amount: Amount at stake; None if unknown.
        assignee: Whom it is reserved for.
        claimed_by: Who claimed it last; None if the claim was ended.
        lease_until: When the claim expires.
        lease: Number of claims and releases so far.
        outcome: "labelled", "skipped", or None while it waits.
        label: Label that closed it.
        reason: Why it was skipped.
        done_by: Who labelled or skipped it.
        done_at: When.
        reasons: Why the row got its probability, as the contract has it; None if not kept.
        model_digest: Digest of the model that predicted.
        revision: Revision that predicted.
        reference: The client's reference.
        segment: The client's segment.
        action: Action of the prediction.
        predicted: Index of the predicted label.
        confidence: Its probability.
        propensity: Probability that the label was sought.
    """

    id: str
    policy: str
    selected: str
    created_at: int
    due_at: int
    cluster: int
    place: float
    probability: float
    amount: float | None
    assignee: str | None
    claimed_by: str | None
    lease_until: int | None
    lease: int
    outcome: Literal["labelled", "skipped"] | None
    label: str | None
    reason: str | None
    done_by: str | None
    done_at: int | None
    reasons: dict[str, Any] | None = None
    model_digest: str | None = None
    revision: str | None = None
    reference: str | None = None
    segment: str | None = None
    action: str | None = None
    predicted: int | None = None
    confidence: float | None = None
    propensity: float | None = None

    def state(self, now: int) -> State:
        """Return its state at a time; an expired claim is open."""
        if self.outcome is not None:
            return self.outcome
        return "claimed" if (self.lease_until or 0) > now else "open"


@dataclass(frozen=True, slots=True)
class Counts:
    """Waiting cases of a model, of these the claimed and the overdue ones, and the time of the earliest prediction."""

    waiting: int = 0
    claimed: int = 0
    overdue: int = 0
    oldest_at: int | None = None


_OWN: Final = [column for column in cases.c if column.name not in ("model", "told")]
_LOGGED: Final = {
    "reference": predictions.c.reference,
    "segment": predictions.c.segment,
    "action": predictions.c.action,
    "predicted": predictions.c.label,
    "confidence": predictions.c.confidence,
    "propensity": predictions.c.propensity,
}


class CaseStore:
    """Cases of all models. All methods raise StateUnavailableError when the database does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(
        self,
        model: str,
        *,
        state: State | None,
        order: Order,
        limit: int,
        after: tuple[float, str] | None = None,
        policy: str | None = None,
        assignee: str | None = None,
    ) -> list[Case]:
        """Return a page of cases: those that wait in order, the others by the time of their end, oldest first.

        Args:
            model: The model.
            state: Only cases in this state; None for all that wait.
            order: Order of those that wait.
            limit: Maximum number.
            after: Place and id of the last case of the page before; see `place_of`.
            policy: Only cases of this policy.
            assignee: Only cases reserved for this person.
        """
        now = now_us()
        where: list[ColumnElement[bool]] = [cases.c.model == model]
        if state in ("labelled", "skipped"):
            place: ColumnElement[Any] = cases.c.done_at
            where += [cases.c.done_at.is_not(None), cases.c.outcome == state]
        else:
            place = _PLACES[order]
            where.append(_WAITS)
        if state in ("open", "claimed"):
            where.append(_free(now) if state == "open" else cases.c.lease_until > now)
        where += [cases.c[name] == value for name, value in (("policy", policy), ("assignee", assignee)) if value]
        if after is not None:
            where.append(tuple_(place, cases.c.id) > after)
        with self._database.connect() as connection:
            query = select(*_OWN).where(*where).order_by(place, cases.c.id).limit(limit)
            return _with_predictions(connection, connection.execute(query).all())

    def get(self, model: str, id_: str) -> Case:
        """Return a case.

        Raises:
            UnknownCaseError: The model has no such case.
        """
        with self._database.connect() as connection:
            return _read(connection, model, id_)

    def earlier(self, model: str, of: Case, limit: int) -> list[Case]:
        """Return the latest other cases of a case's group, newest first."""
        same = (cases.c.cluster == of.cluster, cases.c.id != of.id, cases.c.model == model)
        with self._database.connect() as connection:
            query = select(*_OWN).where(*same).order_by(cases.c.id.desc()).limit(limit)
            return [Case(**row._asdict()) for row in connection.execute(query)]

    def claim_next(
        self, model: str, by: str, *, count: int, lease_us: int, policy: str | None = None, order: Order = "priority"
    ) -> list[Case]:
        """Claim cases: first those assigned to the caller, then others that nobody has, in order.

        Cases that another transaction is claiming are passed over. Cases that were labelled before they were logged are
        closed.

        Args:
            model: The model.
            by: Who claims.
            count: Maximum number.
            lease_us: Duration of the claim.
            policy: Only cases of this policy.
            order: Which come first.
        """
        now = now_us()
        free = [cases.c.model == model, _WAITS, _free(now)] + ([cases.c.policy == policy] if policy else [])
        place = _PLACES[order]
        ids: list[str] = []
        with self._database.begin() as connection:
            for assigned in (cases.c.assignee == by, cases.c.assignee.is_(None)):
                while len(ids) < count:
                    query = select(cases.c.id, cases.c.lease).where(*free, assigned, cases.c.id.not_in(ids))
                    first = query.order_by(place, cases.c.id).limit(count - len(ids))
                    found = connection.execute(first.with_for_update(skip_locked=True)).all()
                    labelled = _labels_of(connection, model, [id_ for id_, lease in found if lease == 0])
                    close_labelled(connection, labelled, now)
                    ids += [id_ for id_, _ in found if id_ not in labelled]
                    if not found:
                        break
            _claim(connection, cases.c.id.in_(ids), by, now + lease_us)
            rows = connection.execute(select(*_OWN).where(cases.c.id.in_(ids)).order_by(place, cases.c.id)).all()
            return _with_predictions(connection, rows)

    def claim(self, model: str, id_: str, by: str, *, lease_us: int) -> Case:
        """Claim a case, or extend the caller's claim, which keeps its number.

        Raises:
            UnknownCaseError: The model has no such case.
            CaseStateError: Someone else has it, or it is done.
        """
        now = now_us()
        with self._database.begin() as connection:
            this = _this(model, id_)
            extended = and_(this, _WAITS, cases.c.claimed_by == by, cases.c.lease_until > now)
            held = connection.execute(update(cases).where(extended).values(lease_until=now + lease_us)).rowcount
            if not held and not _claim(connection, and_(this, _WAITS, _available(by, now)), by, now + lease_us):
                raise _refusal(_read(connection, model, id_), by, now)
            return _read(connection, model, id_)

    def skip(
        self,
        model: str,
        id_: str,
        by: str,
        *,
        reason: str,
        lease: int | None = None,
        reasons: Mapping[str, Any] | None = None,
        again: bool = True,
    ) -> Case:
        """End a case without a label, and keep why its row got its probability.

        Without `again`, a case that has ended stays as it is: the caller may not have seen its end.

        Raises:
            UnknownCaseError: The model has no such case.
            CaseStateError: Someone else has it, it is labelled or was before it was reopened, or `lease` is not its
                latest.
        """
        now = now_us()
        ended = and_(cases.c.outcome == "skipped", cases.c.done_by == by, true() if again else cases.c.reason == reason)
        mine = or_(and_(_WAITS, _available(by, now)), ended)
        end: dict[str, Any] = {
            "outcome": "skipped",
            "reason": reason,
            "done_by": by,
            "done_at": now,
            "lease_until": None,
        }
        end |= {"reasons": reasons} if reasons else {}
        with self._database.begin() as connection:
            _change(connection, model, id_, by, lease, mine, end, now)
            _refuse_labelled(connection, model, id_)
            return _read(connection, model, id_)

    def release(self, model: str, id_: str, by: str, *, lease: int | None = None, again: bool = True) -> Case:
        """Give the caller's claim back, or reopen a case that the caller labelled or skipped. Its label stays stored.

        Without `again`, only give a claim back.

        Raises:
            UnknownCaseError: The model has no such case.
            CaseStateError: The caller neither holds nor ended it, or `lease` is not its latest.
        """
        now = now_us()
        mine = or_(and_(_WAITS, cases.c.claimed_by == by), cases.c.done_by == by if again else false())
        with self._database.begin() as connection:
            _change(connection, model, id_, by, lease, mine, _REOPENED, now)
            return _read(connection, model, id_)

    def assign(self, model: str, id_: str, to: str | None, *, by: str) -> Case:
        """Reserve a waiting case for a person; None for anyone. A claim stays. The audit log keeps it.

        Raises:
            UnknownCaseError: The model has no such case.
            CaseStateError: It is done.
        """
        with self._database.begin() as connection:
            _change(connection, model, id_, by, None, _WAITS, {"assignee": to}, now_us())
            audit.append(connection, model=model, by=by, action="assign", subject=id_, detail={"to": to})
            return _read(connection, model, id_)

    def label_within(
        self,
        connection: Connection,
        model: str,
        id_: str,
        by: str,
        *,
        label: str,
        lease: int | None = None,
        reasons: Mapping[str, Any] | None = None,
        again: bool = True,
    ) -> None:
        """End a case with a label, in the transaction that stores the label; with `again`, also to correct one's own.

        `reasons` say why the row got its probability; they are kept.

        Raises:
            UnknownCaseError: The model has no such case.
            CaseStateError: Someone else has it or ended it, or `lease` is not its latest.
        """
        now = now_us()
        ended = and_(cases.c.done_by == by, true() if again else cases.c.label == label)
        mine = or_(and_(_WAITS, _available(by, now)), ended)
        end: dict[str, Any] = {
            "outcome": "labelled",
            "label": label,
            "reason": None,
            "done_by": by,
            "done_at": now,
            "lease_until": None,
        }
        end |= {"reasons": reasons} if reasons else {}
        _change(connection, model, id_, by, lease, mine, end, now)

    def counts(self) -> dict[str, Counts]:
        """Return the counts of every model with waiting cases."""
        now = now_us()

        def number(condition: ColumnElement[bool]) -> ColumnElement[int]:
            return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)

        query = select(
            cases.c.model,
            func.count(),
            number(cases.c.lease_until > now),
            number(cases.c.due_at < now),
            func.min(cases.c.created_at),
        )
        with self._database.connect() as connection:
            rows = connection.execute(query.where(_WAITS).group_by(cases.c.model))
            return {name: Counts(*map(int, numbers)) for name, *numbers in rows}


def by_time(state: State | None, order: Order) -> bool:
    """Return whether pages are in the order of a time, so that places are integers."""
    return order == "due" or state in ("labelled", "skipped")


def place_of(found: Case, state: State | None, order: Order) -> tuple[float, str]:
    """Return the place of a case in a page, for the next one."""
    if state in ("labelled", "skipped"):
        return found.done_at or 0, found.id
    return (found.place if order == "priority" else found.due_at), found.id


def close_labelled(connection: Connection, labels: Mapping[str, tuple[str, str]], at: int) -> None:
    """End the waiting cases of predictions that got a label by another way.

    Args:
        connection: Inside a write transaction.
        labels: Label and its sender by prediction id.
        at: Time of the label.
    """
    ids = sorted(labels)
    for start in range(0, len(ids), _IDS_PER_QUERY):
        part = cases.c.id.in_(ids[start : start + _IDS_PER_QUERY])
        for id_ in connection.scalars(select(cases.c.id).where(part, _WAITS)).all():
            label, by = labels[id_]
            end = {"outcome": "labelled", "label": label, "done_by": by, "done_at": at, "lease_until": None}
            connection.execute(update(cases).where(cases.c.id == id_, _WAITS).values(end))


def _labels_of(connection: Connection, model: str, ids: Collection[str]) -> dict[str, tuple[str, str]]:
    """Return the labels, and their sources, that some predictions have."""
    if not ids:
        return {}
    names = select(predictions.c.id, predictions.c.reference).where(predictions.c.id.in_(ids))
    targets = {(0, id_): [id_] for id_ in ids}
    for id_, reference in connection.execute(names):
        if reference is not None:
            targets.setdefault((1, reference), []).append(id_)
    found: dict[str, tuple[str, str]] = {}
    for kind in (0, 1):
        keys = [key for by_reference, key in targets if by_reference == kind]
        query = select(feedback.c.target, feedback.c.label, feedback.c.source).where(
            feedback.c.model == model, feedback.c.by_reference == kind, feedback.c.target.in_(keys)
        )
        for target, label, source in connection.execute(query):
            found |= dict.fromkeys(targets[kind, target], (label, source))
    return found


def _refuse_labelled(connection: Connection, model: str, id_: str) -> None:
    """Refuse to leave a case without a label while one that a reviewer gave it is in force."""
    given = select(feedback.c.label).where(
        feedback.c.target == id_,
        feedback.c.by_reference == 0,
        feedback.c.model == model,
        feedback.c.source == REVIEWER,
    )
    label = connection.scalar(given.order_by(feedback.c.batch.desc(), feedback.c.position.desc()).limit(1))
    if label is not None:
        raise CaseStateError(
            f"Case {id_} was labelled before it was reopened, and that label is in force.",
            found=label,
            expected="a case that no reviewer has labelled",
            remedy="Label it again: the later label counts.",
        )


def _this(model: str, id_: str) -> ColumnElement[bool]:
    if not is_prediction_id(id_):  # PostgreSQL cannot read every text
        return false()
    return and_(cases.c.id == id_, cases.c.model == model)


def _free(now: int) -> ColumnElement[bool]:
    return or_(cases.c.lease_until.is_(None), cases.c.lease_until <= now)


def _available(by: str, now: int) -> ColumnElement[bool]:
    """Return the condition that a waiting case is the caller's, or nobody's."""
    nobodys = and_(_free(now), or_(cases.c.assignee.is_(None), cases.c.assignee == by))
    return or_(nobodys, cases.c.claimed_by == by)


def _claim(connection: Connection, which: ColumnElement[bool], by: str, until: int) -> int:
    new = {"claimed_by": by, "lease_until": until, "lease": cases.c.lease + 1}
    return connection.execute(update(cases).where(which).values(new)).rowcount


def _change(
    connection: Connection,
    model: str,
    id_: str,
    by: str,
    lease: int | None,
    mine: ColumnElement[bool],
    values: Mapping[str, Any],
    now: int,
) -> None:
    latest = true() if lease is None else cases.c.lease == lease
    if not connection.execute(update(cases).where(_this(model, id_), mine, latest).values(values)).rowcount:
        found = _read(connection, model, id_)
        if lease is not None and lease != found.lease:
            raise CaseStateError(
                f"Case {id_} has been claimed again.",
                where=in_body("lease"),
                found=lease,
                expected=found.lease,
                remedy="Claim it again, or leave it to the other person.",
            )
        raise _refusal(found, by, now)


def _refusal(found: Case, by: str, now: int) -> CaseStateError:
    """Return the error for a case that the caller cannot change."""
    remedy = "Claim another one."
    if found.outcome is not None:
        ended = f"already {found.outcome}" + ("" if found.label is None else f" {found.label}")
        message = f"Case {found.id} is {ended}, by {found.done_by}."
        if found.done_by != by:
            remedy = (
                "Only the person who ended a case can correct or reopen it. POST …/feedback takes a label from anyone."
            )
        elif found.outcome == "labelled":
            remedy = "To correct its label, label it again. To assign it, release it first. It cannot be skipped."
        else:
            remedy = "Label it, or reopen it."
    elif found.state(now) == "claimed" and found.claimed_by != by:
        message = f"{found.claimed_by} has case {found.id} until {iso(found.lease_until or 0)}."
    elif found.assignee not in (None, by):
        message = f"Case {found.id} is assigned to {found.assignee}."
        remedy = "Assign it to yourself, or claim another one."
    else:
        message = f"{by} does not hold case {found.id}."
        remedy = "Claim it first."
    return CaseStateError(message, found=found.state(now), expected=f"a case that {by} may change", remedy=remedy)


def _read(connection: Connection, model: str, id_: str) -> Case:
    row = connection.execute(select(*_OWN).where(_this(model, id_))).first()
    if row is None:
        raise UnknownCaseError(
            f"{model} has no case {id_[:64]}.",
            found=id_[:64],
            expected="the id of a prediction whose label is sought, under a policy with `review`",
            remedy="List the cases: GET …/cases",
        )
    return _with_predictions(connection, [row])[0]


def _with_predictions(connection: Connection, rows: Sequence[Row[Any]]) -> list[Case]:
    """Return cases with what the log has of their predictions."""
    query = select(predictions.c.id, predictions.c.origin, *(column.label(name) for name, column in _LOGGED.items()))
    logged = {row.id: row for row in connection.execute(query.where(predictions.c.id.in_([row.id for row in rows])))}
    made_by = select(origins.c.id, origins.c.model_digest, origins.c.revision)
    numbers = {row.origin for row in logged.values()}
    of = {origin: names for origin, *names in connection.execute(made_by.where(origins.c.id.in_(numbers)))}
    found = []
    for row in rows:
        more: dict[str, Any] = {}
        if (prediction := logged.get(row.id)) is not None:
            digest, revision = of.get(prediction.origin, (None, None))
            more = {name: getattr(prediction, name) for name in _LOGGED}
            more |= {"model_digest": digest, "revision": revision}
        found.append(Case(**row._asdict(), **more))
    return found
