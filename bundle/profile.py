"""How a table's reference rows are distributed, column by column: what traffic is compared with to find drift.

Bins are chosen on fit rows and counted on the other reference rows, so that the counts are those of an independent
sample. Values are profiled as the graph takes them; only bins and counts are kept, never a row.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from bundle.errors import BundleFormatError
from bundle.manifest import PROFILE_FILE
from bundle.table import Column, Columns

MOST_COLUMNS: Final = 500
"""Columns with a profile: the first of the table."""
_MOST_VALUES = 20
_QUANTILES = 10
_MAX_BINS = 32  # of a file that is read; `of` makes 23 or fewer
_MAX_COUNT = 2**53
_SCHEMA_VERSION = 1


@dataclass(frozen=True)
class ColumnProfile:
    """The bins of one column, and the reference rows in each.

    Attributes:
        name: Name of the column.
        edges: Increasing upper ends of the bins of a number; above the last is one more bin.
        values: The most frequent categories, each a bin.
        counts: Reference rows in each bin, 0 or above. Where rows have groups or weights, the counts are scaled down to
            the number of independent rows that they are worth.
    """

    name: str
    edges: tuple[float, ...]
    values: tuple[str, ...]
    counts: tuple[int, ...]

    def bin_names(self, column: Column) -> tuple[str, ...]:
        """Return a name of each bin.

        Example:
            >>> ColumnProfile("age", (30.0, 45.0), (), (5, 9, 6, 0)).bin_names(Column("age"))
            ('≤ 30', '≤ 45', '> 45', 'missing')
        """
        if column.kind == "number":
            last = f"> {self.edges[-1]:.6g}" if self.edges else "any number"
            return (*map(self._bin_name, range(len(self.edges))), last, "missing")
        return (*self.values, *_REST[_rest(column)])

    def _bin_name(self, place: int) -> str:
        """Return the name of the bin below an edge: `< 3`, `3` for a value with a bin of its own, or `≤ 3`."""
        below, edge, above = (
            self.edges[at] if 0 <= at < len(self.edges) else math.nan for at in range(place - 1, place + 2)
        )
        if edge == math.nextafter(above, -math.inf):
            return f"< {above:.6g}"
        return f"{edge:.6g}" if below == math.nextafter(edge, -math.inf) else f"≤ {edge:.6g}"


_REST: Final = {
    "codes": ("other categories", "missing or unknown"),  # both have the code of absent categories
    "texts": ("other categories", "unknown", "missing"),
    "free": ("present", "missing"),
}


@dataclass(frozen=True)
class Profile:
    """Profiles of the first columns of a table, in order.

    Attributes:
        columns: At most `MOST_COLUMNS`.

    Example:
        >>> ages = np.array([[20.0], [20.0], [30.0], [np.nan]], np.float32)
        >>> Profile.of(Columns((Column("age"),)), ages, ages).columns[0]
        ColumnProfile(name='age', edges=(19.999999999999996, 20.0, 30.0), values=(), counts=(0, 2, 1, 0, 1))
    """

    columns: tuple[ColumnProfile, ...]

    @classmethod
    def of(
        cls,
        columns: Columns,
        chosen_on: NDArray[Any],
        counted_on: NDArray[Any],
        *,
        weight: NDArray[np.float64] | None = None,
        group: NDArray[np.int64] | None = None,
    ) -> Self:
        """Choose bins on some rows and count others.

        Args:
            columns: Columns of the table.
            chosen_on: Encoded rows that the bins are chosen on, see `Columns.encode`.
            counted_on: Other rows of the same population, encoded (N, …).
            weight: Weights of the counted rows, above 0, (N,); None for 1.
            group: Numbers of their groups, (N,); None where each row is its own.
        """
        found = []
        weights = np.ones(len(counted_on)) if weight is None else weight
        groups = np.arange(len(counted_on)) if group is None else np.unique(group, return_inverse=True)[1]
        for place, column in enumerate(columns.columns[:MOST_COLUMNS]):
            values = _column_of(chosen_on, columns, place)
            edges = _edges(values) if column.kind == "number" else ()
            top = () if column.kind == "number" else _most_frequent(values, column)
            bins = _Bins(ColumnProfile(column.name, edges, top, ()), column)
            at = bins.of(_column_of(counted_on, columns, place))
            plain = weight is None and group is None
            counts = np.bincount(at, minlength=bins.size)
            found.append(
                ColumnProfile(
                    column.name, edges, top, tuple((counts if plain else _worth(at, counts, weights, groups)).tolist())
                )
            )
        return cls(tuple(found))

    def bins(self, columns: Columns, rows: NDArray[Any]) -> list[NDArray[np.int64]]:
        """Return the bin of each encoded row (N, …), one array (N,) for each profiled column."""
        return [
            _Bins(profile, columns.columns[place]).of(_column_of(rows, columns, place))
            for place, profile in enumerate(self.columns)
        ]

    def check(self, columns: Columns | None) -> None:
        """Raise BundleFormatError unless these are profiles of the first of these columns."""
        own = () if columns is None else columns.columns[: min(len(self.columns), MOST_COLUMNS)]
        if columns is None or [profile.name for profile in self.columns] != [column.name for column in own]:
            raise _wrong("the profile does not fit the columns", str([profile.name for profile in self.columns]))
        for profile, column in zip(self.columns, own, strict=True):
            strange = profile.values if column.kind == "number" else profile.edges
            if (
                strange
                or not {*profile.values} <= {*column.codes}
                or len(profile.counts) != _Bins(profile, column).size
            ):
                raise _wrong(f"the profile of {column.name!r} does not fit the column", str(profile))

    def dump(self) -> bytes:
        """Return the bytes of `profile.json`."""
        document = {"schema_version": _SCHEMA_VERSION, "columns": [asdict(column) for column in self.columns]}
        return json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False).encode() + b"\n"

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Read `profile.json`; raises BundleFormatError."""
        try:
            document: Any = json.loads(data)
            if document.keys() != {"schema_version", "columns"} or document["schema_version"] != _SCHEMA_VERSION:
                raise _wrong("unexpected fields", str(document), f"columns, of schema version {_SCHEMA_VERSION}")
            return cls(tuple(_profile(**column) for column in document["columns"]))
        except (ValueError, RecursionError, AttributeError, TypeError) as error:
            raise BundleFormatError(f"invalid profile: {error}", file=PROFILE_FILE) from error


