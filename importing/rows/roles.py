"""Which column of a file is what."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from importing.errors import RowsError

_MAX_COLUMNS = 10_000
_SHOWN = 20


@dataclass(frozen=True)
class Roles:
    """What the caller said about the columns.

    Attributes:
        label: The true class; "" where `marks` have the labels.
        group: Rows that belong together.
        segment: Segments of a policy.
        part: Part of each row, if the caller splits the rows.
        time: When the row was observed.
        weight: Weight of the row.
        marks: Labels that a row has or lacks independently, 1 or 0.
        scores: The model's own scores.
        columns: Inputs of the model, in order; None for all columns without a role.
        text: Inputs that are texts even if each value is a number, those of them that exist; None for all inputs.
        drop: Columns to leave out.
        categories: Texts of columns that are not missing values, even if they are words for it.
        literal: Inputs of texts in which no word stands for a missing one; None for all inputs.
        named: Names that the model gives to its inputs: a column with a role is an input too if it is among them.
    """

    label: str
    group: str | None = None
    segment: str | None = None
    part: str | None = None
    time: str | None = None
    weight: str | None = None
    marks: tuple[str, ...] = ()
    scores: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    text: tuple[str, ...] | None = ()
    drop: tuple[str, ...] = ()
    categories: Mapping[str, Collection[str]] = field(default_factory=dict)
    literal: tuple[str, ...] | None = ()
    named: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        given = list(self._given())
        for name, _ in given:
            options = [option for other, option in given if other == name]
            if len(options) > 1:
                raise RowsError(
                    f"Column `{name}` has two roles: {' and '.join(options)}.", expected="one role a column"
                )
            if name in self.drop:
                raise RowsError(f"Column `{name}` is {options[0]}, and is dropped too.", expected="one role a column")
        for name, times in Counter(self.columns).items():
            if times > 1:
                raise RowsError(f"Column `{name}` is an input of the model twice.", expected="distinct columns")
            if name == self.label or name in (*self.marks, *self.scores, *self.drop):
                other = "the label" if name == self.label else "a score" if name in self.scores else "dropped"
                other = "a label" if name in self.marks else other
                raise RowsError(
                    f"Column `{name}` is an input of the model, and is {other} too.", expected="one role a column"
                )

    def check(self, names: Sequence[str], where: str) -> None:
        """Check the names of the columns.

        Args:
            names: Names of the file's columns, in order.
            where: The file, and the line of its header.

        Raises:
            RowsError: A name is empty or occurs twice, there are too many, or a role names an unknown column.
        """
        check_names(names, where)
        known = set(names)
        wanted = [*self._given(), *((name, "an input") for name in self.columns or ())]
        wanted += [(name, "dropped") for name in self.drop]
        for name, role in wanted:
            if name not in known:
                raise _unknown(name, role, names, where)

    def inputs(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the inputs of the model among the file's columns, in order."""
        if self.columns is not None:
            return self.columns
        other = {name for name, _ in self._given()} - self.named | {self.label, *self.marks, *self.scores, *self.drop}
        return tuple(name for name in names if name not in other)

    def others(self) -> tuple[str, ...]:
        """Return the columns with a role that are not inputs by that."""
        return tuple(name for name, _ in self._given())

    def _given(self) -> Iterator[tuple[str, str]]:
        for name in ("label", "group", "segment", "part", "time", "weight"):
            column = getattr(self, name)
            if column not in (None, ""):
                yield column, f"the {name}"
        for column in self.marks:
            yield column, "a label"
        for column in self.scores:
            yield column, "a score"


def check_names(names: Sequence[str], where: str) -> None:
    """Raise RowsError if a name of a column is empty or occurs twice, or there are too many."""
    if len(names) > _MAX_COLUMNS:
        raise RowsError(
            "The file has too many columns.", where=where, found=str(len(names)), expected=f"at most {_MAX_COLUMNS}"
        )
    for place, name in enumerate(names, start=1):
        if not name:
            raise RowsError(
                f"Column {place} has no name.",
                where=where,
                expected="a name for each column",
                remedy="pandas writes row numbers so: use to_csv(…, index=False).",
            )
    name, times = Counter(names).most_common(1)[0] if names else ("", 1)
    if times > 1:
        raise RowsError(f"Duplicate column `{name}` ({times} times).", where=where, expected="distinct names")


def _unknown(name: str, role: str, names: Sequence[str], where: str) -> RowsError:
    like = difflib.get_close_matches(name, names, n=1)
    alike = [known for known in names if known.lower() == name.strip().lower()]
    near = (alike or like)[:1]
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    return RowsError(
        f"The file has no column `{name}` ({role}).",
        where=where,
        expected=f"one of {shown}" if names else "a file with columns",
        remedy=f"Did you mean `{near[0]}`?" if near else None,
    )
