"""Images that stay in files and are decoded when they are needed, so that a data set may be larger than memory."""

from __future__ import annotations

import hashlib
import io
import math
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from bundle import ImageError, InputSpec
from training.errors import DataError
from training.progress import progress
from training.threads import available_threads

MAX_PIXELS = 2**27
BATCHES_AHEAD = 2
"""Batches that are decoded while one is in use."""

_CHUNK = 8  # images of one task of the pool
_LISTED = 5  # unusable images to report before giving up
_PASS = 64  # images of one task where all are decoded once
_ON_ITS_SIDE = range(5, 9)  # EXIF orientations

Numbers = NDArray[np.int64]


class Records(Protocol):
    """Encoded images in files.

    Attributes:
        pieces: Piece of a file that holds each record, int64 (N,): the rows of a piece are read together. None if each
            record is a file of its own.
    """

    pieces: Numbers | None

    def name(self, row: int) -> str:
        """Return the name of a record, for errors."""
        ...

    def read(self, row: int) -> bytes:
        """Return the bytes of a record; several threads may read at once. Raises OSError."""
        ...

    def hold(self, pieces: int) -> None:
        """Keep at most this many pieces in memory."""
        ...


class FileRecords:
    """One file for each image.

    Args:
        folder: Their folder.
        names: Paths below it.
    """

    pieces: Numbers | None = None

    def __init__(self, folder: Path, names: list[str]) -> None:
        self._folder, self._names = folder, names

    def name(self, row: int) -> str:
        """See `Records`."""
        return str(self._folder / self._names[row])

    def read(self, row: int) -> bytes:
        """See `Records`."""
        return (self._folder / self._names[row]).read_bytes()

    def hold(self, pieces: int) -> None:
        """See `Records`; no file stays in memory."""


