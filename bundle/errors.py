"""Every error that reading or writing a bundle raises, as one tree.

BundleError
├── BundleDamagedError    a file is missing, extra, or not the one that was written
├── BundleFormatError     the bytes are those that were written, but they do not make a bundle
├── ImageError            an encoded image that cannot become the model's input
└── RowError              a row of a table that cannot become the model's input

All of them say what was found and what was expected, where that can be said.
"""

from __future__ import annotations


class BundleError(Exception):
    """Root of the tree.

    Args:
        message: One sentence for a person.
        file: Path inside the bundle of the file at fault, `/`-separated; None when no file is.
        found: What was found.
        expected: What was expected.
    """

    def __init__(
        self, message: str, *, file: str | None = None, found: str | None = None, expected: str | None = None
    ) -> None:
        self.message = message
        self.file = file
        self.found = found
        self.expected = expected
        told = [f"found {found}"] if found is not None else []
        told += [f"expected {expected}"] if expected is not None else []
        where = f"{file}: " if file is not None else ""
        super().__init__(f"{where}{message} ({', '.join(told)})" if told else f"{where}{message}")


class BundleDamagedError(BundleError):
    """A file of the bundle is missing, unexpected, or differs from what was written; `file` names it."""


class BundleFormatError(BundleError):
    """A file of the bundle does not hold what its schema asks for; `file` names it."""


class ImageError(BundleError):
    """An encoded image is unreadable, too large, or does not fit the model; `found` and `expected` say how."""


class RowError(BundleError):
    """A value of a table's row is none that the model takes; `found` and `expected` say how."""
