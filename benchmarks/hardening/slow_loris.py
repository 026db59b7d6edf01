"""500 connections that send next to nothing, while a client predicts: is it served as if it were alone?

python -m benchmarks.hardening.slow_loris --connections 500 --seconds 60

A third of them drip a head, a third a body, a byte each a second; a third send nothing. The service closes them after
CANDOR_CLIENT_TIMEOUT_S, and a new one takes the place of each. Prints one JSON document; exits with 1 where the client
was refused, the service ended, or its log has an error.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import selectors
import socket
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from benchmarks.hardening.bystander import predicting
from benchmarks.hardening.running import Running, serving

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
    with serving() as running, predicting(running.url) as bystander:
        marks = [time.monotonic()]
        time.sleep(arguments.idle)
        marks.append(time.monotonic())
        before = running.resident_bytes
        seen = besiege(running, arguments.connections, arguments.seconds)
        grown = running.resident_bytes - before
        marks.append(time.monotonic())
        time.sleep(arguments.idle)
        marks.append(time.monotonic())
        ended, complaints = running.popen.poll() is not None, running.complaints()
    phases = zip(("before", "during", "after"), marks, marks[1:], strict=False)
    document = {
        "connections_at_once": seen.most,
        "connections_in_all": seen.opened,
        "closed_with": dict(seen.said),
        "memory_grew_mb": round(grown / 1e6, 1),
        "client": {name: bystander.between(first, last) for name, first, last in phases},
        "client_refused": bystander.failures[:5],
        "ended": ended,
        "errors_in_log": complaints[:5],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
    print(json.dumps(document, indent=1))
    sys.exit(bool(bystander.failures or ended or complaints))


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
