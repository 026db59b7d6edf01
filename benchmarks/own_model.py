"""How long the tutorial `own-model.md` takes from an empty environment: installation, then each command of the page.

    python -m benchmarks.own_model

Tracked files go to a temporary folder, where the page's commands run in order on a free port. Installation needs a
package index, and its time is mostly that of the network. Beside each time stands that of the processor.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/tutorials/own-model.md"
READY_S = 60


def parts_of(page: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the page's commands, up to those with a real table."""
    story = page.partition("The same with a real table\n")[0]
    first, marker, rest = story.partition("## 1.")
    yield "installation", re.findall(r"^    (.+)$", first, re.MULTILINE)
    blocks = re.findall(r"^```console\n(.*?)^```", marker + rest, re.MULTILINE | re.DOTALL)
    yield "the page", [text for block in blocks for text in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]


def wait_until_ready(url: str) -> None:
    """Return when the service is ready; raise TimeoutError if it is not within `READY_S`."""
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(f"{url}/readyz").close()
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(f"the service is not ready after {READY_S} s")


def main() -> None:
    """Print a line for each command, and the sums of both parts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("CANDOR_", "PYTHON", "VIRTUAL_ENV"))}
    environment = kept | {"CANDOR_PORT": str(port), "CANDOR_URL": url}
    service: subprocess.Popen[bytes] | None = None
    with tempfile.TemporaryDirectory() as folder:
        files = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "x"], cwd=folder, input=files, check=True)
        try:
            for part, texts in parts_of((ROOT / PAGE).read_text(encoding="utf-8")):
                total_s = 0.0
                for text in texts:
                    local = text.rstrip().replace("http://127.0.0.1:8000", url)
                    began, before = time.monotonic(), os.times()
                    command = ["bash", "-euc", f"exec {local[:-1]}" if local.endswith("&") else local]
                    started = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
                    if local.endswith("&"):
                        service = started
                        wait_until_ready(url)
                    elif started.wait():
                        sys.exit(f"It failed: {local}")
                    took_s, after = time.monotonic() - began, os.times()
                    total_s += took_s
                    cpu_s = sum(after[2:4]) - sum(before[2:4])
                    print(f"{took_s:6.1f} s {cpu_s:6.1f} s of processor  {local.splitlines()[0][:80]}", flush=True)
                print(f"{total_s:6.1f} s in all: {part}", flush=True)
        finally:
            if service is not None:
                service.terminate()
                service.wait()


if __name__ == "__main__":
    main()
