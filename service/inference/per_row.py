"""What clients say of the rows of a request besides their inputs: the one list of such fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from bundle.table import Cell
from service.errors import InputShapeError
from service.inference.amounts import AMOUNTS
from service.places import in_body

NAMES: Final = ("references", "groups", "segments")
"""Fields of texts, see `check_name`."""

PER_ROW: Final = (*NAMES, AMOUNTS)
"""All fields that a request may have, in any protocol."""


@dataclass(slots=True, eq=False)  # not frozen: its making would take several times as long, once per request
class PerRow:
    """What is said of N rows, never changed. A field has one entry per row, each may be None; None without any.

    A new field is passed on from the requests of all protocols to the log by its line here and its name above.

    Attributes:
        references: The client's names of the rows.
        groups: Groups of the rows (card, patient …).
        segments: Segments of the rows.
        amounts: Amounts at stake in the rows.
        carried: Cells of the rows that only challengers need.
    """

    references: Sequence[str | None] | None = None
    groups: Sequence[str | None] | None = None
    segments: Sequence[str | None] | None = None
    amounts: Sequence[float | None] | None = None
    carried: Sequence[Mapping[str, Cell] | None] | None = None

    def check(self, rows: int) -> None:
        """Raise InputShapeError unless the fields of a request have one entry per row."""
        for name in PER_ROW:
            if (given := getattr(self, name)) is not None and len(given) != rows:
                raise InputShapeError(
                    f"`{name}` must have one entry per input.", where=in_body(name), found=len(given), expected=rows
                )

    def part(self, rows: slice) -> PerRow:
        """Return what is said of some of the rows."""
        return self if self is NOTHING_SAID else PerRow(*(each and each[rows] for each in self._fields()))

    def _fields(self) -> list[Sequence[Any] | None]:
        return [getattr(self, name) for name in PerRow.__slots__]


NOTHING_SAID: Final = PerRow()


def joined(parts: Sequence[PerRow], sizes: Sequence[int]) -> PerRow:
    """Return what is said of the rows of all parts, one part behind the other.

    Args:
        parts: What is said of the rows of each.
        sizes: Number of rows of each.
    """
    if len(parts) == 1 or all(part is NOTHING_SAID for part in parts):
        return parts[0]
    return PerRow(*(_joined(each, sizes) for each in zip(*(part._fields() for part in parts), strict=True)))


def _joined(given: Sequence[Sequence[Any] | None], sizes: Sequence[int]) -> list[Any] | None:
    if all(each is None for each in given):
        return None
    return list(chain.from_iterable(each or [None] * size for each, size in zip(given, sizes, strict=True)))
