"""What the keys of a name, or a person, may add to the state in a day (UTC), counted there for all replicas."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, delete

from service.errors import RateLimitedError
from service.state.database import Database
from service.state.numbering import take_numbers
from service.state.tables import numbers

_DAY_S: Final = 86_400


class Quota:
    """A daily quota. Each name has one counter: nothing is counted in the tables themselves.

    Args:
        what: What is counted, in the plural.
        most: Maximum number per name and day.
        setting: Setting that says so.
    """

    def __init__(self, what: str, most: int, setting: str) -> None:
        self._what = what
        self._most = most
        self._setting = setting

    def take(self, connection: Connection, by: str, wanted: Sequence[int]) -> list[RateLimitedError | None]:
        """Count requests of a name in their order; return an error for each that would exceed the quota.

        Others of this name wait until the transaction ends; who takes for several names takes them in order.

        Args:
            connection: Inside a write transaction.
            by: Name of the key or person.
            wanted: How much each request adds.
        """
        now = time.time()
        series = f"{_prefix(now)}{self._what}/{by}"
        used = take_numbers(connection, series, sum(wanted)) - 1
        errors: list[RateLimitedError | None] = []
        refused = 0
        for count in wanted:
            if used + count <= self._most:
                used += count
                errors.append(None)
                continue
            refused += count
            errors.append(
                RateLimitedError(
                    f"{by!r} has reached its daily quota of {self._what}.",
                    found=f"{used} today, and {count} in this request",
                    expected=f"at most {self._most} a day (UTC)",
                    remedy=f"Wait until tomorrow, or raise {self._setting}.",
                    retry_after_s=_DAY_S - now % _DAY_S,
                )
            )
        if refused:
            take_numbers(connection, series, -refused)
        return errors

    def spend(self, database: Database, by: str) -> None:
        """Count one, in a transaction of its own.

        Raises:
            RateLimitedError: The quota is used up.
            StateUnavailableError: The database does not answer.
        """
        with database.begin() as connection:
            (error,) = self.take(connection, by, [1])
            # Counters of earlier days. Here alone: a transaction that holds several counters could wait for another.
            old = (numbers.c.series >= _prefix(0)) & (numbers.c.series < _prefix(time.time() - _DAY_S))
            connection.execute(delete(numbers).where(old))
        if error is not None:
            raise error


def _prefix(at: float) -> str:
    """Return how the series of a day begin; they sort by day."""
    return f"quota/{int(at // _DAY_S):06d}/"
