"""What every part is given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.host import Host


class LeftOutError(Exception):
    """This machine lacks what a part needs; the message says what."""


@dataclass(frozen=True)
class Bench:
    """A run.

    Attributes:
        folder: Folder of outcomes, and of files that parts hand to later ones.
        host: The machine.
    """

    folder: Path
    host: Host

    def say(self, text: str) -> None:
        """Tell what the part is doing; the runner shows the last line."""
        print(text, flush=True)
