"""Measure the peak memory of training on images that stay in their files, against the size of the data.

Writes JPEG images of 128 × 128 pixels, 512 different ones over and over, as a folder, as WebDataset tar files and as
Parquet files; trains LeNet-5 on them for one epoch, each in a process of its own, and reports the peak resident memory
of that process (`ru_maxrss`) and the images per second of the epoch. Everything is removed afterwards.

    python -m benchmarks.streaming --folder /var/tmp
    python -m benchmarks.streaming --folder /var/tmp --images 2000 64000

Linux only. Parquet needs pyarrow.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

SIDE, SHARD, DIFFERENT = 128, 2_000, 512
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "folder, in memory": ("image_folder", {"folder": "folder"}),
    "folder, lazy": ("image_folder", {"folder": "folder", "lazy": True}),
    "WebDataset": ("image_shards", {"files": "shards/*.tar"}),
    "Parquet": ("image_shards", {"files": "shards/*.parquet"}),
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, required=True, help="folder for the images")
    options.add_argument("--images", type=int, nargs="+", default=[4_000, 32_000])
    options.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS))
    options.add_argument("--run", nargs=2, metavar=("KIND", "FOLDER"), help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.run:
        print(json.dumps(run(arguments.run[0], Path(arguments.run[1]))))
        return
    print("| images | decoded, MB | | peak memory, MB | images/s |\n|---|---|---|---|---|", flush=True)
    for count in arguments.images:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            write(Path(folder), count)
            for kind in arguments.only:
                peak, speed = measured(kind, Path(folder))
                print(
                    f"| {count:,} | {count * SIDE**2 * 3 / 1e6:,.0f} | {kind} | {peak:,.0f} | {speed:,.0f} |",
                    flush=True,
                )


def measured(kind: str, folder: Path) -> tuple[float, float]:
    """Return the peak memory in MB and the images per second of a run in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.streaming", "--folder", str(folder), "--run", kind, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, speed = json.loads(done.stdout)
    return peak, speed


def run(kind: str, folder: Path) -> tuple[float, float]:
    """Train for an epoch; return the peak memory of this process in MB and the images per second."""
    from training import TrainConfig
    from training.trained import learn

    name, settings = KINDS[kind]
    config = TrainConfig(
        dataset=name,
        data=folder,
        data_settings=settings,
        model="lenet5",
        epochs=1,
        batch_size=128,
        validation_rows=500,
        reference_rows=500,
    )
    trained = learn(config)
    speed = len(trained.parts.train) / trained.outcome.epochs[0].seconds
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, speed


def write(folder: Path, count: int) -> None:
    """Write the images in all forms; half of them are brighter, the second class."""
    from PIL import Image

    random, different = np.random.default_rng(0), []
    for place in range(min(DIFFERENT, count)):
        coarse = random.integers(0, 128, (16, 16, 3)).astype(np.uint8) + np.uint8(100 * (place % 2))
        stream = io.BytesIO()
        Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(stream, "JPEG", quality=90)
        different.append(stream.getvalue())
    for place in range(2):
        (folder / "folder" / str(place)).mkdir(parents=True)
    (folder / "shards").mkdir()
    for start in range(0, count, SHARD):
        rows = range(start, min(start + SHARD, count))
        for row in rows:
            (folder / "folder" / str(row % 2) / f"{row:08}.jpg").write_bytes(different[row % len(different)])
        with tarfile.open(folder / "shards" / f"{start:08}.tar", "w") as archive:
            for row in rows:
                for ending, data in (("jpg", different[row % len(different)]), ("cls", str(row % 2).encode())):
                    member = tarfile.TarInfo(f"{row:08}.{ending}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
        _write_parquet(folder / "shards" / f"{start:08}.parquet", rows, different)


def _write_parquet(path: Path, rows: range, different: list[bytes]) -> None:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        return
    images = pa.array([different[row % len(different)] for row in rows], pa.binary())
    table = pa.table({"image": images, "label": [row % 2 for row in rows]})
    parquet.write_table(table, path, row_group_size=500, use_dictionary=False)


if __name__ == "__main__":
    main()
