"""A copy of the log outside of the database: Parquet files, one for each hour of prediction ids.

One replica writes them from the state. No answer waits for them, and a slow or unreachable place delays only the files.
A file's name is its hour, so a second attempt replaces the first; an hour that has its file is skipped.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from io import FileIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import structlog
from sqlalchemy import func, select

from service.errors import ConfigurationError, StateUnavailableError
from service.state.database import Database, now_us
from service.state.partitions import first_id, time_of_id
from service.state.tables import origins, predictions
from service.times import iso

logger = structlog.get_logger(__name__)

HOUR_US: Final = 3_600_000_000
SETTLED_US: Final = HOUR_US  # after the hour's end: a request's wait, and the log's queue
ROWS_PER_GROUP: Final = 100_000  # held in memory, compressed
ROWS_PER_PAGE: Final = 1_000  # other threads wait while a page is fetched and converted
_LOCK: Final = "log-sink"
_EVERY_S: Final = 300.0
_PAUSE_S: Final = 0.01  # between pages, for predictions
_LEAVE_S: Final = 2.0
_TEXTS: Final = ("id", "reference", "action", "segment")
_NUMBERS: Final = ("confidence", "propensity", "amount")
ORIGIN: Final = ("model", "model_digest", "revision", "policy")


class LogSink:
    """Writes the hours of the log that have ended, on one replica at a time.

    Args:
        database: The state.
        address: Folder, or URL for fsspec; None for no sink.
        uploads: Folder for a file that is not at the URL yet.

    Attributes:
        written: Rows written by this replica since the start.
        through_us: End of the last hour that is there, in microseconds since the epoch; None before the first run.

    Raises:
        ConfigurationError: What writes Parquet is not installed.
    """

    def __init__(self, database: Database, address: str | None, uploads: Path) -> None:
        if address is not None and find_spec("arro3") is None:
            raise ConfigurationError(
                "The log sink requires the extra `parquet`.",
                where="CANDOR_LOG_SINK",
                found="arro3 is not installed",
                remedy="In a checkout of Candor, run: python requirements/install.py parquet",
            )
        self._database = database
        self._address = address
        self._uploads = uploads
        self._next = ""  # ids from here on are not in files yet
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.written = 0
        self.through_us: int | None = None

    def run(self) -> None:
        """Write every hour that has ended and has no file, unless another replica does.

        Raises:
            StateUnavailableError: The database does not answer.
            ConfigurationError: The sink cannot be written.
        """
        with self._database.try_lock(_LOCK) as mine:
            if mine and self._address is not None:
                place = Place(self._address)
                settled = (now_us() - SETTLED_US) // HOUR_US * HOUR_US
                while not self._stopping.is_set() and (hour := self._hour(settled)) is not None:
                    self._write(place, hour)
                    self._next = first_id(hour + HOUR_US)
                if not self._stopping.is_set():
                    self.through_us = settled

    def start(self) -> None:
        """Write files from now on, in a thread."""
        if self._address is not None:
            self._thread = threading.Thread(target=self._follow, name="candor-log-sink", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop; a place that does not answer is not waited for, since a file is there whole or not at all."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_LEAVE_S)

    def _follow(self) -> None:
        while not self._stopping.is_set():
            try:
                self.run()
            except (StateUnavailableError, ConfigurationError) as error:
                logger.warning("log sink not written", error=str(error), found=error.found)
            except Exception:
                logger.exception("writing the log sink failed")
            self._stopping.wait(_EVERY_S)

    def _hour(self, settled: int) -> int | None:
        """Return the next hour with predictions, if it has ended."""
        query = select(func.min(predictions.c.id)).where(
            predictions.c.id >= self._next, predictions.c.id < first_id(settled)
        )
        with self._database.connect() as connection:
            id_ = connection.execute(query).scalar()
        return None if id_ is None else time_of_id(id_) // HOUR_US * HOUR_US

    def _write(self, place: Place, hour: int) -> None:
        name = file_name(hour)
        if place.has(name):
            return
        file = place.unfinished(name, self._uploads)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            rows = self._write_rows(file, hour)
            if self._stopping.is_set():  # the file is not whole
                return
            place.put(file, name)
        except OSError as error:
            raise _refused(f"{file.parent}: {error}") from error
        finally:
            with suppress(OSError):
                file.unlink(missing_ok=True)
        self.written += rows
        logger.info("hour of the log written", hour=iso(hour), rows=rows)

    def _write_rows(self, file: Path, hour: int) -> int:
        from arro3.core import RecordBatchReader
        from arro3.io import write_parquet

        columns, rows, failure = schema(), 0, None

        def batches() -> Iterator[Any]:
            nonlocal rows, failure
            try:
                for page in self._pages(first_id(hour), first_id(hour + HOUR_US)):
                    if out.failure is not None:
                        return
                    rows += len(page)
                    yield _batch(page, columns)
            except StateUnavailableError as error:  # the library would raise an exception of its own instead
                failure = error

        with _Out(file, "wb") as out:
            write_parquet(
                RecordBatchReader.from_batches(columns, batches()),
                out,
                compression="zstd(3)",
                max_row_group_size=ROWS_PER_GROUP,
            )
            if (failed := failure or out.failure) is not None:
                raise failed
            os.fsync(out.fileno())
        return rows

    def _pages(self, since: str, until: str) -> Iterator[Sequence[Any]]:
        """Yield the rows of a span of ids, in their order, each page in a transaction of its own."""
        columns = [column for column in predictions.c if column.name != "origin"]
        made_by = [origins.c[name] for name in ORIGIN]
        query = (
            select(*columns, *made_by)
            .join_from(predictions, origins, origins.c.id == predictions.c.origin + 0)
            .order_by(predictions.c.id)
            .limit(ROWS_PER_PAGE)
        )
        while not self._stopping.is_set():
            with self._database.connect() as connection:
                page = connection.execute(query.where(predictions.c.id >= since, predictions.c.id < until)).all()
            if page:
                yield page
            if len(page) < ROWS_PER_PAGE:
                return
            since = f"{page[-1].id}0"  # the first text after it
            self._stopping.wait(_PAUSE_S)


class _Out(FileIO):
    """A file that keeps its first error instead of raising it, since the Parquet library panics at one."""

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return len(data) if self.failure is not None else super().write(data)
        except OSError as error:
            self.failure = error
            return len(data)


class Place:
    """A folder, or a place of fsspec: a file is there whole or not at all."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._remote = "://" in address

    def names(self) -> set[str]:
        """Return the names of all files."""
        if self._remote:
            found = self._attempt(lambda files, path: files.ls(path, detail=False) if files.exists(path) else [])
        else:
            folder = Path(self._address)
            found = [path.name for path in folder.iterdir()] if folder.exists() else []
        return {entry.rpartition("/")[2] for entry in found}

    def open(self, name: str) -> Any:
        """Return a file opened for reading."""
        if self._remote:
            return self._attempt(lambda files, path: files.open(f"{path}/{name}", "rb"))
        return Path(self._address, name).open("rb")

    def has(self, name: str) -> bool:
        """Return whether there is a file."""
        if not self._remote:
            return Path(self._address, name).exists()
        return bool(self._attempt(lambda files, path: files.exists(f"{path}/{name}")))

    def unfinished(self, name: str, uploads: Path) -> Path:
        """Return where a file is written; what an attempt that was killed left there is overwritten."""
        return uploads / "log-sink.parquet" if self._remote else Path(self._address, f".unfinished-{name}")

    def put(self, file: Path, name: str) -> None:
        """Make the whole file visible."""
        if self._remote:
            self._attempt(
                lambda files, path: (files.makedirs(path, exist_ok=True), files.put_file(file, f"{path}/{name}"))
            )
        else:
            file.replace(file.with_name(name))

    def _attempt(self, do: Any) -> Any:
        from bundle.remote import file_system  # with httpx, which recalibrations do without

        try:
            files, path = file_system(self._address)
            files.invalidate_cache()
            return do(files, path.rstrip("/"))
        except Exception as error:  # each file system has exceptions of its own
            raise _refused(str(error)) from error


