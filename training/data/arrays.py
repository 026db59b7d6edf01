"""Images of your own in a `.npz` file."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.dataset import Dataset
from training.data.distribution import Distribution, Files
from training.data.equal import equal_rows
from training.errors import ConfigurationError

ARRAYS = Distribution(
    title="npz arrays",
    folders=(),
    obtain="Set `file` to its path: absolute, or relative to the folder of data sets (else the current folder).",
    layout="a file of numpy.savez with images, uint8 (N, H, W, C) or (N, H, W), C 1 or 3, and labels, whole numbers "
    "(N,) from 0; optionally test_images, test_labels, and label_names, strings (K,).",
)
_NEEDED = ("images", "labels")
_TEST = ("test_images", "test_labels")


def load(root: Path | None = None, *, file: str | None = None) -> Dataset:
    """Images of your own in one .npz file: the arrays images and labels, optionally test_images and test_labels.

    Args:
        root: Folder that `file` begins at; None for CANDOR_DATA, else the current folder.
        file: Path of the file.

    Returns:
        Images uint8 (N, H, W, C), those of the test part last; label names default to numbers.

    Raises:
        ConfigurationError: `file` is missing.
        DataError: The file is missing or holds other arrays.
    """
    if file is None:
        raise ConfigurationError("arrays require the setting `file`: the path of the .npz file")
    files = ARRAYS.own(root, file)
    where = files.folder / Path(file).name
    files.read(where.name)
    if not zipfile.is_zipfile(where):  # NumPy would take it for a pickle, and advise to trust it
        raise files.problem(f"{where} is not a complete .npz file")
    try:
        with where.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in (*_NEEDED, *_TEST, "label_names") if name in archive}
    except (OSError, EOFError, ValueError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise files.problem(f"{where} cannot be read: {error}") from error
    missing = [name for name in _NEEDED if name not in arrays]
    if missing or (_TEST[0] in arrays) != (_TEST[1] in arrays):
        raise files.problem(f"{where} holds only {', '.join(arrays) or 'other arrays'}")
    images, labels = arrays["images"], arrays["labels"]
    n = len(images)
    if _TEST[0] in arrays:
        if arrays["test_images"].shape[1:] != images.shape[1:]:
            raise files.problem(f"{where} has test_images of another shape: {arrays['test_images'].shape}")
        images = np.concatenate([images, arrays["test_images"]])
        labels = np.concatenate([labels, arrays["test_labels"]])
    if images.ndim == 3:
        images = images[..., np.newaxis]
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3):
        raise files.problem(f"{where} has images {images.dtype} {images.shape}")
    if labels.dtype.kind not in "ui" or labels.shape != (len(images),):
        raise files.problem(f"{where} has labels {labels.dtype} {labels.shape} for {len(images)} images")
    names = arrays.get("label_names")
    if names is not None and (names.dtype.kind != "U" or names.ndim != 1):
        raise files.problem(f"{where} has label_names {names.dtype} {names.shape}")
    label_names = tuple(names.tolist()) if names is not None else _numbered(files, where, labels)
    classes = labels.astype(np.int64)
    return Dataset(
        "arrays",
        images,
        classes,
        label_names,
        test=range(n, len(images)) if n < len(images) else range(0),
        sources=files.digests,
        equal=equal_rows(images, classes),
    )


def _numbered(files: Files, where: Path, labels: NDArray[Any]) -> tuple[str, ...]:
    """Return numbers as names of classes, which must be 0 … K − 1 without a gap."""
    present = np.unique(labels)
    if present[0] != 0 or present[-1] != len(present) - 1:
        some = ", ".join(map(str, present[:10].tolist()))
        raise files.problem(
            f"{where} has labels {some}{' …' if len(present) > 10 else ''} and no label_names, "
            f"expected 0 … {len(present) - 1} without a gap"
        )
    return tuple(map(str, present.tolist()))
