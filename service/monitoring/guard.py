"""A guard: it rolls an activation back if the share of an action changes by more than its operator allows.

It compares decisions before and after the activation in spans of equal length, the first of each group: no longer than
the previous revision was active, since in a short span most groups are frequent ones. A look is taken
whenever the number of groups has grown by a quarter, and each look spends a part of `LEVEL`, so that the probability of
a rollback without such a change is at most `LEVEL`, however long the window is. Exact binomial bounds on both sides: in
few rows only a large change is found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from service.decisions.binomial import lower_share, upper_share
from service.decisions.levels import level_of
from service.errors import CandorError, StateUnavailableError
from service.serving.model import Model
from service.serving.models import Models
from service.state.database import Database
from service.state.guards import Counts, Decided, GuardStore, StoredGuard, active_since, decided

logger = structlog.get_logger(__name__)

LEVEL: Final = 0.01
"""Probability that a guard ever rolls back although no share has changed by more than it allows."""

BY: Final = "guard"
"""Actor of its rollbacks in the audit log."""

FIRST_LOOK: Final = 20
_GROWTH: Final = 1.25


class Guards:
    """Tests the guards of all models.

    Args:
        database: Open state.
        models: The models.
        clock: Returns the time, microseconds since the epoch, UTC.
    """

    def __init__(self, database: Database, models: Models, clock: Callable[[], int]) -> None:
        self._database = database
        self._store = GuardStore(database)
        self._models = models
        self._clock = clock

    def of(self, model: str) -> StoredGuard | None:
        """Return a model's latest guard; None without one."""
        return self._store.of(model)

    def look(self, model: Model) -> None:
        """Test a model's guard if it is due, and roll the model back if the traffic has changed too much.

        Raises:
            StateUnavailableError: The database does not answer.
        """
        guard = self._store.of(model.name)
        if guard is None or guard.state != "watching" or guard.epoch != model.pointer.epoch:
            return
        now = self._clock()
        before, after = self._decided(model.name, guard, min(now, guard.until))
        due = after.rows >= max(FIRST_LOOK, _GROWTH * guard.rows)
        over = now >= guard.until
        if not due and not over:
            return
        level = level_of(LEVEL, guard.looks + 1)
        reason = breach(before.counts, after.counts, guard.max_change, level / (4 * guard.claims))
        document = {"before": before.counts, "after": after.counts, "reason": reason}
        if reason is None:
            self._store.tested(model.name, guard, rows=after.rows, document=document, over=over)
            return
        logger.warning("guard rolls back", model=model.name, revision=guard.revision, reason=reason)
        try:
            self._models.rollback(model.name, expected_epoch=guard.epoch, by=BY, reason=reason, guard=document)
        except StateUnavailableError:
            raise
        except CandorError as error:  # the next round tries again
            logger.error("guard cannot roll back", model=model.name, revision=guard.revision, error=str(error))

    def _decided(self, model: str, guard: StoredGuard, until: int) -> tuple[Decided, Decided]:
        """Return the decisions before and after the activation, in spans of equal length."""
        since = guard.since
        with self._database.connect() as connection:
            after = decided(connection, model, guard.revision, since=since, until=until, newest=False)
            start = 2 * since - after.until
            began = max(start, active_since(connection, model, guard))
            before = decided(connection, model, guard.previous, since=began, until=since, newest=True)
            if before.since > start:  # it was not active for longer, or only a part of its span was read
                until = 2 * since - before.since
                after = decided(connection, model, guard.revision, since=since, until=until, newest=False)
        return before, after


def breach(before: Counts, after: Counts, max_change: float, level: float) -> str | None:
    """Return which action's share has surely changed by more than `max_change`; None if none has.

    Args:
        before: Groups by policy and action, before the activation.
        after: The same, since the activation.
        max_change: Largest change of a share that is allowed.
        level: Maximum probability that one bound fails.

    Example:
        >>> breach({"p": {"allow": 900, "review": 100}}, {"p": {"allow": 90, "review": 10}}, 0.1, 1e-4)
        >>> breach({"p": {"allow": 900, "review": 100}}, {"p": {"allow": 40, "review": 60}}, 0.1, 1e-4)
        "Policy 'p' gave 'allow' to 90.0% of 1,000 groups before the activation, and to 40.0% of 100 since."
    """
    for key in sorted(before.keys() & after.keys()):
        was, now = before[key], after[key]
        rows, rows_now = sum(was.values()), sum(now.values())
        for action in sorted(was.keys() | now.keys()):
            count, count_now = was.get(action, 0), now.get(action, 0)
            rise = lower_share(count_now, rows_now, level) - upper_share(count, rows, level)
            fall = lower_share(count, rows, level) - upper_share(count_now, rows_now, level)
            if max(rise, fall) > max_change:
                return (
                    f"Policy {key!r} gave {action!r} to {count / rows:.1%} of {rows:,} groups before the activation, "
                    f"and to {count_now / rows_now:.1%} of {rows_now:,} since."
                )
    return None
