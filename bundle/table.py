"""From a row of a table to the model's input, for training, import and service alike.

Numbers stay unchanged, true and false are 1 and 0, and a missing number is NaN. A text is a number as `parse_number`
says, for all three. A category becomes its code, or stays
the text it is where the graph takes text. What happens to missing and unknown values is a rule of each column.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from bundle import tensors
from bundle.errors import BundleFormatError, RowError
from bundle.inputs import InputSpec
from bundle.manifest import COLUMNS_FILE

MISSING = frozenset({"", "na", "n/a", "nan", "null", "?"})
UNKNOWN = 0
WHOLE = re.compile(r"(-?\d+)(?:\.0+)?")
"""A whole number, written as an integer or as a float."""
_SCHEMA_VERSION = 2
_MAX_COLUMNS = 100_000
MAX_CATEGORIES = 1_000_000
LARGEST = float(np.finfo(np.float32).max)
"""The largest number of a column: rows are float32."""
_FEW = 16  # cells, for which array operations cost more than they save
_MANY = 4096  # cells, for which a product may take several threads
_TEXTS = frozenset({str, type(None)})
_BOOLEANS = {"true": 1.0, "false": 0.0}

Rule = Literal["accept", "refuse"]
Cell = str | float | None


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: Its heading.
        categories: Known values of a categorical column, in the order of their codes; None for other columns.
        kind: `number`, `category` (a known value becomes its code) or `text` (the graph takes the text itself). By
            default `category` with categories, `number` without.
        tensor: Input of the graph that the column fills; "" where there is only one input.
        first_code: Code of the first category.
        absent: Code of a missing or unknown category; NaN where the model knows missing values.
        fill: Text of a missing text.
        on_missing: Whether a missing value is accepted, or the row refused.
        on_unknown: Whether a value outside `categories` is accepted, or the row refused.
        literal: Whether words such as NA are texts, so that only an empty or absent text is missing.
    """

    name: str
    categories: tuple[str, ...] | None = None
    kind: Literal["number", "category", "text"] | None = None
    tensor: str = ""
    first_code: int = UNKNOWN + 1
    absent: float = UNKNOWN
    fill: str = ""
    on_missing: Rule = "accept"
    on_unknown: Rule = "accept"
    literal: bool = False
    codes: Mapping[str, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given = self.categories or ()
        if self.kind is None:
            object.__setattr__(self, "kind", "number" if self.categories is None else "category")
        if (self.kind == "category" and self.categories is None) or (self.kind == "number" and given):
            raise _wrong(f"the column {self.name!r} has the wrong kind", str(self.kind), "categories, or none")
        if len(given) > MAX_CATEGORIES or len(set(given)) != len(given):
            raise _wrong(f"the categories of {self.name!r} are not distinct", str(given), "distinct values")
        object.__setattr__(self, "codes", {value: float(code) for code, value in enumerate(given, self.first_code)})

    def encode(
        self, values: Sequence[Cell] | NDArray[Any], absent: Counter[tuple[str, str]] | None = None
    ) -> Sequence[Any] | NDArray[np.float64]:
        """Return the column's values for the graph: numbers, codes, or texts.

        Args:
            values: Cells of the column.
            absent: Counts accepted values by the column's name and "missing" or "unknown".

        Raises:
            RowError: A value is not of the column's kind, or the column's rules refuse it.
        """
        if self.kind == "number" and (numbers := self._numbers(values, absent)) is not None:
            return numbers
        cells: Sequence[Cell] = values.tolist() if isinstance(values, np.ndarray) else values
        encoded: list[Any]
        if len(cells) >= _FEW and _TEXTS.issuperset(map(type, cells)):
            each = {cell: self._cell(cell) for cell in dict.fromkeys(cells)}
            encoded = [each[cell] for cell in cells]
        else:
            encoded = [self._cell(cell) for cell in cells]
        if absent is not None:
            missing = sum(map(self._lacks, cells))
            if missing or self.categories is not None:
                self._count(encoded, missing, absent)
        return encoded

    def _numbers(
        self, values: Sequence[Cell] | NDArray[Any], absent: Counter[tuple[str, str]] | None
    ) -> NDArray[np.float64] | None:
        """Return many cells as numbers at once if all can be used, and none is a word for a missing value."""
        try:
            if isinstance(values, np.ndarray):
                numbers = values.astype(np.float64) if values.dtype.kind in "biuf" else None
            else:
                numbers = _many_numbers(values) if len(values) >= _FEW else None
        except (TypeError, ValueError, OverflowError):
            return None
        if numbers is None or (np.abs(numbers) > LARGEST).any():
            return None
        missing = int(np.isnan(numbers).sum())
        if missing and (self.on_missing == "refuse" or not isinstance(values, np.ndarray)):
            return None
        if missing and absent is not None:
            absent[self.name, "missing"] += missing
        return numbers

    def _cell(self, value: Cell) -> float | str:
        if not self._lacks(value):
            return self._number(value) if self.kind == "number" else self._category(known_text(str(value), self.codes))
        if self.on_missing == "refuse":
            raise RowError(
                f"column {self.name!r} requires a value",
                found=repr(value),
                expected=self._expected(),
                refused=(self.name, "missing"),
            )
        return self._missing()

    def _lacks(self, value: Cell) -> bool:
        """Return whether a cell is missing: a known category is not, even if it is called NA."""
        if not isinstance(value, str):
            return is_missing(value)
        text = known_text(value, self.codes)
        return text not in self.codes and (not text.strip() if self.literal else is_missing(text))

    def _count(self, encoded: list[Any], missing: int, absent: Counter[tuple[str, str]]) -> None:
        unknown = 0
        if self.kind == "category":
            unknown = encoded.count(self.absent) - missing
        elif self.categories is not None:
            unknown = sum(value not in self.codes for value in encoded) - missing * (self.fill not in self.codes)
        if missing:
            absent[self.name, "missing"] += missing
        if unknown:
            absent[self.name, "unknown"] += unknown

    def _missing(self) -> float | str:
        if self.kind == "text":
            return self.fill
        return math.nan if self.kind == "number" else self.absent

    def _number(self, value: Cell) -> float:
        try:
            number = float(value) if not isinstance(value, str) else parse_number(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            number = _BOOLEANS.get(str(value).strip().lower(), math.inf)
        if not abs(number) <= LARGEST:  # a text such as -nan is neither a number nor a missing value
            large = isinstance(value, int | float) and math.isfinite(number)
            raise RowError(
                f"a value in column {self.name!r} is {'too large' if large else 'not a number'}",
                found=repr(value)[:100],
                expected=f"a number of at most {LARGEST:.3g}" if large else "a finite number or a missing value",
                refused=(self.name, "invalid"),
            )
        return number

    def _category(self, value: str) -> float | str:
        code = self.codes.get(value)
        if code is None and self.on_unknown == "refuse" and self.categories is not None:
            raise RowError(
                f"column {self.name!r} has an unknown value",
                found=repr(value)[:100],
                expected=self._expected(),
                refused=(self.name, "unknown"),
            )
        if self.kind == "text":
            return value
        return self.absent if code is None else code

    def _expected(self) -> str:
        if self.categories is None:
            return "a number" if self.kind == "number" else "a text"
        return f"one of {', '.join(self.categories[:20])}{', …' if len(self.categories) > 20 else ''}"


@dataclass(frozen=True)
class Columns:
    """The columns of a model's input, in order.

    Attributes:
        columns: At least one; with distinct names and distinct categories.

    Raises:
        BundleFormatError: The columns are invalid.

    Example:
        >>> columns = Columns((Column("age"), Column("fault", ("driver", "third party"))))
        >>> columns.encode([{"age": "41", "fault": "driver"}, {"age": None, "fault": "nobody"}])
        array([[41.,  1.],
               [nan,  0.]], dtype=float32)
    """

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.columns) <= _MAX_COLUMNS:
            raise _wrong("the number of columns is out of bounds", str(len(self.columns)), f"1 … {_MAX_COLUMNS}")
        if len({column.name for column in self.columns}) != len(self.columns):
            raise _wrong("duplicate column name", str([c.name for c in self.columns]), "distinct names")

    def __len__(self) -> int:
        return len(self.columns)

    @cached_property
    def required(self) -> NDArray[np.bool_]:
        """Whether a column refuses missing numbers, or both missing and unknown categories, bool (F,)."""
        return np.array(
            [
                column.on_missing == "refuse" and (column.kind == "number" or column.on_unknown == "refuse")
                for column in self.columns
            ]
        )

    @cached_property
    def numeric(self) -> bool:
        """Whether no column has categories, so that every finite number is a value."""
        return self._codes is None

    @cached_property
    def refuses_nan(self) -> NDArray[np.bool_]:
        """Whether a column refuses NaN, bool (F,): it requires a value, and NaN is not an accepted category."""
        lenient = np.array([column.kind == "category" and column.on_unknown == "accept" for column in self.columns])
        requires = np.array([column.on_missing == "refuse" for column in self.columns])
        return requires & ~(lenient & np.isnan(self.absent))

    @cached_property
    def requires(self) -> bool:
        """Whether any column is `required` or refuses NaN, as each required one does."""
        return bool(self.refuses_nan.any())

    @cached_property
    def requires_all(self) -> bool:
        """Whether all columns are `required`, so that no accepted row has a missing value."""
        return bool(self.required.all())

    def encode(
        self,
        rows: Iterable[Mapping[str, Cell]],
        spec: InputSpec | None = None,
        absent: Counter[tuple[str, str]] | None = None,
    ) -> NDArray[Any]:
        """Encode rows for the graph.

        Args:
            rows: Values by column name; absent columns are missing values, unknown names are ignored.
            spec: Input of the model; None for one float32 array.
            absent: Counts accepted values by column and "missing" or "unknown".

        Returns:
            (N, F), float32 or of the input's type, or a structured array (N,) for tensors.

        Raises:
            RowError: A value is not of its column's kind, or the column's rules refuse it.
        """
        table = list(rows)
        if (spec is None or spec.kind != "tensors") and (numbers := self._numbers(table)) is not None:
            return numbers.astype(np.float32 if spec is None else spec.numpy, copy=False)
        values = {column.name: [row.get(column.name) for row in table] for column in self.columns}
        return self.encode_columns(values, len(table), spec, absent)

    @cached_property
    def kinds(self) -> Mapping[str, str | None]:
        """Kind of each column by name."""
        return {column.name: column.kind for column in self.columns}

    @cached_property
    def _all_of(self) -> Callable[[Mapping[str, Cell]], tuple[Any, ...]] | None:
        """What takes the values of a row in order where all columns are numbers, else None."""
        names = tuple(self.kinds)
        return itemgetter(*names) if len(names) > 1 and set(self.kinds.values()) == {"number"} else None

    def _numbers(self, table: Sequence[Mapping[str, Cell]]) -> NDArray[np.float64] | None:
        """Return rows (N, F) where each value of each column is a number, the usual case; None for all others."""
        if self._all_of is None or not table:
            return None
        try:
            flat = np.frombuffer(array("d", chain.from_iterable(map(self._all_of, table))))
        except (KeyError, TypeError, OverflowError):  # a value is missing, a text, or too large
            return None
        # The product costs a third, and only the squares of large numbers exceed that; NaN exceeds both.
        usual = flat.size <= _MANY and np.vdot(flat, flat) <= LARGEST
        return flat.reshape(len(table), -1) if usual or np.abs(flat).max() <= LARGEST else None

    def encode_columns(
        self,
        values: Mapping[str, Sequence[Cell] | NDArray[Any]],
        rows: int,
        spec: InputSpec | None = None,
        absent: Counter[tuple[str, str]] | None = None,
    ) -> NDArray[Any]:
        """Encode the values of each column for the graph, as `encode` does.

        Args:
            values: Values by column name, N each; the values of absent columns are missing.
            rows: Number N of rows.
            spec: Input of kind `tensors`, whose tensors the columns fill; None for one array.
            absent: Counts accepted values by column and "missing" or "unknown".

        Raises:
            RowError: A value is not of its column's kind, or the column's rules refuse it.
        """
        missing: Sequence[Cell] = [None] * rows
        if spec is None or spec.kind != "tensors":
            encoded = np.empty((rows, len(self.columns)), np.float32 if spec is None else spec.numpy)
            for place, column in enumerate(self.columns):
                encoded[:, place] = column.encode(values.get(column.name, missing), absent)
            return encoded
        records = np.empty(rows, spec.numpy)
        for tensor in spec.tensors:
            own = [column for column in self.columns if column.tensor == tensor.name]
            cells = {column.name: column.encode(values.get(column.name, missing), absent) for column in own}
            records[tensor.name] = tensors.cells(cells, tensor)
        return records

    def missing_in(self, encoded: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which values of encoded rows (N, F) are missing: NaN, or the code of absent categories.

        Example:
            >>> Columns((Column("age"), Column("fault", ("driver",)))).missing_in(np.array([[np.nan, 1], [41, 0]]))
            array([[ True, False],
                   [False,  True]])
        """
        missing: NDArray[np.bool_] = np.isnan(encoded)
        return missing if self._absent is None else missing | (encoded == self._absent)

    @cached_property
    def refuses_unknown(self) -> NDArray[np.bool_]:
        """Whether a column refuses unknown categories, bool (F,)."""
        return np.array([column.kind == "category" and column.on_unknown == "refuse" for column in self.columns])

    @cached_property
    def absent(self) -> NDArray[np.float64]:
        """What stands for an absent value of each column, float64 (F,): NaN, or the code of absent categories."""
        return np.array([column.absent if column.kind == "category" else math.nan for column in self.columns])

    def unknown_in(self, encoded: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Return which values of encoded rows (N, F) are neither a code of their category column nor missing.

        Returns:
            bool (N, F), or None without `uncoded_in`, the usual case.

        Example:
            >>> columns = Columns((Column("age"), Column("fault", ("driver",))))
            >>> columns.unknown_in(np.array([[41, 2], [0.5, 1], [2, 0.5]]))
            array([[False,  True],
                   [False, False],
                   [False,  True]])
        """
        uncoded = self.uncoded_in(encoded)
        return None if uncoded is None else uncoded & ~np.isnan(encoded)

    def uncoded_in(self, encoded: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Return which values of category columns are neither a code nor `absent`: unknown, or NaN for a missing one.

        Returns:
            bool (N, F), or None if there are none, the usual case.
        """
        if self._codes is None:
            return None
        places, first, last = self._codes
        values = encoded[:, places]
        wrong = ~((values >= first) & (values <= last) & (values == np.rint(values)))
        if not wrong.any():
            return None
        absent = self.absent[places]
        wrong &= (values != absent) & ~(np.isnan(values) & np.isnan(absent))
        if not wrong.any():
            return None
        uncoded = np.zeros(encoded.shape, np.bool_)
        uncoded[:, places] = wrong
        return uncoded

    @cached_property
    def _codes(self) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]] | None:
        """Places of the category columns, and the first and last code of each; None without such columns."""
        places = [place for place, column in enumerate(self.columns) if column.kind == "category"]
        if not places:
            return None
        own = [self.columns[place] for place in places]
        first = np.array([column.first_code for column in own], np.float64)
        return np.array(places), first, first + [len(column.categories or ()) - 1 for column in own]

    def untold(self, wanted: Columns) -> set[str]:
        """Return which columns of another model rows encoded for this one do not tell, or not always: see `decode`.

        Example:
            >>> ours = Columns((Column("age"), Column("fault", ("driver",))))
            >>> theirs = Columns((Column("age"), Column("fault", ("driver", "other")), Column("income")))
            >>> sorted(ours.untold(theirs))
            ['fault', 'income']
        """
        own = {column.name: column for column in self.columns}
        return {
            column.name
            for column in wanted.columns
            if not _comparable(own.get(column.name), column)
            or not set(column.categories or ()) <= set(own[column.name].categories or ())
        }

    def decode(self, encoded: NDArray[Any], wanted: Columns) -> dict[str, tuple[list[Cell], NDArray[np.bool_]]]:
        """Return the cells of another model's columns, as far as rows encoded for this one tell them.

        Args:
            encoded: Rows (N, F) from `encode`.
            wanted: The other model's columns.

        Returns:
            For each column that both have, of one kind and not a text: its cells, None where missing, and which of
            them are known. A category that this model does not know is not, if the other may know it.

        Example:
            >>> ours = Columns((Column("age"), Column("fault", ("driver",))))
            >>> ours.decode(np.array([[41, 1], [20, 0]]), Columns((Column("fault", ("driver", "other")),)))
            {'fault': (['driver', None], array([ True, False]))}
        """
        places = {column.name: place for place, column in enumerate(self.columns)}
        found: dict[str, tuple[list[Cell], NDArray[np.bool_]]] = {}
        for column in wanted.columns if encoded.ndim == 2 else ():
            place = places.get(column.name)
            own = None if place is None else self.columns[place]
            if place is None or own is None or not _comparable(own, column):
                continue
            cells: list[Cell] = encoded[:, place].astype(np.float64).tolist()
            known = np.ones(len(encoded), np.bool_)
            if own.categories is not None and column.categories is not None:
                texts = {code: text for text, code in own.codes.items()}
                cells = [texts.get(cell) for cell in cells]  # type: ignore[arg-type]
                if not set(column.categories) <= set(own.categories):
                    known = np.array([cell is not None for cell in cells], np.bool_)
            found[column.name] = cells, known
        return found

    @cached_property
    def told(self) -> tuple[str, ...]:
        """Names of the columns whose cells one array of encoded rows tells: all but texts; see `cells_of`."""
        return tuple(column.name for column in self.columns if column.kind != "text")

    def cells_of(self, encoded: NDArray[Any], names: Sequence[str]) -> NDArray[np.void]:
        """Return the cells of some columns in `told` of encoded rows (N, F), as a structured array (N,).

        Numbers are float64, NaN where missing. Categories are texts, None where missing or unknown.

        Example:
            >>> columns = Columns((Column("age"), Column("fault", ("driver",))))
            >>> columns.cells_of(np.array([[41, 1], [20, 0]]), ["fault", "age"]).tolist()
            [('driver', 41.0), (None, 20.0)]
        """
        places = {column.name: place for place, column in enumerate(self.columns)}
        own = [self.columns[places[name]] for name in names]
        found = np.empty(len(encoded), [(one.name, "f8" if one.categories is None else "O") for one in own])
        for one in own:
            values = encoded[:, places[one.name]].astype(np.float64)
            if one.categories is None:
                found[one.name] = values
                continue
            texts, code = np.array([*one.categories, None], np.object_), values - one.first_code
            known = (code >= 0) & (code < len(one.categories)) & (code == np.rint(code))
            found[one.name] = texts[np.where(known, code, len(one.categories)).astype(np.intp)]
        return found

    @cached_property
    def _absent(self) -> NDArray[np.float32] | None:
        """Codes of absent categories, NaN for other columns, float32 (F,); None without a code."""
        return None if np.isnan(self.absent).all() else self.absent.astype(np.float32)

    def check(self, spec: InputSpec) -> None:
        """Raise BundleFormatError unless the columns fit this input."""
        if spec.kind == "tensors":
            sizes = {tensor.name: math.prod(tensor.shape) for tensor in spec.tensors}
            if any(len(tensor.shape) > 1 for tensor in spec.tensors):
                raise _wrong(
                    "columns fill vectors only", str([tensor.shape for tensor in spec.tensors]), "at most 1 axis"
                )
            filled = {name: sum(column.tensor == name for column in self.columns) for name in sizes}
            if filled != sizes or sum(filled.values()) != len(self.columns):
                raise _wrong("the columns do not fit the tensors", str(filled), str(sizes))
        elif spec.kind != "array" or spec.shape != (len(self.columns),):
            raise _wrong(
                "the columns do not fit the model", f"{len(self.columns)} columns", f"{spec.kind} {spec.shape}"
            )

    def dump(self) -> bytes:
        """Return the bytes of `columns.json`."""
        columns = [asdict(column) | {"absent": _finite(column.absent)} for column in self.columns]
        for column in columns:
            del column["codes"]
            if not column["literal"]:  # files of equal columns stay equal, see the manifest's digests
                del column["literal"]
        document = {"schema_version": _SCHEMA_VERSION, "columns": columns}
        return json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n"

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Read `columns.json`, of this schema version or of version 1; raises BundleFormatError."""
        try:
            document: Any = json.loads(data)
            if document.keys() != {"schema_version", "columns"} or document["schema_version"] not in (1, 2):
                raise _wrong("unexpected fields", str(document)[:100], f"columns, of schema version {_SCHEMA_VERSION}")
            return cls(tuple(_column(**column) for column in document["columns"]))
        except (ValueError, RecursionError, AttributeError, TypeError) as error:
            raise BundleFormatError(f"invalid columns: {error}", file=COLUMNS_FILE) from error


def _comparable(own: Column | None, wanted: Column) -> bool:
    return own is not None and own.kind == wanted.kind and own.kind != "text"


def is_missing(value: str | float | None) -> bool:
    """Return whether a cell of a table is missing: one of `MISSING` in any case, NaN or None."""
    if isinstance(value, str):
        return value.strip().lower() in MISSING
    return value is None or (isinstance(value, float) and math.isnan(value))


def known_text(text: str, known: Container[str]) -> str:
    """Return a cell as the model knows it: as it is, else without the spaces around it; unchanged if neither is known.

    A whole number may be known as a float (10115.0), and a float as a whole number: a column of codes becomes one of
    floats where a value is missing. True and false may be known in other letters: JSON and CSV files differ in them.

    Example:
        >>> [known_text(cell, {"DE ", "AT"}) for cell in ("DE ", " AT ", " US")]
        ['DE ', 'AT', ' US']
        >>> [known_text(cell, {"10115", "7.0"}) for cell in ("10115.0", "7", "8.0")]
        ['10115', '7.0', '8.0']
        >>> [known_text(cell, {"true", "FALSE"}) for cell in ("True", "false", "yes")]
        ['true', 'FALSE', 'yes']
    """
    if text in known:
        return text
    spelled = [text.strip()]
    if (whole := WHOLE.fullmatch(spelled[0])) is not None:
        spelled += whole[1], f"{whole[1]}.0"
    elif (low := spelled[0].lower()) in _BOOLEANS:
        spelled += low, low.capitalize(), low.upper()
    return next((each for each in spelled if each in known), text)


def _many_numbers(values: Sequence[Cell]) -> NDArray[np.float64] | None:
    try:
        return np.frombuffer(array("d", values))  # type: ignore[type-var]  # takes no texts
    except TypeError:
        if not is_plain("".join(cell for cell in values if isinstance(cell, str))):
            return None
        return np.array(list(map(float, values)), np.float64)  # type: ignore[arg-type]


def parse_number(text: str) -> float:
    """Return the number that a text spells, in ASCII and without underscores, unlike `float`.

    Raises:
        ValueError: It is not a number.

    Example:
        >>> parse_number(" 1e3 ")
        1000.0
        >>> parse_number("1_000")
        Traceback (most recent call last):
        ValueError: not a number: '1_000'
    """
    if not is_plain(text):
        raise ValueError(f"not a number: {text!r}")
    return float(text)


def is_number(text: str) -> bool:
    """Return whether a text spells a number, see `parse_number`."""
    try:
        parse_number(text)
    except ValueError:
        return False
    return True


def is_plain(text: str) -> bool:
    """Return whether a text is spelled as a number may be; many texts at once, joined."""
    return text.isascii() and "_" not in text


def _column(*, name: str, categories: list[str] | None, absent: float | None = UNKNOWN, **rules: Any) -> Column:
    kind = rules.get("kind") or "number"
    texts = [name, rules.get("tensor", ""), rules.get("fill", ""), *(categories or [])]
    rest = [kind, rules.get("on_missing", "accept"), rules.get("on_unknown", "accept")]
    known = [{"number", "category", "text"}, {"accept", "refuse"}, {"accept", "refuse"}]
    numbers = [rules.get("first_code", 0), 0 if absent is None else absent]
    if (
        not isinstance(categories, list | None)
        or not all(isinstance(text, str) for text in texts)
        or not all(value in values for value, values in zip(rest, known, strict=True))
        or not all(type(number) in (int, float) for number in numbers)
        or type(rules.get("literal", False)) is not bool
    ):
        raise TypeError(f"a column of {[*texts, *rest, *numbers]!r}")
    absent = math.nan if absent is None else absent
    return Column(name, None if categories is None else tuple(categories), absent=absent, **rules)


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else value


def _wrong(message: str, found: str, expected: str) -> BundleFormatError:
    return BundleFormatError(message, file=COLUMNS_FILE, found=found[:300], expected=expected)
