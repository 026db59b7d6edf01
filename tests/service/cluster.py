"""A PostgreSQL server of a test's own, which can crash and come back."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

from tests.waiting import PATIENCE_S


class Cluster:
    """A PostgreSQL server of the test's own."""

    def __init__(self, folder: Path, bin_: Path) -> None:
        self._bin, self._data = bin_, folder / "data"
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self._options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1"
        self._log = folder / "log"
        self.url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        if os.getuid() == 0:
            shutil.chown(folder, "postgres")
        self._run("initdb", "--pgdata", self._data, "--username", "postgres", "--auth", "trust", "--no-sync")
        self.start()

    def start(self) -> None:
        self._control("start")

    def crash(self) -> None:
        """End it without a check point, as a power cut would."""
        self._control("stop", "--mode", "immediate")

    def _control(self, *what: str) -> None:
        self._run("pg_ctl", "--pgdata", self._data, "--options", self._options, "--log", self._log, "--wait", *what)

    def _run(self, program: str, *arguments: str | Path) -> None:
        become = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        command = [*become, self._bin / program, *arguments]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, timeout=PATIENCE_S, check=False, cwd="/")
        assert done.returncode == 0, command
