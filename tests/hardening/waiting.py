"""Waiting for what comes true by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.service.conftest import PATIENCE_S


def until(holds: Callable[[], Any]) -> Any:
    """Ask until the answer is yes, and return it."""
    give_up = time.monotonic() + PATIENCE_S
    while not (answer := holds()):
        assert time.monotonic() < give_up, "it never came true"
        time.sleep(0.01)
    return answer
