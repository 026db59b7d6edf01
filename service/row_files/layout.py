"""Column layout of files of labelled rows: logits, scores or inputs, and optional columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy.typing as npt

from bundle import Bundle
from service.errors import InputValueError

if TYPE_CHECKING:
    from service.state.labelled_sets import Kind

LABEL: Final = "label"
OPTIONAL: Final = ("group", "propensity", "segment", "predicted_at", "labelled_at")
_LONGEST_NAME: Final = 100  # characters of a column name in an error

Column = list[Any] | npt.NDArray[Any]
"""Values of some rows. A list has None for missing values; arrays of logits and inputs may have more axes."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Consecutive rows of a file.

    Attributes:
        rows: Number of rows.
        columns: Values by name.
        place: Returns the place of a row, from its number in the batch and the name of a column or None.
    """

    rows: int
    columns: Mapping[str, Column]
    place: Callable[[int, str | None], str]


@dataclass(frozen=True, slots=True)
class Layout:
    """Meaning of the columns of a file.

    Attributes:
        kind: Logits or inputs.
        values: Columns with them: `logits`, `inputs`, one column per label, scores under the name that predictions have
            for them, the columns of a table, or the tensors of a graph.
        whole: Whether a single column holds them.
        optional: Columns of `OPTIONAL` in the file.
    """

    kind: Kind
    values: tuple[str, ...]
    whole: bool
    optional: tuple[str, ...]

    @classmethod
    def of(cls, names: Collection[str], bundle: Bundle) -> Layout:
        """Derive the layout from the column names.

        Raises:
            InputValueError: A column is missing or unexpected, or the file has both logits and inputs.
        """
        others = [name for name in names if name not in (LABEL, *OPTIONAL)]
        layout = _layout(others, tuple(name for name in OPTIONAL if name in names), bundle)
        if LABEL not in names:
            raise InputValueError(
                "The column `label` is missing.",
                where=LABEL,
                found=_shown(names),
                expected=LABEL,
                remedy="Add a column `label` with the true label of each row, spelled as in the model.",
            )
        for name in others:
            if name not in layout.values:
                raise InputValueError(
                    "Unexpected column.",
                    where=name[:_LONGEST_NAME],
                    found=name[:_LONGEST_NAME],
                    expected=[LABEL, *layout.values[:20], *OPTIONAL],
                    remedy="Rows have no weights here. If they were sampled unevenly, give `propensity`."
                    if name == "weight"
                    else "Rename or remove it.",
                )
        return layout


def known_columns(bundle: Bundle) -> set[str]:
    """Return all allowed column names."""
    return {LABEL, *OPTIONAL, "logits", "inputs", *bundle.manifest.labels, *_named(bundle)}


def _layout(names: Collection[str], optional: tuple[str, ...], bundle: Bundle) -> Layout:
    labels, own = bundle.manifest.labels, _named(bundle)
    if "logits" in names and "inputs" in names:
        raise InputValueError(
            "The rows have both logits and inputs.",
            where="inputs",
            found=_shown(names),
            expected="one of logits and inputs",
            remedy="Remove the logits; the model then scores the inputs.",
        )
    if "logits" in names and "logits" not in own:
        return Layout("logits", ("logits",), whole=True, optional=optional)
    if "inputs" in names and not bundle.scores:
        return Layout("inputs", ("inputs",), whole=True, optional=optional)
    if any(name in labels for name in names):
        if missing := [name for name in labels if name not in names]:
            raise InputValueError(
                "The logits of some labels are missing.",
                where=missing[0],
                found=_shown(names),
                expected=list(labels),
                remedy="Give one column of logits per label, or one column `logits` with all of them.",
            )
        return Layout("logits", labels, whole=False, optional=optional)
    if any(name in own for name in names):
        missing = [name for name in own if name not in names]
        if missing and bundle.columns is None:
            raise InputValueError(
                "An input of the model is missing.", where=missing[0], found=_shown(names), expected=list(own)
            )
        kind: Kind = "logits" if bundle.scores else "inputs"
        return Layout(kind, tuple(name for name in own if name in names), whole=False, optional=optional)
    raise InputValueError(
        "The rows have neither logits nor inputs.",
        where="logits",
        found=_shown(names),
        expected=f"`{own[0]}`, or logits" if bundle.scores else "`logits`, one column of logits per label, or `inputs`",
        remedy="Give the logits that the model returned for each row, or the inputs to score.",
    )


def _named(bundle: Bundle) -> tuple[str, ...]:
    """Return the names of the model's own columns: of scores, of a table, or the tensors of a graph."""
    if bundle.scores is not None:
        return (bundle.scores.field,)
    if bundle.columns is not None:
        return tuple(column.name for column in bundle.columns.columns)
    return tuple(tensor.name for tensor in bundle.manifest.input.tensors)


def _shown(names: Collection[str]) -> list[str]:
    return [name[:_LONGEST_NAME] for name in sorted(names)[:20]]
