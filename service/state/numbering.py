"""Numbers without gaps: "r7", "j12", the epoch, a feedback batch."""

from __future__ import annotations

import re

from sqlalchemy import Connection

from service.state.insertion import insert_for
from service.state.tables import numbers


def take_number(connection: Connection, series: str) -> int:
    """Return the next number of a series, starting at 1.

    The series stays locked until the transaction ends; the next taker, on any replica, waits and then sees everything
    that this transaction wrote. A rollback returns the number.

    Args:
        connection: Inside a write transaction.
        series: Name of the series.
    """
    insert = insert_for(connection, numbers).values(series=series, last=1)
    upsert = insert.on_conflict_do_update(index_elements=["series"], set_={"last": numbers.c.last + 1})
    return int(connection.execute(upsert.returning(numbers.c.last)).scalar_one())


def number_in(letter: str, name: str) -> int | None:
    """Return the number in a name such as "r7"; None for other texts. Each number has one name.

    >>> number_in("r", "r7"), number_in("r", "r07"), number_in("r", "j7")
    (7, None, None)
    """
    match = re.fullmatch(f"{letter}([1-9][0-9]{{0,17}})", name)
    return int(match[1]) if match else None
