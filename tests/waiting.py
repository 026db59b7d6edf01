"""Wait for what comes true by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

# For services whose refits tests wait for: tests keep every processor busy, and `idle` refits would wait for their end.
PROMPT_REFITS = {"CANDOR_REFIT_CPU": "low"}
PATIENCE_S = 600.0  # nothing takes that long, on a busy machine either; it turns a hang into a failure
WAIT = {"prefer": f"wait={PATIENCE_S:.0f}"}  # headers of a request that waits for its job


def until(holds: Callable[[], Any], what: Any = "it never came true") -> Any:
    """Ask until the answer is yes, and return it; the longer it takes, the less often, since questions cost time too.

    Args:
        holds: The question.
        what: The message of the failure, or a function that makes it then.
    """
    began = time.monotonic()
    while not (answer := holds()):
        waited_s = time.monotonic() - began
        assert waited_s < PATIENCE_S, what() if callable(what) else what
        time.sleep(min(max(0.01, waited_s / 10), 0.1))
    return answer
