"""A port for a server of a test."""

from __future__ import annotations

import itertools
import os
import socket

# Below the ports that the system gives to others by itself; each of pytest's processes has its own.
_OWN = range(10_000, 12_000)
_PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_ports = itertools.cycle(port + len(_OWN) * (_PROCESS % 10) for port in _OWN)


def free_port() -> int:
    """Return a port that nothing listens on, and that no other test gets meanwhile."""
    for port in _ports:
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:  # taken
            continue
        return port
    raise AssertionError
