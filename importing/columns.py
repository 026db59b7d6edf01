"""The column report: what the validation rows hold, and what is suspicious about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bundle.reference import PARTS
from importing.class_sizes import ClassSize, class_sizes, group_count, size_warnings
from importing.errors import RowsError
from importing.printable import printable
from importing.rows import ImageFile, Rows
from importing.split import SHARES, check_parts
from importing.suspicions import column_warnings, duplicate_warnings

_MAX_CLASSES = 1_000
_MANY_CLASSES = 50
_MANY_DISTINCT = 0.2
_TOP = 3


@dataclass(frozen=True)
class ColumnSummary:
    """One input of the model.

    Attributes:
        name: Its name.
        kind: `number`, `text`, `tensor` (of `.npz`) or `image`.
        missing: Share of missing values.
        distinct: Number of distinct values that are not missing; None for tensors and images.
        low: Minimum of the numbers (of an image: bytes); None without one.
        median: Their median.
        high: Their maximum.
        top: The most frequent texts with their numbers of rows.
        unknown: Texts that are not among the model's categories, with their numbers of rows.
        form: Type and shape of a tensor's row, such as "int32 (128,)"; else "".
    """

    name: str
    kind: Literal["number", "text", "tensor", "image"]
    missing: float
    distinct: int | None = None
    low: float | None = None
    median: float | None = None
    high: float | None = None
    top: tuple[tuple[str, int], ...] = ()
    unknown: tuple[tuple[str, int], ...] = ()
    form: str = ""


@dataclass(frozen=True)
class ColumnReport:
    """What the rows hold.

    Attributes:
        rows: Number of rows.
        groups: Number of groups; None without groups.
        label: Name of the label's column; "" for an image folder.
        columns: Inputs of the model, in order.
        classes: Classes of the label, in order.
        warnings: What is suspicious, a sentence or two each.
    """

    rows: int
    groups: int | None
    label: str
    columns: tuple[ColumnSummary, ...]
    classes: tuple[ClassSize, ...]
    warnings: tuple[str, ...]


def describe(
    rows: Rows, *, certify: float = SHARES[1], categories: Mapping[str, Sequence[str]] | None = None
) -> ColumnReport:
    """Describe validation rows.

    Args:
        rows: The rows.
        certify: Share of the rows that certify; the rows' own column of parts comes first.
        categories: Texts that the model knows, by column.

    Raises:
        RowsError: The label has too many classes, there are too few groups to split the rows, or none certifies.
    """
    known = {name: frozenset(values) for name, values in (categories or {}).items()}
    columns = tuple(_summary(name, values, known.get(name)) for name, values in rows.features.items())
    _check_classes(rows, columns)
    groups = group_count(rows)
    if groups is not None and groups < len(PARTS):
        raise RowsError(
            "Too few groups to split into fit, certify and gate rows.",
            where=str(rows.path),
            found=f"{groups} group{'s' * (groups != 1)}",
            expected=f"at least {len(PARTS)}; useful certificates require hundreds",
        )
    if rows.part is not None:
        check_parts(rows)
        certify = float((rows.part == "certify").mean())
    if not certify > 0:
        raise RowsError("No rows certify.", where=str(rows.path), expected="a part `certify`, or a share above 0")
    sizes = class_sizes(rows, certify)
    warnings = size_warnings(rows, sizes, certify)
    for column in columns:
        if column.distinct is not None:
            warnings += column_warnings(rows, column.name, column.distinct, column.missing)
        if column.unknown:
            count = sum(number for _, number in column.unknown)
            warnings.append(
                f"{count:,} row{'s have' if count > 1 else ' has'} a value of `{column.name}` that the model does not "
                f"know, such as {column.unknown[0][0][:100]!r}."
            )
    warnings += duplicate_warnings(rows)
    return ColumnReport(len(rows), groups, rows.label_name, columns, sizes, tuple(warnings))


def print_report(report: ColumnReport, console: Console) -> None:
    """Print a report as tables, and its warnings below them."""
    groups = "" if report.groups is None else f" in {report.groups:,} groups"
    inputs = f", {len(report.columns):,} input{'s' * (len(report.columns) > 1)}" if report.columns else ""
    console.print(_text(f"{report.rows:,} rows{groups}{inputs}"))
    if report.columns:
        table = Table("input", "type", "missing", "distinct", "values")
        for column in report.columns:
            distinct = "" if column.distinct is None else f"{column.distinct:,}"
            kind = column.form or column.kind
            missing = f"{column.missing:.1%}" if column.missing else "0"
            table.add_row(*map(_text, (column.name, kind, missing, distinct, _values(column, report.rows))))
        console.print(table)
    table = Table("class", "rows", "base rate", "certifiable precision or recall")
    for row in report.classes[:_MANY_CLASSES]:
        table.add_row(*map(_text, (row.name, f"{row.rows:,}", f"{row.share:.2%}", f"at most {row.certifiable:.4f}")))
    console.print(table)
    if len(report.classes) > _MANY_CLASSES:
        console.print(f"… and {len(report.classes) - _MANY_CLASSES:,} more classes")
    for warning in report.warnings:
        console.print(Text.assemble(("Warning: ", "yellow"), _text(warning)))


def _check_classes(rows: Rows, columns: tuple[ColumnSummary, ...]) -> None:
    counts = Counter(rows.label.tolist())
    many = len(counts) > _MANY_CLASSES and len(counts) > _MANY_DISTINCT * len(rows)
    if len(counts) > _MAX_CLASSES or many:
        few = [column.name for column in columns if 2 <= (column.distinct or 0) <= _MANY_CLASSES]
        raise RowsError(
            f"`label={rows.label_name}` has {len(counts):,} distinct values. Did you mean another column?",
            where=str(rows.path),
            found=", ".join(name for name, _ in counts.most_common(_TOP)) + ", …",
            expected=f"at most {_MANY_CLASSES} classes; {_MAX_CLASSES:,} with five rows each",
            remedy=f"Columns with few values: {', '.join(few[:10])}." if few else None,
        )


def _summary(name: str, values: NDArray[Any], known: frozenset[str] | None) -> ColumnSummary:
    if values.ndim > 1:
        missing = 0.0
        if values.dtype.kind == "f":
            parts = np.array_split(values, 1 + (values.nbytes >> 20))
            missing = sum(int(np.isnan(part).sum()) for part in parts) / values.size
        low, high = _bounds(values)
        return ColumnSummary(name, "tensor", missing, low=low, high=high, form=f"{values.dtype} {values.shape[1:]}")
    if values.dtype.kind in "OU":
        cells = values.tolist()
        if isinstance(cells[0], ImageFile):
            sizes = np.array([cell.size for cell in cells])
            return ColumnSummary(
                name, "image", 0.0, None, float(sizes.min()), float(np.median(sizes)), float(sizes.max())
            )
        counts = Counter(cells)
        none = counts.pop(None, 0)
        top = tuple(counts.most_common(_TOP))
        unknown = () if known is None else tuple(each for each in counts.most_common() if each[0] not in known)
        return ColumnSummary(name, "text", none / len(cells), len(counts), top=top, unknown=unknown)
    numbers = values.astype(np.float64)
    numbers = numbers[~np.isnan(numbers)]
    missing = 1 - len(numbers) / len(values)
    form = "" if values.dtype == np.float64 else str(values.dtype)
    if not len(numbers):
        return ColumnSummary(name, "number", missing, 0, form=form)
    low, high = _bounds(numbers)
    return ColumnSummary(
        name, "number", missing, len(np.unique(numbers)), low, float(np.median(numbers)), high, form=form
    )


def _bounds(values: NDArray[Any]) -> tuple[float | None, float | None]:
    if values.dtype.kind not in "biuf" or not values.size:
        return None, None
    low, high = (float(reduce(values, axis=None)) for reduce in (np.fmin.reduce, np.fmax.reduce))
    return (None, None) if np.isnan(low) else (low, high)


def _text(told: str) -> Text:
    """Return names from the file without markup and control characters."""
    return Text(printable(told))


def _values(column: ColumnSummary, rows: int) -> str:
    if column.low is None:
        return ", ".join(f"{value[:24]} {count / rows:.1%}" for value, count in column.top)
    numbers = [column.low, column.median, column.high]
    told = " … ".join(f"{number:,.6g}" for number in numbers if number is not None)
    return f"{told} bytes" if column.kind == "image" else told
