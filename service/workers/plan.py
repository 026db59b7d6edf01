"""How many workers there are, and what each of them gets of the machine."""

from __future__ import annotations

import math
from typing import Final

from service.errors import ConfigurationError
from service.inference.providers import resolve_provider
from service.inference.threads import available_cpus
from service.settings import Settings

_DIVIDED: Final = ("max_connections", "max_queued_rows", "log_capacity")


def workers_of(settings: Settings, *, cpus: float | None = None) -> int:
    """Return the number of workers: with `auto` one per processor, and one on a GPU.

    Args:
        settings: Settings of the service.
        cpus: Processors available; None asks the kernel.

    Raises:
        ConfigurationError: The provider cannot be used.
    """
    if settings.workers != "auto":
        return settings.workers
    if resolve_provider(settings.provider) == "cuda":
        return 1
    return max(1, math.floor(available_cpus() if cpus is None else cpus))


def share_of(settings: Settings, workers: int, *, cpus: float | None = None) -> Settings:
    """Return the settings of each of several workers: its part of the processors and of what the service may hold.

    Args:
        settings: Settings of the service.
        workers: Number of workers.
        cpus: Processors available; None asks the kernel.

    Raises:
        ConfigurationError: The workers' threads together exceed the processors.
    """
    each = (available_cpus() if cpus is None else cpus) / workers
    most = max(1, math.floor(each))
    if settings.threads is not None and settings.threads > most:
        raise ConfigurationError(
            "The workers would have more threads than there are processors.",
            where="CANDOR_THREADS",
            found=f"{workers} workers with {settings.threads} threads each on {each * workers:g} processors",
            expected=f"at most {most} threads per worker",
            remedy="Lower CANDOR_THREADS or CANDOR_WORKERS, or unset CANDOR_THREADS: the processors are then divided.",
        )
    return settings.model_copy(
        update={
            "threads": settings.threads or max(1, math.floor(each) - 1),
            **{name: math.ceil(getattr(settings, name) / workers) for name in _DIVIDED},
        }
    )
