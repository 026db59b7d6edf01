"""A thread that goes round the loaded models, again and again."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

import structlog

from service.errors import StateUnavailableError
from service.serving.model import Model
from service.serving.models import Models

logger = structlog.get_logger(__name__)


class Rounds(ABC):
    """Visits every loaded model, then pauses; a model that fails never keeps the others from their turn.

    Args:
        name: Name of the thread.
        models: The models to visit.
        interval_s: Pause between two rounds, in seconds.
    """

    def __init__(self, name: str, models: Models, interval_s: float) -> None:
        self._models = models
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def _visit(self, model: Model) -> bool:
        """Do what is due for a model; return whether more is due at once."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop as soon as the current visit allows."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def step(self) -> bool:
        """Visit every loaded model once.

        Returns:
            Whether more is due at once.
        """
        more = False
        for model in self._models.all():
            if self._stopping.is_set():
                return False
            try:
                more = self._visit(model) or more
            except StateUnavailableError as error:
                logger.warning("waiting for the database", thread=self._thread.name, model=model.name, error=str(error))
            except Exception:
                logger.exception("step failed", thread=self._thread.name, model=model.name)
        return more

    def _run(self) -> None:
        pause_s = self._interval_s
        while not self._stopping.wait(pause_s):
            pause_s = 0.0 if self.step() else self._interval_s
