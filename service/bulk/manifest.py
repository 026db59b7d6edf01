"""What a run is, and which of its parts are done: `manifest.json` beside the parts."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

import orjson

from service.bulk.output import Place
from service.errors import InputValueError

NAME: Final = "manifest.json"
_FORMAT: Final = 1
_PAUSE_S: Final = 1.0
_PART: Final = re.compile(r"(?:part|rejects)-(\d+)\.")


@dataclass(frozen=True)
class Done:
    """A finished part.

    Attributes:
        number: Number of the part.
        input: Name of its file below the input.
        rows: Rows written.
        rejected: Rows refused.
        actions: Rows by action of the policy.
    """

    number: int
    input: str
    rows: int
    rejected: int
    actions: dict[str, int]


@dataclass
class Manifest:
    """The manifest of an output.

    Attributes:
        place: The output.
        run: What its content depends on.
        seed: Hexadecimal; the source of prediction ids and of the labels that are sought.
        started_at: Start of the run in microseconds since the epoch, UTC: the time of its predictions.
        inputs: Digest of each file that was opened, by name, once it is known.
        done: Finished parts by number. On disk are those of files with a digest.
        finished: Whether all parts are done.
    """

    place: Place
    run: Mapping[str, Any]
    seed: str
    started_at: int
    inputs: dict[str, str] = field(default_factory=dict)
    done: dict[int, Done] = field(default_factory=dict)
    finished: bool = False
    _written_at: float = 0.0

    @classmethod
    def open(cls, place: Place, address: str, run: Mapping[str, Any], *, resume: bool) -> Self:
        """Return the manifest of a new run, which is not written yet, or of an interrupted one.

        Raises:
            InputValueError: The output has something else in it, or a run that must not or cannot go on.
            ConfigurationError: It cannot be read or written.
        """
        content = place.read(NAME)
        if content is None:
            if found := place.names():
                raise InputValueError(
                    f"{address} is not empty.",
                    where=address,
                    found=", ".join(found[:5]),
                    expected="a new or empty folder, or the output of an interrupted run",
                )
            return cls(place, run, os.urandom(16).hex(), time.time_ns() // 1000)
        known = cls._read(place, content, address)
        if not resume:
            state = "finished" if known.finished else "unfinished"
            raise InputValueError(
                f"{address} has the output of {'a' if known.finished else 'an'} {state} run.",
                where=address,
                found=f"finished parts: {len(known.done)}",
                remedy="Choose another folder, or delete this one."
                if known.finished
                else "Go on with --resume, or delete the folder to begin again.",
            )
        differs = sorted(name for name in {*known.run, *run} if known.run.get(name) != run.get(name))
        if differs:
            raise InputValueError(
                f"The unfinished run differs in: {', '.join(differs)}.",
                where=address,
                found={name: run.get(name) for name in differs},
                expected={name: known.run.get(name) for name in differs},
                remedy="Go on with the same files, model, policy and options, or choose another folder.",
            )
        for name in place.names():
            number = _PART.match(name)
            # What is not recorded may be of a file that has changed before its digest was known.
            if number is not None and int(number[1]) not in known.done:
                place.remove(name)
        return known

    def check_input(self, name: str, digest: str) -> None:
        """Record the digest of a file, or compare it with the recorded one.

        Raises:
            InputValueError: The file has changed since the run began.
        """
        if self.inputs.setdefault(name, digest) != digest:
            raise InputValueError(
                f"{name} has changed since the run began.",
                where=name,
                found=digest,
                expected=self.inputs[name],
                remedy="Restore the file, or choose another folder to score all rows again.",
            )

    def add(self, done: Done) -> None:
        """Record a finished part, on disk within about a second: what is not recorded is scored again, the same."""
        self.done[done.number] = done
        if time.monotonic() - self._written_at >= _PAUSE_S:
            self.write()

    def write(self) -> None:
        """Write the manifest."""
        document = {
            "format": _FORMAT,
            "finished": self.finished,
            "started_at": self.started_at,
            "seed": self.seed,
            "run": self.run,
            "inputs": self.inputs,
            "parts": [asdict(done) for _, done in sorted(self.done.items()) if done.input in self.inputs],
        }
        with self.place.new(NAME) as file:
            file.write(orjson.dumps(document, option=orjson.OPT_INDENT_2))
        self._written_at = time.monotonic()

    @property
    def rows(self) -> int:
        """Rows written."""
        return sum(done.rows for done in self.done.values())

    @property
    def rejected(self) -> int:
        """Rows refused."""
        return sum(done.rejected for done in self.done.values())

    @property
    def actions(self) -> dict[str, int]:
        """Rows by action of the policy."""
        total: Counter[str] = Counter()
        for done in self.done.values():
            total.update(done.actions)
        return dict(sorted(total.items()))

    @classmethod
    def _read(cls, place: Place, content: bytes, address: str) -> Self:
        try:
            found = orjson.loads(content)
            parts = {_FORMAT: found["parts"]}[found["format"]]
            return cls(
                place,
                found["run"],
                found["seed"],
                found["started_at"],
                found["inputs"],
                {part["number"]: Done(**part) for part in parts},
                found["finished"],
            )
        except (ValueError, LookupError, TypeError) as error:
            raise InputValueError(
                f"{address}/{NAME} is not a manifest that this version can read: {error}.",
                where=f"{address}/{NAME}",
                expected=f"format {_FORMAT}",
                remedy="Choose another folder.",
            ) from error
