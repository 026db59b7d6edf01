"""Your own files in one folder per class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.data.distribution import Files


@dataclass(frozen=True)
class ClassFolders:
    """The files of each class.

    Attributes:
        paths: Paths of all files, ordered by class and name, those in test/ last.
        labels: Class of each file, int64 (N,).
        names: Names of the classes: those of the folders.
        test: Rows of the files in test/.
    """

    paths: list[Path]
    labels: NDArray[np.int64]
    names: tuple[str, ...]
    test: range


def class_folders(files: Files, endings: tuple[str, ...]) -> ClassFolders:
    """Find the files in CLASS/, or in train/CLASS/ and test/CLASS/; names that begin with a dot are ignored.

    Args:
        files: The folder.
        endings: Allowed endings of file names, in lower case.

    Raises:
        DataError: The folders are missing, or one is empty or contains other files.
    """
    top = files.folder
    if not top.is_dir():
        raise files.problem(f"{top.absolute()} is not a folder")
    split = (top / "train").is_dir()
    beside = {path.name for path in top.iterdir() if path.is_dir() and not path.name.startswith(".")}
    if split and not beside <= {"train", "test"}:
        raise files.problem(f"unexpected folder {min(beside - {'train', 'test'})}/ beside train/ and test/ in {top}")
    train = _by_class(files, top / "train" if split else top, endings)
    test = _by_class(files, top / "test", endings) if split and (top / "test").is_dir() else {}
    if len(train) < 2:
        found_here = f"one class folder, {min(train)}" if train else "no class folders"
        raise files.problem(f"{top} contains {found_here}; at least two are required")
    if strange := sorted(test.keys() - train.keys()):
        raise files.problem(f"test/ in {top} has the class {strange[0]}, which train/ does not have")
    names = tuple(train)
    found = [(path, names.index(name)) for part in (train, test) for name, paths in part.items() for path in paths]
    held_out = sum(map(len, test.values()))
    return ClassFolders(
        [path for path, _ in found],
        np.array([label for _, label in found], np.int64),
        names,
        range(len(found) - held_out, len(found)),
    )


def _by_class(files: Files, folder: Path, endings: tuple[str, ...]) -> dict[str, list[Path]]:
    """Return the paths of the files by class, both sorted."""
    found = {}
    for group in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        found[group.name] = sorted(path for path in group.iterdir() if not path.name.startswith("."))
        if not found[group.name]:
            raise files.problem(f"{group} is empty")
        for path in found[group.name]:
            if not path.is_file() or path.suffix.lower() not in endings:
                raise files.problem(f"{path} is not a file ending in {', '.join(endings)}")
    return found
