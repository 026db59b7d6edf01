"""Finished rows of a run, kept until its output is written."""

from __future__ import annotations

import fcntl
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from service.errors import InputValueError

_FORMAT = 1


class Journal:
    """The outcome of each finished row, in the order of the file.

    The file is NDJSON: a line that describes the run, then a line for each row. A half-written last line is dropped.

    Args:
        path: The file; created if it is missing.
        run: What the outcomes depend on; a run can go on only if it is the same.
        resume: Whether finished rows are kept.

    Attributes:
        rows: Number of finished rows.
        refused: How many of them the service refused.
        actions: How many were decided, by action.
        revisions: Revisions that predicted them.

    Raises:
        InputValueError: Another process has the file open, or it has rows of a run that must not or cannot go on.
        OSError: The file cannot be read or written.
    """

    def __init__(self, path: Path, run: Mapping[str, Any], *, resume: bool) -> None:
        self.path = path
        self.rows = self.refused = 0
        self.actions: Counter[str] = Counter()
        self.revisions: set[str] = set()
        self._stream = path.open("a+b")
        try:
            self._open(orjson.loads(orjson.dumps({"format": _FORMAT, **run})), resume=resume)
        except BaseException:
            self._stream.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file. Delete it if no row is finished."""
        if not self.rows:
            self.delete()
        self._stream.close()

    def delete(self) -> None:
        """Delete the file, once its rows are written."""
        self.path.unlink(missing_ok=True)

    def append(self, outcomes: Sequence[Mapping[str, Any]]) -> None:
        """Add finished rows."""
        self._stream.write(b"".join(orjson.dumps(outcome) + b"\n" for outcome in outcomes))
        self._stream.flush()
        for outcome in outcomes:
            self._count(outcome)

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the finished rows."""
        with self.path.open("rb") as stream:
            stream.readline()
            for line in stream:
                yield orjson.loads(line)

    def _open(self, run: dict[str, Any], *, resume: bool) -> None:
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputValueError(f"Another process is writing {self.path}.", where=str(self.path)) from None
        found = self._recover()
        if self.rows and not resume:
            raise InputValueError(
                f"An interrupted run has left {self.rows} finished rows.",
                where=str(self.path),
                remedy="Go on with --resume, or delete the file to begin again.",
            )
        if self.rows and found != run:
            names = [name for name in found.keys() | run.keys() if found.get(name) != run.get(name)]
            raise InputValueError(
                f"The interrupted run differs in: {', '.join(sorted(names))}.",
                where=str(self.path),
                found={name: run.get(name) for name in names},
                expected={name: found.get(name) for name in names},
                remedy="Go on with the same file and options, or delete the unfinished file to begin again.",
            )
        if not self.rows:
            self._stream.truncate(0)
            self._stream.write(orjson.dumps(run) + b"\n")
            self._stream.flush()

    def _recover(self) -> dict[str, Any]:
        """Count the finished rows, drop what is damaged after them, and return what describes the run."""
        self._stream.seek(0)
        run: dict[str, Any] = {}
        end = 0
        for line in self._stream:
            try:
                document = orjson.loads(line) if line.endswith(b"\n") else None
            except orjson.JSONDecodeError:
                document = None
            if not isinstance(document, dict):
                break
            if end:
                self._count(document)
            else:
                run = document
            end += len(line)
        self._stream.truncate(end)
        return run

    def _count(self, outcome: Mapping[str, Any]) -> None:
        self.rows += 1
        self.refused += "error" in outcome
        if (action := outcome.get("action")) is not None:
            self.actions[action] += 1
        if (revision := outcome.get("revision")) is not None:
            self.revisions.add(revision)
