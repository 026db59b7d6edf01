"""The rows that were read."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from importing.errors import RowsError


@dataclass(frozen=True, eq=False)
class Rows:
    """Labelled rows, in the order of the file.

    Attributes:
        path: The file or folder.
        sha256: sha256 of the file; of an image folder, of its listing `sha256  class/file`, sorted by path.
        features: The model's inputs by name. Of CSV, Parquet and NDJSON: float64 (N,) with NaN for missing numbers
            (true and false are 1 and 0), or object (N,) of str, None for missing. Of `.npz`: arrays (N, …) as stored.
            Of an image folder: `image`, object (N,) of ImageFile.
        label: Name of each row's class, object (N,) of str; all "" where `marks` have the labels.
        label_name: Name of the label's column; "" for an image folder.
        group: Group of each row, object (N,) of str, None where it is missing; None without such a column.
        segment: Segment of each row, in the same form.
        part: Part of each row, `fit`, `certify` or `gate`, object (N,) of str; None without such a column.
        time: Time of each row, int64 (N,), microseconds since the epoch (UTC); None without such a column.
        weight: Weight of each row, float64 (N,), finite and above 0; None without such a column.
        scores: The model's own scores, float64 (N, S), finite; None without such columns.
        score_names: Names of their columns.
        marks: Which of several labels each row has: int8 (N, L), 1 for present, 0 for absent, −1 for unknown; None for
            rows of one class each.
        lines: Number of each row's first line in the file, else of the row, int64 (N,), from 1.
        unit: What `lines` counts: "line" or "row"; in an image folder "image".
        files: Path of each row's file in an image folder; else empty.
    """

    path: Path
    sha256: str
    features: dict[str, NDArray[Any]]
    label: NDArray[np.object_]
    label_name: str
    group: NDArray[np.object_] | None
    segment: NDArray[np.object_] | None
    part: NDArray[np.object_] | None
    time: NDArray[np.int64] | None
    weight: NDArray[np.float64] | None
    scores: NDArray[np.float64] | None
    lines: NDArray[np.int64]
    unit: str
    files: tuple[str, ...] = ()
    score_names: tuple[str, ...] = ()
    marks: NDArray[np.int8] | None = None

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, row: int) -> dict[str, Any]:
        """Return the model's inputs of a row by name."""
        return {name: values[row] for name, values in self.features.items()}

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes: in numeric order if all are numbers, else in alphabetic order."""
        names = sorted(set(self.label.tolist()))
        try:
            numbers = {name: float(name) for name in names}
        except ValueError:
            return tuple(names)
        return tuple(names if any(map(math.isnan, numbers.values())) else sorted(names, key=numbers.__getitem__))

    def check_classes(self) -> None:
        """Raise RowsError unless the rows have at least two classes."""
        if len(self.classes) < 2:
            raise RowsError(
                "All rows have the same label.",
                where=str(self.path),
                found=f"`{self.classes[0]}`",
                expected="at least two classes",
            )

    @cached_property
    def codes(self) -> NDArray[np.int64]:
        """Position of each row's class in `classes`, int64 (N,)."""
        places = {name: place for place, name in enumerate(self.classes)}
        return np.fromiter(map(places.__getitem__, self.label), np.int64, len(self))

    def where(self, row: int, column: str | None = None) -> str:
        """Return where a row stands, for a message.

        Args:
            row: Position among these rows, from 0.
            column: Name of a column, if one is at fault.
        """
        number = int(self.lines[row])
        place = self.files[number - 1] if self.files else f"{self.path}, {self.unit} {number}"
        return place if column is None else f"{place}, column {column}"

    def of_label(self, place: int, name: str) -> tuple[Self, NDArray[np.int64]]:
        """Return the rows that are known to have or to lack one of several labels, with classes 0 and 1.

        Args:
            place: Place of the label, from 0.
            name: Name of its column.

        Returns:
            The rows, and their positions among these, int64 (n,).

        Raises:
            RowsError: All of them have the label, or none.
        """
        assert self.marks is not None  # noqa: S101 — such rows were read
        known = np.flatnonzero(self.marks[:, place] >= 0)
        taken = self if len(known) == len(self) else self.take(known)
        label = np.array(("0", "1"), object)[self.marks[known, place]]
        found = dataclasses.replace(taken, label=label, label_name=name, marks=None)
        if len(found.classes) < 2:
            raise RowsError(
                "No row has the label." if "0" in found.classes else "All rows have the label, or none is known.",
                where=f"{self.path}, column {name}",
                found=f"{len(known):,} rows with a known value",
                expected="rows with 1 and rows with 0",
            )
        return found, known

    def take(self, index: NDArray[np.integer[Any]] | NDArray[np.bool_]) -> Self:
        """Return some of the rows.

        Args:
            index: Their positions, or a mask (N,).
        """
        taken: dict[str, Any] = {"features": {name: values[index] for name, values in self.features.items()}}
        for name in ("label", "group", "segment", "part", "time", "weight", "scores", "lines", "marks"):
            values = getattr(self, name)
            taken[name] = None if values is None else values[index]
        return dataclasses.replace(self, **taken)