def file_name(hour: int) -> str:
    """Return the name of the file of an hour.

    >>> file_name(1_700_000_000_000_000)
    '2023-11-14T22.parquet'
    """
    return f"{iso(hour)[:13]}.parquet"


def _refused(found: str) -> ConfigurationError:
    return ConfigurationError("The log sink cannot be written.", where="CANDOR_LOG_SINK", found=found)


def schema() -> Any:
    """Return the columns of a file, as an Arrow schema."""
    from arro3.core import DataType, Field, Schema

    text, number = DataType.string(), DataType.float64()
    return Schema(
        [
            *(Field(name, text) for name in _TEXTS),
            *(Field(name, text) for name in ORIGIN),
            Field("created_at", DataType.timestamp("us", tz="UTC")),
            Field("group_hash", DataType.int64()),
            Field("logits", DataType.list(Field("item", DataType.float32()))),
            Field("label", DataType.int64()),
            *(Field(name, number) for name in _NUMBERS),
            Field("sought", DataType.bool()),
        ]
    )


def _batch(page: Sequence[Any], schema: Any) -> Any:
    from arro3.core import Array, DataType, RecordBatch, list_array

    columns = dict(zip(page[0]._fields, zip(*page, strict=True), strict=True))
    ends = np.cumsum([0, *map(len, columns["logits"])], dtype=np.int32) // 4
    made = {
        **{name: Array(columns[name], type=DataType.string()) for name in (*_TEXTS, *ORIGIN)},
        **{name: Array(columns[name], type=DataType.float64()) for name in _NUMBERS},
        "created_at": Array.from_numpy(np.array(columns["created_at"], np.int64)).cast(schema.field("created_at").type),
        "group_hash": Array.from_numpy(np.array(columns["cluster"], np.int64)),
        "logits": list_array(
            Array.from_numpy(ends),
            Array.from_numpy(np.frombuffer(b"".join(columns["logits"]), "<f4").astype(np.float32)),
            type=schema.field("logits").type,
        ),
        "label": Array.from_numpy(np.array(columns["label"], np.int64)),
        "sought": Array([bool(cell) for cell in columns["sought"]], type=DataType.bool()),
    }
    return RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)
