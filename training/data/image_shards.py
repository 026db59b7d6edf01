"""Your own images in shards: tar files of WebDataset, or Parquet files."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrators.validation import LARGEST_WEIGHT, LEAST_WEIGHT
from training.data import parquet_shards, tar_shards
from training.data.dataset import Dataset
from training.data.distribution import Distribution, Files
from training.data.groups import numbered
from training.data.image_folder import checked_size, first_size, opened
from training.data.shard import Fields, Shard
from training.errors import ConfigurationError
from training.progress import progress
from training.recipe import require
from training.stored import Stored
from training.threads import available_threads

IMAGE_SHARDS = Distribution(
    title="Image shards",
    folders=(),
    obtain="Set `files` to a pattern of their paths, such as photographs/train-*.tar.",
    layout="uncompressed .tar files of WebDataset, with KEY.jpg (.jpeg, .png, .webp) and KEY.cls or KEY.json for each "
    "sample; or .parquet files with a column of encoded images (bytes, or a struct with `bytes`) and one of labels.",
)
_INDEX = {".tar": tar_shards.index, ".parquet": parquet_shards.index}


def load(
    root: Path | None = None,
    *,
    files: str | None = None,
    test_files: str | None = None,
    image: str = "image",
    label: str = "label",
    group: str | None = None,
    weight: str | None = None,
    label_names: Sequence[str] = (),
    size: Sequence[int] | int | None = None,
    channels: int = 3,
    buffer: int = 4096,
    lazy: bool = True,
    check: bool = True,
    decoders: int | None = None,
) -> Dataset:
    """Images of your own in shards: .tar files of WebDataset, or .parquet files, larger than memory if need be.

    Args:
        root: Folder that `files` begins at; None for CANDOR_DATA, else the current folder.
        files: Pattern of the shards' paths, with `*` and `?`.
        test_files: Pattern of the paths of the test part's shards.
        image: Column of the images in Parquet files.
        label: Column of the labels, or their key in a .json; a .cls holds a label alone.
        group: Column or key of groups: rows that belong together, which no two parts share.
        weight: Column or key of row weights, positive numbers.
        label_names: Names of the classes; labels are these names, or their numbers from 0. By default the names that
            Parquet files of Hugging Face's datasets hold, else the labels themselves, in their order.
        size: Height and width, or the side of a square, for resizing all images, here and in the service; None if all
            have one size.
        channels: 1 for grey, 3 for colour.
        buffer: Places by which each row moves at random in an epoch's order, in which pieces of shards (row groups, or
            1,024 images of a tar file) come in random order.
        lazy: Whether images stay in their files until they are needed.
        check: Whether all images are decoded once at the beginning, so that a damaged one is found then.
        decoders: Threads that read and decode; None for all that this process may use.

    Returns:
        Images uint8 (N, H, W, channels) in the order of the shards' paths, those of the test part last.

    Raises:
        ConfigurationError: A setting is missing or invalid, or Parquet files need a package that is not installed.
        DataError: Shards are missing or damaged, or a sample has no image, label, group or weight.
    """
    if files is None:
        raise ConfigurationError("image_shards require the setting `files`: a pattern of their paths")
    given = checked_size(size, channels, decoders)
    require("buffer", buffer, buffer >= 0, "at least 0")
    start = IMAGE_SHARDS.root(root)
    found = Files(IMAGE_SHARDS, start, start)
    parts = [_paths(found, pattern) for pattern in (files, test_files) if pattern is not None]
    if len(parts) > 1 and (shared := {*parts[0]} & {*parts[1]}):
        raise found.problem(f"{min(shared)} is a shard of both `files` and `test_files`")
    shards = _indexed(found, [path for paths in parts for path in paths], Fields(image, label, group, weight), decoders)
    labels, names = _classes(
        found, _column(shards, label), tuple(label_names), () if label_names else _own_names(found, shards)
    )
    of_tar = shards[0].path.suffix == ".tar"
    records = tar_shards.TarRecords(shards) if of_tar else parquet_shards.ParquetRecords(shards, image)
    stored = Stored(
        records,
        np.arange(len(labels)),
        (*(given or first_size(found, records)), channels),
        given is not None,
        hashlib.sha256("".join(shard.digest for shard in shards).encode()).hexdigest(),
        buffer,
        decoders,
    )
    trained_on = sum(map(len, shards[: len(parts[0])]))
    return Dataset(
        "image_shards",
        opened(found, stored, lazy=lazy, check=check),
        labels,
        names,
        test=range(trained_on, len(labels)) if trained_on < len(labels) else range(0),
        sources=found.digests,
        resized=given is not None,
        weights=None if weight is None else _weights(found, _column(shards, weight)),
        groups=None if group is None else numbered(_column(shards, group)),
    )


def _paths(files: Files, pattern: str) -> list[Path]:
    named = glob.glob(pattern, root_dir=files.folder)  # noqa: PTH207 — may be absolute
    paths = [files.folder / path for path in sorted(named)]
    if not paths:
        raise files.problem(f"no file matches {files.folder / pattern}")
    return paths


def _indexed(files: Files, paths: list[Path], fields: Fields, threads: int | None) -> list[Shard]:
    kinds = sorted({path.suffix for path in paths})
    if len(kinds) > 1 or kinds[0] not in _INDEX:
        raise files.problem(f"the files end in {', '.join(kind or 'nothing' for kind in kinds)}")

    def one(path: Path) -> Shard:
        try:
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            shard = _INDEX[kinds[0]](files, path, digest, fields)
        except OSError as error:
            raise files.problem(f"{path} cannot be read: {error.strerror or error}") from error
        if not len(shard):
            raise files.problem(f"{path} holds no samples")
        for name, values in shard.told.items():
            if (missing := next((row for row, value in enumerate(values) if value != value), None)) is not None:
                raise files.problem(f"{path}: row {missing} of {name!r} is missing")
        return shard

    shards: list[Shard] = []
    tell = progress("Reading", len(paths), "shards")
    with ThreadPoolExecutor(threads or available_threads()) as pool:
        try:
            for shard in pool.map(one, paths):
                files.note(str(shard.path.absolute()), shard.digest)
                shards.append(shard)
                tell(len(shards))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return shards


def _column(shards: list[Shard], name: str) -> list[Any]:
    return [value for shard in shards for value in shard.told[name]]


def _own_names(files: Files, shards: list[Shard]) -> tuple[str, ...]:
    for shard in shards:
        if shard.names != shards[0].names:
            raise files.problem(f"{shards[0].path} and {shard.path} name the classes differently: set `label_names`")
    return shards[0].names


def _classes(
    files: Files, values: list[Any], given: tuple[str, ...], own: tuple[str, ...]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the class of each value, and the names of the classes: those that are given, else the files' own."""
    told = {value: str(value) for value in set(values)}
    names = given or own
    if not names:
        numeric = all(name.removeprefix("-").isdecimal() for name in told.values())
        names = tuple(sorted(set(told.values()), key=int if numeric else None))
    by_number = {str(place): place for place in range(len(names))}
    by_name = {name: place for place, name in enumerate(names)}
    said = set(told.values())
    # Names may look like numbers of others. Files that name their classes hold numbers.
    numbers_first = said <= by_number.keys() and ((not given and bool(own)) or not said <= by_name.keys())
    places = by_name | by_number if numbers_first else by_number | by_name
    strange = sorted(name for name in told.values() if name not in places)
    if strange:
        raise files.problem(f"the label {strange[0]!r} is not one of {', '.join(names)}, nor the number of one")
    numbers = {value: places[name] for value, name in told.items()}
    return np.fromiter(map(numbers.__getitem__, values), np.int64, len(values)), names


def _weights(files: Files, values: list[Any]) -> NDArray[np.float64]:
    for value in values:
        if not (isinstance(value, int | float) and LEAST_WEIGHT <= value <= LARGEST_WEIGHT):
            expected = f"a number from {LEAST_WEIGHT:g} to {LARGEST_WEIGHT:g}"
            raise files.problem(f"a weight is {value!r}, expected {expected}")
    return np.array(values, np.float64)
