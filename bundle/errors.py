"""Every error that reading or writing a bundle raises, as one tree.

BundleError
├── BundleDamagedError    a file is missing, unexpected, or differs from what was written
├── BundleFormatError     the files are as written, but they are not a valid bundle
├── SignatureError        no trusted key has signed the bundle
├── RemoteError           a file or folder that lies elsewhere cannot be reached
├── ImageError            an encoded image cannot become the model's input
└── RowError              a row of a table cannot become the model's input

Each says what was found and what was expected, if possible.
"""

from __future__ import annotations


class BundleError(Exception):
    """Root of the tree.

    Args:
        message: One sentence for people.
        file: Path of the faulty file inside the bundle, `/`-separated; None if no file is at fault.
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
    """A file of the bundle does not follow its schema; `file` names it."""


class SignatureError(BundleError):
    """A bundle is not signed, is signed by other keys, or a key cannot be read."""


class RemoteError(BundleError):
    """A file or folder that lies elsewhere cannot be reached, listed or read in time."""


class ImageError(BundleError):
    """An encoded image is unreadable, too large, or does not fit the model; `found` and `expected` say why."""


class RowError(BundleError):
    """The model does not accept a value in a row of a table; `found` and `expected` say why.

    Args:
        message: One sentence for people.
        found: What was found.
        expected: What was expected.
        refused: Column, and whether its value is "missing", "unknown" or "invalid"; None for other errors.
    """

    def __init__(
        self,
        message: str,
        *,
        found: str | None = None,
        expected: str | None = None,
        refused: tuple[str, str] | None = None,
    ) -> None:
        super().__init__(message, found=found, expected=expected)
        self.refused = refused
