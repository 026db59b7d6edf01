"""Which columns a file of labelled rows has, and what its rows hold: logits or inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy.typing as npt

from bundle import Bundle, Columns
from service.errors import InputValueError
from service.state.labelled_sets import Kind

LABEL: Final = "label"
OPTIONAL: Final = ("group", "propensity", "segment", "predicted_at", "labelled_at")
_LONGEST_NAME: Final = 100  # of what a file calls a column that an error repeats

Column = list[Any] | npt.NDArray[Any]
"""Values of some rows, None where a list lacks one; of logits and inputs an array may have more axes."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Consecutive rows of a file.

    Attributes:
        rows: How many.
        columns: Values by name.
        place: Says where a row stands, by its number in the batch from 0 and the name of a column or None.
    """

    rows: int
    columns: Mapping[str, Column]
    place: Callable[[int, str | None], str]


@dataclass(frozen=True, slots=True)
class Layout:
    """What the columns of a file mean.

    Attributes:
        kind: What its rows hold.
        values: Names of the columns that hold it: `logits`, `inputs`, a column for each label, or those of a table.
        whole: Whether one column holds all of it.
        optional: Those of `OPTIONAL` that there are.
    """

    kind: Kind
    values: tuple[str, ...]
    whole: bool
    optional: tuple[str, ...]

    @classmethod
    def of(cls, names: Collection[str], bundle: Bundle) -> Layout:
        """Read the layout off the names of a file's columns.

        Raises:
            InputValueError: One is missing, or there that is not known, or logits and inputs are both there.
        """
        others = [name for name in names if name not in (LABEL, *OPTIONAL)]
        layout = _layout(others, tuple(name for name in OPTIONAL if name in names), bundle)
        if LABEL not in names:
            raise InputValueError(
                "The rows have no labels.",
                where=LABEL,
                found=_shown(names),
                expected=LABEL,
                remedy="Name the true label of each row, as the model names it, in a column `label`.",
            )
        for name in others:
            if name not in layout.values:
                raise InputValueError(
                    "There is a column that a labelled set does not have.",
                    where=name[:_LONGEST_NAME],
                    found=name[:_LONGEST_NAME],
                    expected=[LABEL, *layout.values[:20], *OPTIONAL],
                    remedy="Rows have no weights here: give `propensity` where they were drawn unevenly."
                    if name == "weight"
                    else "Rename it, or leave it out.",
                )
        return layout


def known_columns(bundle: Bundle) -> set[str]:
    """Return every name that a column of a file may have."""
    return {LABEL, *OPTIONAL, "logits", "inputs", *bundle.manifest.labels, *_table(bundle)}


def _layout(names: Collection[str], optional: tuple[str, ...], bundle: Bundle) -> Layout:
    labels, table = bundle.manifest.labels, _table(bundle)
    if "logits" in names and "inputs" in names:
        raise InputValueError(
            "The rows have both logits and inputs.",
            where="inputs",
            found=_shown(names),
            expected="one of logits and inputs",
            remedy="Leave the logits out, and the model scores the inputs.",
        )
    if "logits" in names:
        return Layout("logits", ("logits",), whole=True, optional=optional)
    if "inputs" in names:
        return Layout("inputs", ("inputs",), whole=True, optional=optional)
    if any(name in labels for name in names):
        if missing := [name for name in labels if name not in names]:
            raise InputValueError(
                "The logits of some labels are missing.",
                where=missing[0],
                found=_shown(names),
                expected=list(labels),
                remedy="Give one column of logits for each label, or one column `logits` with all of them.",
            )
        return Layout("logits", labels, whole=False, optional=optional)
    if any(name in table for name in names):
        return Layout("inputs", tuple(name for name in table if name in names), whole=False, optional=optional)
    raise InputValueError(
        "The rows have neither logits nor inputs.",
        where="logits",
        found=_shown(names),
        expected="`logits`, one column of logits for each label, or `inputs`",
        remedy="Give what the model made of each row, or what it is to make it of.",
    )


def _table(bundle: Bundle) -> tuple[str, ...]:
    """Return the columns of the table that a model's inputs are rows of, () where they are none."""
    columns = bundle.columns
    return tuple(column.name for column in columns.columns) if isinstance(columns, Columns) else ()


def _shown(names: Collection[str]) -> list[str]:
    return [name[:_LONGEST_NAME] for name in sorted(names)[:20]]
