"""The hash chain over the audit log: each link is the SHA-256 of the link before it and of an entry.

Entries are linked at the end of the transaction that writes them, one transaction at a time, so the chain has the order
in which they were committed. Anyone who can write to the database can append entries, and can rewrite all of them:
heads that are kept elsewhere reveal a rewrite.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, func, insert, select

from service.state.numbering import take_numbers
from service.state.tables import audit, audit_links, numbers
from service.times import iso

SERIES: Final = "audit"
START: Final = bytes(32)
"""Head of an empty chain."""
_PURPOSE: Final = b"candor-audit-1\n"
_COLUMNS: Final = ("id", "at", "model", "by", "action", "subject", "detail")
_ROWS: Final = 1_000
_MOST_DOUBTS: Final = 20
_BACK_US: Final = 3_600_000_000  # a clock that is set back by more, or an entry that was dated back


class Head(NamedTuple):
    """End of the chain: the number of links, the last one, and the id of its entry (0 without one)."""

    position: int
    head: bytes
    entry: int


class Verdict(NamedTuple):
    """Result of a check: the chain as far as it is whole, and the first thing wrong with it; None if nothing is.

    `doubts` are entries that are dated back, as by a clock that was set back: the chain is whole there.
    """

    whole: Head
    broken: str | None
    doubts: tuple[str, ...] = ()


def linked(head: bytes, position: int, entry: Mapping[str, Any] | Row[Any]) -> bytes:
    """Return the link of an entry: SHA-256 of the purpose, the link before it, and the entry in canonical JSON.

    Args:
        head: The link before it, 32 bytes.
        position: Its position, from 1.
        entry: Columns of the audit log by name.
    """
    values = entry._mapping if isinstance(entry, Row) else entry  # noqa: SLF001 — SQLAlchemy's documented name
    document = [position, *(values[name] for name in _COLUMNS)]
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(_PURPOSE + head + text.encode()).digest()


def seal(connection: Connection, entries: Sequence[int]) -> None:
    """Link entries of this transaction, as its last step: other transactions wait for it from here on.

    Args:
        connection: Inside a write transaction.
        entries: Their ids.
    """
    rows = connection.execute(select(audit).where(audit.c.id.in_(entries)).order_by(audit.c.id)).all()
    if not rows:
        return
    first = take_numbers(connection, SERIES, len(rows))
    before = select(audit_links.c.head).where(audit_links.c.position == first - 1)
    head: bytes = connection.scalar(before) or START  # a missing one is for `verify` to name
    links = []
    for position, row in enumerate(rows, first):
        head = linked(head, position, row)
        links.append({"position": position, "entry": row.id, "head": head})
    connection.execute(insert(audit_links), links)


def end_of(connection: Connection) -> Head:
    """Return the end of the chain."""
    last = select(audit_links.c.position, audit_links.c.head, audit_links.c.entry)
    row = connection.execute(last.order_by(audit_links.c.position.desc()).limit(1)).one_or_none()
    return Head(0, START, 0) if row is None else Head(*row)


def verify(connection: Connection, heads: Iterable[tuple[int, bytes, str]] = ()) -> Verdict:
    """Check every link, and that the chain has the heads that were exported.

    A doubt hides nothing that comes after it.

    Args:
        connection: Inside a transaction that sees one snapshot.
        heads: Position, head and name of each exported head.
    """
    exported: dict[int, list[tuple[bytes, str]]] = {}
    for position, head, name in heads:
        exported.setdefault(position, []).append((head, name))
    end, latest, agreed = Head(0, START, 0), 0, "the start"
    doubts: list[str] = []

    def verdict(broken: str | None) -> Verdict:
        return Verdict(end, broken, tuple(doubts))

    for known, name in exported.pop(0, ()):  # of a log without an entry
        if known != START:
            return verdict(f"Links were rewritten before link 1 ({name}).")
    joined = audit_links.outerjoin(audit, audit.c.id == audit_links.c.entry)
    query = select(audit_links.c.position, audit_links.c.entry, audit_links.c.head, audit).select_from(joined)
    with connection.execute(query.order_by(audit_links.c.position).execution_options(yield_per=_ROWS)) as result:
        for row in result:
            if row.position != end.position + 1:
                return verdict(f"Link {end.position + 1} was deleted; entry {end.entry} is the last one before it.")
            if row.id is None:
                return verdict(f"Entry {row.entry} was deleted (link {row.position}).")
            head = linked(end.head, row.position, row)
            if head != row.head:
                return verdict(f"{_named(row)} was changed after it was written (link {row.position}).")
            if row.at < latest - _BACK_US and len(doubts) < _MOST_DOUBTS:
                doubts.append(f"{_named(row)} is dated back: an entry before it is of {iso(latest)}.")
            end, latest = Head(row.position, head, row.id), max(latest, row.at)
            for known, name in exported.pop(row.position, ()):
                if known != head:
                    return verdict(f"Links were rewritten between {agreed} and link {row.position} ({name}).")
                agreed = f"link {row.position}"
    if exported:
        position, ((_, name), *_) = min(exported.items())
        return verdict(f"The end was cut off after link {end.position}: {name} has link {position}.")
    counted = connection.scalar(select(numbers.c.last).where(numbers.c.series == SERIES)) or 0
    if counted != end.position:
        return verdict(f"The end was cut off after link {end.position}: {counted} links were written.")
    unlinked = ~select(audit_links.c.entry).where(audit_links.c.entry == audit.c.id).exists()
    for row in connection.execute(select(audit).where(unlinked).order_by(audit.c.id).limit(1)):
        return verdict(f"{_named(row)} was added past the chain: it has no link.")
    return verdict(None)


def chain_all(connection: Connection) -> int:
    """Link the entries of a log from before there was a chain; return their number."""
    last, count = 0, 0
    while ids := list(
        connection.scalars(select(audit.c.id).where(audit.c.id > last).order_by(audit.c.id).limit(_ROWS))
    ):
        seal(connection, ids)
        last, count = ids[-1], count + len(ids)
    if count:
        values = {"model": None, "by": "local", "action": "chain_audit", "subject": f"{count} entries"}
        detail = {"through": last, "note": "chained after they were written"}
        latest = connection.scalar(select(func.max(audit.c.at)))
        seal(connection, [_insert(connection, {**values, "at": latest, "detail": detail})])
    return count


def _insert(connection: Connection, values: Mapping[str, Any]) -> int:
    return int(connection.execute(insert(audit).values(**values).returning(audit.c.id)).scalar_one())


def _named(row: Row[Any]) -> str:
    model = "" if row.model is None else f" of {row.model}"
    return f"Entry {row.id} ({row.action} {row.subject}{model} by {row.by}, {iso(row.at)})"
