"""Measure memory and time of a large upload and of a recalibration on it.

Starts a service on a bundle of ten labels, uploads N × 10 logits as npz, recalibrates on them, and reports anonymous
memory (RssAnon of /proc/<pid>/status, sampled every 10 ms): the service's increase, and the peaks of the children that
check the file and recalibrate. Linux only.

    python benchmarks/uploads.py --bundles var/bundles
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np

CLASSES = 10
TEMPERATURE = 1.5


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--bundles", type=Path, required=True, help="folder with a bundle of ten labels, digits")
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--port", type=int, default=8123)
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "CANDOR_BUNDLES": str(arguments.bundles),
            "CANDOR_DATABASE_URL": f"sqlite:///{folder}/state.db",
            "CANDOR_UPLOADS": f"{folder}/uploads",
        }
        command = [Path(sys.executable).parent / "candor", "serve", "--port", str(arguments.port)]
        server = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            measure(server.pid, f"http://127.0.0.1:{arguments.port}", arguments.rows)
        finally:
            server.terminate()
            server.wait()


def measure(pid: int, url: str, rows: int) -> None:
    body = labelled(rows)
    with httpx.Client(base_url=url, timeout=600) as http:
        while True:
            try:
                if http.get("/readyz").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.1)
        model = http.get("/v1/models").json()["items"][0]["model"]
        path, headers = f"/v1/models/{model}/labelled-sets", {"content-type": "application/x-npz"}
        http.post(path, content=labelled(100), headers=headers).raise_for_status()  # loads what an upload loads
        before = anonymous_mb(pid)
        print(f"{rows:,} × {CLASSES}, npz of {len(body) / 2**20:.0f} MB; the service has {before:.0f} MB before\n")
        print("| | s | increase of the service, MB | peak of the child, MB |\n|---|---|---|---|")
        with Watch(pid) as watch:
            answer = http.post(path, content=body, headers=headers)
            answer.raise_for_status()
        print(f"| upload | {watch.seconds:.1f} | {watch.peak - before:.0f} | {watch.child:.0f} |")
        source = {"labelled_set": answer.json()["id"]}
        with Watch(pid) as watch:
            asked = {"calibrator": "temperature", "source": source}
            answer = http.post("/recalibrate", json=asked, headers={"prefer": "wait=60"})
            while answer.json().get("state") in ("queued", "running"):
                answer = http.get(answer.headers.get("location") or f"/v1/jobs/{answer.json()['job']}")
                time.sleep(0.05)
        print(f"| recalibration | {watch.seconds:.1f} | {watch.peak - before:.0f} | {watch.child:.0f} |")


def labelled(rows: int) -> bytes:
    rng = np.random.default_rng(rows)
    logits = rng.normal(0, 3, (rows, CLASSES)).astype(np.float32)
    labels = np.argmax(logits / TEMPERATURE + rng.gumbel(size=logits.shape), axis=1)
    stream = io.BytesIO()
    np.savez(stream, label=labels.astype(np.str_), logits=logits)
    return stream.getvalue()


class Watch:
    """Samples the memory of a process and of its children.

    Attributes:
        peak: Peak of the process, in MB.
        child: Peak of any child, in MB.
        seconds: Duration.
    """

    def __init__(self, pid: int) -> None:
        self.peak = self.child = self.seconds = 0.0
        self._pid = pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watch:
        self._start = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._start
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        children = Path(f"/proc/{self._pid}/task")
        while not self._done.wait(0.01):
            self.peak = max(self.peak, anonymous_mb(self._pid))
            for task in children.iterdir():
                try:
                    found = [int(child) for child in (task / "children").read_text().split()]
                    self.child = max(self.child, *map(anonymous_mb, found), 0.0)
                except (OSError, TypeError):
                    continue


def anonymous_mb(pid: int) -> float:
    """Return RssAnon of a process; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon:")), 0.0)


if __name__ == "__main__":
    main()
