"""Ending runs of a model that take too long: a graph may loop as often as a value of its input says."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, TypeVar

import onnxruntime as ort
import structlog

from service.errors import RunTooLongError

logger = structlog.get_logger(__name__)

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")
_LOOKS: Final = 8  # in the time of a run: it ends at most an eighth too late


class RunLimit:
    """Ends the runs of one model, from a thread that looks at the clock: a run itself starts and stops nothing.

    ONNX Runtime ends a run between two nodes of the graph, also inside a loop. A single node runs to its end.

    Args:
        model: Name of the model, for the log and errors.
        seconds: Maximum time of a run; infinite for none.
        first_s: Maximum time of all runs together until `begin`.
    """

    def __init__(self, model: str, seconds: float, *, first_s: float) -> None:
        self._model = model
        self._seconds = seconds
        self._first_s = first_s
        self._first_until: float | None = time.monotonic() + first_s
        self._running: dict[ort.RunOptions, float] = {}
        done = threading.Event()
        weakref.finalize(self, done.set)
        every_s = min(seconds, first_s) / _LOOKS
        threading.Thread(target=_watch, args=(self._running, done, every_s), name="run limit", daemon=True).start()

    def begin(self) -> None:
        """End the time of the first runs: from now on each run has its own."""
        self._first_until = None

    def run(
        self, work: Callable[Concatenate[ort.RunOptions, _Given], _Found], *args: _Given.args, **named: _Given.kwargs
    ) -> _Found:
        """Return what `work` returns, which passes the options to each of its runs.

        Raises:
            RunTooLongError: It took longer, and was ended.
            Exception: What `work` raises.
        """
        options = ort.RunOptions()
        now, first_until = time.monotonic(), self._first_until
        self._running[options] = first_until or now + self._seconds
        try:
            return work(options, *args, **named)
        except Exception as error:
            if not options.terminate:
                raise
            taken_s = time.monotonic() - now
            logger.warning("run of a model ended", model=self._model, seconds=round(taken_s, 1))
            raise RunTooLongError(
                "The model takes too long for these inputs, so its run was ended.",
                found=f"{taken_s:.3g} s",
                expected=f"at most {self._first_s:g} s for all first runs together"
                if first_until
                else f"at most {self._seconds:g} s for a batch",
                remedy="Do not send them again unchanged. If the model is meant to take that long, raise "
                "CANDOR_RUN_TIMEOUT_S.",
            ) from error
        finally:
            del self._running[options]


def _watch(running: dict[ort.RunOptions, float], done: threading.Event, every_s: float) -> None:
    while not done.wait(every_s if every_s < math.inf else None):
        now = time.monotonic()
        for options, until in running.copy().items():
            if now > until:
                options.terminate = True
