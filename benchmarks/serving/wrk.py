"""A closed loop of clients: wrk with one thread posts a body repeatedly."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.serving.formats import Request

_SCRIPT = """\
local file = io.open("{body}", "rb")
wrk.method = "POST"
wrk.body = file:read("*a")
file:close()
{headers}
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("MEASURED %d %d %d %d %f %f\\n", summary.requests, summary.duration, e.status,
    e.connect + e.read + e.write + e.timeout, latency:percentile(50), latency:percentile(99)))
end
"""


@dataclass(frozen=True)
class Measured:
    """Results of a turn.

    Attributes:
        per_s: Answers with status 200 per second.
        refused_per_s: Answers with another status per second.
        broken: Broken connections and timed-out requests.
        p50_ms: Median of all latencies.
        p99_ms: Their 99th percentile.
    """

    per_s: float
    refused_per_s: float
    broken: int
    p50_ms: float
    p99_ms: float


def measure(
    wrk: str, port: int, request: Request, *, connections: int, seconds: float, scratch: Path, lua: str = ""
) -> Measured:
    """Post a request over several connections, on each as soon as its last answer arrives.

    Args:
        wrk: Path of wrk.
        port: Port of the service.
        request: The request; `lua` may change the body of each.
        connections: Number of connections.
        seconds: Duration.
        scratch: Folder for wrk's files.
        lua: Further functions of wrk's script.

    Raises:
        RuntimeError: wrk fails.
    """
    body, script = scratch / "body", scratch / "post.lua"
    body.write_bytes(request.body)
    headers = "\n".join(f'wrk.headers["{key}"] = "{value}"' for key, value in request.headers.items())
    script.write_text(_SCRIPT.format(body=body, headers=headers) + lua, encoding="utf-8")
    command = [wrk, "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", "30s", "-s", str(script)]
    address = f"http://127.0.0.1:{port}{request.path}"
    done = subprocess.run([*command, address], capture_output=True, text=True, check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith("MEASURED")), None)
    if line is None:
        raise RuntimeError(f"wrk: {done.stderr[-500:] or done.stdout[-500:]}")
    total, microseconds, refused, broken, p50, p99 = line.split()[1:]
    took_s = int(microseconds) / 1e6
    good = int(total) - int(refused)
    return Measured(good / took_s, int(refused) / took_s, int(broken), float(p50) / 1e3, float(p99) / 1e3)
