"""Threads for slow parsing and decoding, which must not block the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from service.errors import OverloadedError

T = TypeVar("T")


class Decoders:
    """Threads with a limit on waiting work.

    The pool is separate from the default one, so that other work off the event loop does not queue behind images.

    Args:
        threads: Number of threads.
        max_waiting_bytes: Maximum bytes in progress or waiting. A single body is always accepted.
    """

    def __init__(self, threads: int, *, max_waiting_bytes: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="decode")
        self._max_waiting_bytes = max_waiting_bytes
        self._waiting_bytes = 0

    async def run(self, decode: Callable[[], T], size: int) -> T:
        """Call `decode` in a thread and return its result. A call cancelled before its turn does not run.

        Args:
            decode: Function to call.
            size: Bytes that it reads.

        Raises:
            OverloadedError: Too many bytes are waiting.
        """
        if self._waiting_bytes and self._waiting_bytes + size > self._max_waiting_bytes:
            raise OverloadedError(
                "Too many request bodies are waiting to be decoded.",
                found=f"{self._waiting_bytes} bytes waiting",
                expected=f"at most {self._max_waiting_bytes}",
                remedy="Retry after the number of seconds in Retry-After.",
            )
        return await self.finish(decode, size)

    async def finish(self, work: Callable[[], T], size: int) -> T:
        """Call `work` in a thread for a prediction that has been made: it counts, but it is never refused.

        Args:
            work: Function to call.
            size: Bytes that it reads or writes.
        """
        self._waiting_bytes += size
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting_bytes -= size
