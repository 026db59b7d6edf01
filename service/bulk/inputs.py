"""The files to score, local or by URL, cut into parts as they are read."""

from __future__ import annotations

import bz2
import csv
import gzip
import hashlib
import io
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, Literal

from bundle import RemoteError
from bundle.remote import file_system
from importing.errors import RowsError
from importing.rows.csv_file import delimiter_of
from importing.rows.roles import check_names
from service.bulk.extent import Extent, rows_of_npz, rows_of_parquet
from service.errors import ConfigurationError, InputError, InputValueError, MalformedBodyError
from service.row_files.lines import LONGEST_LINE

Format = Literal["csv", "ndjson", "parquet", "npz"]

FORMATS: Final[dict[str, Format]] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".parquet": "parquet",
    ".npz": "npz",
}
_OPENED: Final[dict[str, Callable[[Any], Any]]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": bz2.BZ2File,
}
_COUNTED: Final[dict[Format, Callable[[IO[bytes]], int | None]]] = {"parquet": rows_of_parquet, "npz": rows_of_npz}
_Cut = Iterator[tuple[int, tuple[str, ...], Any, int]]
"""Number of the first line, columns, content and number of rows of each part."""
_BUFFER: Final = 1 << 20
PART_BYTES: Final = 32 << 20
"""Bytes of the input after which a part ends."""


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a file, cut but not parsed.

    Attributes:
        number: Number of the part in the run, from 0.
        file: The file, for messages.
        format: Its format.
        first: Number of its first line, or row, from 1.
        names: Columns of a CSV; else empty.
        content: Lines of a CSV or NDJSON; record batches of Parquet as an Arrow stream; batches of arrays by name.
        seen: Rows of the file that are known by now, and the bytes of the file, as it is stored, that hold them.
    """

    number: int
    file: str
    format: Format
    first: int
    names: tuple[str, ...]
    content: Any
    seen: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Source:
    """A file to score.

    Attributes:
        name: Its path below the folder that was given, or its own name.
        address: Path or URL.
        size: Bytes of the file as it is stored; None if its place does not say.
    """

    name: str
    address: str
    size: int | None = None

    @cached_property
    def format(self) -> Format:
        """Its format, by its ending; raises InputValueError."""
        found = FORMATS.get(_ending(self.name))
        compressed = PurePosixPath(self.name).suffix.lower() in _OPENED
        if found is None or (compressed and found not in ("csv", "ndjson")):
            raise InputValueError(
                f"{self.address}: unknown ending.",
                where=self.address,
                found=PurePosixPath(self.name).name,
                expected=f"one of {', '.join(FORMATS)}; of lines also with .gz or .bz2",
            )
        return found

    def digest(self) -> str:
        """Return what changes with its content: the SHA-256 of a local file, fsspec's key of a remote one.

        Raises:
            ConfigurationError: The file cannot be read.
        """
        with _readable(self.address):
            if is_url(self.address):
                files, path = file_system(self.address)
                files.invalidate_cache()
                return str(files.ukey(path))
            with Path(self.address).open("rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()

    def parts(self, first_number: int, rows: int) -> Iterator[Part]:
        """Yield the parts of the file.

        Args:
            first_number: Number of its first part.
            rows: Maximum rows per part; a part also ends after `PART_BYTES`.

        Raises:
            ConfigurationError: The file cannot be read.
            InputError: The file is damaged; `where` names the line.
        """
        cut = {"csv": self._csv, "ndjson": self._ndjson, "parquet": self._parquet, "npz": self._npz}[self.format]
        number, cut_rows = first_number, 0
        with _readable(self.address), self._open() as (stored, stream):
            whole = None
            if self.format in _COUNTED:
                whole = _COUNTED[self.format](stored)
                stored.seek(0)
            for first, names, content, count in cut(stream, rows):
                cut_rows += count
                size = self.size or 0
                seen = (whole, size) if whole is not None else (cut_rows, min(size, stored.tell()) if size else 0)
                yield Part(number, self.address, self.format, first, names, content, seen)
                number += 1

    @contextmanager
    def _open(self) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """Open the file as it is stored, and unpacked."""
        open_ = Path(self.address).open
        if is_url(self.address):
            files, path = file_system(self.address)
            open_ = partial(files.open, path)
        with open_("rb") as stream:
            stored, wrap = stream, _OPENED.get(PurePosixPath(self.name).suffix.lower())
            if wrap is None and is_url(self.address) and self.format in ("csv", "ndjson"):
                stored = io.BufferedReader(stream, _BUFFER)  # fsspec's files read no line with a limit
            yield stored, stored if wrap is None else io.BufferedReader(wrap(stored), _BUFFER)

    def _csv(self, stream: IO[bytes], rows: int) -> _Cut:
        delimiter = delimiter_of(Path(self.name))
        records = _records(stream, self.address, delimiter)
        names: tuple[str, ...] = ()
        for number, record in records:
            text = record.decode("utf-8-sig", "replace")
            if text.strip():
                names = tuple(name.strip() for name in next(csv.reader([text], delimiter=delimiter)))
                check_names(names, f"{self.address}, line {number}")
                break
        if not names:
            raise MalformedBodyError(f"{self.address} has no header.", where=self.address, expected="names of columns")
        for first, content, count in _gathered(records, rows):
            yield first, names, content, count

    def _ndjson(self, stream: IO[bytes], rows: int) -> _Cut:
        for first, content, count in _gathered(_records(stream, self.address), rows):
            yield first, (), content, count

    def _parquet(self, stream: IO[bytes], rows: int) -> _Cut:
        from arro3.core import RecordBatchReader
        from arro3.io import write_ipc_stream

        from service.row_files.parquet_rows import open_parquet

        schema, batches = open_parquet(stream, batch_size=min(rows, 1 << 14))
        first = 1
        for part in _filled(((batch, batch.num_rows, batch.nbytes) for batch in batches), rows):
            content = io.BytesIO()
            write_ipc_stream(RecordBatchReader.from_batches(schema, part), content, compression=None)
            count = sum(batch.num_rows for batch in part)
            yield first, tuple(schema.names), content.getvalue(), count
            first += count

    def _npz(self, stream: IO[bytes], rows: int) -> _Cut:
        from service.row_files.npz_rows import read_npz

        first = 1
        batches = read_npz(stream, limit=sys.maxsize, batch_rows=rows)
        sized = ((batch.columns, batch.rows, sum(map(_size, batch.columns.values()))) for batch in batches)
        for part in _filled(sized, rows):
            count = sum(len(next(iter(columns.values()))) for columns in part)
            yield first, tuple(part[0]), part, count
            first += count


def is_url(address: str) -> bool:
    """Return whether an address is a URL, which fsspec opens."""
    return "://" in address


def find(address: str) -> list[Source]:
    """Return the files to score: one, or those of a folder and the folders below, by name.

    Files and folders whose names begin with a dot or an underscore are left out, as engines write them beside data.

    Raises:
        ConfigurationError: There is nothing at the address, or it cannot be listed.
        InputValueError: A file has an unknown ending, or the formats differ.
        MalformedBodyError: The reader of Parquet crashes over a local file.
    """
    with _readable(address):
        sources = _remote(address) if is_url(address) else _local(address)
    if not sources:
        raise ConfigurationError(f"{address} has no files to score.", where=address, expected=", ".join(FORMATS))
    formats = {source.format for source in sources}
    if len(formats) > 1:
        raise InputValueError(
            f"{address} has files of several formats.",
            where=address,
            found=", ".join(sorted(formats)),
            expected="files of one format",
        )
    if formats == {"parquet"}:
        from service.row_files.parquet_opening import check_opening
        from service.row_files.parquet_rows import check_installed

        check_installed()
        check_opening(Path(source.address) for source in sources if not is_url(source.address))
    return sources


def cut(sources: Iterable[Source], rows: int, extent: Extent | None = None) -> Iterator[tuple[Part, str]]:
    """Yield all parts of files, numbered from 0, each with the name of its file.

    Args:
        sources: The files.
        rows: Maximum rows per part.
        extent: Counts the rows; None counts none.

    Raises:
        InputError: A file is damaged, or has other columns than the first.
        ConfigurationError: A file cannot be read.
    """
    number = 0
    columns: tuple[str, ...] | None = None
    before = ""
    for source in sources:
        for part in source.parts(number, rows):
            number += 1
            if extent is not None:
                extent.saw(*part.seen)
            if columns is None:
                columns, before = part.names, source.name
            elif part.names != columns:
                raise InputValueError(
                    f"{source.name} has other columns than {before}.",
                    where=source.address,
                    found=", ".join(part.names[:100]),
                    expected=", ".join(columns[:100]),
                )
            yield part, source.name
        if extent is not None:
            extent.next_file()


def _local(address: str) -> list[Source]:
    path = Path(address)
    if not path.is_dir():
        return [Source(path.name, address, path.stat().st_size)]
    names = [found.relative_to(path) for found in path.rglob("*") if found.is_file()]
    return [
        Source(str(name), str(path / name), (path / name).stat().st_size)
        for name in sorted(names)
        if _is_data(name.parts)
    ]


def _remote(address: str) -> list[Source]:
    files, path = file_system(address)
    if not path.endswith("/") and files.isfile(path):  # a web server answers for folders, too
        return [Source(PurePosixPath(path).name, address, files.size(path))]
    found = files.find(path, detail=True) or (files.info(path) and {})  # `find` leaves out what it cannot list
    named = ((each.removeprefix(path.rstrip("/") + "/"), each) for each in sorted(found))
    return [
        Source(name, str(files.unstrip_protocol(each)), found[each].get("size"))
        for name, each in named
        if _is_data(PurePosixPath(name).parts)
    ]


def _is_data(parts: Iterable[str]) -> bool:
    return not any(part.startswith((".", "_")) for part in parts)


def _ending(name: str) -> str:
    path = PurePosixPath(name)
    return PurePosixPath(path.stem).suffix.lower() if path.suffix.lower() in _OPENED else path.suffix.lower()


@contextmanager
def _readable(address: str) -> Iterator[None]:
    """Turn what systems, decompressors and file systems raise about a file into our errors."""
    try:
        yield
    except (InputError, ConfigurationError) as error:
        if isinstance(error, InputError) and not (error.where or "").startswith(address):
            error.place = address if error.where is None else f"{address}, {error.where}"
        raise
    except RowsError as error:
        raise MalformedBodyError(
            error.message, where=error.where, found=error.found, expected=error.expected, remedy=error.remedy
        ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise MalformedBodyError(f"The compressed file is damaged: {error}.", where=address) from error
    except RemoteError as error:
        raise ConfigurationError(f"{address} cannot be read: {error}", where=address) from error
    except OSError as error:
        if type(error) is OSError and error.errno is None:  # of bz2
            raise MalformedBodyError(f"The file is damaged: {error}.", where=address) from error
        missing = isinstance(error, FileNotFoundError)  # of fsspec; its cause is what the server said
        why = error.strerror or (error.__cause__ or "nothing is there" if missing else error)
        raise ConfigurationError(f"{address} cannot be read: {why}.", where=address) from error
    except Exception as error:
        if not is_url(address):
            raise
        # Each file system has exceptions of its own.
        raise ConfigurationError(f"{address} cannot be read: {error}.", where=address) from error


def _records(stream: IO[bytes], address: str, delimiter: str | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its number; lines that a quoted cell spans, where a delimiter is given, stay together."""
    csv.field_size_limit(LONGEST_LINE)  # of the process; by default cells of 131,072 characters end the reading
    number = 0

    def lines() -> Iterator[bytes]:
        while line := stream.readline(LONGEST_LINE + 1):
            if len(line) > LONGEST_LINE:
                raise MalformedBodyError(
                    "The line is too long.",
                    where=f"{address}, line {number + 1}",
                    expected=f"at most {LONGEST_LINE} bytes",
                )
            yield line

    def texts(line: bytes, taken: list[bytes]) -> Iterator[str]:
        while line:
            taken.append(line)
            yield line.decode("utf-8", "replace")
            line = next(rest, b"")

    rest = lines()
    for line in rest:
        if delimiter is None or b'"' not in line:
            yield number + 1, line
            number += 1
            continue
        taken: list[bytes] = []
        try:
            next(csv.reader(texts(line, taken), delimiter=delimiter))
        except csv.Error as error:
            raise MalformedBodyError(
                f"The line is not valid CSV: {error}.",
                where=f"{address}, line {number + 1}",
                remedy="A quotation mark may lack its end.",
            ) from error
        yield number + 1, b"".join(taken)
        number += len(taken)


def _gathered(records: Iterator[tuple[int, bytes]], rows: int) -> Iterator[tuple[int, bytes, int]]:
    """Yield the number of the first line of each part, its lines, and how many they are."""
    sized = ((record, 1, len(record[1])) for record in records)
    for part in _filled(sized, rows):
        yield part[0][0], b"".join(line for _, line in part), len(part)


def _filled(sized: Iterable[tuple[Any, int, int]], rows: int) -> Iterator[list[Any]]:
    """Yield lists of consecutive things that have at most `rows` rows, or end after `PART_BYTES`.

    Args:
        sized: Each thing with its rows and bytes.
        rows: Maximum rows, unless a thing alone has more.
    """
    part: list[Any] = []
    held = size = 0
    for thing, count, nbytes in sized:
        if part and (held + count > rows or size >= PART_BYTES):
            yield part
            part, held, size = [], 0, 0
        part.append(thing)
        held += count
        size += nbytes
    if part:
        yield part


def _size(column: Any) -> int:
    return sum(map(len, column)) if isinstance(column, list) else int(column.nbytes)