class _Bins:
    """From the encoded values of a column to its bins."""

    def __init__(self, profile: ColumnProfile, column: Column) -> None:
        self._profile = profile
        self._column = column
        self.size = len(profile.bin_names(column))

    def of(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return the bin of each value, int64 (N,)."""
        if self._column.kind == "number":
            numbers = values.astype(np.float64)
            found = np.searchsorted(np.array(self._profile.edges, np.float64), numbers, side="left")
            return np.where(np.isnan(numbers), self.size - 1, found)
        if self._column.categories is None:
            return np.where(values == self._column.fill, 1, 0)
        keys, bins = self._known
        unknown = self.size - (1 if self._column.kind == "category" else 2)
        if not len(keys):
            return np.full(len(values), unknown)
        at = np.searchsorted(keys, values) % len(keys)  # NaN, a missing category, comes after the last
        return np.where(keys[at] == values, bins[at], unknown)

    @cached_property
    def _known(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Known encoded values in order, and their bins."""
        column, values = self._column, self._profile.values
        other = len(values)
        place = {value: at for at, value in enumerate(values)}
        bins = {
            code if column.kind == "category" else text: place.get(text, other) for text, code in column.codes.items()
        }
        if column.kind == "text":
            bins.setdefault(column.fill, self.size - 1)
        order = sorted(bins)
        return np.array(order), np.array([bins[key] for key in order], np.int64)


def _rest(column: Column) -> str:
    if column.categories is None:
        return "free"
    return "codes" if column.kind == "category" else "texts"


def _column_of(rows: NDArray[Any], columns: Columns, place: int) -> NDArray[Any]:
    """Return the encoded values of the column at a place, (N,)."""
    if rows.dtype.names is None:
        return rows[:, place]
    column = columns.columns[place]
    tensor: NDArray[Any] = rows[column.tensor]
    if tensor.ndim == 1:
        return tensor
    return tensor[:, sum(other.tensor == column.tensor for other in columns.columns[:place])]


def _edges(values: NDArray[Any]) -> tuple[float, ...]:
    """Return edges at deciles; a value on several deciles, and each of few values, has a bin of its own."""
    known = values.astype(np.float64)
    known = np.sort(known[~np.isnan(known)])
    if not len(known):
        return ()
    distinct = np.unique(known)
    if len(distinct) <= _QUANTILES:
        alone, edges = distinct[:1], distinct
    else:
        shares = np.arange(1, _QUANTILES) / _QUANTILES
        edges, times = np.unique(np.quantile(known, shares, method="inverted_cdf"), return_counts=True)
        alone = edges[times > 1]
    return tuple(np.union1d(np.nextafter(alone, -math.inf), edges).tolist())


def _most_frequent(values: NDArray[Any], column: Column) -> tuple[str, ...]:
    if column.categories is None:
        return ()
    counts = Counter(values.tolist())
    seen = {text: counts[code if column.kind == "category" else text] for text, code in column.codes.items()}
    return tuple(sorted((text for text in seen if seen[text]), key=lambda text: -seen[text])[:_MOST_VALUES])


def _worth(
    at: NDArray[np.int64], counts: NDArray[np.int64], weight: NDArray[np.float64], group: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return weighted shares of bins times the number of independent rows that dependent, weighted rows are worth.

    The number is that at which the least certain share would be as certain: N over the largest design effect (Kish
    1965, Survey sampling, section 8.2), at most N.

    Args:
        at: Bin of each row, (N,).
        counts: Rows in each bin, (B,).
        weight: Weights, (N,).
        group: Numbers of the groups from 0 on, (N,).
    """
    total = weight.sum()
    share = np.bincount(at, weight, len(counts)) / total
    sizes = np.bincount(group, weight)
    worth = float(total**2 / (sizes**2).sum())  # where no share varies
    seen = np.flatnonzero((share > 0) & (share < 1))
    if len(seen):
        sums = (np.bincount(group, weight * ((at == place) - share[place])) / total for place in seen)
        variance = np.array([each @ each for each in sums]) * len(sizes) / max(len(sizes) - 1, 1)
        worth = min(float((share[seen] * (1 - share[seen]) / variance).min()), len(at))
    scaled: NDArray[np.int64] = np.rint(share * worth).astype(np.int64)
    return scaled


def _profile(*, name: str, edges: list[float], values: list[str], counts: list[int]) -> ColumnProfile:
    if (
        not all(isinstance(text, str) for text in (name, *values))
        or not all(type(edge) in (int, float) and math.isfinite(edge) for edge in edges)
        or len(counts) > _MAX_BINS
        or any(low >= high for low, high in itertools.pairwise(edges))
        or not all(type(count) is int and 0 <= count <= _MAX_COUNT for count in counts)
    ):
        raise TypeError(f"a column of {[name, edges, values, counts]!r}"[:300])
    return ColumnProfile(name, tuple(edges), tuple(values), tuple(counts))


def _wrong(
    message: str, found: str, expected: str = "a bin for each count, in the columns' order"
) -> BundleFormatError:
    return BundleFormatError(message, file=PROFILE_FILE, found=found[:300], expected=expected)
