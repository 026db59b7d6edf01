"""Replace what differs between runs: ids, times, durations. Everything else stays as the service sent it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from service.ids import is_prediction_id

_ID = re.compile(r"(?<![0-9A-Za-z])[0-7][0-9A-HJKMNP-TV-Z]{25}(?![0-9A-Za-z])")
_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")
_BEGAN = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
_SHOWN_ID = "01K90FZ3V8Q2W4X6Y8A0C2E{:03d}"
# By name of the field; counts of nanoseconds and milliseconds are of one machine.
_MEASURED = {"uptime_s": 12.5, "stale_for_s": 0.2, "last_inference": 1_793_178_000_000}
_NANOSECONDS = 250_000
_DIGITS = 4


class Steady:
    """Numbers ids and times in the order in which they appear.

    Args:
        texts: All commands and answers.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        ids: dict[str, str] = {}
        times: set[str] = set()
        for text in texts:
            for found in _ID.findall(text):
                if is_prediction_id(found):
                    ids.setdefault(found, _SHOWN_ID.format(len(ids) + 1))
            times.update(_TIME.findall(text))
        self._ids = ids
        self._times = {
            found: f"{(_BEGAN + timedelta(seconds=place)).isoformat(timespec='microseconds')[:-6]}Z"
            for place, found in enumerate(sorted(times))
        }

    def text(self, text: str) -> str:
        """Return a text with its ids and times replaced."""
        text = _ID.sub(lambda found: self._ids.get(found[0], found[0]), text)
        return _TIME.sub(lambda found: self._times.get(found[0], found[0]), text)

    def document(self, node: Any, key: str = "") -> Any:
        """Return a JSON document with its ids, times and durations replaced, and numbers to four digits."""
        if isinstance(node, dict):
            return {self.text(name): self.document(child, name) for name, child in node.items()}
        if isinstance(node, list):
            return [self.document(child, key) for child in node]
        if isinstance(node, str):
            return self.text(node)
        if key in _MEASURED and node:
            return _MEASURED[key]
        if key == "ns" and node:
            return _NANOSECONDS
        if isinstance(node, float) and math.isfinite(node):
            return float(f"{node:.{_DIGITS}g}")
        return node
