"""Open Parquet files in a process of its own, because the reader crashes over some damaged files.

`python -m service.row_files.parquet_opening` reads paths, separated by NUL, and writes each one before it opens it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from service.errors import MalformedBodyError
from service.row_files.parquet_rows import open_parquet


def check_opening(paths: Iterable[Path]) -> None:
    """Refuse files over which the reader would crash, and this process with it; other damage is found as they are read.

    Raises:
        MalformedBodyError: The reader crashed over a file; `where` names it.
    """
    opening = [sys.executable, "-m", __name__]
    given = "\0".join(map(str, paths))
    done = subprocess.run(opening, input=given.encode(errors="surrogateescape"), capture_output=True, check=False)  # noqa: S603 — this interpreter
    if done.returncode < 0:
        path = done.stdout.rpartition(b"\0")[2].decode(errors="surrogateescape")
        raise MalformedBodyError(
            "The file is not a valid Parquet file: its reader crashed.",
            where=path,
            found=signal.Signals(-done.returncode).name,
            expected="a Parquet file",
            remedy="Write the file again.",
        )


def _open_all() -> None:
    for path in sys.stdin.buffer.read().split(b"\0"):
        sys.stdout.buffer.write(b"\0" + path)
        sys.stdout.flush()
        with suppress(MalformedBodyError, OSError), Path(path.decode(errors="surrogateescape")).open("rb") as stream:
            open_parquet(stream)


if __name__ == "__main__":
    _open_all()
