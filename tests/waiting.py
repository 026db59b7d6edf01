"""Wait for what comes true by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 600.0  # nothing takes that long, on a busy machine either; it turns a hang into a failure


def until(holds: Callable[[], Any], what: Any = "it never came true") -> Any:
    """Ask until the answer is yes, and return it.

    Args:
        holds: The question.
        what: The message of the failure, or a function that makes it then.
    """
    give_up = time.monotonic() + PATIENCE_S
    while not (answer := holds()):
        assert time.monotonic() < give_up, what() if callable(what) else what
        time.sleep(0.01)
    return answer
