"""Threads for what takes long to parse or decode, so that it holds up nobody else's request."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from service.errors import OverloadedError

T = TypeVar("T")


class Decoders:
    """As many threads as there are processors, and a limit on what waits for them.

    They are threads of their own: whatever else leaves the event loop, such as reading the keys again, does not queue
    behind images.

    Args:
        max_waiting_bytes: Encoded bytes that may be in hand at once; a single body is taken however large it is.
    """

    def __init__(self, *, max_waiting_bytes: int) -> None:
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="decode")
        self._max_waiting_bytes = max_waiting_bytes
        self._waiting_bytes = 0

    async def run(self, decode: Callable[[], T], size: int) -> T:
        """Return what `decode` returns, called in one of the threads. Cancelled before its turn, it is not called.

        Args:
            decode: What to do.
            size: Bytes that it reads.

        Raises:
            OverloadedError: Too much waits already.
        """
        if self._waiting_bytes and self._waiting_bytes + size > self._max_waiting_bytes:
            raise OverloadedError(
                "Too many bodies are waiting to be decoded.",
                found=f"{self._waiting_bytes} bytes waiting",
                expected=f"at most {self._max_waiting_bytes}",
                remedy="Try again after the seconds that Retry-After names.",
            )
        self._waiting_bytes += size
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, decode)
        finally:
            self._waiting_bytes -= size
