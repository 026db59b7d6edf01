"""Copy a whole state to another, empty one: from SQLite to PostgreSQL, or back.

The rows arrive in one transaction, which commits only if each table then has the same rows on both sides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, Table, delete, func, insert, select, text

from service.errors import ConfigurationError
from service.state import audit
from service.state.database import Database, lock_server, parse
from service.state.insertion import insert_new
from service.state.notices import listeners
from service.state.partitions import PARTITIONED, cover, day_of
from service.state.tables import feedback, inputs, metadata, predictions, secrets

_ROWS_AT_ONCE: Final = {"inputs": 200, "jobs": 20, "labelled_rows": 4, "revisions": 20}  # by their size; else:
_ROWS: Final = 5_000
_MANY: Final = (predictions, inputs, feedback)

Progress = Callable[[str, int], None]
"""Told the table and the number of rows that were copied or compared since the last call."""


@dataclass(frozen=True, slots=True)
class Content:
    """The rows of a table: how many, and the sum of their SHA-256 modulo 2^256, in whatever order they come."""

    rows: int = 0
    digest: int = 0

    def __add__(self, rows: list[Row[Any]]) -> Content:
        """Return the content with further rows."""
        digests = (int.from_bytes(hashlib.sha256(repr(tuple(row)).encode()).digest()) for row in rows)
        return Content(self.rows + len(rows), (self.digest + sum(digests)) % 2**256)


class StateCopy:
    """A copy about to be made; a context.

    Args:
        source: URL of the state.
        target: URL of the empty database or state.

    Raises:
        ConfigurationError: A URL cannot be used; a service runs on one of the states; the source has not the schema
            of this program; the target is not empty.
        StateUnavailableError: A database does not answer.

    Attributes:
        rows: Rows of the source.
    """

    def __init__(self, source: str, target: str) -> None:
        self._name = parse(source, "SOURCE").render_as_string()
        if parse(source) == parse(target, "TARGET"):
            raise ConfigurationError("A state cannot be copied onto itself.", found=self._name, expected="two states")
        with ExitStack() as stack:
            self._source = Database.open(source, readonly=True)
            stack.callback(self._source.close)
            if (lock := lock_server(source)) is not None:
                stack.callback(lock.release)
            self._target = Database.open(target)
            stack.callback(self._target.close)
            self._reading = stack.enter_context(self._source.connect())
            self._writing = stack.enter_context(self._target.begin())
            for connection in (self._reading, self._writing):
                _refuse_services(connection)
            self._refuse_rows()
            self.rows = sum(_count(self._reading, table) for table in metadata.sorted_tables)
            self._stack = stack.pop_all()

    def __enter__(self) -> StateCopy:
        return self

    def __exit__(self, *error: Any) -> None:
        """Commit what was copied, or nothing after an error."""
        self._stack.__exit__(*error)

    def run(self, progress: Progress) -> dict[str, int]:
        """Copy and compare every table, those first that others refer to; return their numbers of rows.

        Raises:
            ConfigurationError: The rows of a table differ; nothing is kept.
            StateUnavailableError: A database does not answer; nothing is kept.
        """
        # Its key first: a service that starts on the target meanwhile waits for that, and gives up.
        self._writing.execute(delete(secrets))
        tables = sorted(metadata.sorted_tables, key=lambda table: table is not secrets)
        copied = {table.name: self._copy(table, progress) for table in tables}
        for table in tables:
            found = Content()
            for rows in _read(self._writing, table):
                found += rows
                progress(table.name, len(rows))
            if found != copied[table.name]:
                raise ConfigurationError(
                    f"The copy of {table.name} differs from its source, so nothing was kept.",
                    where=table.name,
                    found=f"{found.rows} rows, digest {found.digest:064x}",
                    expected=f"{copied[table.name].rows} rows, digest {copied[table.name].digest:064x}",
                    remedy="Try again. If it differs again, please report it.",
                )
        _continue_numbers(self._writing)
        rows_of = {name: content.rows for name, content in sorted(copied.items())}
        detail = {"rows": rows_of}
        audit.append(self._writing, model=None, by="local", action="copy_state", subject=self._name, detail=detail)
        return rows_of

    def _copy(self, table: Table, progress: Progress) -> Content:
        content = Content()
        names = [column.name for column in table.columns]
        for rows in _read(self._reading, table):
            if table.name in PARTITIONED and self._writing.dialect.name == "postgresql":
                cover(self._writing, {day_of(row.id) for row in rows})
            if table in _MANY:
                insert_new(self._writing, table, names, [tuple(row) for row in rows])
            else:
                self._writing.execute(insert(table), [dict(zip(names, row, strict=True)) for row in rows])
            content += rows
            progress(table.name, len(rows))
        return content

    def _refuse_rows(self) -> None:
        there = {table.name: _count(self._writing, table) for table in metadata.sorted_tables if table is not secrets}
        if found := {name: rows for name, rows in there.items() if rows}:
            raise ConfigurationError(
                "The target is not empty.",
                where=self._target.engine.url.render_as_string(),
                found=", ".join(f"{rows} rows in {name}" for name, rows in found.items()),
                expected="an empty database",
                remedy="Choose another database, or delete this one and create it again.",
            )


def _read(connection: Connection, table: Table) -> Iterator[list[Row[Any]]]:
    """Yield all rows of a table, a few megabytes at a time."""
    query = select(table).execution_options(yield_per=_ROWS_AT_ONCE.get(table.name, _ROWS))
    with connection.execute(query) as result:
        for rows in result.partitions():
            yield list(rows)


def _count(connection: Connection, table: Table) -> int:
    return connection.execute(select(func.count()).select_from(table)).scalar_one()


def _refuse_services(connection: Connection) -> None:
    """Refuse a PostgreSQL with a running service; SQLite's are refused by their lock."""
    if running := listeners(connection):
        raise ConfigurationError(
            f"A service is using {connection.engine.url.render_as_string()}.",
            found=f"{running} services that listen for changes",
            expected="no service",
            remedy="Stop every service and worker on this state first.",
        )


def _continue_numbers(connection: Connection) -> None:
    """Let PostgreSQL number new rows after the copied ones, and know how many there are."""
    if connection.dialect.name != "postgresql":
        return
    for table in metadata.sorted_tables:
        if (column := table.autoincrement_column) is not None and column.identity is not None:
            last = connection.execute(select(func.max(column))).scalar_one()
            if last is not None:
                sequence = func.pg_get_serial_sequence(table.name, column.name)
                connection.execute(select(func.setval(sequence, last)))
        connection.execute(text(f"ANALYZE {table.name}"))
