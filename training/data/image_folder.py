"""Images of your own: a folder for each class."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bundle import ImageError, InputSpec
from training.data.dataset import Dataset
from training.data.distribution import Distribution, Files, digest_of_many
from training.errors import ConfigurationError

ENDINGS = (".png", ".jpg", ".jpeg", ".webp")
_MAX_PIXELS = 2**27
_ON_ITS_SIDE = range(5, 9)  # EXIF orientations

IMAGE_FOLDER = Distribution(
    title="Image folder",
    folders=(),
    obtain="Name the folder that holds a folder of images for each class.",
    layout="CLASS/*.png, *.jpg, *.jpeg or *.webp, for two classes or more; or train/CLASS/… and test/CLASS/…, where "
    "the test images are never trained on.",
)


def load(
    root: Path | None = None, *, folder: str = ".", size: Sequence[int] | int | None = None, channels: int = 3
) -> Dataset:
    """Images of your own: a folder for each class, with PNG, JPEG or WebP files; train/ and test/ above them if any.

    Files that begin with a dot are passed over. Each image is decoded as the service decodes it.

    Args:
        root: Folder of data sets; None for the one that CANDOR_DATA names.
        folder: Path of the images' folder below it.
        size: Height and width, or the side of a square, to which all images are resized; None when all have one size.
        channels: 1 for grey, 3 for colour.

    Returns:
        Images uint8 (N, H, W, channels) in the order of their paths, those of test/ last; classes by name.

    Raises:
        ConfigurationError: `size` or `channels` is none.
        DataError: There are no such folders, or a file in them is no image, is unreadable, or has another size.
    """
    if channels not in (1, 3):
        raise ConfigurationError(f"channels is {channels}, expected 1 or 3")
    given = _size(size)
    top = IMAGE_FOLDER.root(root) / folder
    files = Files(IMAGE_FOLDER, top, IMAGE_FOLDER.root(root))
    if not top.is_dir():
        raise files.problem(f"{top} is no folder")
    split = (top / "train").is_dir()
    beside = {path.name for path in top.iterdir() if path.is_dir() and not path.name.startswith(".")}
    if split and not beside <= {"train", "test"}:
        raise files.problem(f"beside train/ and test/ there is {min(beside - {'train', 'test'})}/ in {top}")
    train = _images(files, top / "train" if split else top)
    test = _images(files, top / "test") if split and (top / "test").is_dir() else {}
    if len(train) < 2 or not test.keys() <= train.keys():
        strange = f"; test/ has {', '.join(sorted(test.keys() - train.keys()))}" if test.keys() - train.keys() else ""
        raise files.problem(f"{top} has the classes {', '.join(train) or 'none'}{strange}")
    names = tuple(train)
    paths = [(path, names.index(name)) for part in (train, test) for name, found in part.items() for path in found]
    images = _decode(files, [path for path, _ in paths], given, channels)
    held_out = sum(map(len, test.values()))
    return Dataset(
        "image_folder",
        images,
        np.array([label for _, label in paths], np.int64),
        names,
        test=range(len(paths) - held_out, len(paths)),
        sources=files.digests,
    )


def _size(size: Sequence[int] | int | None) -> tuple[int, int] | None:
    if size is None:
        return None
    pair = (size, size) if isinstance(size, int) else tuple(size)
    if len(pair) != 2 or not all(isinstance(side, int) and 1 <= side <= 2**14 for side in pair):
        raise ConfigurationError(f"size is {size!r}, expected a side, or a height and a width, in pixels")
    return pair[0], pair[1]


def _images(files: Files, folder: Path) -> dict[str, list[Path]]:
    """Paths of the images by class, both in order."""
    found = {}
    for group in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        found[group.name] = sorted(path for path in group.iterdir() if not path.name.startswith("."))
        if not found[group.name]:
            raise files.problem(f"{group} is empty")
        for path in found[group.name]:
            if not path.is_file() or path.suffix.lower() not in ENDINGS:
                raise files.problem(f"{path} is no file ending in {', '.join(ENDINGS)}")
    return found


def _decode(files: Files, paths: list[Path], size: tuple[int, int] | None, channels: int) -> NDArray[np.uint8]:
    from bundle.images import decode_image  # needs Pillow

    images: NDArray[np.uint8] | None = None
    digests = {}
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
            hint = "" if size else "; the setting `size` resizes images that differ"
            raise files.problem(f"{path}: {error}{hint}") from error
        digests[path.relative_to(files.folder).as_posix()] = hashlib.sha256(data).hexdigest()
    files.note(".", digest_of_many(digests))
    if images is None:
        raise files.problem(f"{files.folder} holds no image")
    return images


def _size_of(data: bytes) -> tuple[int, int]:
    """Height and width of an image that can be decoded, as it is held upright."""
    from PIL import ExifTags, Image

    with Image.open(io.BytesIO(data)) as image:
        width, height = image.size
        turned = image.getexif().get(ExifTags.Base.Orientation, 1) in _ON_ITS_SIDE
    return (width, height) if turned else (height, width)
