"""Drop what C++ and Rust libraries write to standard error, such as panics: their errors also come as exceptions."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ALONE = threading.RLock()  # standard error belongs to the whole process


@contextmanager
def muted() -> Iterator[None]:
    """Drop what is written to standard error during the block, also by other threads: for processes of one task."""
    with _ALONE:
        if sys.stderr is None:  # it is closed, and its number may be another file's
            yield
            return
        sys.stderr.flush()
        kept = os.dup(2)
        try:
            with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 — not a path of anyone
                os.dup2(nowhere.fileno(), 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
