"""How many cases wait, read from the state every few seconds at most, and less often where counting takes long."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Final

from service.errors import StateUnavailableError
from service.state.cases import CaseStore, Counts

_KEPT_S: Final = 10.0
_SHARE: Final = 0.01  # of the time that counting may take


class CaseCounts:
    """Counts of the waiting cases by model; while the database does not answer, the last ones.

    Args:
        store: The cases.
        kept_s: Minimum seconds for which counts are kept.
    """

    def __init__(self, store: CaseStore, *, kept_s: float = _KEPT_S) -> None:
        self._store = store
        self._kept_s = kept_s
        self._counts: dict[str, Counts] = {}
        self._stale_at = 0.0
        self._reading = threading.Lock()

    def of(self, model: str) -> Counts:
        """Return the counts of a model."""
        with self._reading:
            started = time.monotonic()
            if started >= self._stale_at:
                with contextlib.suppress(StateUnavailableError):
                    self._counts = self._store.counts()
                now = time.monotonic()
                self._stale_at = now + max(self._kept_s, (now - started) / _SHARE)
            return self._counts.get(model, Counts())
