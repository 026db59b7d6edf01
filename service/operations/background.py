"""Work of a process beside its requests, each an endless task of the event loop."""

from __future__ import annotations

import asyncio

import structlog

from service import errors
from service.operations.access import Access
from service.runtime import Runtime
from service.settings import Settings
from service.state.access_record import EVERY_S

logger = structlog.get_logger(__name__)

_PROBE_EVERY_S = 2.0
_PRUNE_EVERY_S = 3600.0


async def follow(runtime: Runtime) -> None:
    """Follow changed pointers again and again."""
    while True:
        await asyncio.sleep(runtime.settings.poll_interval_s)
        try:
            await asyncio.to_thread(runtime.models.follow)
        except Exception:
            logger.exception("following the state failed")


async def read_keys(access: Access, settings: Settings) -> None:
    """Read the keys again and again, whatever loads meanwhile: a load cannot delay a revocation."""
    while True:
        await asyncio.sleep(settings.poll_interval_s)
        try:
            await access.read()
        except errors.StateUnavailableError as error:
            logger.warning("keys not read again", error=str(error))
        except Exception:
            logger.exception("reading the keys failed")


async def record(runtime: Runtime) -> None:
    """Write to the audit log which keys predicted, and what was refused."""
    while True:
        for _ in range(int(EVERY_S)):
            await asyncio.sleep(1.0)
            if runtime.access_record.full:
                break
        runtime.access_record.take()
        try:
            await asyncio.to_thread(runtime.access_record.write)
        except Exception:
            logger.exception("writing accesses failed")


async def probe(runtime: Runtime) -> None:
    """Find out again and again whether the state can be written."""
    while True:
        await asyncio.sleep(max(_PROBE_EVERY_S, runtime.settings.poll_interval_s))
        try:
            runtime.models.unwritable = await asyncio.to_thread(runtime.database.unwritable)
        except Exception:
            logger.exception("writing to the state failed")


async def prune(runtime: Runtime) -> None:
    """Delete old rows every hour, where anything ever is to be deleted."""
    while runtime.retention.needed:
        try:
            await asyncio.to_thread(runtime.retention.run)
        except errors.StateUnavailableError as error:
            logger.warning("old rows not deleted", error=str(error))
        except Exception:
            logger.exception("deleting old rows failed")
        await asyncio.sleep(_PRUNE_EVERY_S)
