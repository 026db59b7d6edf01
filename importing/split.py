"""Split validation rows into fit, certify and gate rows, by a keyed hash of their group or by a column of the file."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from bundle.reference import PARTS
from bundle.split import group_hash, roles
from importing.errors import RowsError
from importing.fingerprints import fingerprints
from importing.rows import Rows

SHARES: Final = (0.5, 0.45, 0.05)
"""Default shares of fit, certify and gate rows."""


def split(rows: Rows, shares: tuple[float, float, float] = SHARES, *, seed: int) -> dict[str, NDArray[np.int64]]:
    """Return the positions of the rows of each part.

    All rows of a group are in one part, and rows with equal inputs are one group if they have none. If the rows have a
    column of parts (`rows.part`), it decides.

    Args:
        rows: The rows.
        shares: Expected shares of fit, certify and gate rows, with sum 1; only the gate's may be 0.
        seed: Key of the hash, 0 or above; other seeds give other splits.

    Returns:
        int64 positions by part (`fit`, `certify`, `gate`), disjoint and together all rows; in the order of time if the
        rows have one, else of the file.

    Raises:
        RowsError: A part has no rows, a class has no fit rows, a group is in two parts, or the shares are invalid.
    """
    groups = group_numbers(rows, seed)
    if rows.part is None:
        check_shares(shares)
        part = roles(groups, shares)
        needed = 3 if shares[2] > 0 else 2
    else:
        part = _given(rows, groups)
        needed = 2
    counts = np.bincount(part, minlength=3)
    if not counts[:needed].all():
        told = ", ".join(f"{count} {name}" for name, count in zip(PARTS, counts, strict=True))
        raise RowsError(
            "Too few groups to split into fit, certify and gate rows.",
            where=str(rows.path),
            found=f"{told} rows, of {len(np.unique(groups)):,} groups",
            expected="rows in each part; all rows of a group are in one part",
            remedy="Bring more rows, or try another seed.",
        )
    absent = set(rows.classes) - set(rows.label[part == 0].tolist())
    if absent:
        name = min(absent, key=rows.classes.index)
        count = int((rows.label == name).sum())
        raise RowsError(
            f"The class `{name}` has no fit rows.",
            where=str(rows.path),
            found=f"{count} row{'s' * (count > 1)} of it, none in the fit part",
            expected="each class among the fit rows",
            remedy="Bring more rows of this class, or try another seed.",
        )
    order = np.arange(len(rows)) if rows.time is None else np.argsort(rows.time, kind="stable")
    return {name: order[part[order] == place] for place, name in enumerate(PARTS)}


def check_shares(shares: tuple[float, float, float]) -> None:
    """Refuse shares that are not a split; raises RowsError."""
    if len(shares) != 3 or not min(shares[:2]) > 0 <= shares[2] or abs(sum(shares) - 1) > 1e-9:
        raise RowsError(
            "The split is invalid.",
            found=",".join(f"{share:g}" for share in shares),
            expected="three shares with sum 1, as 0.5,0.45,0.05; only the last may be 0",
        )


def group_numbers(rows: Rows, seed: int) -> NDArray[np.int64]:
    """Return each row's group as a keyed hash, int64 (N,).

    Args:
        rows: The rows; a row without a group is in one with all rows that have the same inputs and no group.
        seed: Key of the hash, 0 or above.
    """
    secret = f"candor-import-{seed}".encode()
    keys: list[str | bytes]
    if rows.group is None:
        keys = [number.tobytes() for number in fingerprints(rows)]
    else:
        own = fingerprints(rows) if (rows.group == None).any() else None  # noqa: E711  # of an array
        keys = [own[row].tobytes() if key is None and own is not None else key for row, key in enumerate(rows.group)]
    hashes = {key: group_hash(secret, key) for key in set(keys)}
    return np.fromiter(map(hashes.__getitem__, keys), np.int64, len(keys))


def check_parts(rows: Rows) -> None:
    """Refuse a column of parts with other values; raises RowsError."""
    for row, name in enumerate(() if rows.part is None else rows.part):
        if name not in PARTS:
            raise RowsError("Unknown part.", where=rows.where(row), found=f"`{name}`", expected=", ".join(PARTS))


def _given(rows: Rows, groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the parts that the file's column gives, as positions in `PARTS`."""
    check_parts(rows)
    names = list(rows.part) if rows.part is not None else []
    part = np.array([PARTS.index(name) for name in names], np.int64)
    _, first, place = np.unique(groups, return_index=True, return_inverse=True)
    torn = np.flatnonzero(part != part[first][place])
    if len(torn) and rows.group is not None:
        row = int(torn[0])
        other = int(first[place[row]])
        key = rows.group[row]
        raise RowsError(
            "Equal rows are in two parts." if key is None else f"The group `{key}` is in two parts.",
            where=rows.where(row),
            found=f"{names[row]}, and {names[other]} in {rows.unit} {rows.lines[other]}",
            expected="all rows of a group in one part",
        )
    return part
