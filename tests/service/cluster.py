"""A PostgreSQL server of a test's own, which can crash and come back."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.ports import free_port
from tests.waiting import PATIENCE_S


class Cluster:
    """A PostgreSQL server of the test's own."""

    def __init__(self, folder: Path, bin_: Path, *, primary: str | None = None) -> None:
        self._bin, self._data = bin_, folder / "data"
        port = free_port()
        self._options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1"
        self._log = folder / "log"
        self.url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        if os.getuid() == 0:
            shutil.chown(folder, "postgres")
        if primary is None:
            self._run("initdb", "--pgdata", self._data, "--username", "postgres", "--auth", "trust", "--no-sync")
        else:
            copied = ("--checkpoint", "fast", "--no-sync", "--write-recovery-conf")
            self._run("pg_basebackup", "--pgdata", self._data, "--dbname", primary, *copied)
        self.start()

    @classmethod
    def standby(cls, folder: Path, primary: Cluster) -> Cluster:
        """Return a streaming replica of another server."""
        return cls(folder, primary._bin, primary=primary.url)

    def start(self) -> None:
        self._control("start")

    def use_tls(self, cert: Path, key: Path) -> None:
        """Start again with a certificate, and take TLS connections alone over TCP."""
        for file, name in ((cert, "server.crt"), (key, "server.key")):
            copy = self._data / name
            copy.write_bytes(file.read_bytes())
            copy.chmod(0o600)
            if os.getuid() == 0:
                shutil.chown(copy, "postgres")
        (self._data / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 trust\nlocal all all trust\n")
        self.crash()
        self._options += " -c ssl=on"
        self.start()

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
