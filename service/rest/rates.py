"""How many requests a key may send: a token bucket for each, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable

from service.errors import RateLimitedError
from service.state.keys import ApiKey


class Rates:
    """Lets a key send a second's worth of requests at once, and after that as many as its rate refills.

    Args:
        requests_per_s: For keys without a rate of their own; None does not limit them.
        clock: Seconds, never going back.
    """

    def __init__(self, requests_per_s: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._default = requests_per_s
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, and when there were so many

    def spend(self, key: ApiKey) -> None:
        """Take a request of a key's.

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
                f"The API key {key.name!r} sends too many requests.",
                expected=f"at most {rate:g} a second",
                remedy="Wait as long as Retry-After says; send several rows in one request; or ask for a higher rate.",
                retry_after_s=(1 - tokens) / rate,
            )
        self._buckets[key.prefix] = tokens - 1, now
