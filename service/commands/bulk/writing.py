"""Write the rows of a file with their outcomes: CSV, NDJSON or Parquet."""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import orjson

from service.commands.bulk.journal import Journal
from service.commands.bulk.outcome import Outcomes
from service.commands.bulk.tables import Survey, digest, read_rows
from service.commands.output import replacing
from service.errors import InputValueError

_ROWS_PER_GROUP: Final = 1 << 16
_ROWS_PER_BATCH: Final = 4096


@dataclass(frozen=True, eq=False)
class Output:
    """A file to write.

    Attributes:
        source: File that was predicted.
        survey: What it contains.
        outcomes: Columns to add.
        dropped: Columns of it to leave out.
    """

    source: Path
    survey: Survey
    outcomes: Outcomes
    dropped: Collection[str]

    def __post_init__(self) -> None:
        """Raise InputValueError if a column of the file has the name of a column to add."""
        for name in self.kept:
            if name in self.outcomes.kinds:
                raise InputValueError(
                    f"The file has a column `{name}`, as the output does.",
                    where=name,
                    expected="distinct names",
                    remedy=f"Rename it, or leave it out of the output with --drop {name}.",
                )

    @property
    def kept(self) -> list[str]:
        """Columns of the file that are written."""
        return [name for name in self.survey.columns if name not in self.dropped]

    def write(self, path: Path, journal: Journal) -> None:
        """Write the file under a temporary name, then rename it.

        Args:
            path: The file; its ending is one of `FORMATS`.
            journal: The outcome of every row.

        Raises:
            InputValueError: The predicted file has changed since.
            ConfigurationError: The file cannot be written.
        """
        if digest(self.source) != self.survey.digest:
            raise InputValueError(
                f"{self.source} has changed since the run began.",
                where=str(self.source),
                remedy=f"Restore it and use --resume, or delete {journal.path} and predict all rows again.",
            )
        with replacing(path) as file:
            FORMATS[path.suffix.lower()](self, journal, file)

    def rows(self, journal: Journal) -> Iterator[list[Any]]:
        """Yield the values of each row to write, in the order of the columns."""
        kept, added = self.kept, list(self.outcomes.kinds)
        for row, outcome in zip(read_rows(self.source), journal.read(), strict=True):
            yield [*map(row.values.get, kept), *map(outcome.get, added)]


def _csv(output: Output, journal: Journal, file: IO[bytes]) -> None:
    def line(cells: Iterable[Any]) -> None:
        writer.writerow([_text(cell) for cell in cells])

    class Encoded:
        @staticmethod
        def write(text: str) -> int:
            return file.write(text.encode())

    writer = csv.writer(Encoded(), lineterminator="\n")
    line([*output.kept, *output.outcomes.kinds])
    for cells in output.rows(journal):
        line(cells)


def _ndjson(output: Output, journal: Journal, file: IO[bytes]) -> None:
    names = [*output.kept, *output.outcomes.kinds]
    for cells in output.rows(journal):
        file.write(orjson.dumps(dict(zip(names, cells, strict=True)), option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")


def _parquet(output: Output, journal: Journal, file: IO[bytes]) -> None:
    from arro3.core import RecordBatchReader
    from arro3.io import write_parquet

    schema, batches = (_beside if output.source.suffix.lower() == ".parquet" else _converted)(output, journal)
    reader = RecordBatchReader.from_batches(schema, batches)
    write_parquet(reader, file, compression="snappy", max_row_group_size=_ROWS_PER_GROUP)


def _beside(output: Output, journal: Journal) -> tuple[Any, Iterator[Any]]:
    """Return schema and batches with the columns of a Parquet file as they are."""
    from arro3.core import Array, RecordBatch, Schema
    from arro3.io import read_parquet

    source = read_parquet(str(output.source))
    kept = [source.schema.field(name) for name in output.kept]
    added = _fields(output.outcomes.kinds)
    schema = Schema([*kept, *added])

    def batches() -> Iterator[Any]:
        finished = journal.read()
        for batch in source:
            outcomes = list(islice(finished, batch.num_rows))
            columns = [Array([outcome.get(field.name) for outcome in outcomes], type=field.type) for field in added]
            yield RecordBatch.from_arrays([*(batch.column(name) for name in output.kept), *columns], schema=schema)

    return schema, batches()


def _converted(output: Output, journal: Journal) -> tuple[Any, Iterator[Any]]:
    """Return schema and batches with the columns of another file in the types that their values have."""
    from arro3.core import Array, RecordBatch, Schema

    kinds: dict[str, str] = {name: output.survey.columns[name] for name in output.kept}
    kinds |= output.outcomes.kinds
    fields = _fields(kinds)
    schema = Schema(fields)

    def batches() -> Iterator[Any]:
        rows = output.rows(journal)
        while part := list(islice(rows, _ROWS_PER_BATCH)):
            columns = zip(*part, strict=True)
            arrays = [
                Array([None if cell is None else _AS[kinds[field.name]](cell) for cell in column], type=field.type)
                for field, column in zip(fields, columns, strict=True)
            ]
            yield RecordBatch.from_arrays(arrays, schema=schema)

    return schema, batches()


def _fields(kinds: Mapping[str, str]) -> list[Any]:
    from arro3.core import DataType, Field

    types = {"bool": DataType.bool(), "int": DataType.int64(), "float": DataType.float64(), "text": DataType.string()}
    return [Field(name, types[kind], nullable=True) for name, kind in kinds.items()]


def _text(cell: Any) -> str:
    if type(cell) is str:
        return cell
    if cell is None:
        return ""
    if isinstance(cell, bool | list | dict | np.ndarray):
        return orjson.dumps(cell, option=orjson.OPT_SERIALIZE_NUMPY).decode()
    return str(cell)


_AS: Final[Mapping[str, Callable[[Any], Any]]] = {"bool": bool, "int": int, "float": float, "text": _text}

FORMATS: Final[Mapping[str, Callable[[Output, Journal, IO[bytes]], None]]] = {
    ".csv": _csv,
    ".ndjson": _ndjson,
    ".jsonl": _ndjson,
    ".parquet": _parquet,
}
"""What writes a file, by its ending."""
