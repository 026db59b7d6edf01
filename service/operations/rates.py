"""Request rates of API keys, counted by all processes of the service together."""

from __future__ import annotations

import fcntl
import hashlib
import math
import mmap
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final, Protocol

from service.errors import RateLimitedError

_PLACES: Final = 4096
_NEAR: Final = 16  # places that a key may have
_VALUE_BYTES: Final = 8
_PER_S: Final = 10**9
_LONGEST: Final = 10**18  # 31 years


class Sender(Protocol):
    """A key, or a person."""

    @property
    def prefix(self) -> str:
        """What identifies it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def requests_per_s(self) -> float | None:
        """Its own rate limit; None for the settings' limit."""

    @property
    def rows_per_s(self) -> float | None:
        """Its own rate limit of predicted rows; None for the settings' limit."""


class Rates:
    """Limit the rates of requests and rows of each key, with bursts of one second.

    The generic cell rate algorithm (ITU-T I.371): a key has one number, the time at which all its requests so far would
    have been due at its rate, and a request may come a burst earlier. A number that lies in the past says no more
    than none, so a table of fixed size holds them all; where 16 busy keys share a part of it, the least busy one is
    forgotten.

    Args:
        requests_per_s: For keys without a rate of their own; None does not limit them.
        shared: Open file, initially empty, in which all processes count; None for a process that is alone.
        clock: Seconds, never going back, the same in all processes.
        rows_per_s: For the rows of keys without a rate of their own; None does not limit them.
    """

    def __init__(
        self,
        requests_per_s: float | None,
        shared: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        rows_per_s: float | None = None,
    ) -> None:
        self._default = requests_per_s
        self._rows_per_s = rows_per_s
        self._shared = shared
        self._clock = clock
        size = 2 * _VALUE_BYTES * (_PLACES + _NEAR)
        if shared is not None:
            os.ftruncate(shared, size)
        table = memoryview(mmap.mmap(-1 if shared is None else shared, size))
        self._keys, self._due = table[: size // 2].cast("Q"), table[size // 2 :].cast("Q")

    def spend(self, key: Sender) -> None:
        """Count a request of a key.

        Raises:
            RateLimitedError: It has sent too many requests, or rows; nothing is counted.
        """
        rate = self._default if key.requests_per_s is None else key.requests_per_s
        rows = self._rows_per_s if key.rows_per_s is None else key.rows_per_s
        if rate is None and rows is None:
            return
        with self._alone():
            now, late = int(self._clock() * _PER_S), 0
            if rows is not None:
                most, what = rows, "rows"
                late = self._late(self._place(_number(f"{key.prefix} rows")), most, now)
            if late <= 0 and rate is not None:
                most, what, place = rate, "requests", self._place(_number(key.prefix))
                late = self._late(place, rate, now)
                if late <= 0:
                    self._due[place] = max(self._due[place], now) + _interval(rate)
        if late > 0:
            raise RateLimitedError(
                f"The API key {key.name!r} has sent too many {what}.",
                expected=f"at most {most:g} a second",
                remedy="Wait as long as Retry-After says; send several rows in one request; or ask for a higher rate."
                if what == "requests"
                else "Wait as long as Retry-After says, or ask for a higher rate (`candor keys create --rows-rate`).",
                retry_after_s=late / _PER_S,
            )

    def charge(self, prefix: str, rows: int, rows_per_s: float | None = None) -> None:
        """Count rows that a key was answered: they delay its next requests, not this one.

        Args:
            prefix: Prefix of the key.
            rows: Number of rows.
            rows_per_s: Its own rate limit of rows; None for the settings' limit.
        """
        rate = self._rows_per_s if rows_per_s is None else rows_per_s
        if rate is None:
            return
        with self._alone():
            place = self._place(_number(f"{prefix} rows"))
            now = int(self._clock() * _PER_S)
            due = max(self._due[place], now) + rows * _interval(rate)
            self._due[place] = min(due, now + _LONGEST)

    def _late(self, place: int, rate: float, now: int) -> int:
        """Return how many ns too early a request at this rate comes, with a burst of one second; else 0 or less."""
        return max(self._due[place], now) - now - int((max(rate, 1.0) - 1) * _interval(rate))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep the other processes from counting."""
        if self._shared is not None:
            fcntl.lockf(self._shared, fcntl.LOCK_EX)  # the kernel gives it back if this process ends
        try:
            yield
        finally:
            if self._shared is not None:
                fcntl.lockf(self._shared, fcntl.LOCK_UN)

    def _place(self, number: int) -> int:
        """Return the place of a key's number in the table; it takes that of the least busy key if it has none."""
        first = number % _PLACES
        for place in range(first, first + _NEAR):
            if self._keys[place] == number:
                return place
        place = min(range(first, first + _NEAR), key=self._due.__getitem__)
        self._keys[place], self._due[place] = number, 0
        return place


def _interval(rate: float) -> int:
    """Return the time between two at a rate, in nanoseconds: sums of whole numbers have no rounding errors."""
    return math.ceil(min(_PER_S / rate, _LONGEST))


@lru_cache(maxsize=_PLACES)
def _number(prefix: str) -> int:
    return int.from_bytes(hashlib.blake2b(prefix.encode(), digest_size=_VALUE_BYTES).digest())
