"""One unkindness to a running service, while another client predicts, alone before and after."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from typing import Any, TypeVar

from tests.hardening.bystander import predicting
from tests.hardening.running import Running, serving

_Found = TypeVar("_Found")


def trial(disturb: Callable[[Running], _Found], idle_s: float) -> tuple[_Found, dict[str, Any], bool]:
    """Return what `disturb` found, what came of the other client and the service, and whether they are unharmed.

    Args:
        disturb: What is unkind to the service.
        idle_s: Seconds of the other client alone, before and after.
    """
    with serving() as running, predicting(running.url) as bystander:
        marks = [time.monotonic()]
        time.sleep(idle_s)
        marks.append(time.monotonic())
        found = disturb(running)
        marks.append(time.monotonic())
        time.sleep(idle_s)
        marks.append(time.monotonic())
        ended, complaints = running.popen.poll() is not None, running.complaints()
    phases = zip(("before", "during", "after"), marks, marks[1:], strict=False)
    document = {
        "client": {name: bystander.between(first, last) for name, first, last in phases},
        "client_refused": bystander.failures[:5],
        "ended": ended,
        "errors_in_log": complaints[:5],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
    return found, document, not (bystander.failures or ended or complaints)
