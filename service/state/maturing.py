"""Labels that arise by themselves: which rows are too young for them, and what silence says of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, select

from candor.contract.policies import Labels
from service.state.numbering import number_in
from service.state.tables import origins, revisions
from service.state.window import Arising, Window
from service.times import duration_us


def settled(connection: Connection, window: Window, at_us: int, label_names: Sequence[str]) -> Window:
    """Return a window without rows whose labels are not mature, by the `labels` of the policy that decided each.

    The labels that have come of younger rows are not typical: a chargeback comes early, none is known at the end.

    Args:
        connection: Inside a read transaction.
        window: Window of predictions, of any of the model's files.
        at_us: Time of reading, in microseconds since the epoch.
        label_names: The model's labels.
    """
    query = select(origins.c.id, origins.c.policy, origins.c.revision).where(
        origins.c.model == window.model, origins.c.policy != ""
    )
    terms: dict[str, Labels | None] = {}
    arising = []
    for origin, version, revision in connection.execute(query).all():
        if version not in terms:  # a version has one document, in every revision
            same = (revisions.c.model == window.model, revisions.c.number == number_in("r", revision))
            policies = connection.execute(select(revisions.c.policies).where(*same)).scalar() or {}
            found = policies.get(version.rpartition("@")[0], {}).get("policy", {}).get("labels")
            terms[version] = None if found is None else Labels.model_validate(found)
        if (labels := terms[version]) is not None:
            silent = next((place for place, name in enumerate(label_names) if name == labels.silence), None)
            age_us = duration_us(labels.mature_in)
            arising.append(Arising(origin, age_us, at_us - age_us, silent, frozenset(labels.actions)))
    return replace(window, arising=tuple(arising))
