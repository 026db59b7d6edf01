"""A folder of images: one sub-folder per class; images stay in their files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from importing.errors import RowsError
from importing.rows.result import Rows
from importing.rows.stream import readable

ENDINGS = (".png", ".jpg", ".jpeg", ".webp")
_MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An encoded image in its file; files of the same bytes are equal.

    Attributes:
        path: The file.
        size: Number of its bytes.
        sha256: Their sha256.
    """

    path: Path = field(compare=False)
    size: int
    sha256: str

    def read(self) -> bytes:
        """Return the bytes; raises RowsError if they are others by now."""
        with readable(self.path):
            data = self.path.read_bytes()
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise RowsError("The file changed while it was read.", where=str(self.path))
        return data


def read_folder(path: Path) -> Rows:
    """Read the images of each class, in the order of their paths.

    Hidden files and files of the desktop (`Thumbs.db`) are skipped.

    Args:
        path: The folder.

    Raises:
        RowsError: A class has no images, or a file is not a PNG, JPEG or WebP image.
    """
    labels, images, digest = [], [], hashlib.sha256()
    for folder in _visible(path):
        if not folder.is_dir():
            raise RowsError("Unexpected file.", where=str(folder), expected="one sub-folder per class")
        within = list(_visible(folder))
        if not within:
            raise RowsError("The class has no images.", where=str(folder))
        for file in within:
            images.append(image := _image(file))
            labels.append(folder.name)
            digest.update(f"{image.sha256}  {folder.name}/{file.name}\n".encode("utf-8", "surrogateescape"))
    if not images:
        raise RowsError("The folder has no images.", where=str(path), expected="one sub-folder per class")
    return Rows(
        path=path,
        sha256=digest.hexdigest(),
        features={"image": np.array(images, np.object_)},
        label=np.array(labels, np.object_),
        label_name="",
        group=None,
        segment=None,
        part=None,
        time=None,
        weight=None,
        scores=None,
        lines=np.arange(1, len(images) + 1),
        unit="image",
        files=tuple(str(image.path) for image in images),
    )


def _visible(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if not path.name.startswith(".") and path.name != "Thumbs.db":
            yield path


def _image(file: Path) -> ImageFile:
    if not file.is_file() or file.suffix.lower() not in ENDINGS:
        raise RowsError("The file is not an image.", where=str(file), expected=f"a file ending in {', '.join(ENDINGS)}")
    if file.stat().st_size > _MAX_BYTES:
        raise RowsError("The image is too large.", where=str(file), expected=f"at most {_MAX_BYTES} bytes")
    data = file.read_bytes()
    if not (data.startswith((b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")) or (data[:4], data[8:12]) == (b"RIFF", b"WEBP")):
        begins = f"bytes that begin with {data[:8].hex(' ')}" if data else "an empty file"
        raise RowsError("The file is not an image.", where=str(file), found=begins, expected="PNG, JPEG or WebP")
    return ImageFile(file, len(data), hashlib.sha256(data).hexdigest())
