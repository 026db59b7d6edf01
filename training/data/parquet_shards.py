"""Parquet files with a column of encoded images."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from training.data.distribution import Files
from training.data.shard import Fields, Places, Shard
from training.errors import ConfigurationError, DataError
from training.stored import Numbers

_HELD = 4  # row groups, until `hold` says more


def index(files: Files, path: Path, digest: str, fields: Fields) -> Shard:
    """Read all columns of a Parquet file but the images. Raises DataError, OSError."""
    arrow, parquet = _pyarrow()
    try:
        with parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            missing = [name for name in (fields.image, *fields.wanted()) if name not in schema.names]
            if missing:
                raise files.problem(f"{path} has the columns {', '.join(schema.names)}, and no {missing[0]!r}")
            kind = schema.field(fields.image).type
            if arrow.types.is_struct(kind):
                kind = next((field.type for field in kind if field.name == "bytes"), kind)
            if not (arrow.types.is_binary(kind) or arrow.types.is_large_binary(kind)):
                raise files.problem(f"{path}: the column {fields.image!r} is {kind}")
            for name in fields.wanted():
                if arrow.types.is_nested(kind := schema.field(name).type):
                    raise files.problem(f"{path}: the column {name!r} is {kind}, expected text or numbers")
            columns = file.read(list(fields.wanted())).to_pydict()
            groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
            names = _class_names(schema.metadata or {}, fields.label)
    except arrow.ArrowException as error:
        raise files.problem(f"{path} is not a valid Parquet file: {error}") from error
    for name, values in columns.items():
        if None in values:
            raise files.problem(f"{path}: row {values.index(None)} of {name!r} is missing")
    counts = np.array(groups, np.int64)
    group = np.repeat(np.arange(len(counts)), counts)
    row = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
    return Shard(path, digest, np.column_stack([group, row]), columns, names)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigurationError("Parquet shards need pyarrow: python requirements/install.py shards") from error
    return pa, parquet


def _class_names(metadata: dict[bytes, bytes], label: str) -> tuple[str, ...]:
    """Return the names of the classes that a file of Hugging Face's datasets holds."""
    try:
        told = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"][label]["names"]
    except (ValueError, LookupError, TypeError):
        return ()
    return tuple(map(str, told)) if isinstance(told, list) else ()


@dataclass
class _RowGroup:
    lock: threading.Lock = field(default_factory=threading.Lock)
    column: Any = None


class ParquetRecords:
    """Images in Parquet files, of which whole row groups are read and some stay in memory.

    Args:
        shards: The indexes of the files.
        image: Column of the images.
    """

    pieces: Numbers | None

    def __init__(self, shards: list[Shard], image: str) -> None:
        self._places = Places(shards, [shard.places[:, 0] for shard in shards])
        self.pieces = self._places.pieces
        self._image = image
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[Path, int], _RowGroup] = OrderedDict()
        self._most = _HELD

    def name(self, row: int) -> str:
        """See `training.stored.Records`."""
        path, group, place = self._places.of(row)
        return f"{path}, row {place} of row group {group}"

    def read(self, row: int) -> bytes:
        """See `training.stored.Records`."""
        path, group, place = self._places.of(row)
        value = self._column(path, group)[place].as_py()
        data = value["bytes"] if isinstance(value, dict) else value
        return data or b""

    def hold(self, pieces: int) -> None:
        """See `training.stored.Records`."""
        with self._lock:
            self._most = max(pieces, _HELD)

    def _column(self, path: Path, group: int) -> Any:
        """Return the images of a row group; one thread reads it, others wait."""
        key = (path, group)
        with self._lock:
            held = self._held.setdefault(key, _RowGroup())
            self._held.move_to_end(key)
            while len(self._held) > self._most:
                self._held.popitem(last=False)
        with held.lock:
            if held.column is None:
                held.column = self._read(path, group)
            return held.column

    def _read(self, path: Path, group: int) -> Any:
        arrow, parquet = _pyarrow()
        try:
            with parquet.ParquetFile(path) as file:
                return file.read_row_group(group, [self._image], use_threads=False).column(0)
        except (arrow.ArrowException, OSError) as error:  # pages are read now, the index reads the other columns only
            raise DataError(f"{path}: row group {group} cannot be read: {error}. Obtain the file again.") from error
