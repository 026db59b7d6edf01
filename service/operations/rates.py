"""Request rates of API keys, counted by all processes of the service together."""

from __future__ import annotations

import fcntl
import hashlib
import math
import mmap
import os
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from service.errors import RateLimitedError
from service.state.keys import ApiKey

_PLACES: Final = 4096
_NEAR: Final = 16  # places that a key may have
_VALUE_BYTES: Final = 8
_PER_S: Final = 10**9
_LONGEST: Final = 10**18  # 31 years


class Rates:
    """Limit the request rate of each key, with bursts of one second.

    The generic cell rate algorithm (ITU-T I.371): a key has one number, the time at which all its requests so far would
    have been due at its rate, and a request may come a burst earlier. A number that lies in the past says no more
    than none, so a table of fixed size holds them all; where 16 busy keys share a part of it, the least busy one is
    forgotten.

    Args:
        requests_per_s: For keys without a rate of their own; None does not limit them.
        shared: Open file, initially empty, in which all processes count; None for a process that is alone.
        clock: Seconds, never going back, the same in all processes.
    """

    def __init__(
        self, requests_per_s: float | None, shared: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._default = requests_per_s
        self._shared = shared
        self._clock = clock
        size = 2 * _VALUE_BYTES * (_PLACES + _NEAR)
        if shared is not None:
            os.ftruncate(shared, size)
        table = memoryview(mmap.mmap(-1 if shared is None else shared, size))
        self._keys, self._due = table[: size // 2].cast("Q"), table[size // 2 :].cast("Q")

    def spend(self, key: ApiKey) -> None:
        """Count a request of a key.

        Raises:
            RateLimitedError: It has sent too many; nothing is counted.
        """
        rate = self._default if key.requests_per_s is None else key.requests_per_s
        if rate is None:
            return
        # In nanoseconds: sums of whole numbers have no rounding errors.
        interval = min(math.ceil(_PER_S / rate), _LONGEST)
        burst = int((max(rate, 1.0) - 1) * interval)
        if self._shared is not None:
            fcntl.lockf(self._shared, fcntl.LOCK_EX)  # the kernel gives it back if this process ends
        try:
            now = int(self._clock() * _PER_S)
            place = self._place(_number(key.prefix))
            due = max(self._due[place], now)
            if due - now <= burst:
                self._due[place] = due + interval
                return
        finally:
            if self._shared is not None:
                fcntl.lockf(self._shared, fcntl.LOCK_UN)
        raise RateLimitedError(
            f"The API key {key.name!r} has sent too many requests.",
            expected=f"at most {rate:g} a second",
            remedy="Wait as long as Retry-After says; send several rows in one request; or ask for a higher rate.",
            retry_after_s=(due - now - burst) / _PER_S,
        )

    def _place(self, number: int) -> int:
        """Return the place of a key's number in the table; it takes that of the least busy key if it has none."""
        first = number % _PLACES
        for place in range(first, first + _NEAR):
            if self._keys[place] == number:
                return place
        place = min(range(first, first + _NEAR), key=self._due.__getitem__)
        self._keys[place], self._due[place] = number, 0
        return place


@lru_cache(maxsize=_PLACES)
def _number(prefix: str) -> int:
    return int.from_bytes(hashlib.blake2b(prefix.encode(), digest_size=_VALUE_BYTES).digest())
