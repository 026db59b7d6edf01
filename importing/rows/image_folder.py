"""A folder of images: one sub-folder per class; images stay encoded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from importing.errors import RowsError
from importing.rows.result import Rows

ENDINGS = (".png", ".jpg", ".jpeg", ".webp")
_MAX_BYTES = 64 << 20


def read_folder(path: Path) -> Rows:
    """Read the images of each class, in the order of their paths.

    Hidden files and files of the desktop (`Thumbs.db`) are skipped.

    Args:
        path: The folder.

    Raises:
        RowsError: A class has no images, or a file is not a PNG, JPEG or WebP image.
    """
    files, labels, images, digest = [], [], [], hashlib.sha256()
    for folder in _visible(path):
        if not folder.is_dir():
            raise RowsError("Unexpected file.", where=str(folder), expected="one sub-folder per class")
        within = list(_visible(folder))
        if not within:
            raise RowsError("The class has no images.", where=str(folder))
        for file in within:
            data = _image(file)
            files.append(str(file))
            labels.append(folder.name)
            images.append(data)
            digest.update(
                f"{hashlib.sha256(data).hexdigest()}  {folder.name}/{file.name}\n".encode("utf-8", "surrogateescape")
            )
    if not files:
        raise RowsError("The folder has no images.", where=str(path), expected="one sub-folder per class")
    encoded = np.empty(len(images), np.object_)
    encoded[:] = images
    return Rows(
        path=path,
        sha256=digest.hexdigest(),
        features={"image": encoded},
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
        files=tuple(files),
    )


def _visible(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if not path.name.startswith(".") and path.name != "Thumbs.db":
            yield path


def _image(file: Path) -> bytes:
    if not file.is_file() or file.suffix.lower() not in ENDINGS:
        raise RowsError("The file is not an image.", where=str(file), expected=f"a file ending in {', '.join(ENDINGS)}")
    if file.stat().st_size > _MAX_BYTES:
        raise RowsError("The image is too large.", where=str(file), expected=f"at most {_MAX_BYTES} bytes")
    data = file.read_bytes()
    if not (data.startswith((b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")) or (data[:4], data[8:12]) == (b"RIFF", b"WEBP")):
        begins = f"bytes that begin with {data[:8].hex(' ')}" if data else "an empty file"
        raise RowsError("The file is not an image.", where=str(file), found=begins, expected="PNG, JPEG or WebP")
    return data