@dataclass(frozen=True)
class Stored:
    """Images in files, used like an array uint8 (N, H, W, C): indexing selects rows, `numpy.asarray` decodes them.

    Attributes:
        records: The encoded images.
        rows: Record of each row, int64 (N,).
        example: Height, width and channels.
        resize: Whether images of another size are resized; otherwise they are refused.
        source: Digest of the files.
        buffer: Rows within which an epoch's order is random, where records lie in pieces.
        decoders: Threads that decode; None for all that this process may use.
    """

    records: Records
    rows: Numbers
    example: tuple[int, int, int]
    resize: bool
    source: str
    buffer: int = 0
    decoders: int | None = None

    dtype: ClassVar[np.dtype[np.uint8]] = np.dtype(np.uint8)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the decoded rows."""
        return (len(self.rows), *self.example)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __getitem__(self, rows: slice | Numbers) -> Stored:
        return replace(self, rows=self.rows[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        images: NDArray[Any] = np.empty(self.shape, np.uint8)
        self.decode_into(images)
        return images if dtype is None else images.astype(dtype)

    def digest(self) -> str:
        """Return a digest of these rows: of their files and places."""
        told = f"{self.source} {self.example} {self.resize} {self.buffer}".encode()
        return hashlib.sha256(told + self.rows.astype("<i8").tobytes()).hexdigest()

    def batches(self, parts: Iterable[Numbers | slice]) -> Generator[NDArray[np.uint8]]:
        """Yield the images of each of these sets of rows, decoded by a pool of threads.

        It decodes `BATCHES_AHEAD` sets ahead; memory is that of these sets, and of the pieces that hold them.

        Raises:
            DataError: An image cannot be decoded.
        """
        with ThreadPoolExecutor(self.decoders or available_threads(), "decoder") as pool:
            waiting: deque[tuple[NDArray[np.uint8], list[Future[None]]]] = deque()
            try:
                for part in parts:
                    chosen = self[part]
                    images = np.empty(chosen.shape, np.uint8)
                    tasks = [
                        pool.submit(chosen[start : start + _CHUNK].decode_into, images[start : start + _CHUNK])
                        for start in range(0, len(chosen), _CHUNK)
                    ]
                    waiting.append((images, tasks))
                    if len(waiting) > BATCHES_AHEAD:
                        yield _done(*waiting.popleft())
                while waiting:
                    yield _done(*waiting.popleft())
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def ordered(self) -> tuple[Stored, Numbers | slice]:
        """Return the same rows in the order of their shards, and the place of each row in it."""
        if self.records.pieces is None:
            return self, slice(None)
        order = np.argsort(self.rows, kind="stable")
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return self[order], places

    def shuffled(self, rows: Numbers, random: np.random.Generator) -> Numbers:
        """Return rows of these in random order, in which files in pieces are still read nearly in sequence.

        The pieces come in random order. Then each row moves by fewer than `buffer` places, at random.

        Args:
            rows: Row numbers (n,), may repeat.
            random: Source of randomness.
        """
        if self.records.pieces is None:
            return random.permutation(rows)
        rows = np.sort(rows)
        numbers, piece = np.unique(self.records.pieces[self.rows[rows]], return_inverse=True)
        stream = np.argsort(random.permutation(len(numbers))[piece], kind="stable")
        moved = np.arange(len(stream)) + self.buffer * random.random(len(stream))
        self.records.hold(2 + math.ceil(self.buffer * len(numbers) / max(1, len(rows))))
        return rows[stream[np.argsort(moved, kind="stable")]]

    def check(self, into: NDArray[np.uint8] | None = None) -> list[str]:
        """Decode all images once, into an array or to nowhere; return what is wrong with the first unusable ones."""

        def one(start: int) -> list[str]:
            rows = slice(start, start + _PASS)
            return self[rows].problems(np.empty(self[rows].shape, np.uint8) if into is None else into[rows])

        starts, problems = range(0, len(self), _PASS), list[str]()
        tell = progress("Decoding", len(self), "images")
        with ThreadPoolExecutor(self.decoders or available_threads(), "decoder") as pool:
            try:
                for start, found in zip(starts, pool.map(one, starts), strict=True):
                    tell(start)
                    problems += found
                    if len(problems) >= _LISTED:
                        break
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        return problems[:_LISTED]

    def decode_into(self, images: NDArray[np.uint8]) -> None:
        """Decode the rows into an array of their shape; raises DataError."""
        for problem in self.problems(images, most=1):
            raise DataError(problem)

    def problems(self, images: NDArray[np.uint8], most: int = _LISTED) -> list[str]:
        """Decode the rows into an array of their shape; return what is wrong with the first unusable ones."""
        from bundle.images import decode_image  # needs Pillow

        spec = InputSpec(kind="image", dtype="uint8", shape=self.example, resize=self.resize)
        problems: list[str] = []
        for place, row in enumerate(self.rows.tolist()):
            try:
                images[place] = decode_image(self.records.read(row), spec, max_pixels=MAX_PIXELS)
            except (ImageError, OSError) as error:
                problems.append(f"{self.records.name(row)}: {error}")
                if len(problems) == most:
                    break
        return problems


def batches(inputs: NDArray[Any] | Stored, size: int) -> Generator[NDArray[Any]]:
    """Yield the rows of an array in batches; those of stored images decoded ahead."""
    parts = (slice(start, start + size) for start in range(0, len(inputs), size))
    return inputs.batches(parts) if isinstance(inputs, Stored) else (inputs[part] for part in parts)


def size_of(data: bytes) -> tuple[int, int]:
    """Return height and width of an image, held upright.

    Raises:
        ImageError: The image cannot be decoded.
    """
    from PIL import ExifTags, Image

    from bundle.images import decode_image

    any_size = InputSpec(kind="image", dtype="uint8", shape=(1, 1, 1), resize=True)
    decode_image(data, any_size, max_pixels=MAX_PIXELS)
    with Image.open(io.BytesIO(data)) as image:
        width, height = image.size
        turned = image.getexif().get(ExifTags.Base.Orientation, 1) in _ON_ITS_SIDE
    return (width, height) if turned else (height, width)


def _done(images: NDArray[np.uint8], tasks: list[Future[None]]) -> NDArray[np.uint8]:
    for task in tasks:
        task.result()
    return images
