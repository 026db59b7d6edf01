"""The revisions behind logged rows: the last action of the policy that decided, and when the calibrator was fitted."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, select

from service.state.numbering import number_in
from service.state.tables import origins, revisions
from service.state.window import Window

_MOST_PARENTS: Final = 1_000


def last_actions(connection: Connection, window: Window, policy: str, which: set[int]) -> dict[int, str]:
    """Return the last band's action of each origin that a policy decided, by origin.

    Args:
        connection: Inside a read transaction.
        window: Gives the model file.
        policy: Id of the policy; each version has its own last action.
        which: Origins to look at.
    """
    query = select(origins.c.id, origins.c.policy, origins.c.revision).where(
        origins.c.model == window.model,
        origins.c.model_digest == window.model_digest,
        origins.c.policy.startswith(f"{policy}@", autoescape=True),
    )
    found: dict[int, str] = {}
    of_version: dict[str, str | None] = {}
    for id_, version, revision in connection.execute(query).all():
        if id_ not in which:
            continue
        if version not in of_version:
            same = (revisions.c.model == window.model, revisions.c.number == number_in("r", revision))
            policies = connection.execute(select(revisions.c.policies).where(*same)).scalar()
            of_version[version] = policies[policy]["bands"][-1]["action"] if policies and policy in policies else None
        last = of_version[version]
        if last is not None:
            found[id_] = last
    return found


def fitted_at(connection: Connection, model: str, revision: str) -> int | None:
    """Return when the calibrator of a revision was fitted on traffic; None if a bundle brought it.

    A proposed policy keeps the calibrator of its parent.

    Args:
        connection: Inside a read transaction.
        model: The model.
        revision: Id of the revision.
    """
    columns = select(revisions.c.cause, revisions.c.parent, revisions.c.created_at)
    at: int | None = None
    one = revision
    for _ in range(_MOST_PARENTS):
        same = (revisions.c.model == model, revisions.c.number == number_in("r", one))
        found = connection.execute(columns.where(*same)).one_or_none()
        if found is None:
            return at
        cause, parent, at = found
        if cause == "bundle":
            return None
        if cause != "policy" or parent is None:
            return at
        one = parent
    return at
