"""A table in a CSV file: numbers, categories, and a label column."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bundle import RowError
from bundle.table import Column, Columns, is_missing, parse_number
from training.data.dataset import Dataset
from training.data.distribution import Distribution, Files
from training.data.groups import numbered
from training.errors import ConfigurationError

Names = Sequence[str]

TABLE = Distribution(
    title="CSV table",
    folders=(),
    obtain="Set `file` to its path: absolute, or relative to the folder of data sets (else the current folder).",
    layout="UTF-8, cells separated by commas, distinct column names in the first line, then as many cells in each "
    "line; one column holds the label.",
)


def load(
    root: Path | None = None,
    *,
    file: str | None = None,
    label: str | None = None,
    drop: Names = (),
    categorical: Names = (),
    label_names: Names = (),
    weight: str | None = None,
    group: str | None = None,
) -> Dataset:
    """A table of your own: a CSV file with a label column; the other columns are numbers or categories.

    A column is categorical if it is declared so or contains a cell that is not a number. A cell is missing if it is
    empty, `NA`, `NaN`, `null` or `?`. Numbers stay unchanged, the graph standardises them; categories become codes from
    1, with 0 for unknown and missing ones.

    Args:
        root: Folder that `file` begins at; None for CANDOR_DATA, else the current folder.
        file: Path of the CSV file.
        label: Name of the label's column.
        drop: Columns to leave out, such as row or customer numbers.
        categorical: Columns whose numbers are categories, such as postal codes.
        label_names: Names of the classes in the order of the label's values (numeric if all are numbers, else
            alphabetic); by default the values themselves.
        weight: Column of row weights, positive numbers; no input of the model.
        group: Column of groups: rows that belong together, which no two parts share; no input of the model.

    Returns:
        Rows float32 (N, F), NaN for a missing number; labels in the order of their values.

    Raises:
        ConfigurationError: A setting is missing, or names an unknown column.
        DataError: The file is missing or not a valid table, a label is missing, or there is only one class.
    """
    if file is None or label is None:
        raise ConfigurationError("a table requires the settings `file` (its path) and `label` (the label column)")
    files = TABLE.own(root, file)
    return read_table(
        "table", files, Path(file).name, label, drop, categorical, label_names, weight=weight, group=group
    )


def read_table(
    name: str,
    files: Files,
    file: str,
    label: str,
    drop: Names,
    categorical: Names,
    label_names: Names,
    *,
    weight: str | None = None,
    group: str | None = None,
) -> Dataset:
    """Read a table with known settings; see `load`."""
    header, lines = _read(files, file)
    roles = tuple(column for column in (weight, group) if column is not None)
    unknown = [column for column in (label, *drop, *categorical, *roles) if column not in header]
    if unknown:
        raise ConfigurationError(f"{file} has no column {unknown[0]!r}; its columns are {', '.join(header)}")
    places = {column: place for place, column in enumerate(header)}
    labels, names = _labels(files, file, [line[places[label]].strip() for line in lines], label_names)
    left_out = {label, *drop, *roles}
    columns = Columns(
        tuple(
            _column(column, [line[place] for line in lines], forced=column in categorical)
            for column, place in places.items()
            if column not in left_out
        )
    )
    try:
        inputs = columns.encode(dict(zip(header, line, strict=True)) for line in lines)
    except RowError as error:
        raise files.problem(f"{file}: {error}") from error
    weights = None if weight is None else _weights(files, file, [line[places[weight]] for line in lines])
    cells = None if group is None else [line[places[group]].strip() for line in lines]
    return Dataset(
        name,
        inputs,
        labels,
        names,
        "array",
        sources=files.digests,
        columns=columns,
        weights=weights,
        groups=None if cells is None else numbered([None if is_missing(cell) else cell for cell in cells]),
    )


def _read(files: Files, file: str) -> tuple[list[str], list[list[str]]]:
    try:
        text = files.read(file).decode("utf-8-sig")
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise files.problem(f"{files.folder / file} is not a valid table: {error}") from error
    if not lines:
        raise files.problem(f"{files.folder / file} is empty")
    header, lines = [column.strip() for column in lines[0]], lines[1:]
    if len(header) == 1:
        raise files.problem(f"{files.folder / file} has only one column, {header[0]!r}")
    if len(set(header)) != len(header):
        twice = next(column for column in header if header.count(column) > 1)
        raise files.problem(f"{files.folder / file} has the column {twice!r} twice")
    lines = [line for line in lines if line]
    for number, line in enumerate(lines, start=2):
        if len(line) != len(header):
            raise files.problem(f"{files.folder / file}, row {number}: {len(line)} cells, not {len(header)}")
    if not lines:
        raise files.problem(f"{files.folder / file} has no rows")
    return header, lines


def _labels(
    files: Files, file: str, values: list[str], names: Sequence[str]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    for number, value in enumerate(values, start=2):
        if is_missing(value):
            raise files.problem(f"{files.folder / file}, row {number}: the label is missing")
    distinct = sorted(set(values))
    if all(_is_number(value) for value in distinct):
        distinct.sort(key=float)
    if names and len(names) != len(distinct):
        raise ConfigurationError(
            f"{len(names)} label_names for {len(distinct)} values of the label: {', '.join(distinct[:20])}"
        )
    codes = {value: code for code, value in enumerate(distinct)}
    return np.array([codes[value] for value in values], np.int64), tuple(names) or tuple(distinct)


def _weights(files: Files, file: str, cells: list[str]) -> NDArray[np.float64]:
    weights = np.array([float(cell) if _is_number(cell) else np.nan for cell in cells])
    wrong = ~(np.isfinite(weights) & (weights > 0))
    if wrong.any():
        row = int(wrong.argmax())
        raise files.problem(f"{files.folder / file}, row {row + 2}: the weight is {cells[row]!r}, expected above 0")
    return weights


def _column(name: str, values: list[str], *, forced: bool) -> Column:
    present = {value.strip() for value in values if not is_missing(value)}
    if not forced and all(_is_number(value) for value in present):
        return Column(name)
    return Column(name, tuple(sorted(present)))


def _is_number(value: str) -> bool:
    try:
        parse_number(value)
    except ValueError:
        return False
    return True
