"""Let calls that arrive together run as one batch.

gRPC's server accepts one call after the other, each after a visit to another thread, so that even of many calls at
once each would find an empty queue and run alone. Under load, calls therefore wait a moment for each other. What such
a wait gathers shows whether there is load; without load, a call waits now and then to find out.
"""

from __future__ import annotations

import asyncio
from typing import Final

_HOLD_S: Final = 0.003
_MANY: Final = 4  # calls that save more by a common run than the wait costs them
_SMOOTHING: Final = 0.25
_PROBE_EVERY: Final = 256  # calls without load


class Gathering:
    """Holds calls while there is load; for one event loop."""

    def __init__(self) -> None:
        self._held: list[asyncio.Future[None]] = []
        self._usual = 0.0  # calls that recent waits gathered
        self._calls = 0

    async def together(self) -> None:
        """Return at once without load; under load, together with the calls of the next few milliseconds."""
        self._calls += 1
        if not self._held:
            if self._usual < _MANY and self._calls % _PROBE_EVERY:
                return
            asyncio.get_running_loop().call_later(_HOLD_S, self._release)
        held = asyncio.get_running_loop().create_future()
        self._held.append(held)
        await held

    def _release(self) -> None:
        held, self._held = self._held, []
        self._usual += (_SMOOTHING if self._usual >= _MANY else 1.0) * (len(held) - self._usual)
        for one in held:
            if not one.done():  # its client may have gone
                one.set_result(None)
