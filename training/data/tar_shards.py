"""Tar files as WebDataset lays them out: KEY.jpg, KEY.cls, KEY.json … of a sample follow each other."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from training.data.distribution import Files
from training.data.shard import Fields, Places, Shard
from training.stored import Numbers

IMAGES = ("png", "jpg", "jpeg", "webp")
_PIECE = 1024  # records that are read together
_SMALL = 2**24  # bytes of a .cls or .json


def index(files: Files, path: Path, digest: str, fields: Fields) -> Shard:
    """Read the index of a tar file; the images stay where they are. Raises DataError, OSError."""
    told: dict[str, list[Any]] = {name: [] for name in fields.wanted()}
    known: dict[Any, Any] = {}  # one object for equal values
    places: list[tuple[int, int]] = []
    try:
        with tarfile.open(path, "r:") as archive:
            for key, members in _samples(archive):
                images = [member for ending, member in members.items() if ending.rpartition(".")[2] in IMAGES]
                if len(images) != 1:
                    raise files.problem(f"{path}: sample {key} has {len(images)} images, expected 1")
                places.append((images[0].offset_data, images[0].size))
                try:
                    values = _values(archive, members, fields.label)
                except ValueError as error:
                    raise ValueError(f"sample {key}: {error}") from error
                for name, column in told.items():
                    value = values.get(name)
                    if not isinstance(value, str | int | float):
                        raise files.problem(f"{path}: sample {key} has no {name!r} in {', '.join(members)}")
                    column.append(known.setdefault(value, value))
            _check_end(path, archive.offset)
    except (tarfile.TarError, ValueError) as error:
        raise files.problem(f"{path} is not a complete, uncompressed tar file of samples: {error}") from error
    return Shard(path, digest, np.array(places, np.int64).reshape(-1, 2), told)


def _check_end(path: Path, offset: int) -> None:
    """Raise ValueError unless the archive ends here; tarfile takes a cut or damaged header for the end."""
    with path.open("rb") as stream:
        stream.seek(offset)
        if stream.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise ValueError(f"byte {offset} begins no member, and is not the end of the archive")


def _samples(archive: tarfile.TarFile) -> Iterator[tuple[str, dict[str, tarfile.TarInfo]]]:
    """Yield key and members by ending: a name up to the first dot of its last part, and what follows that."""
    before, members = "", dict[str, tarfile.TarInfo]()
    while (member := archive.next()) is not None:
        archive.members = []  # type: ignore[attr-defined]  # or memory grows with each
        folder, slash, name = member.name.rpartition("/")
        stem, dot, ending = name.partition(".")
        if not member.isfile() or not stem or not dot:
            continue
        key = folder + slash + stem
        if key != before and members:
            yield before, members
            members = {}
        before = key
        members[ending.lower()] = member
    if members:
        yield before, members


def _values(archive: tarfile.TarFile, members: dict[str, tarfile.TarInfo], label: str) -> dict[str, Any]:
    """Return what the .json of a sample says, and its .cls as the label."""
    texts: dict[str, str] = {}
    for ending in ("json", "cls"):
        member = members.get(ending)
        stream = None if member is None or member.size > _SMALL else archive.extractfile(member)
        if stream is not None:
            texts[ending] = stream.read().decode("utf-8")
    values = json.loads(texts.get("json", "{}"))
    values = dict(values) if isinstance(values, dict) else {}
    return values | ({label: texts["cls"].strip()} if "cls" in texts else {})


class TarRecords:
    """Images in tar files.

    Args:
        shards: The indexes of the files.
    """

    pieces: Numbers | None

    def __init__(self, shards: list[Shard]) -> None:
        self._places = Places(shards, [np.arange(len(shard)) // _PIECE for shard in shards])
        self.pieces = self._places.pieces

    def name(self, row: int) -> str:
        """See `training.stored.Records`."""
        path, offset, _ = self._places.of(row)
        return f"{path}, byte {offset}"

    def read(self, row: int) -> bytes:
        """See `training.stored.Records`."""
        path, offset, size = self._places.of(row)
        with path.open("rb", buffering=0) as stream:
            stream.seek(offset)
            return stream.read(size)

    def hold(self, pieces: int) -> None:
        """See `training.stored.Records`; no file stays in memory."""
