"""CPUs available to this process, and threads per inference run.

`os.cpu_count` ignores the CPU quota of a container: with 2 of 64 CPUs, a pool of 64 threads uses up its quota at the
start of each period and then stalls. A cpuset is respected, since the kernel restricts the affinity to it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")


def inference_threads(wanted: int | None, *, root: Path = _ROOT, affinity: int | None = None) -> int:
    """Return the threads per inference run.

    Args:
        wanted: Setting of the operator. None takes all CPUs but one, which reads requests and writes answers.
        root: Root of the kernel's files.
        affinity: CPUs that the process may run on; None asks the kernel.
    """
    if wanted is not None:
        return wanted
    return max(1, math.floor(available_cpus(root=root, affinity=affinity)) - 1)


def available_cpus(*, root: Path = _ROOT, affinity: int | None = None) -> float:
    """Return the CPUs available to this process: its affinity, or the quota of its control group if that is smaller.

    Args:
        root: Root of the kernel's files.
        affinity: CPUs that the process may run on; None asks the kernel.
    """
    allowed = affinity if affinity is not None else len(os.sched_getaffinity(0))
    return min([float(allowed), *_quotas(root)])


def _quotas(root: Path) -> Iterator[float]:
    """Yield the quotas, in CPUs, of the control groups of the process and of their parents."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mounts = [root / "sys/fs/cgroup"]
            read = _quota_v2
        elif "cpu" in controllers.split(","):
            mounts = [root / "sys/fs/cgroup" / controllers, root / "sys/fs/cgroup/cpu"]
            read = _quota_v1
        else:
            continue
        mount = next((one for one in mounts if one.is_dir()), mounts[0])
        # A container sees its own group as the mount itself, whatever its path on the host.
        folder = mount / path.lstrip("/")
        for group in (folder, *folder.parents):
            if group.is_relative_to(mount):
                quota = read(group)
                if quota is not None:
                    yield quota


def _quota_v2(group: Path) -> float | None:
    quota, _, period = _read(group / "cpu.max").partition(" ")
    return _share(quota, period)


def _quota_v1(group: Path) -> float | None:
    return _share(_read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us"))


def _share(quota: str, period: str) -> float | None:
    """Return the CPUs of a quota and its period, None without a limit ("max", −1, no file)."""
    try:
        share = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return None
    return share if share > 0 else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
