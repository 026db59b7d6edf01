"""An open loop of clients: requests are sent when they are due, even if answers are slow.

    python -m benchmarks.serving.open_loop PORT PATH BODY_FILE RATE SECONDS [HEADER=VALUE …]

Prints one JSON object. Latencies count from when a request was due, so a late generator shows.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import uvloop

_PATIENCE_S = 60.0


@dataclass
class Loop:
    """Sends a request repeatedly over as many connections as necessary.

    Attributes:
        statuses: Counts by status; 0 for a broken connection.
        latencies_s: Latencies of answers with status 200.
        late_s: Maximum delay of the generator.
    """

    port: int
    message: bytes
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)
    late_s: float = 0.0

    async def run(self, rate: float, seconds: float) -> None:
        """Send `rate` requests per second for some seconds, and wait for the answers."""
        began = time.perf_counter()
        sent: set[asyncio.Task[None]] = set()
        for number in range(int(rate * seconds)):
            due = began + number / rate
            if (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            self.late_s = max(self.late_s, time.perf_counter() - due)
            task = asyncio.create_task(self._ask(due))
            sent.add(task)
            task.add_done_callback(sent.discard)
        await asyncio.wait_for(asyncio.gather(*sent), _PATIENCE_S)

    def _idle(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Take a free connection; servers close connections that are idle for seconds."""
        while self.idle:
            reader, writer = self.idle.pop()
            if not (reader.at_eof() or writer.is_closing()):
                return reader, writer
            writer.close()
        return None

    async def _ask(self, due: float) -> None:
        try:
            reader, writer = self._idle() or await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(self.message)
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
            await reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError):
            self.statuses[0] += 1
            return
        status = int(head[9:12])
        self.statuses[status] += 1
        if status == 200:
            self.latencies_s.append(time.perf_counter() - due)
        self.idle.append((reader, writer))


def message(path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return a POST as bytes."""
    lines = [f"POST {path} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}"]
    lines += [f"{key}: {value}" for key, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def main() -> None:
    port, path, file, rate, seconds, *headers = sys.argv[1:]
    body = Path(file).read_bytes()
    loop = Loop(int(port), message(path, body, dict(header.split("=", 1) for header in headers)))
    uvloop.run(loop.run(float(rate), float(seconds)))
    answered = np.array(loop.latencies_s or [np.nan])
    print(
        json.dumps(
            {
                "per_s": len(loop.latencies_s) / float(seconds),
                "p50_ms": float(np.percentile(answered, 50)) * 1e3,
                "p99_ms": float(np.percentile(answered, 99)) * 1e3,
                "statuses": loop.statuses,
                "late_ms": loop.late_s * 1e3,
            }
        )
    )


if __name__ == "__main__":
    main()
