"""Check batches of labelled rows against the model and convert them to stored form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bundle import Bundle, Columns, InputSpec, Scores, tensors
from bundle.table import parse_number
from service.errors import InputError, InputShapeError, InputTypeError, InputValueError, UnknownLabelError
from service.inference.encoded import by_row, decode_base64, decode_images, encode_rows, encode_texts
from service.inference.inputs import conform
from service.inference.nested import array_of
from service.places import in_body
from service.row_files.layout import LABEL, Batch, Column, Layout
from service.state.labelled_sets import ABSENT, COLUMN_TYPES
from service.state.prediction_rows import group_numbers
from service.times import iso, microseconds

LONGEST_NAME: Final = 200
_MOST_SEGMENTS: Final = 10_000
_MOST_UNKNOWN: Final = 20
_CLOCKS_DIFFER_US: Final = 5 * 60 * 1_000_000


class Checker:
    """Check the rows of a file, batch by batch.

    Args:
        bundle: Bundle of the model.
        layout: Layout of the file.
        secret: Secret of the database, the key of hashes of groups and inputs.
        now_us: Current time in microseconds since the epoch; later labels are refused.
        max_pixels: Maximum pixels of the images of a batch.

    Attributes:
        rows: Rows that have passed.
    """

    def __init__(self, bundle: Bundle, layout: Layout, *, secret: bytes, now_us: int, max_pixels: int) -> None:
        self._bundle = bundle
        self._layout = layout
        self._secret = secret
        self._latest = now_us + _CLOCKS_DIFFER_US
        self._max_pixels = max_pixels
        self._codes = {name: code for code, name in enumerate(bundle.manifest.labels)}
        self._segments: dict[str, int] = {}
        self._unknown: dict[str, str] = {}
        self._counts: Counter[int] = Counter()
        self.rows = 0

    @property
    def labels(self) -> dict[str, int]:
        """Rows by label."""
        return {name: self._counts[code] for name, code in self._codes.items()}

    @property
    def segments(self) -> list[str]:
        """Names of segments, in the order of their codes."""
        return list(self._segments)

    def check(self, batch: Batch) -> dict[str, npt.NDArray[Any]]:
        """Return `values` and the columns of `COLUMN_TYPES` in the file, in stored form.

        Raises:
            InputError: A row cannot be used; `where` names it. Unknown labels are collected for `end`.
        """
        if self._layout.kind == "inputs":
            values = self._inputs(batch)
        elif (scores := self._bundle.scores) is not None and self._layout.values == (scores.field,):
            values = self._scores(batch, scores)
        else:
            values = self._logits(batch)
        found = {"values": values, "label": self._labels(batch), "group": self._groups(batch, values)}
        for name in self._layout.optional:
            if name == "propensity":
                found[name] = self._propensity(batch)
            elif name == "segment":
                found[name] = self._segment_codes(batch)
            elif name != "group":
                found[name] = self._times(batch, name)
        self.rows += batch.rows
        return {
            name: column if name == "values" else column.astype(COLUMN_TYPES[name], copy=False)
            for name, column in found.items()
        }

    def end(self) -> None:
        """Raise the errors that concern all rows.

        Raises:
            UnknownLabelError: The model does not have some of the labels.
        """
        if self._unknown:
            raise UnknownLabelError(
                "Unknown labels.",
                where=next(iter(self._unknown.values())),
                found=list(self._unknown),
                expected=list(self._codes),
                remedy="Rename them to labels of the model, or remove their rows.",
            )

    def _labels(self, batch: Batch) -> npt.NDArray[np.int32]:
        column = batch.columns[LABEL]
        names = [self._name(batch, LABEL, row, value) for row, value in enumerate(_plain(column))]
        codes = [self._codes.get(name, ABSENT) for name in names]
        for row, code in enumerate(codes):
            if code == ABSENT and len(self._unknown) < _MOST_UNKNOWN:
                self._unknown.setdefault(names[row][:LONGEST_NAME], batch.place(row, LABEL))
        self._counts.update(codes)
        return np.array(codes, dtype=np.int32)

    def _name(self, batch: Batch, name: str, row: int, value: Any) -> str:
        """Return a text, or an integer as text: labels and groups are often numbers."""
        if type(value) is int:
            return str(value)
        if type(value) is not str:
            raise InputTypeError(
                f"A {name} is missing." if value is None else f"A {name} is not a text.",
                where=batch.place(row, name),
                found=None if value is None else type(value).__name__,
                expected="a text",
            )
        return value

    def _names(self, batch: Batch, name: str) -> list[str | None]:
        """Return texts, None for missing ones."""
        found: list[str | None] = []
        for row, value in enumerate(_plain(batch.columns[name])):
            text = None if value is None or value == "" else self._name(batch, name, row, value)
            if text is not None and (len(text) > LONGEST_NAME or "\0" in text):
                raise InputValueError(
                    f"A {name} has 1 to {LONGEST_NAME} characters, none of them NUL.",
                    where=batch.place(row, name),
                    found=f"{len(text)} characters" + ", with a NUL" * ("\0" in text),
                    expected=f"1 to {LONGEST_NAME} characters without NUL",
                )
            found.append(text)
        return found

    def _groups(self, batch: Batch, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        named = "group" in self._layout.optional
        groups: list[str | None] = self._names(batch, "group") if named else [None] * batch.rows
        if self._bundle.scores is not None:  # equal scores, unlike equal inputs, are no sign of the same thing
            groups = [f"row {self.rows + row}" if group is None else group for row, group in enumerate(groups)]
        return np.array(group_numbers(self._secret, groups, values), dtype=np.int64)

    def _segment_codes(self, batch: Batch) -> npt.NDArray[np.int32]:
        codes = [
            ABSENT if name is None else self._segments.setdefault(name, len(self._segments))
            for name in self._names(batch, "segment")
        ]
        if len(self._segments) > _MOST_SEGMENTS:
            raise InputValueError(
                "The file has too many segments.",
                where="segment",
                found=f"more than {_MOST_SEGMENTS}",
                expected=f"at most {_MOST_SEGMENTS}",
                remedy="A segment is a part of the traffic; what a row belongs to is its `group`.",
            )
        return np.array(codes, dtype=np.int32)

    def _propensity(self, batch: Batch) -> npt.NDArray[np.float64]:
        found = _numbers(batch, "propensity", batch.columns["propensity"], missing=np.nan)
        wrong = ~(np.isnan(found) | ((found > 0) & (found <= 1)))
        if wrong.any():
            row = int(wrong.argmax())
            raise InputValueError(
                "A propensity is the probability with which the row's label was sought.",
                where=batch.place(row, "propensity"),
                found=float(found[row]),
                expected="a number above 0 and at most 1, or nothing if unknown",
            )
        return found

    def _times(self, batch: Batch, name: str) -> npt.NDArray[np.int64]:
        column = batch.columns[name]
        if isinstance(column, np.ndarray) and column.dtype.kind == "M":
            found = np.where(np.isnat(column), ABSENT, column.astype("<M8[us]").astype(np.int64))
            wrong = (found != ABSENT) & ((found < 0) | (found > self._latest))
            if wrong.any():
                row = int(wrong.argmax())
                raise self._no_time(batch, name, row, column[row])
            return found
        return np.array(
            [
                ABSENT if value is None or value == "" else self._time(batch, name, row, value)
                for row, value in enumerate(_plain(column))
            ],
            dtype=np.int64,
        )

    def _time(self, batch: Batch, name: str, row: int, value: Any) -> int:
        try:
            read = datetime.fromisoformat(value)
        except (TypeError, ValueError):
            raise self._no_time(batch, name, row, value) from None
        time = ABSENT if read.tzinfo is None else microseconds(read)
        if not 0 <= time <= self._latest:
            raise self._no_time(batch, name, row, value)
        return time

    def _no_time(self, batch: Batch, name: str, row: int, value: Any) -> InputValueError:
        return InputValueError(
            "The time is not valid.",
            where=batch.place(row, name),
            found=str(value)[:100],
            expected=f"a time with its zone as ISO 8601 has it, from 1970 to {iso(self._latest)}",
        )

    def _logits(self, batch: Batch) -> npt.NDArray[np.float32]:
        classes = len(self._codes)
        if self._layout.whole:
            found = _matrix(batch, self._layout.values[0], classes)
        else:
            columns = [_numbers(batch, name, batch.columns[name], missing=None) for name in self._layout.values]
            found = np.stack(columns, axis=1)
        with np.errstate(over="ignore"):
            logits = np.ascontiguousarray(found, dtype="<f4")
        largest = logits.max(axis=1)
        wrong = ~np.isfinite(largest)  # NaN and +∞ win every comparison; −∞ wins only against itself
        if wrong.any():
            row = int(wrong.argmax())
            column = int(np.argmax(np.isnan(logits[row]) | (logits[row] == np.inf)))
            name = self._layout.values[0] if self._layout.whole else self._layout.values[column]
            if largest[row] == -np.inf:
                raise InputValueError(
                    "A row gives every label probability zero.",
                    where=batch.place(row, name),
                    found="−∞ for every label",
                    expected="a finite logit",
                )
            raise InputValueError(
                "A logit is NaN, +∞ or beyond float32.",
                where=batch.place(row, name),
                found=str(found[row, column]),
                expected="a finite number, or −∞ for a probability of zero",
            )
        return logits

    def _scores(self, batch: Batch, scores: Scores) -> npt.NDArray[np.float32]:
        """Return the logits that the scores stand for."""
        name, classes = scores.field, len(self._codes)
        single = name == "scores"
        column = _numbers(batch, name, batch.columns[name], missing=None) if single else _matrix(batch, name, classes)
        with _places(batch, name):
            return by_row(column, partial(scores.logits, classes=classes))

    def _tensors(self, batch: Batch, spec: InputSpec) -> npt.NDArray[Any]:
        encoded = np.empty(batch.rows, spec.numpy)
        for tensor in spec.tensors:
            with _places(batch, tensor.name):
                encoded[tensor.name] = by_row(batch.columns[tensor.name], partial(tensors.column, tensor=tensor))
        return encoded

    def _inputs(self, batch: Batch) -> npt.NDArray[Any]:
        bundle, spec = self._bundle, self._bundle.manifest.input
        encoder = bundle.vocabulary or bundle.tokenizer or bundle.columns
        if not self._layout.whole and bundle.columns is None:
            return self._tensors(batch, spec)
        with _places(batch, "inputs" if self._layout.whole else None):
            if not self._layout.whole:
                columns = {name: _plain(batch.columns[name]) for name in self._layout.values}
                rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
                return conform(encode_rows(rows, spec, encoder), spec, encoder)
            column = batch.columns["inputs"]
            if isinstance(column, np.ndarray):
                if column.shape[1:] not in (spec.shape, spec.shape[:-1]):  # else one example would pass as a batch
                    raise InputShapeError(
                        f"The model takes examples of shape {list(spec.shape)}.",
                        where=in_body("inputs", 0),
                        found=list(column.shape[1:]),
                        expected=list(spec.shape),
                    )
                return conform(column, spec, encoder)
            return conform(self._of_list(column), spec, encoder)

    def _of_list(self, rows: list[Any]) -> npt.NDArray[Any]:
        bundle, spec = self._bundle, self._bundle.manifest.input
        first = type(rows[0])
        wrong = next((row for row, value in enumerate(rows) if type(value) is not first or value is None), None)
        if wrong is not None:
            raise _not_alike(wrong, rows[wrong], first)
        if first is str and spec.kind == "image":
            return decode_images(decode_base64(rows), spec, max_pixels=self._max_pixels)
        if first is str:
            return encode_texts(rows, bundle.vocabulary or bundle.tokenizer)
        if first is dict:
            return encode_rows(rows, spec, bundle.columns)
        if first is not list or spec.kind == "tensors":
            raise _not_alike(0, rows[0], dict if spec.kind == "tensors" else list)
        return array_of(rows, spec, nan_is_missing=isinstance(bundle.columns, Columns))


@contextmanager
def _places(batch: Batch, name: str | None) -> Iterator[None]:
    """Translate rows in errors of shared code: they are rows of the batch, in the column `name`."""
    try:
        yield
    except InputError as error:
        if (row := error.row) is not None:
            error.place = batch.place(row, name)
        raise


def _not_alike(row: int, value: Any, expected: type) -> InputTypeError:
    return InputTypeError(
        "The inputs are not all of the same kind, or one is missing.",
        where=in_body("inputs", row),
        found=type(value).__name__,
        expected=f"a {expected.__name__}, like the first input",
    )


def _plain(column: Column) -> Sequence[Any]:
    return column.tolist() if isinstance(column, np.ndarray) else column


def _numbers(batch: Batch, name: str, column: Column, *, missing: float | None) -> npt.NDArray[np.float64]:
    """Return numbers (n,). Missing ones become `missing`, or are an error if that is None."""
    if isinstance(column, np.ndarray):
        if column.ndim == 1 and column.dtype.kind in "iuf":
            return column.astype(np.float64)
        column = column.tolist()
    try:
        return np.array([_number(value, missing) for value in column], dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        row = next(row for row, value in enumerate(column) if not _is_number(value, missing))
        raise InputTypeError(
            "A number is missing." if column[row] is None else "The value is not a number.",
            where=batch.place(row, name),
            found=None if column[row] is None else str(column[row])[:100],
            expected="a number",
        ) from None


def _number(value: Any, missing: float | None) -> float:
    if value is None and missing is not None:
        return missing
    if type(value) is bool:
        raise TypeError
    return parse_number(value) if isinstance(value, str) else float(value)


def _is_number(value: Any, missing: float | None) -> bool:
    try:
        _number(value, missing)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _matrix(batch: Batch, name: str, classes: int) -> npt.NDArray[Any]:
    """Return the lists of K numbers in one column as an array (n, K)."""
    column = batch.columns[name]
    if not isinstance(column, np.ndarray):
        for row, value in enumerate(column):
            if type(value) is not list or len(value) != classes:
                raise _wrong_classes(batch, row, name, len(value) if type(value) is list else value, classes)
        flat = [number for row in column for number in row]
        if not set(map(type, flat)) <= {int, float}:
            at = next(at for at, number in enumerate(flat) if type(number) not in (int, float))
            raise InputTypeError(
                "A logit is not a number.",
                where=batch.place(at // classes, name),
                found=str(flat[at])[:100],
                expected="a number (JSON has no infinity; use an npz or Parquet file for such rows)",
            )
        return np.array(flat, dtype=np.float64).reshape(len(column), classes)
    if column.shape[1:] != (classes,):
        raise _wrong_classes(batch, 0, name, list(column.shape[1:]), classes)
    if column.dtype.kind not in "iuf":
        raise InputTypeError("The logits are not numbers.", where=name, found=str(column.dtype), expected="numbers")
    return column


def _wrong_classes(batch: Batch, row: int, name: str, found: Any, classes: int) -> InputShapeError:
    return InputShapeError(
        f"A row requires one logit per label of the model ({classes}).",
        where=batch.place(row, name),
        found=str(found)[:100] if isinstance(found, str) else found,
        expected=classes,
    )
