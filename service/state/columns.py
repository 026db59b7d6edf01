"""Read many rows of a query as numpy columns, in chunks."""

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

ROWS_PER_FETCH = 1_000  # small chunks fit the CPU cache and stay out of the garbage collector's oldest generation

Converter = Callable[[Sequence[Any]], NDArray[Any]]
"""Converts a column's values in a chunk, as the driver returns them, to an array."""


def objects(values: Sequence[Any]) -> NDArray[np.object_]:
    """Return values as they are."""
    found = np.empty(len(values), dtype=np.object_)
    found[:] = values
    return found


def read_columns(connection: Connection, queries: Sequence[Select[Any]], converters: Sequence[Converter]) -> list[Any]:
    """Return the concatenated results of queries, one array per column.

    Rows come from the driver directly: SQLAlchemy's row objects would cost as much as the query.

    Args:
        connection: Inside a read transaction.
        queries: Queries of the same columns.
        converters: One per column.
    """
    parts: list[list[NDArray[Any]]] = [[convert(())] for convert in converters]
    for query in queries:
        with closing(_chunks(connection, query)) as chunks:
            for chunk in chunks:
                for part, convert, values in zip(parts, converters, zip(*chunk, strict=True), strict=True):
                    part.append(convert(values))
    columns = []
    while parts:  # column by column: all at once would need twice the memory
        columns.append(np.concatenate(parts.pop(0)))
    return columns


def _chunks(connection: Connection, query: Select[Any]) -> Generator[Sequence[Any], None, None]:
    """Yield a query's rows as the driver returns them, in chunks."""
    if connection.dialect.name == "postgresql":
        yield from postgresql.stream(connection, query, ROWS_PER_FETCH)
    else:
        with connection.execute(query) as result:
            while chunk := result.cursor.fetchmany(ROWS_PER_FETCH):
                yield chunk


def integers(values: Sequence[int]) -> NDArray[np.int64]:
    """Convert 64-bit integers."""
    return np.array(values, dtype=np.int64)


def booleans(values: Sequence[bool | int]) -> NDArray[np.bool_]:
    """Convert booleans, which SQLite returns as 0 and 1."""
    return np.array(values, dtype=np.bool_)


def numbers(values: Sequence[float | None]) -> NDArray[np.float64]:
    """Convert floating-point numbers; None becomes NaN."""
    return np.array(values, dtype=np.float64)


def ascii_texts(values: Sequence[str]) -> NDArray[np.bytes_]:
    """Convert ASCII texts, one byte per character."""
    return np.array(values, dtype=np.bytes_)


def vectors(width: int) -> Converter:
    """Return a converter of blobs of `width` little-endian float32 to (N, width)."""

    def convert(values: Sequence[bytes]) -> NDArray[np.float32]:
        return np.frombuffer(b"".join(values), dtype="<f4").reshape(-1, width)

    return convert


class Codes(defaultdict[Any, int]):
    """Numbers distinct values in order of first appearance; for columns with few distinct values."""

    def __init__(self, known: Sequence[Any] = ()) -> None:
        super().__init__(count().__next__)
        self(known)

    def __call__(self, values: Sequence[Any]) -> NDArray[np.int32]:
        """Convert values to their numbers."""
        return np.fromiter(map(self.__getitem__, values), np.int32, len(values))

    def values_of(self, codes: NDArray[np.int32]) -> NDArray[np.object_]:
        """Return the values for numbers."""
        known = np.empty(len(self), dtype=np.object_)
        known[:] = list(self)
        found: NDArray[np.object_] = known[codes]
        return found
