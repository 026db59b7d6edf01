"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def whole_file(path: Path, meanwhile: Path | None = None) -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces `path` at the end of the block, or leaves no trace if the block fails.

    Args:
        path: The file. Missing folders above it are made.
        meanwhile: Folder on the same disk where it is written; None for the file's own.

    Raises:
        OSError: The file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = (meanwhile or path.parent) / f".{path.name}.{uuid.uuid4().hex}.unfinished"
    try:
        with unfinished.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())  # or a power cut may leave the new name with nothing in it
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
