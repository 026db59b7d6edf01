"""Read validation rows by the ending of their file."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from importing.errors import RowsError
from importing.rows import npz
from importing.rows.class_names import class_names
from importing.rows.image_folder import read_folder
from importing.rows.opened import ENDINGS, ending_of, opened
from importing.rows.result import Rows
from importing.rows.roles import Roles
from importing.rows.stream import readable
from importing.rows.table import Table, gather

_ENDINGS: Final = (*ENDINGS, ".npz")
_FILE: Final = "file"  # column of `images`


def read_rows(
    path: Path,
    *,
    label: str | None = None,
    marks: Sequence[str] = (),
    group: str | None = None,
    segment: str | None = None,
    part: str | None = None,
    time: str | None = None,
    weight: str | None = None,
    scores: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    text: Sequence[str] | None = (),
    drop: Sequence[str] = (),
    categories: Mapping[str, Collection[str]] = MappingProxyType({}),
    literal: Sequence[str] | None = (),
    named: Collection[str] = (),
    images: Path | None = None,
) -> Rows:
    r"""Read labelled rows from a file, or from a folder of images.

    Columns with a role are not inputs of the model, unless `columns` or `named` contains them. A column of CSV is a
    number if all its values are finite numbers, or all are true or false; in Parquet and NDJSON its type says so. A
    cell is missing if it is empty, `NA`, `N/A`, `NaN`, `null` or `?`, unless that is one of the column's `categories`,
    or the column is `literal`.

    Args:
        path: A file ending in .csv, .tsv, .ndjson or .jsonl (each also .gz or .bz2), .parquet or .npz; or a folder with
            one sub-folder of images per class.
        label: Column of the true class; None for a folder, and with `marks`.
        marks: Columns of labels that a row has or lacks independently: 1, 0, or nothing where it is unknown.
        group: Column of groups.
        segment: Column of segments.
        part: Column whose values say which part a row belongs to (`fit`, `certify`, `gate`).
        time: Column of times: ISO 8601, or seconds or milliseconds since the epoch.
        weight: Column of weights.
        scores: Columns of the model's own scores.
        columns: Inputs of the model, in order; None for all columns without a role.
        text: Inputs that are texts even if each value is a number, those of them that exist; None for all inputs.
        drop: Columns to leave out.
        categories: Texts that the model knows, by column.
        literal: Inputs of texts in which only an empty one is missing, those of them that exist; None for all inputs.
        named: Names that the model gives to its inputs.
        images: Table (CSV, NDJSON, Parquet) of the images of a folder: its column `file` has the path of each image in
            the folder, such as `cat/1.png`; other columns have a role.

    Raises:
        RowsError: The file cannot be read or used; `where` names file, line and column.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "rows.csv"
        >>> _ = file.write_text("amount,country,is_fraud\n9.5,DE,0\n,FR,1\n")
        >>> rows = read_rows(file, label="is_fraud")
        >>> rows.features["amount"], rows.features["country"], rows.classes
        (array([9.5, nan]), array(['DE', 'FR'], dtype=object), ('0', '1'))
    """
    given: dict[str, Any] = {"group": group, "segment": segment, "part": part, "time": time, "weight": weight}
    if path.is_dir():
        none = {"label": label, "label-columns": marks, "scores": scores, "columns": columns, "drop": drop}
        _check_no_columns(none if images else none | given, path)
        with readable(path):
            rows = read_folder(path)
        if images is not None:
            rows = _described(rows, _read_file(images, Roles(_FILE, **given, columns=())))
    elif images is not None:
        raise RowsError("A table of images requires a folder of images.", where=str(path), found=str(images))
    else:
        if label is None and not marks:
            raise RowsError("The label column is not given.", where=str(path), expected="the name of a column: --label")
        if label is not None and marks:
            raise RowsError(
                "Both --label and --label-columns are given.",
                expected="--label for one class per row, or --label-columns for labels that a row has or lacks",
            )
        order = None if columns is None else tuple(columns)
        roles = Roles(
            label or "",
            **given,
            marks=tuple(marks),
            scores=tuple(scores),
            columns=order,
            text=None if text is None else tuple(text),
            drop=tuple(drop),
            categories=categories,
            literal=None if literal is None else tuple(literal),
            named=frozenset(named),
        )
        rows = _read_file(path, roles)
    if rows.marks is None:
        rows.check_classes()
    return rows


def _check_no_columns(given: dict[str, Any], path: Path) -> None:
    """Refuse roles of columns for a folder: its classes are its sub-folders."""
    for name, value in given.items():
        if value:
            raise RowsError(
                f"An image folder has no columns, so `{name}` cannot be given.",
                where=str(path),
                expected="classes as sub-folders alone",
                remedy=None
                if name in ("label", "label-columns", "scores", "columns", "drop")
                else f"Give a table with the columns `{_FILE}` and `{value}`: --images-table rows.csv.",
            )


def _described(images: Rows, table: Rows) -> Rows:
    """Return images with the roles of the columns of a table, which may have more rows."""
    places: dict[str, int] = {}
    for row, name in enumerate(table.label.tolist()):
        if places.setdefault(name, row) != row:
            raise RowsError("The image is listed twice.", where=table.where(row, _FILE), found=name)
    names = [str(Path(file).relative_to(images.path)) for file in images.files]
    if lacking := [name for name in names if name not in places]:
        raise RowsError(
            f"The table does not list {len(lacking):,} of {len(names):,} images.",
            where=f"{table.path}, column {_FILE}",
            found=", ".join(list(places)[:3]),
            expected=", ".join(lacking[:3]) + ", …" * (len(lacking) > 3),
        )
    chosen = table.take(np.array([places[name] for name in names]))
    return dataclasses.replace(
        images,
        sha256=hashlib.sha256(f"{images.sha256}  {table.sha256}".encode()).hexdigest(),
        **{name: getattr(chosen, name) for name in ("group", "segment", "part", "time", "weight")},
    )


def _read_file(path: Path, roles: Roles) -> Rows:
    ending = ending_of(path)
    if ending not in _ENDINGS:
        expected = f"{', '.join(_ENDINGS)}, or a folder with one sub-folder of images per class"
        raise RowsError("The file has an unknown ending.", where=str(path), found=path.name, expected=expected)
    unit, sha256, table = _read_npz(path, roles) if ending == ".npz" else _read_once(path, roles)
    if table.turned:
        _, digest, again = _read_once(path, Roles(roles.label, marks=roles.marks), table.turned)
        if digest != sha256:
            raise RowsError("The file changed while it was read.", where=str(path))
        table = dataclasses.replace(table, features=table.features | again.features)
    others = table.others
    return Rows(
        path=path,
        sha256=sha256,
        features=table.features,
        label=np.full(len(table.lines), "", object)
        if roles.marks
        else class_names(others["label"], lambda row: f"{path}, {unit} {table.lines[row]}, column {roles.label}"),
        label_name=roles.label,
        group=others.get("group"),
        segment=others.get("segment"),
        part=others.get("part"),
        time=others.get("time"),
        weight=others.get("weight"),
        scores=others.get("scores"),
        score_names=roles.scores,
        lines=table.lines,
        unit=unit,
        marks=others.get("marks"),
    )


def _read_once(path: Path, roles: Roles, again: frozenset[str] = frozenset()) -> tuple[str, str, Table]:
    """Return what the file's line numbers count, its sha256, and its columns."""
    with opened(path, roles) as file:
        table = gather(path, file.blocks, roles, again=again, spelled=file.spelled, unit=file.unit)
        return file.unit, file.sha256(), table


def _read_npz(path: Path, roles: Roles) -> tuple[str, str, Table]:
    with readable(path), path.open("rb", buffering=0) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        inputs, block = npz.arrays(path, file, roles)
    blocks = [block] if len(block.lines) else []
    table = gather(path, blocks, dataclasses.replace(roles, columns=()), again=frozenset(), spelled=False, unit="row")
    return "row", digest, dataclasses.replace(table, features=inputs)
