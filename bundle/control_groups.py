"""The control groups of this process: what its container may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")
_UNLIMITED = 2**60  # version 1 has a number near 2**63 for no limit


def groups(controller: str, root: Path = _ROOT) -> Iterator[tuple[Path, int]]:
    """Yield the folders of the process's groups and of their parents, each with its version of control groups.

    Args:
        controller: "cpu" or "memory".
        root: Root of the kernel's files.
    """
    for line in text_of(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mounts, version = [root / "sys/fs/cgroup"], 2
        elif controller in controllers.split(","):
            mounts, version = [root / "sys/fs/cgroup" / controllers, root / "sys/fs/cgroup" / controller], 1
        else:
            continue
        mount = next((one for one in mounts if one.is_dir()), mounts[0])
        # A container sees its own group as the mount itself, whatever its path on the host.
        folder = mount / path.lstrip("/")
        for group in (folder, *folder.parents):
            if group.is_relative_to(mount):
                yield group, version


def free_memory(root: Path = _ROOT) -> int | None:
    """Return the bytes that the process's groups may still take, without files that the kernel can drop.

    Args:
        root: Root of the kernel's files.

    Returns:
        At least 0; None without a limit.
    """
    free = []
    for group, version in groups("memory", root):
        names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        limit, used = (text_of(group / name) for name in names)
        if limit.isdigit() and used.isdigit() and int(limit) < _UNLIMITED:
            free.append(int(limit) - int(used) + _dropped_files(group))
    return max(0, min(free)) if free else None


def _dropped_files(group: Path) -> int:
    for line in text_of(group / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def text_of(path: Path) -> str:
    """Return the text of a kernel's file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
