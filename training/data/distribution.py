"""How a data set is distributed: where its files lie, reading each once, and saying what is not as it should be."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from training.errors import DataError

VARIABLE = "CANDOR_DATA"


@dataclass(frozen=True)
class Distribution:
    """A data set as its makers give it away.

    Attributes:
        title: Its name, for people.
        folders: Names that its folder may have inside the folder of data sets, the first the usual one; none for data
            of one's own, which may lie anywhere.
        obtain: What to download, from where, and where to put it.
        layout: The files that are expected, and what is in them.
    """

    title: str
    folders: tuple[str, ...]
    obtain: str
    layout: str

    def find(self, root: Path | None, *some: str) -> Files:
        """The folder of this data set: the first that holds one of these files or folders.

        Args:
            root: Folder of data sets, or this data set's own; None for the one that CANDOR_DATA names.
            some: Names that mark the folder.

        Raises:
            DataError: No folder of data sets is named, or none of these is in it.
        """
        root = self.root(root)
        for folder in (*(root / name for name in self.folders), root):
            if any((folder / name).exists() for name in some):
                return Files(self, folder, root)
        raise self.problem(f"nothing of it is in {root}")

    def root(self, given: Path | None) -> Path:
        """The folder of data sets: the one given, else the one that CANDOR_DATA names; raises DataError.

        Where neither is there, paths of one's own data begin at the current folder.
        """
        named = os.environ.get(VARIABLE)
        if given is None and not named and self.folders:
            raise self.problem(f"no folder of data sets is named, neither in the call nor by {VARIABLE}")
        root = given if given is not None else Path(named or "")
        if not root.is_dir():
            raise self.problem(f"{root} is no folder")
        return root

    def own(self, root: Path | None, path: str) -> Files:
        """The folder of a file of one's own: its path is absolute, or begins at the folder of data sets (`root`)."""
        start = self.root(root)
        return Files(self, (start / path).parent, start)

    def problem(self, message: str) -> DataError:
        """An error that says what was found, what to do, and what is expected."""
        return DataError(f"{self.title}: {message}. {self.obtain} Expected: {self.layout}")


class Files:
    """The files of one data set, of which it remembers what was read.

    Attributes:
        folder: Where they lie.
        digests: sha256 of each file read so far, by its path below the folder of data sets.
    """

    def __init__(self, distribution: Distribution, folder: Path, root: Path) -> None:
        self.folder = folder
        self.digests: dict[str, str] = {}
        self._distribution = distribution
        self._root = root

    def read(self, name: str) -> bytes:
        """The bytes of a file; raises DataError when it is missing or cannot be read."""
        try:
            data = (self.folder / name).read_bytes()
        except FileNotFoundError:
            raise self.problem(f"{name} is missing in {self.folder.absolute()}") from None
        except OSError as error:
            raise self.problem(f"{self.folder / name} cannot be read: {error.strerror}") from error
        self.note(name, hashlib.sha256(data).hexdigest())
        return data

    def first_of(self, *names: str) -> str:
        """The first of these names that is there; raises DataError when none is."""
        for name in names:
            if (self.folder / name).exists():
                return name
        raise self.problem(f"{' or '.join(names)} is missing in {self.folder.absolute()}")

    def note(self, name: str, digest: str) -> None:
        """Remember the sha256 of a file, or of many that are told of as one.

        A file outside the folder of data sets goes by its name: where it lies is a matter of the machine.
        """
        # Not `resolve`: a folder of data sets may be made of links.
        path, root = (Path(os.path.abspath(place)) for place in (self.folder / name, self._root))  # noqa: PTH100
        self.digests[path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name] = digest

    def problem(self, message: str) -> DataError:
        """See `Distribution.problem`."""
        return self._distribution.problem(message)


def digest_of_many(digests: dict[str, str]) -> str:
    """One sha256 for many files: of the lines `<sha256>  <path>` in the order of their paths, as sha256sum prints."""
    lines = "".join(f"{digest}  {path}\n" for path, digest in sorted(digests.items()))
    return hashlib.sha256(lines.encode()).hexdigest()
