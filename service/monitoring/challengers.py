"""Count a cohort of predictions in the comparison with a challenger."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from sqlalchemy import Connection

from service.decisions.calibrated import Calibrated
from service.decisions.revision import Revision
from service.decisions.rows import Rows
from service.monitoring.comparison import Arms, Comparison
from service.serving.plane import Served
from service.state.challengers import Challenger, amount_limit, groups_seen, load_beside
from service.state.database import Database
from service.state.monitors import Counted, StoredMonitor


def compare(
    database: Database,
    served: Served,
    challenger: Challenger,
    revision: Revision,
    stored: StoredMonitor,
    rows: Rows,
    *,
    end: int,
) -> Counted:
    """Return a comparison after a cohort.

    Args:
        database: Open state.
        served: The active revision.
        challenger: The challenger.
        revision: Its revision.
        stored: The comparison before the cohort.
        rows: All predictions of the cohort, with their labels.
        end: End of the cohort, exclusive.
    """
    comparison = Comparison.from_dict(stored.document)
    with database.connect() as connection:
        if comparison.amount_limit is None:
            comparison.amount_limit = amount_limit(connection, revision.model, before_us=stored.through)
        arms = _arms(connection, served, challenger, revision, rows, since_us=stored.through, until_us=end)
        seen = groups_seen(connection, stored.id, np.unique(arms.active.rows.group))
    groups = comparison.update(arms, seen=seen, through=end)
    return Counted(
        before=stored,
        document=comparison.to_dict(),
        evidence=comparison.evidence,
        through=end,
        rows=len(arms.active.rows) > 0,
        fired_at=comparison.decided_at,
        groups=groups,
    )


def _arms(
    connection: Connection,
    served: Served,
    challenger: Challenger,
    revision: Revision,
    rows: Rows,
    *,
    since_us: int,
    until_us: int,
) -> Arms:
    """Return the rows that both have scored; a revision of the same model file has scored them all."""
    beside = rows
    if revision.model_digest != served.revision.model_digest:
        rows, logits = load_beside(connection, challenger.number, rows, since_us=since_us, until_us=until_us)
        beside = replace(rows, logits=logits)
    ours, theirs = served.policies, revision.policies
    common = [key for key in ours if key in theirs and ours[key].policy.positive == theirs[key].policy.positive]
    return Arms(
        Calibrated.of(served.calibrator, served.labels, rows, {key: ours[key] for key in common}),
        Calibrated.of(revision.calibrator, served.labels, beside, {key: theirs[key] for key in common}),
    )
