"""Your own images: one folder per class."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bundle import ImageError, InputSpec
from training.data.class_folders import class_folders
from training.data.dataset import Dataset
from training.data.distribution import Distribution, Files, digest_of_many
from training.errors import ConfigurationError

ENDINGS = (".png", ".jpg", ".jpeg", ".webp")
_MAX_PIXELS = 2**27
_LISTED = 5  # unusable images to report before giving up
_ON_ITS_SIDE = range(5, 9)  # EXIF orientations

IMAGE_FOLDER = Distribution(
    title="Image folder",
    folders=(),
    obtain="Set `folder` to a folder that contains one folder of images per class.",
    layout="CLASS/*.png, *.jpg, *.jpeg or *.webp, for at least two classes; or train/CLASS/… and test/CLASS/… "
    "(test images are never trained on).",
)


def load(
    root: Path | None = None, *, folder: str = ".", size: Sequence[int] | int | None = None, channels: int = 3
) -> Dataset:
    """Images of your own: a folder for each class, with PNG, JPEG or WebP files; train/ and test/ above them if any.

    Names that begin with a dot are ignored. Images are decoded as in the service.

    Args:
        root: Folder that `folder` begins at; None for CANDOR_DATA, else the current folder.
        folder: Path of the images' folder.
        size: Height and width, or the side of a square, for resizing all images, here and in the service; None if all
            have one size.
        channels: 1 for grey, 3 for colour.

    Returns:
        Images uint8 (N, H, W, channels) in the order of their paths, those of test/ last; classes by name.

    Raises:
        ConfigurationError: `size` or `channels` is invalid.
        DataError: The folders are missing, or a file in them is not an image, is unreadable, or has another size.
    """
    if channels not in (1, 3):
        raise ConfigurationError(f"channels is {channels}, expected 1 or 3")
    given = _size(size)
    start = IMAGE_FOLDER.root(root)
    files = Files(IMAGE_FOLDER, start / folder, start)
    found = class_folders(files, ENDINGS)
    return Dataset(
        "image_folder",
        _decode(files, found.paths, given, channels),
        found.labels,
        found.names,
        test=found.test,
        sources=files.digests,
        resized=given is not None,
    )


def _size(size: Sequence[int] | int | None) -> tuple[int, int] | None:
    if size is None:
        return None
    pair = (size, size) if isinstance(size, int) else tuple(size)
    if len(pair) != 2 or not all(isinstance(side, int) and 1 <= side <= 2**14 for side in pair):
        raise ConfigurationError(f"size is {size!r}, expected a side, or a height and a width, in pixels")
    return pair[0], pair[1]


def _decode(files: Files, paths: list[Path], size: tuple[int, int] | None, channels: int) -> NDArray[np.uint8]:
    from bundle.images import decode_image  # needs Pillow

    images: NDArray[np.uint8] | None = None
    digests: dict[str, str] = {}
    problems: list[str] = []
    for row, path in enumerate(paths):
        try:
            data = path.read_bytes()
            if images is None:
                decode_image(
                    data, InputSpec(kind="image", dtype="uint8", shape=(1, 1, 1), resize=True), max_pixels=_MAX_PIXELS
                )
                height, width = size or _size_of(data)
                images = np.empty((len(paths), height, width, channels), np.uint8)
                spec = InputSpec(kind="image", dtype="uint8", shape=images.shape[1:], resize=size is not None)
            images[row] = decode_image(data, spec, max_pixels=_MAX_PIXELS)
        except (ImageError, OSError) as error:
            problems.append(f"{path}: {error}")
            if len(problems) == _LISTED:
                break
            continue
        digests[path.relative_to(files.folder).as_posix()] = hashlib.sha256(data).hexdigest()
    if problems:
        hint = "" if size else "; the setting `size` resizes images that differ"
        raise files.problem("; ".join(problems) + hint)
    files.note(".", digest_of_many(digests))
    if images is None:
        raise files.problem(f"{files.folder} contains no images")
    return images


def _size_of(data: bytes) -> tuple[int, int]:
    """Return height and width of a decodable image, held upright."""
    from PIL import ExifTags, Image

    with Image.open(io.BytesIO(data)) as image:
        width, height = image.size
        turned = image.getexif().get(ExifTags.Base.Orientation, 1) in _ON_ITS_SIDE
    return (width, height) if turned else (height, width)
