"""Numbers without gaps: "r7", "j12", the epoch, a feedback batch."""

from __future__ import annotations

import re

from sqlalchemy import Connection

from service.state.insertion import insert_for
from service.state.tables import numbers


def take_number(connection: Connection, series: str) -> int:
    """Return the next number of a series, starting at 1; see `take_numbers`."""
    return take_numbers(connection, series, 1)


def take_numbers(connection: Connection, series: str, count: int) -> int:
    """Take the next `count` numbers of a series, which starts at 1; return the first of them.

    The series stays locked until the transaction ends; the next taker, on any replica, waits and then sees everything
    that this transaction wrote. A rollback returns the numbers.

    Args:
        connection: Inside a write transaction.
        series: Name of the series.
        count: How many, at least 1.
    """
    insert = insert_for(connection, numbers).values(series=series, last=count)
    upsert = insert.on_conflict_do_update(index_elements=["series"], set_={"last": numbers.c.last + count})
    return int(connection.execute(upsert.returning(numbers.c.last)).scalar_one()) - count + 1


def number_in(letter: str, name: str) -> int | None:
    """Return the number in a name such as "r7"; None for other texts. Each number has one name.

    >>> number_in("r", "r7"), number_in("r", "r07"), number_in("r", "j7")
    (7, None, None)
    """
    match = re.fullmatch(f"{letter}([1-9][0-9]{{0,17}})", name)
    return int(match[1]) if match else None
