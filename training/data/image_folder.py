"""Your own images: one folder per class."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bundle import ImageError
from bundle.control_groups import free_memory
from training.data.class_folders import class_folders
from training.data.dataset import Dataset
from training.data.distribution import Distribution, Files, digest_of_many
from training.data.equal import equal_rows
from training.errors import ConfigurationError
from training.progress import progress
from training.recipe import require
from training.stored import FileRecords, Records, Stored, size_of
from training.threads import available_threads

_PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # bytes of this machine's memory
ENDINGS = (".png", ".jpg", ".jpeg", ".webp")

IMAGE_FOLDER = Distribution(
    title="Image folder",
    folders=(),
    obtain="Set `folder` to a folder that contains one folder of images per class.",
    layout="CLASS/*.png, *.jpg, *.jpeg or *.webp, for at least two classes; or train/CLASS/… and test/CLASS/… "
    "(test images are never trained on).",
)


def load(
    root: Path | None = None,
    *,
    folder: str = ".",
    size: Sequence[int] | int | None = None,
    channels: int = 3,
    lazy: bool = False,
    check: bool = True,
    decoders: int | None = None,
) -> Dataset:
    """Images of your own: a folder for each class, with PNG, JPEG or WebP files; train/ and test/ above them if any.

    Names that begin with a dot are ignored. Images are decoded as in the service.

    Args:
        root: Folder that `folder` begins at; None for CANDOR_DATA, else the current folder.
        folder: Path of the images' folder.
        size: Height and width, or the side of a square, for resizing all images, here and in the service; None if all
            have one size.
        channels: 1 for grey, 3 for colour.
        lazy: Whether images stay in their files until they are needed.
        check: Whether all images are decoded once at the beginning, so that a damaged one is found then.
        decoders: Threads that decode; None for all that this process may use.

    Returns:
        Images uint8 (N, H, W, channels) in the order of their paths, those of test/ last; classes by name.

    Raises:
        ConfigurationError: A setting is invalid.
        DataError: The folders are missing, or a file in them is not an image, is unreadable, or has another size.
    """
    given = checked_size(size, channels, decoders)
    start = IMAGE_FOLDER.root(root)
    files = Files(IMAGE_FOLDER, start / folder, start)
    found = class_folders(files, ENDINGS)
    names = [path.relative_to(files.folder).as_posix() for path in found.paths]
    records = FileRecords(files.folder, names)
    digests = _digests(files, names, decoders)
    files.note(".", digests)
    example = (*(given or first_size(files, records)), channels)
    stored = Stored(records, np.arange(len(names)), example, given is not None, digests, decoders=decoders)
    images = opened(files, stored, lazy=lazy, check=check)
    return Dataset(
        "image_folder",
        images,
        found.labels,
        found.names,
        test=found.test,
        sources=files.digests,
        resized=given is not None,
        equal=None if isinstance(images, Stored) else equal_rows(images, found.labels),
    )


def opened(files: Files, stored: Stored, *, lazy: bool, check: bool) -> Stored | NDArray[np.uint8]:
    """Return images to be read lazily, or all of them, decoded.

    Raises:
        DataError: An image is unusable, or the images do not fit into memory.
    """
    images = None if lazy else _room(files, stored)
    if (images is not None or check) and (problems := stored.check(images)):
        differ = not stored.resize and any("wrong size" in problem for problem in problems)
        hint = "; the setting `size` resizes images that differ" if differ else ""
        raise files.problem("; ".join(problems) + hint)
    return stored if images is None else images


def _room(files: Files, stored: Stored) -> NDArray[np.uint8]:
    need, free = math.prod(stored.shape), min(free_memory() or math.inf, _PHYSICAL)
    if need > free:
        raise files.problem(
            f"{len(stored):,} images of {' × '.join(map(str, stored.example))} need {need / 2**30:.1f} GiB of memory, "
            f"and {free / 2**30:.1f} GiB are there; the setting lazy=true leaves them in their files"
        )
    return np.empty(stored.shape, np.uint8)


def first_size(files: Files, records: Records) -> tuple[int, int]:
    """Return height and width of the first image; raises DataError."""
    try:
        return size_of(records.read(0))
    except (ImageError, OSError) as error:
        raise files.problem(f"{records.name(0)}: {error}") from error


def _digests(files: Files, names: list[str], decoders: int | None) -> str:
    def one(name: str) -> str:
        with (files.folder / name).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    tell = progress("Reading", len(names), "files")
    digests: dict[str, str] = {}
    with ThreadPoolExecutor(decoders or available_threads()) as pool:
        try:
            for name, digest in zip(names, pool.map(one, names), strict=True):
                digests[name] = digest
                tell(len(digests))
        except OSError as error:
            raise files.problem(f"{error.filename}: {error.strerror}") from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return digest_of_many(digests)


def checked_size(size: Sequence[int] | int | None, channels: int, decoders: int | None) -> tuple[int, int] | None:
    """Return height and width of resized images, None for none; raises ConfigurationError."""
    require("channels", channels, channels in (1, 3), "1 or 3")
    whole = isinstance(decoders, int) and not isinstance(decoders, bool)
    require("decoders", decoders, decoders is None or (whole and decoders >= 1), "at least 1")
    return _size(size)


def _size(size: Sequence[int] | int | None) -> tuple[int, int] | None:
    if size is None:
        return None
    pair = tuple(size) if isinstance(size, Sequence) else (size, size)
    if len(pair) != 2 or not all(type(side) is int and 1 <= side <= 2**14 for side in pair):
        raise ConfigurationError(f"size is {size!r}, expected a side, or a height and a width, in pixels")
    return pair[0], pair[1]
