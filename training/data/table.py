"""A table in files: numbers, categories, and a label column."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from importing.errors import RowsError
from importing.rows.roles import Roles
from training.data.dataset import Dataset
from training.data.distribution import Distribution, Files
from training.data.equal import equal_rows
from training.data.odd_columns import odd_columns
from training.data.row_files import RowFiles
from training.data.table_rows import read
from training.errors import ConfigurationError, DataError

_LOG = logging.getLogger(__name__)
Names = Sequence[str]

TABLE = Distribution(
    title="Table",
    folders=(),
    obtain="Set `file` to its path: absolute, or relative to the folder of data sets (else the current folder).",
    layout="CSV (UTF-8, cells separated by commas, column names in the first line, then as many cells in each line), "
    "TSV, NDJSON or Parquet; one column holds the label.",
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
    """A table of your own: files with a label column; the other columns are numbers or categories.

    A column is categorical if it is declared so or contains a cell that is not a number; in Parquet and NDJSON its type
    says so. A cell is missing if it is empty, `NA`, `NaN`, `null` or `?`. Numbers stay unchanged, the graph
    standardises them; categories become codes from 1, with 0 for unknown and missing ones. A table may be larger than
    memory.

    Args:
        root: Folder that `file` begins at; None for CANDOR_DATA, else the current folder.
        file: Path of the file (.csv, .tsv, .ndjson or .jsonl, each also .gz or .bz2; or .parquet), of a folder of such
            files, or a pattern of their paths with `*` and `?`. All have one format and the same columns.
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
        DataError: A file is missing or not a valid table, a label is missing, or there is only one class.
    """
    if file is None or label is None:
        raise ConfigurationError("a table requires the settings `file` (its path) and `label` (the label column)")
    return read_table(
        "table", TABLE.anywhere(root), file, label, drop, categorical, label_names, weight=weight, group=group
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
    left_out = tuple(column for column in dict.fromkeys(drop) if column not in (label, weight, group))
    try:
        roles = Roles(label, group=group, weight=weight, drop=left_out)
        rows = read(RowFiles(files, file), roles, frozenset(categorical))
        labels, names = rows.others.labels(label_names)
    except RowsError as error:
        raise DataError(str(error)) from error
    for sentence in (*rows.merged, *odd_columns(rows.inputs, rows.columns)):
        _LOG.warning("%s", sentence)
    groups = rows.others.groups()
    return Dataset(
        name,
        rows.inputs,
        labels,
        names,
        "array",
        sources=files.digests,
        columns=rows.columns,
        weights=rows.others.weights(),
        groups=groups,
        equal=equal_rows(rows.inputs, labels) if groups is None else None,
    )
