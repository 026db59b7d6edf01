"""What the rows of each class can certify."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Final

from importing.rows import Rows

DELTA: Final = 0.05
"""One minus the confidence of the bounds."""

PROMISE: Final = 0.9
"""Promise that warnings measure the rows by."""

_FEW_ROWS = 10
_FEW_GROUPS = 30
_SHOWN = 5


@dataclass(frozen=True)
class ClassSize:
    """One class of the label.

    Attributes:
        name: Its name.
        rows: Number of its rows.
        share: Their share of all rows: its base rate.
        units: Rows that count for a certificate: the groups among them, or all without groups.
        certify: Expected number of these among the certify rows.
    """

    name: str
    rows: int
    share: float
    units: int
    certify: int

    @property
    def certifiable(self) -> float:
        """Highest precision or recall for this class that can be certified, if no certify row is an error."""
        return highest_share(self.certify)


def class_sizes(rows: Rows, certify: float) -> tuple[ClassSize, ...]:
    """Return the sizes of the classes, in their order.

    Args:
        rows: The rows.
        certify: Share of the rows that certify.
    """
    labels = rows.label.tolist()
    counts = units = Counter(labels)
    if rows.group is not None:
        keys = enumerate(rows.group.tolist())
        pairs = {(label, row if key is None else key) for label, (row, key) in zip(labels, keys, strict=True)}
        units = Counter(label for label, _ in pairs)
    return tuple(
        ClassSize(name, counts[name], counts[name] / len(rows), units[name], round(units[name] * certify))
        for name in rows.classes
    )


def group_count(rows: Rows) -> int | None:
    """Return the number of groups; each row without one is a group of its own. None without groups."""
    if rows.group is None:
        return None
    groups = Counter(rows.group.tolist())
    alone = groups.pop(None, 0)
    return len(groups) + alone


def highest_share(n: int) -> float:
    """Return the largest share that n rows certify if all n are right: the p with pⁿ = `DELTA`; 0 without rows.

    >>> round(highest_share(3), 3), round(highest_share(59), 3)
    (0.368, 0.95)
    """
    return DELTA ** (1 / n) if n else 0.0


def size_warnings(rows: Rows, sizes: tuple[ClassSize, ...], certify: float) -> list[str]:
    """Say which classes and groups are too few for a promise of `PROMISE`.

    Args:
        rows: The rows.
        sizes: Sizes of the classes.
        certify: Share of the rows that certify.
    """
    unit, groups = ("rows", None) if rows.group is None else ("groups", group_count(rows))
    needed = math.ceil(math.log(DELTA) / math.log(PROMISE))
    weak = sorted((size for size in sizes if size.certify < needed), key=lambda size: size.rows)
    warnings = [
        f"{size.rows:,} {'row' if size.rows == 1 else 'rows'} of `{size.name}` in {len(rows):,} "
        f"{'certifies' if size.rows == 1 else 'certify'} {'nothing' if size.certifiable < 0.5 else 'little'}: "
        + (
            f"it is a certify row with a chance of {certify:.0%}. "
            if size.rows == 1
            else f"about {size.certify} of its {size.units:,} {unit} will be certify rows. Even if all of these are "
            f"right, the highest precision or recall that they certify at {1 - DELTA:.0%} confidence is "
            f"{size.certifiable:.2f}. "
        )
        + f"{PROMISE:.2f} requires {needed} of them, so about {math.ceil(needed / certify):,} {unit} of "
        f"`{size.name}` in the file."
        for size in weak[:_SHOWN]
    ]
    if len(weak) > _SHOWN:
        warnings.append(f"Classes with too few {unit} to certify {PROMISE:.2f}, in addition: {len(weak) - _SHOWN:,}.")
    few = [size for size in sizes if size.rows < _FEW_ROWS]
    if few:
        shown = ", ".join(f"`{size.name}` ({size.rows})" for size in few[:_SHOWN])
        rest = f" and {len(few) - _SHOWN:,} more" if len(few) > _SHOWN else ""
        warnings.append(f"Fewer than {_FEW_ROWS} rows: {shown}{rest}. A part of the split may have none of them.")
    n = round((len(rows) if groups is None else groups) * certify)
    if n < needed:
        warnings.append(
            f"About {n} certify {unit} cannot certify a flag rate or error rate below {1 - highest_share(n):.1%} "
            f"at {1 - DELTA:.0%} confidence."
        )
    if groups is not None and groups < _FEW_GROUPS:
        warnings.append(f"There are only {groups} groups. All rows of a group count as one for a certificate.")
    return warnings
