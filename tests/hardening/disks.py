"""Real disks that are full, fail, or may only be read: for whoever may mount them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S


def _run(*command: str | Path, well: Sequence[int] = (0,)) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode not in well:
        pytest.skip(f"this machine does not let us {' '.join(map(str, command))}: {done.stderr.strip()}")


class Disk:
    """A small mounted file system.

    Args:
        path: Where it is.
        image: The file that it is in, None for one in memory.
    """

    def __init__(self, path: Path, image: Path | None = None) -> None:
        self.path = path
        self._image = image
        self._filler = path / "filler"

    def fill(self, but: int = 0) -> None:
        """Leave no room on it but so many bytes."""
        with self._filler.open("wb", buffering=0) as stream:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while stream.write(bytes(size)):
                        pass
                except OSError:
                    continue
            stream.truncate(stream.tell() - but)

    def empty(self) -> None:
        """Make room again."""
        self._filler.unlink()

    def read_only(self, value: bool = True) -> None:
        """Refuse writes to what is not open, or take them again."""
        _run("mount", "-o", f"remount,{'ro' if value else 'rw'}", self.path)

    def fail(self) -> None:
        """End as a disk does whose controller has gone: what is open is not written either."""
        _run("mount", "-o", "remount,abort", self.path)

    def mend(self) -> None:
        """Check what has failed, and mount it again."""
        assert self._image is not None
        _run("umount", self.path)
        _run("fsck.ext4", "-fy", self._image, well=(0, 1))
        _run("mount", "-o", "loop", self._image, self.path)


@contextmanager
def small_disk(folder: Path, size: str = "16m") -> Iterator[Disk]:
    """Give a disk in memory."""
    if os.getuid():
        pytest.skip("only root may mount a disk")
    folder.mkdir()
    _run("mount", "-t", "tmpfs", "-o", f"size={size}", "candor-test", folder)
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def ext4_disk(folder: Path, image: Path, size: int = 64 << 20) -> Iterator[Disk]:
    """Give a disk with ext4 on it, in a file."""
    if os.getuid():
        pytest.skip("only root may mount a disk")
    folder.mkdir()
    with image.open("wb") as stream:
        stream.truncate(size)
    _run("mkfs.ext4", "-q", image)
    _run("mount", "-o", "loop", image, folder)
    try:
        yield Disk(folder, image)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
