"""Guards in the state: the latest one of each model, written with the activation that it guards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sqlalchemy import Connection, func, select, update

from service.errors import EpochStaleError
from service.state.columns import Codes, integers, read_columns
from service.state.database import Database, now_us
from service.state.insertion import insert_for
from service.state.tables import activations, guards, origins, predictions

GuardState = Literal["watching", "passed", "rolled_back", "ended"]
Counts = dict[str, dict[str, int]]
"""Groups by policy and action."""

MOST_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class StoredGuard:
    """A model's latest guard.

    Attributes:
        epoch: Epoch of the activation that it guards.
        revision: The activated revision.
        previous: The revision that it rolls back to.
        since: Time of the activation, microseconds since the epoch, UTC.
        until: End of its window.
        max_change: Largest change of an action's share that it allows.
        claims: Number of pairs of a policy and an action that it compares.
        state: "watching"; "passed" at the end of its window; "rolled_back"; or "ended" by another move.
        looks: Number of tests so far.
        rows: Groups in the last test.
        document: Its counts, and the reason of a rollback.
    """

    epoch: int
    revision: str
    previous: str
    since: int
    until: int
    max_change: float
    claims: int
    state: GuardState
    looks: int
    rows: int
    document: dict[str, Any]


class GuardStore:
    """Guards of all models. All methods raise StateUnavailableError when the database does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, model: str) -> StoredGuard | None:
        """Return a model's latest guard; None without one."""
        with self._database.connect() as connection:
            row = connection.execute(_SELECT.where(guards.c.model == model)).one_or_none()
            return None if row is None else StoredGuard(*row)

    def tested(self, model: str, before: StoredGuard, *, rows: int, document: dict[str, Any], over: bool) -> None:
        """Record a test that found nothing; nothing happens if the guard has ended meanwhile."""
        values = {"looks": before.looks + 1, "rows": rows, "document": document}
        with self._database.begin() as connection:
            connection.execute(_watching(model, before.epoch).values(**values, state="passed" if over else "watching"))


@dataclass(frozen=True, slots=True)
class Watch:
    """A guard that an activation asks for.

    Attributes:
        window_us: Length of its window in microseconds.
        max_change: Largest change of an action's share that it allows.
        claims: Number of pairs of a policy and an action that it compares.
    """

    window_us: int
    max_change: float
    claims: int


def begin(connection: Connection, model: str, watch: Watch, *, epoch: int, revision: str, previous: str) -> None:
    """Start a guard of an activation in place of the model's latest one."""
    since = now_us()
    values = {
        "epoch": epoch,
        "revision": revision,
        "previous": previous,
        "since": since,
        "until": since + watch.window_us,
        "max_change": watch.max_change,
        "claims": watch.claims,
        "state": "watching",
        "looks": 0,
        "rows": 0,
        "document": {},
    }
    upsert = insert_for(connection, guards).values(model=model, **values)
    connection.execute(upsert.on_conflict_do_update(index_elements=["model"], set_=values))


def end(connection: Connection, model: str) -> None:
    """End the model's guard: its pointer moves."""
    of_model = (guards.c.model == model, guards.c.state == "watching")
    connection.execute(update(guards).where(*of_model).values(state="ended"))


def fire(connection: Connection, model: str, epoch: int, document: Mapping[str, Any]) -> None:
    """Mark a guard as the cause of a rollback.

    Raises:
        EpochStaleError: It has ended meanwhile.
    """
    values = {"state": "rolled_back", "document": dict(document)}
    if connection.execute(_watching(model, epoch).values(**values)).rowcount != 1:
        raise EpochStaleError(f"The guard of {model} has ended.", found="ended", expected=f"watching epoch {epoch}")


def _watching(model: str, epoch: int) -> Any:
    return update(guards).where(guards.c.model == model, guards.c.epoch == epoch, guards.c.state == "watching")


_SELECT = select(*(guards.c[name] for name in StoredGuard.__slots__))


def active_since(connection: Connection, model: str, guard: StoredGuard) -> int:
    """Return when the revision before a guard's was last activated, in microseconds since the epoch; 0 if unknown."""
    of_it = (activations.c.model == model, activations.c.active == guard.previous, activations.c.epoch < guard.epoch)
    return connection.execute(select(func.max(activations.c.at)).where(*of_it)).scalar_one() or 0


@dataclass(frozen=True, slots=True)
class Decided:
    """Decisions of a revision in [since, until), the first of each group.

    Attributes:
        counts: Groups by policy and action.
        since: Time from which every row was read.
        until: Time until which every row was read.
    """

    counts: Counts
    since: int
    until: int

    @property
    def rows(self) -> int:
        """Groups of the policy with the most."""
        return max((sum(actions.values()) for actions in self.counts.values()), default=0)


def decided(
    connection: Connection, model: str, revision: str, *, since: int, until: int, newest: bool, at_most: int = MOST_ROWS
) -> Decided:
    """Count the decisions of a revision: under each policy, the first of each group.

    Args:
        connection: Inside a read transaction.
        model: The model.
        revision: The revision.
        since: Microseconds since the epoch.
        until: Microseconds since the epoch, excluded.
        newest: Which rows are read if there are more than `at_most`: the newest, or the oldest.
        at_most: Maximum rows.
    """
    made_by = select(origins.c.id, origins.c.policy).where(origins.c.model == model, origins.c.revision == revision)
    policies = {id_: policy.rpartition("@")[0] for id_, policy in connection.execute(made_by) if policy}
    time, names = predictions.c.created_at, Codes()
    query = (
        select(predictions.c.origin, predictions.c.cluster, predictions.c.action, time)
        .where(predictions.c.origin.in_(policies), time >= since, time < until, predictions.c.action.is_not(None))
        .order_by(time.desc() if newest else time)
        .limit(at_most)
    )
    origin, group, action, at = read_columns(connection, [query], [integers, integers, names, integers])
    if newest:
        origin, group, action, at = origin[::-1], group[::-1], action[::-1], at[::-1]
    if len(at) == at_most:
        since, until = (int(at[0]), until) if newest else (since, int(at[-1]) + 1)
    known = sorted(set(policies.values()))
    place = {id_: known.index(policy) for id_, policy in policies.items()}
    policy = np.array([place[id_] for id_ in origin.tolist()], np.int64)
    _, first = np.unique(np.stack([policy, group], axis=1), axis=0, return_index=True)
    found: Counts = {}
    actions = names.values_of(action[first])
    for number, name in zip(policy[first].tolist(), actions.tolist(), strict=True):
        of_policy = found.setdefault(known[number], {})
        of_policy[name] = of_policy.get(name, 0) + 1
    return Decided(found, since, until)
