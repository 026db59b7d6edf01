"""Lines in the log that say how far a long work is."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_BETWEEN_LINES_S = 5.0
_LOG = logging.getLogger(__name__)


def progress(doing: str, count: int | None, things: str) -> Callable[[int], None]:
    """Return a function that logs how many things of a long work are done, every few seconds; of how many if known."""
    of = "" if count is None else f" of {count:,}"
    said = time.monotonic()

    def tell(done: int) -> None:
        nonlocal said
        if time.monotonic() - said >= _BETWEEN_LINES_S:
            said = time.monotonic()
            _LOG.info("%s: %s%s %s", doing, f"{done:,}", of, things)

    return tell
