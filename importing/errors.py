"""Every error that an import raises on purpose, as one tree.

ImportRefusedError
├── RowsError                the validation rows cannot be used
├── ModelReferenceError      the model cannot be fetched, or differs from the digest that it is pinned to
├── MissingLibraryError      a package that reads the model is not installed
├── UnsupportedModelError    the model cannot become a classifier in ONNX without changing its answers
│   └── SlowModelError       it takes too long to open or to run, and may still be at it
├── AmbiguousModelError      the model can be read in several ways, and an option must say which
├── UnsafeFileError          reading the file would run the code in it
└── NativeDifferenceError    the graph and the library that made the model disagree

Each says what was found and what was expected, if possible.
"""

from __future__ import annotations


class ImportRefusedError(Exception):
    """Root of the tree.

    Args:
        message: One sentence for people.
        where: File, line and column at fault, such as "rows.csv, line 7, column amount".
        found: What was found.
        expected: What was expected.
        remedy: What to do about it.
    """

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        found: str | None = None,
        expected: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.message = message
        self.sentence = message if message.endswith((".", "?")) else f"{message}."
        self.where = where
        self.found = found
        self.expected = expected
        self.remedy = remedy
        told = [f"Found: {found}."] if found is not None else []
        told += [f"Expected: {expected}."] if expected is not None else []
        told += [remedy] if remedy is not None else []
        super().__init__(" ".join([self.sentence if where is None else f"{where}: {self.sentence}", *told]))


class RowsError(ImportRefusedError):
    """The validation rows cannot be used; `where` names the file, line and column."""


class ModelReferenceError(ImportRefusedError):
    """The model cannot be fetched, or differs from the digest that it is pinned to."""


class MissingLibraryError(ImportRefusedError):
    """A package that reads the model is not installed; `remedy` installs it."""


class UnsupportedModelError(ImportRefusedError):
    """The model cannot become a classifier in ONNX without changing its answers; `remedy` says what can."""


class SlowModelError(UnsupportedModelError):
    """The model takes too long to open or to run. A thread may still be at it, until the process ends."""


class UnsafeFileError(ImportRefusedError):
    """Reading the file would run the code in it."""


class NativeDifferenceError(ImportRefusedError):
    """The graph and the library that made the model disagree; the message shows the worst row."""


class AmbiguousModelError(ImportRefusedError):
    """The model can be read in several ways; `expected` names the option that says which."""
