"""Many rows of a query as numpy columns, a chunk at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Select

from service.state import postgresql

ROWS_PER_FETCH = 1_000  # small chunks stay in the processor's cache, and out of the collector's oldest generation

Converter = Callable[[Sequence[Any]], NDArray[Any]]
"""Makes an array of one column's values in a chunk, as the driver gives them."""


def read_columns(connection: Connection, queries: Sequence[Select[Any]], converters: Sequence[Converter]) -> list[Any]:
    """Return what queries find, one behind the other, as one array a column.

    Rows are taken from the driver as they are: what SQLAlchemy makes of each costs as much as the query.

    Args:
        connection: Inside a read transaction.
        queries: Of the same columns.
        converters: One for each column.
    """
    parts: list[list[NDArray[Any]]] = [[convert(())] for convert in converters]
    for query in queries:
        with closing(_chunks(connection, query)) as chunks:
            for chunk in chunks:
                for part, convert, values in zip(parts, converters, zip(*chunk, strict=True), strict=True):
                    part.append(convert(values))
    columns = []
    while parts:  # one after the other: all chunks and all columns at once are twice the memory
        columns.append(np.concatenate(parts.pop(0)))
    return columns


def _chunks(connection: Connection, query: Select[Any]) -> Generator[Sequence[Any], None, None]:
    """Yield a query's rows as the driver makes them, some at a time."""
    if connection.dialect.name == "postgresql":
        yield from postgresql.stream(connection, query, ROWS_PER_FETCH)
    else:
        with connection.execute(query) as result:
            while chunk := result.cursor.fetchmany(ROWS_PER_FETCH):
                yield chunk


def integers(values: Sequence[int]) -> NDArray[np.int64]:
    """Convert integers of 64 bits."""
    return np.array(values, dtype=np.int64)


def booleans(values: Sequence[bool | int]) -> NDArray[np.bool_]:
    """Convert truth values, which SQLite gives as 0 and 1."""
    return np.array(values, dtype=np.bool_)


def numbers(values: Sequence[float | None]) -> NDArray[np.float64]:
    """Convert floating-point numbers; None becomes NaN."""
    return np.array(values, dtype=np.float64)


def ascii_texts(values: Sequence[str]) -> NDArray[np.bytes_]:
    """Convert texts of ASCII characters, one byte each."""
    return np.array(values, dtype=np.bytes_)


def vectors(width: int) -> Converter:
    """Return what converts blobs of `width` little-endian float32, to (N, width)."""

    def convert(values: Sequence[bytes]) -> NDArray[np.float32]:
        return np.frombuffer(b"".join(values), dtype="<f4").reshape(-1, width)

    return convert


class Codes(defaultdict[Any, int]):
    """Numbers distinct values in the order in which they are first met; few of them, however many rows."""

    def __init__(self, known: Sequence[Any] = ()) -> None:
        super().__init__(count().__next__)
        self(known)

    def __call__(self, values: Sequence[Any]) -> NDArray[np.int32]:
        """Convert values to their numbers."""
        return np.fromiter(map(self.__getitem__, values), np.int32, len(values))

    def values_of(self, codes: NDArray[np.int32]) -> NDArray[np.object_]:
        """Return the values that numbers stand for."""
        known = np.empty(len(self), dtype=np.object_)
        known[:] = list(self)
        found: NDArray[np.object_] = known[codes]
        return found
