"""Request rates of API keys: one token bucket per key in this process."""

from __future__ import annotations

import time
from collections.abc import Callable

from service.errors import RateLimitedError
from service.state.keys import ApiKey


class Rates:
    """Limit the request rate of each key, with bursts of one second.

    Args:
        requests_per_s: For keys without a rate of their own; None does not limit them.
        clock: Seconds, never going back.
    """

    def __init__(self, requests_per_s: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._default = requests_per_s
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens and their time

    def spend(self, key: ApiKey) -> None:
        """Count a request of a key.

        Raises:
            RateLimitedError: It has sent too many; nothing is taken.
        """
        rate = self._default if key.requests_per_s is None else key.requests_per_s
        if rate is None:
            return
        now = self._clock()
        most = max(rate, 1.0)
        tokens, at = self._buckets.get(key.prefix, (most, now))
        tokens = min(tokens + (now - at) * rate, most)
        if tokens < 1:
            raise RateLimitedError(
                f"The API key {key.name!r} has sent too many requests.",
                expected=f"at most {rate:g} a second",
                remedy="Wait as long as Retry-After says; send several rows in one request; or ask for a higher rate.",
                retry_after_s=(1 - tokens) / rate,
            )
        self._buckets[key.prefix] = tokens - 1, now
