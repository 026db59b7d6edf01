"""A table in CSV or Parquet files: numbers, categories, and a label column."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from importing.errors import RowsError
from importing.rows.roles import Roles
from training.data.dataset import Dataset
from training.data.distribution import Distribution, Files
from training.data.groups import numbered
from training.data.table_rows import is_number, read
from training.errors import ConfigurationError, DataError

Names = Sequence[str]

TABLE = Distribution(
    title="Table",
    folders=(),
    obtain="Set `file` to its path: absolute, or relative to the folder of data sets (else the current folder).",
    layout="CSV (UTF-8, cells separated by commas, column names in the first line, then as many cells in each line) or "
    "Parquet; one column holds the label.",
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
    """A table of your own: CSV or Parquet files with a label column; the other columns are numbers or categories.

    A column is categorical if it is declared so or contains a cell that is not a number; in Parquet its type says so. A
    cell is missing if it is empty, `NA`, `NaN`, `null` or `?`. Numbers stay unchanged, the graph standardises them;
    categories become codes from 1, with 0 for unknown and missing ones. A table may be larger than memory.

    Args:
        root: Folder that `file` begins at; None for CANDOR_DATA, else the current folder.
        file: Path of the file (.csv, .tsv, .parquet; CSV also .gz or .bz2), of a folder of such files, or a pattern of
            their paths with `*` and `?`. All have the same columns.
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
    paths = _paths(files, file)
    left_out = tuple(column for column in dict.fromkeys(drop) if column not in (label, weight, group))
    try:
        rows = read(paths, Roles(label, group=group, weight=weight, drop=left_out), frozenset(categorical))
    except RowsError as error:
        raise DataError(str(error)) from error
    for path, digest in zip(paths, rows.digests, strict=True):
        files.note(str(path.absolute()), digest)
    labels, names = _labels(rows.labels, label_names)
    return Dataset(
        name,
        rows.inputs,
        labels,
        names,
        "array",
        sources=files.digests,
        columns=rows.columns,
        weights=rows.weights,
        groups=None if rows.groups is None else numbered(rows.groups.tolist()),
    )


def _paths(files: Files, file: str) -> list[Path]:
    """Return a file, the files of a folder, or those of a pattern, in the order of their names."""
    where = files.folder / Path(file).name
    if where.is_dir():
        paths = [path for path in where.iterdir() if path.is_file() and not path.name.startswith((".", "_"))]
    elif where.exists() or not set("*?") & set(file):
        paths = [where]
    else:
        start = files.folder.parents[len(Path(file).parts) - 2] if len(Path(file).parts) > 1 else files.folder
        paths = [start / path for path in glob.glob(file, root_dir=start)]  # noqa: PTH207 — may be absolute
    if not paths or not paths[0].exists():
        raise files.problem(f"{Path(file).name} is missing in {files.folder.absolute()}")
    return sorted(paths)


def _labels(values: NDArray[np.object_], names: Sequence[str]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    distinct = sorted(set(values))
    if all(map(is_number, distinct)):
        distinct.sort(key=float)
    if names and len(names) != len(distinct):
        raise ConfigurationError(
            f"{len(names)} label_names for {len(distinct)} values of the label: {', '.join(distinct[:20])}"
        )
    codes = {value: code for code, value in enumerate(distinct)}
    return np.fromiter(map(codes.__getitem__, values), np.int64, len(values)), tuple(names) or tuple(distinct)
