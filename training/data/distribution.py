"""The files of a data set: finding and reading them, and errors that say what to download."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.errors import DataError

VARIABLE = "CANDOR_DATA"


@dataclass(frozen=True)
class Distribution:
    """A data set as distributed by its authors.

    Attributes:
        title: Display name.
        folders: Possible names of its folder inside the folder of data sets, the usual one first; none for your own
            data, which may be anywhere.
        obtain: What to download, from where, and where to put it.
        layout: Expected files and their content.
    """

    title: str
    folders: tuple[str, ...]
    obtain: str
    layout: str

    def find(self, root: Path | None, *some: str) -> Files:
        """Find the folder of this data set: the first that contains one of the given files or folders.

        Args:
            root: Folder of data sets, or this data set's own; None for CANDOR_DATA.
            some: Names that mark the folder.

        Raises:
            DataError: No folder of data sets is given, or it contains none of these.
        """
        root = self.root(root)
        for folder in (*(root / name for name in self.folders), root):
            if any((folder / name).exists() for name in some):
                return Files(self, folder, root)
        raise self.problem(f"no files found in {root}")

    def root(self, given: Path | None) -> Path:
        """Return the given folder of data sets, else CANDOR_DATA; raises DataError.

        Without either, paths of your own data are relative to the current folder.
        """
        named = os.environ.get(VARIABLE)
        if given is None and not named and self.folders:
            raise self.problem(f"no folder of data sets is given; set {VARIABLE}")
        root = given if given is not None else Path(named or "")
        if not root.is_dir():
            raise self.problem(f"{root} is not a folder")
        return root

    def anywhere(self, root: Path | None) -> Files:
        """Return the folder that paths of your own files begin at: that of data sets (`root`), or the current one."""
        start = self.root(root)
        return Files(self, start, start)

    def own(self, root: Path | None, path: str) -> Files:
        """Return the folder of your own file; its path is absolute or relative to the folder of data sets (`root`)."""
        start = self.root(root)
        return Files(self, (start / path).parent, start)

    def problem(self, message: str) -> DataError:
        """Return an error that says what was found, what to do, and what is expected."""
        return DataError(f"{self.title}: {message}. {self.obtain} Expected: {self.layout}")


class Files:
    """The files of one data set, with digests of those read.

    Attributes:
        folder: Their folder.
        digests: sha256 of each file read so far, by its path below the folder of data sets.
    """

    def __init__(self, distribution: Distribution, folder: Path, root: Path) -> None:
        self.folder = folder
        self.digests: dict[str, str] = {}
        self._distribution = distribution
        self._root = root

    def read(self, name: str) -> bytes:
        """Return the bytes of a file; raises DataError if it is missing or cannot be read."""
        try:
            data = (self.folder / name).read_bytes()
        except FileNotFoundError:
            raise self.problem(f"{name} is missing in {self.folder.absolute()}") from None
        except OSError as error:
            raise self.problem(f"{self.folder / name} cannot be read: {error.strerror}") from error
        self.note(name, hashlib.sha256(data).hexdigest())
        return data

    def arrays(self, name: str, *members: str) -> list[NDArray[Any]]:
        """Read the array of a `.npy` file, or these members of a `.npz` archive, without pickle; raises DataError."""
        self.read(name)
        try:
            with (self.folder / name).open("rb") as stream:
                found: Any = np.load(stream, allow_pickle=False)
                return [found[member] for member in members] if members else [np.asarray(found)]
        except (OSError, EOFError, ValueError, KeyError, IndexError, zipfile.BadZipFile, zlib.error) as error:
            raise self.problem(f"{self.folder / name} cannot be read: {error}") from error

    def first_of(self, *names: str) -> str:
        """Return the first existing one of these names; raise DataError if none exists."""
        for name in names:
            if (self.folder / name).exists():
                return name
        raise self.problem(f"{' or '.join(names)} is missing in {self.folder.absolute()}")

    def note(self, name: str, digest: str) -> str:
        """Record the sha256 of a file, or of many under one name; outside the folder of data sets by name alone.

        Returns:
            What was recorded first under that name.
        """
        # Not `resolve`: a folder of data sets may be made of links.
        path, root = (Path(os.path.abspath(place)) for place in (self.folder / name, self._root))  # noqa: PTH100
        return self.digests.setdefault(
            path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name, digest
        )

    def problem(self, message: str) -> DataError:
        """See `Distribution.problem`."""
        return self._distribution.problem(message)


def digest_of_many(digests: dict[str, str]) -> str:
    """Return one sha256 for many files: of the lines `<sha256>  <path>`, sorted by path, as sha256sum prints them."""
    lines = "".join(f"{digest}  {path}\n" for path, digest in sorted(digests.items()))
    return hashlib.sha256(lines.encode()).hexdigest()
