"""Labelled rows from files, to try policies without a server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

import bundle as bundles
from bundle.split import CERTIFY, FIT, GATE, group_hash, roles
from bundle.table import is_number, parse_number
from candor.contract.policies import Policy
from service.decisions.calibrated import Calibrated
from service.decisions.rows import Rows, ScoredRows
from service.errors import (
    BundleRefusedError,
    InputError,
    InputShapeError,
    InputTypeError,
    InputValueError,
    MalformedBodyError,
)
from service.inference.amounts import check_amount

_NUMBERS: Final = ("probability", "score", "propensity", "positive", "sought", "amount")
_TEXTS: Final = ("group", "segment", "id")
_REQUIRED: Final = ("probability", "positive")
COLUMNS: Final = (*_NUMBERS, *_TEXTS)
"""Columns of a file of rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Rows by role; all rows of a group have the same role.

    Attributes:
        fit: Choose candidate thresholds.
        certify: Certify them.
        tried: Show what the solved policy does.
        bundle: The bundle whose reference rows they are; None for those of a file.
    """

    fit: ScoredRows
    certify: ScoredRows
    tried: ScoredRows
    bundle: bundles.Bundle | None = None

    @classmethod
    def of_file(cls, path: Path, seed: int) -> Self:
        """Read a CSV or `.npz` file and split its rows by a hash of their group.

        Args:
            path: The file.
            seed: Of the split.

        Raises:
            InputValueError: A column is missing, unknown or has a value that cannot be used; `where` names it.
            InputShapeError: Columns differ in length, or the file has no rows.
            MalformedBodyError: A line is not valid CSV, or has more or fewer cells than the header.
        """
        columns = _npz(path) if path.suffix.lower() == ".npz" else _csv(path)
        _check_lengths(path, columns)
        rows = _scored(columns, seed)
        role = roles(rows.group)
        for part, name in ((FIT, "fit"), (CERTIFY, "certify")):
            if not (role == part).any():
                raise InputShapeError(
                    f"{path} has too few rows: none of them falls to the {name} part.",
                    where=name,
                    found=f"{len(rows)} rows of {len(np.unique(rows.group))} groups",
                    expected="rows for each of three roles; all rows of a group have the same role",
                    remedy="Give more rows; a promise needs hundreds. `candor policy lint` says how many.",
                )
        fit, certify, tried = (rows.take(role == part) for part in (FIT, CERTIFY, GATE))
        return cls(fit, certify, tried)


def of_bundle(folder: Path) -> tuple[tuple[str, ...], Callable[[Policy], Parts]]:
    """Return a bundle's labels, and its reference rows as a policy sees them.

    Args:
        folder: `<root>/<model>/<version>`.

    Raises:
        BundleRefusedError: The bundle is damaged or gone.
    """
    try:
        bundle = bundles.verify(folder)
    except bundles.BundleError as error:
        raise BundleRefusedError(str(error), where=str(folder), remedy="Name the folder of a bundle.") from error
    reference = bundle.reference

    def parts(policy: Policy) -> Parts:
        fit, certify, tried = (
            Calibrated.of(
                bundle.calibrator,
                bundle.manifest.labels,
                replace(Rows.of_reference(part), id=_numbered(len(part.labels))),
            ).scored(policy)
            for part in (reference.fit, reference.certify, reference.gate)
        )
        return Parts(fit, certify, tried, bundle)

    return bundle.manifest.labels, parts


def _scored(columns: dict[str, npt.NDArray[Any]], seed: int) -> ScoredRows:
    probability = columns["probability"]
    if not ((probability >= 0) & (probability <= 1)).all():
        row = int(np.flatnonzero(~((probability >= 0) & (probability <= 1)))[0])
        raise InputValueError(
            "A probability is not in [0, 1].",
            where=f"probability, row {row + 1}",
            found=float(probability[row]),
            expected="a number in [0, 1]",
            remedy="Give calibrated probabilities, not scores.",
        )
    positive = columns["positive"]
    if not np.isin(positive, (-1, 0, 1)).all():
        row = int(np.flatnonzero(~np.isin(positive, (-1, 0, 1)))[0])
        raise InputValueError(
            "`positive` says whether a row is positive.",
            where=f"positive, row {row + 1}",
            found=float(positive[row]),
            expected="1, 0, or empty without a label",
            remedy="Write 1 where the label is the positive class (or the predicted label is right), 0 elsewhere.",
        )
    size = len(probability)
    single = probability.astype(np.float32)
    labelled = positive >= 0
    sought = columns["sought"] > 0 if "sought" in columns else None
    if sought is not None:
        if "propensity" in columns:
            _check_certain(columns["propensity"], columns["sought"])
        labelled &= sought  # a label that was not sought tests nothing
    group = np.random.default_rng((seed, 2)).integers(-(2**63), 2**63, size, dtype=np.int64)
    if "group" in columns:
        names, of = np.unique(columns["group"], return_inverse=True)
        secret = f"candor policy {seed}".encode()
        group = np.array([group_hash(secret, str(name)) for name in names], dtype=np.int64)[of]
    if "amount" in columns:
        known = columns["amount"][~np.isnan(columns["amount"])]
        if len(known):
            worst = known.min() if known.min() < 0 else known.max()
            row = int(np.flatnonzero(columns["amount"] == worst)[0])
            check_amount(float(worst), f"amount, row {row + 1}")
    optional = {name: columns[name] for name in ("propensity", "segment", "amount") if name in columns}
    return ScoredRows(
        id=np.strings.encode(columns["id"], "utf-8") if "id" in columns else _numbered(size),
        probability=single,
        score=columns.get("score", single).astype(np.float32),
        positive=positive == 1,
        group=group,
        labelled=None if labelled.all() else labelled,
        sought=sought,
        **optional,
    )


def _check_certain(propensity: npt.NDArray[np.float64], sought: npt.NDArray[np.float64]) -> None:
    contradictory = np.flatnonzero((propensity == 1) & (sought <= 0))
    if len(contradictory):
        row = int(contradictory[0])
        raise InputValueError(
            "A row has propensity 1 but was not sought.",
            where=f"sought, row {row + 1}",
            found={"propensity": 1, "sought": float(sought[row])},
            expected="sought 1 wherever the propensity is 1",
            remedy="Give the probability with which the label was to be sought, before the draw.",
        )


def _numbered(size: int) -> npt.NDArray[np.bytes_]:
    return np.arange(1, size + 1).astype(np.bytes_)


def _check_names(path: Path, names: Sequence[str]) -> None:
    for name in names:
        if name not in COLUMNS:
            raise InputValueError(
                f"{path}: unknown column {name!r}.",
                where=name,
                found=sorted(names),
                expected=sorted(COLUMNS),
                remedy="Rename or remove it; a CSV file separates its columns by commas.",
            )
    for name in _REQUIRED:
        if name not in names:
            raise InputValueError(
                f"{path}: the column {name!r} is missing.",
                where=name,
                found=sorted(names),
                expected=sorted(_REQUIRED),
                remedy="Name the columns in the file's first line.",
            )


def _check_lengths(path: Path, columns: dict[str, npt.NDArray[Any]]) -> None:
    lengths = {name: column.shape for name, column in columns.items()}
    if len(set(lengths.values())) > 1 or len(next(iter(lengths.values()))) != 1:
        raise InputShapeError(f"{path}: columns differ in length.", found=lengths, expected="one value for each row")
    if not len(columns["probability"]):
        raise InputShapeError(f"{path} has no rows.", found=0, expected="at least one row")


def _npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    from service.row_files.npz_rows import read_npz

    parts: dict[str, list[npt.NDArray[Any]]] = {}
    try:
        for batch in read_npz(path, limit=sys.maxsize):  # a header alone takes no memory here
            _check_names(path, list(batch.columns))
            for name, values in batch.columns.items():
                array = np.asarray(values)
                if name in _NUMBERS and array.dtype.kind not in "biuf":
                    raise InputValueError(
                        f"{path}: {name!r} does not hold numbers.",
                        where=name,
                        found=str(array.dtype),
                        expected="numbers",
                    )
                parts.setdefault(name, []).append(array.astype(np.float64 if name in _NUMBERS else np.str_))
    except (OSError, MalformedBodyError, InputTypeError) as error:
        raise InputValueError(
            f"{path} is not a valid .npz file.",
            where=str(path),
            found=str(error)[:200],
            expected="a file of numpy.savez: one array of numbers or strings per column, no objects",
        ) from error
    if not parts:
        raise InputShapeError(f"{path} has no rows.", found=0, expected="at least one row")
    return {name: np.concatenate(each) for name, each in parts.items()}


def _csv(path: Path) -> dict[str, npt.NDArray[Any]]:
    from service.row_files.lines import CSV_TYPE, header_of, iterate_lines

    with _named(path), path.open("rb") as stream:
        header = header_of(stream)
    _check_names(path, header)
    with _named(path), path.open("rb") as stream:
        rows = [record.fields for record in iterate_lines(stream, CSV_TYPE, columns=header)]
    columns = {name: [row.get(name, "") for row in rows] for name in header}
    return {
        name: _numbers(path, name, column) if name in _NUMBERS else np.array(column, dtype=np.str_)
        for name, column in columns.items()
    }


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Name a file in errors about its content."""
    try:
        yield
    except OSError as error:
        raise InputValueError(f"{path} cannot be read: {error.strerror}.", where=str(path)) from error
    except InputError as error:
        error.place = f"{path}, {error.where}"
        raise


def _numbers(path: Path, name: str, column: Sequence[str]) -> npt.NDArray[np.float64]:
    empty = -1.0 if name == "positive" else np.nan
    try:
        return np.array([parse_number(text) if text else empty for text in column], dtype=np.float64)
    except ValueError:
        row = next(row for row, text in enumerate(column) if text and not is_number(text))
        raise InputValueError(
            f"{path}: {name!r} is not a number.", where=f"{name}, row {row + 1}", found=column[row], expected="a number"
        ) from None
