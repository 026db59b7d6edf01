"""Images of your own in a `.npz` file."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from training.data.dataset import Dataset
from training.data.distribution import Distribution, Files
from training.errors import ConfigurationError

ARRAYS = Distribution(
    title="npz arrays",
    folders=(),
    obtain="Name its folder and, as `file`, its path in there.",
    layout="a file of numpy.savez with images, uint8 (N, H, W, C) or (N, H, W), C 1 or 3, and labels, whole numbers "
    "(N,) from 0; and, if you like, test_images, test_labels, and label_names, strings (K,).",
)
_NEEDED = ("images", "labels")
_TEST = ("test_images", "test_labels")


def load(root: Path | None = None, *, file: str | None = None) -> Dataset:
    """Images of your own in one .npz file: the arrays images and labels, with test_images and test_labels if any.

    Args:
        root: Folder of data sets; None for the one that CANDOR_DATA names.
        file: Path of the file below it.

    Returns:
        Images uint8 (N, H, W, C), those of the test part last; label names are numbers unless the file has them.

    Raises:
        ConfigurationError: `file` is missing.
        DataError: The file is missing or holds no such arrays.
    """
    if file is None:
        raise ConfigurationError("arrays need the setting `file`: the path of the .npz file")
    files = Files(ARRAYS, ARRAYS.root(root), ARRAYS.root(root))
    files.read(file)
    where = files.folder / file
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
    label_names = tuple(names.tolist()) if names is not None else tuple(map(str, range(int(labels.max()) + 1)))
    return Dataset(
        "arrays",
        images,
        labels.astype(np.int64),
        label_names,
        test=range(n, len(images)) if n < len(images) else range(0),
        sources=files.digests,
    )
