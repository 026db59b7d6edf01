"""One file that holds many images with their labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from training.stored import Numbers


@dataclass(frozen=True)
class Fields:
    """Names of what a sample holds: columns of a Parquet file, keys of a .json in a tar file.

    Attributes:
        image: The encoded image, in Parquet files.
        label: The label.
        group: The group; None without.
        weight: The weight; None without.
    """

    image: str
    label: str
    group: str | None
    weight: str | None

    def wanted(self) -> tuple[str, ...]:
        """Return the names of what is read for all samples at once."""
        return tuple(name for name in (self.label, self.group, self.weight) if name is not None)


@dataclass
class Shard:
    """The index of a file, read once.

    Attributes:
        path: The file.
        digest: Its sha256.
        places: Where each record lies, int64 (n, 2): offset and length in a tar file, row group and row of it in a
            Parquet file.
        told: Value of each record by field, such as its label.
        names: Names of the classes, if the file has them.
    """

    path: Path
    digest: str
    places: Numbers = field(default_factory=lambda: np.empty((0, 2), np.int64))
    told: dict[str, list[Any]] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.places)


class Places:
    """The places of the records of many shards.

    Args:
        shards: The shards.
        pieces: Piece of each record in its shard, int64 (n,), ascending from 0, for each shard.

    Attributes:
        pieces: Piece of each record, int64 (N,), counted over all shards.
    """

    def __init__(self, shards: list[Shard], pieces: list[Numbers]) -> None:
        self._paths = [shard.path for shard in shards]
        self._shard = np.repeat(np.arange(len(shards), dtype=np.int32), [len(shard) for shard in shards])
        self._places = np.concatenate([shard.places for shard in shards])
        counts = [int(each[-1]) + 1 if len(each) else 0 for each in pieces]
        before = np.cumsum([0, *counts[:-1]])
        self.pieces = np.concatenate([each + start for each, start in zip(pieces, before, strict=True)])

    def of(self, row: int) -> tuple[Path, int, int]:
        """Return the file of a record and its place there."""
        first, second = self._places[row].tolist()
        return self._paths[self._shard[row]], first, second
