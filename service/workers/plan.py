"""How many workers there are, and what each of them gets of the machine."""

from __future__ import annotations

import math
from typing import Final

from bundle.processors import available_cpus
from service.errors import ConfigurationError
from service.settings import Settings

_DIVIDED: Final = ("max_connections", "max_connections_per_address", "max_queued_rows", "log_capacity")


def workers_of(settings: Settings, provider: str, *, cpus: float | None = None) -> int:
    """Return the number of workers: with `auto` one per processor, and one on a GPU.

    Args:
        settings: Settings of the service.
        provider: Where models run: "cpu" or "cuda".
        cpus: Processors available; None asks the kernel.
    """
    if settings.workers != "auto":
        return settings.workers
    if provider == "cuda":
        return 1
    return processors_each(1, cpus=cpus)


def processors_each(workers: int, *, cpus: float | None = None) -> int:
    """Return the processors of each worker, one at least.

    Args:
        workers: Number of workers.
        cpus: Processors available; None asks the kernel.
    """
    return max(1, math.floor((available_cpus() if cpus is None else cpus) / workers))


def share_of(settings: Settings, workers: int, *, cpus: float | None = None) -> Settings:
    """Return the settings of each worker: its part of the processors and of what the service may hold.

    Each has one thread at least, so more workers than processors have more threads than these.

    Args:
        settings: Settings of the service.
        workers: Number of workers.
        cpus: Processors available; None asks the kernel.

    Raises:
        ConfigurationError: The threads that were asked for exceed the processors.
    """
    cpus = available_cpus() if cpus is None else cpus
    most = processors_each(workers, cpus=cpus)
    if settings.threads is not None and settings.threads > most:
        raise ConfigurationError(
            "There would be more threads than processors.",
            where="CANDOR_THREADS",
            found=f"{settings.threads} threads in {'one worker' if workers == 1 else f'each of {workers} workers'} on "
            f"{cpus:g} processors",
            expected=f"at most {most} thread{'s' * (most != 1)} per worker",
            remedy="Lower CANDOR_THREADS or CANDOR_WORKERS, or unset CANDOR_THREADS: the processors are then divided.",
        )
    return settings.model_copy(
        update={
            "threads": settings.threads or most,
            **{name: math.ceil(limit / workers) for name in _DIVIDED if (limit := getattr(settings, name)) is not None},
        }
    )
