"""The idx layout of MNIST and similar data sets."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.data.dataset import Dataset
from training.data.distribution import Files

PARTS = ("train", "t10k")
SIDE = 28
CLASSES = 10
_IMAGES, _LABELS = 0x803, 0x801
_LARGEST = 2**28  # bytes of an unpacked file; MNIST's largest has 2**26


@dataclass(frozen=True)
class Part:
    """Images uint8 (n, 28, 28, 1) and labels int64 (n,)."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


def names(*parts: str) -> list[str]:
    """Return the names that the files of parts `train` and `t10k` may have, packed by gzip or not."""
    return [
        f"{part}-{file}-ubyte{ending}"
        for part in parts
        for file in ("images-idx3", "labels-idx1")
        for ending in ("", ".gz")
    ]


def read_part(files: Files, part: str) -> Part:
    """Read one part.

    Args:
        files: Their folder; files may be packed by gzip.
        part: `train` or `t10k`.

    Raises:
        DataError: A file is missing, truncated or of another layout, or a label is invalid.
    """
    images_name, labels_name = names(part)[::2]
    images = _read(files, images_name, _IMAGES, axes=3)
    labels = _read(files, labels_name, _LABELS, axes=1)
    if images.shape[1:] != (SIDE, SIDE) or len(images) != len(labels):
        raise files.problem(f"{images_name} has images {images.shape} for {len(labels)} labels in {files.folder}")
    if len(labels) and int(labels.max()) >= CLASSES:
        raise files.problem(f"{labels_name} has a label of {labels.max()} in {files.folder}, not 0 … {CLASSES - 1}")
    return Part(images[..., np.newaxis], labels.astype(np.int64))


def both_parts(name: str, files: Files, classes: tuple[str, ...]) -> Dataset:
    """Read both parts as one data set, the test images last; raises DataError as `read_part` does."""
    train, test = (read_part(files, part) for part in PARTS)
    return Dataset(
        name,
        np.concatenate([train.images, test.images]),
        np.concatenate([train.labels, test.labels]),
        classes,
        test=range(len(train.labels), len(train.labels) + len(test.labels)),
        sources=files.digests,
    )


def _read(files: Files, name: str, magic: int, *, axes: int) -> NDArray[np.uint8]:
    found = files.first_of(name, f"{name}.gz")
    data = files.read(found)
    where = files.folder / found
    if found.endswith(".gz"):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
                data = stream.read(_LARGEST + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise files.problem(f"{where} cannot be unpacked: {error}") from error
    header = struct.Struct(f">{axes + 1}I")
    if len(data) < header.size or len(data) > _LARGEST:
        raise files.problem(f"{where} has {len(data)} bytes unpacked")
    first, *shape = header.unpack_from(data)
    if first != magic:
        raise files.problem(f"{where} begins with {first:#x}, not {magic:#x}")
    body = np.frombuffer(data, np.uint8, offset=header.size)
    if body.size != np.prod(shape, dtype=object):
        raise files.problem(f"{where} has {body.size} bytes after its header, not {' × '.join(map(str, shape))}")
    return body.reshape(shape)
