"""Measure the peak anonymous memory of fits to a large memory map.

Writes a float32 file of N × K logits to a folder (8 GB by default: 2,000,000 × 1,000), fits each calibrator to it in a
separate process, and reports the peak anonymous memory of that process (RssAnon of /proc/self/status, sampled every
5 ms) and the duration. The file is removed afterwards.

    python benchmarks/memory.py --folder /var/tmp
    python benchmarks/memory.py --folder /var/tmp --only temperature,vector --rows 200000

Rows repeat a block of 4,096 random ones, so that the file is made as fast as the disk writes. Linux only.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
GOAL_MB = 256
BLOCK = 4_096
TEMPERATURE = 1.5


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, required=True, help="folder for the file; 8 GB must fit")
    options.add_argument("--rows", type=int, default=2_000_000)
    options.add_argument("--classes", type=int, default=1_000)
    options.add_argument("--only", help="comma-separated names of calibrators")
    options.add_argument("--seconds", type=int, default=1_800, help="maximum length of a fit, s")
    options.add_argument("--fit", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.fit:
        print(fit(arguments.fit[0], Path(arguments.fit[1])))
        return
    from calibrators import CALIBRATORS

    names = arguments.only.split(",") if arguments.only else list(CALIBRATORS)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        write_data(Path(folder), arguments.rows, arguments.classes)
        print(f"{arguments.rows:,} × {arguments.classes:,}; goal: under {GOAL_MB} MB at the peak", flush=True)
        print("| calibrator | anonymous MB at the peak | before the fit | s |\n|---|---|---|---|", flush=True)
        for name in names:
            command = [sys.executable, __file__, "--folder", folder, "--fit", name, folder]
            try:
                done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=arguments.seconds)
            except subprocess.TimeoutExpired:
                print(f"| {name} | over {arguments.seconds} s | | |", flush=True)
                continue
            answer = done.stdout.strip() or (done.stderr.strip().splitlines() or ["?"])[-1][:100]
            print(f"| {name} | {answer} |", flush=True)


def write_data(folder: Path, rows: int, classes: int) -> None:
    """Write logits (float32) and labels (uint16) from softmax(logits / 1.5): 4,096 rows, repeated."""
    rng = np.random.default_rng(0)
    block = rng.normal(0, 3, (BLOCK, classes)).astype(np.float32)
    truth = np.argmax(block / TEMPERATURE + rng.gumbel(size=block.shape), axis=1).astype(np.uint16)
    labels = np.resize(truth, rows)
    np.save(folder / "labels.npy", labels)
    logits = np.lib.format.open_memmap(folder / "logits.npy", mode="w+", dtype=np.float32, shape=(rows, classes))
    for start in range(0, rows, BLOCK):
        logits[start : start + BLOCK] = block[: min(BLOCK, rows - start)]
    logits.flush()


def fit(name: str, folder: Path) -> str:
    """In a process of its own: fits, and says what it took."""
    from calibrators import CALIBRATORS

    logits = np.load(folder / "logits.npy", mmap_mode="r")
    labels = np.load(folder / "labels.npy")
    # Loads what a fit loads, so that only data count.
    CALIBRATORS[name]().fit(np.eye(3), np.arange(3))
    before = anonymous_mb()
    seen, done = [before], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            seen.append(anonymous_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    try:
        CALIBRATORS[name]().fit(logits, labels)
    finally:
        done.set()
        watcher.join()
    return f"{max(seen):.0f} | {before:.0f} | {time.perf_counter() - start:.0f}"


def anonymous_mb() -> float:
    """RssAnon of this process."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise OSError("/proc/self/status has no RssAnon")


if __name__ == "__main__":
    main()
