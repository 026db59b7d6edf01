"""A real `candor serve` on the committed bundle of digits, for whoever is about to be unkind to it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hardening.bodies import SET_BYTES
from tests.hardening.keys import bearer
from tests.hardening.victim import Victim

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Running:
    """A service that answers.

    Attributes:
        url: Where.
        popen: Its process.
        log: File of its standard error.
        environment: What it was started with.
        headers: What a client needs to be let in, and to do everything.
    """

    url: str
    popen: subprocess.Popen[bytes]
    log: Path
    environment: dict[str, str]
    headers: dict[str, str]

    @property
    def resident_bytes(self) -> int:
        """Memory of the process, without its children."""
        for line in Path(f"/proc/{self.popen.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise ProcessLookupError("the service is gone")

    def complaints(self) -> list[str]:
        """Return the lines of its log that it should not have written: errors, and whatever is no line of a log."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            try:
                level = json.loads(line)["level"]
            except (ValueError, KeyError, TypeError):
                level = "none"
            if level not in ("debug", "info", "warning"):
                found.append(line)
        return found


@contextmanager
def serving(*, keys: bool = False, **settings: Any) -> Iterator[Running]:
    """Start a service with a state of its own, and end it.

    Args:
        keys: Whether it wants API keys.
        settings: Of the service, by name.
    """
    with tempfile.TemporaryDirectory(prefix="candor-hardening-") as folder:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CANDOR_")}
        given = {
            "bundles": EXAMPLES / "bundles",
            "policies": EXAMPLES / "policies",
            "database_url": f"sqlite:///{folder}/state.db",
            "uploads": f"{folder}/uploads",
            "max_upload_bytes": SET_BYTES,
        }
        environment |= {f"CANDOR_{name.upper()}": str(value) for name, value in (given | settings).items()}
        headers = bearer(environment["CANDOR_DATABASE_URL"], "admin") if keys else {}
        log = Path(folder) / "log"
        victim = Victim(environment, log)
        try:
            victim.wait_until_ready()
            yield Running(victim.url, victim.popen, log, environment, headers)
        finally:
            victim.stop()
