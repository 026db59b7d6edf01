"""CPUs available to this process, for training and service alike.

`os.cpu_count` ignores the CPU quota of a container: with 2 of 64 CPUs, a pool of 64 threads uses up its quota at the
start of each period and then stalls. A cpuset is respected, since the kernel restricts the affinity to it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bundle.control_groups import groups, text_of

_ROOT = Path("/")
_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def available_cpus(*, root: Path = _ROOT, affinity: int | None = None) -> float:
    """Return the CPUs available to this process: its affinity, or the quota of its control group if that is smaller.

    Args:
        root: Root of the kernel's files.
        affinity: CPUs that the process may run on; None asks the kernel.
    """
    allowed = affinity if affinity is not None else len(os.sched_getaffinity(0))
    return min([float(allowed), *_quotas(root)])


def whole_cpus(*, root: Path = _ROOT, affinity: int | None = None) -> int:
    """Return `available_cpus` rounded down, one at least: a number of threads or processes."""
    return max(1, math.floor(available_cpus(root=root, affinity=affinity)))


def thread_limits(threads: int) -> dict[str, str]:
    """Return the environment of a process whose numerical libraries use at most this many threads.

    They read it at import: set it before the process starts.
    """
    return dict.fromkeys(_THREADS, str(threads))


def _quotas(root: Path) -> Iterator[float]:
    """Yield the quotas, in CPUs, of the control groups of the process and of their parents."""
    for group, version in groups("cpu", root):
        quota = _quota_v2(group) if version == 2 else _quota_v1(group)
        if quota is not None:
            yield quota


def _quota_v2(group: Path) -> float | None:
    quota, _, period = text_of(group / "cpu.max").partition(" ")
    return _share(quota, period)


def _quota_v1(group: Path) -> float | None:
    return _share(text_of(group / "cpu.cfs_quota_us"), text_of(group / "cpu.cfs_period_us"))


def _share(quota: str, period: str) -> float | None:
    """Return the CPUs of a quota and its period, None without a limit ("max", −1, no file)."""
    try:
        share = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return None
    return share if share > 0 else None
