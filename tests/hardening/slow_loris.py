"""500 connections that send next to nothing, while a client predicts: is it served as if it were alone?

python -m tests.hardening.slow_loris --connections 500 --seconds 60

A third of them drip a head, a third a body, a byte each a second; a third send nothing. The service closes them after
CANDOR_CLIENT_TIMEOUT_S, and a new one takes the place of each. Prints one JSON document; exits with 1 where the client
was refused, the service ended, or its log has an error.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from tests.hardening.running import Running
from tests.hardening.trial import trial

_HEAD: Final = b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
_KINDS: Final = {"head": _HEAD + b"x-slow: ", "body": _HEAD + b"content-length: 1000\r\n\r\n{", "nothing": b""}
_DRIP_S: Final = 1.0


@dataclass
class Seen:
    """What became of slow connections.

    Attributes:
        opened: How many there were.
        most: At one time.
        said: What the service said as it closed them: the status, or "nothing".
    """

    opened: int = 0
    most: int = 0
    said: Counter[str] = field(default_factory=Counter)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--idle", type=float, default=20.0, help="seconds of the client alone, before and after")
    arguments = parser.parse_args()

    def siege(running: Running) -> tuple[Seen, int]:
        before = running.resident_bytes
        return besiege(running, arguments.connections, arguments.seconds), running.resident_bytes - before

    (seen, grown), others, unharmed = trial(siege, idle_s=arguments.idle)
    document = {
        "connections_at_once": seen.most,
        "connections_in_all": seen.opened,
        "closed_with": dict(seen.said),
        "memory_grew_mb": round(grown / 1e6, 1),
        **others,
    }
    print(json.dumps(document, indent=1))
    sys.exit(not unharmed)


def besiege(running: Running, connections: int, seconds: float, *, at_least_closed: int = 0) -> Seen:
    """Keep so many slow connections open, for so long, and until so many have been closed by the service."""
    seen = Seen()
    kinds = list(_KINDS.values())
    address = urlsplit(running.url)
    drips: dict[socket.socket, bytes] = {}
    end = drip_at = time.monotonic()
    end += seconds
    with selectors.DefaultSelector() as selector:

        def open_one() -> None:
            first = kinds[seen.opened % len(kinds)]
            connection = socket.create_connection((address.hostname, address.port), timeout=60)
            connection.sendall(first)
            drips[connection] = b"a" if first else b""
            selector.register(connection, selectors.EVENT_READ)
            seen.opened += 1

        while time.monotonic() < end or seen.said.total() < at_least_closed:
            while len(drips) < connections:
                open_one()
            seen.most = max(seen.most, len(drips))
            for key, _ in selector.select(timeout=0.1):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                seen.said[_said(connection)] += 1
                selector.unregister(connection)
                del drips[connection]
                connection.close()
            if time.monotonic() >= drip_at:
                drip_at = time.monotonic() + _DRIP_S
                for connection, byte in drips.items():
                    with suppress(OSError):  # it is closed; what it said is read above
                        connection.sendall(byte)
        for connection in drips:
            connection.close()
    return seen


def _said(connection: socket.socket) -> str:
    try:
        said = connection.recv(65_536)
    except ConnectionResetError:
        return "nothing"
    return said[9:12].decode("latin-1") if said.startswith(b"HTTP/1.1 ") else "nothing"


if __name__ == "__main__":
    main()
