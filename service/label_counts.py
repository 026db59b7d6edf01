"""Labels on their way into the metrics: looked up after they are stored, on a thread of their own.

A label's prediction may not be written yet when the label comes, so it is looked up again a few times before it is
given up. What waits is bounded; what finds no room, or no prediction, is counted as uncounted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count

import numpy as np
import structlog

from calibrators import CalibrationError, Calibrator
from calibrators import from_dict as calibrator_from_dict
from service.calibration_counts import positives
from service.decisions.policy import TOP
from service.errors import CandorError, StateUnavailableError
from service.metrics import Metrics
from service.models import Models
from service.plane import Served
from service.state.database import Database
from service.state.feedback import FeedbackItem
from service.state.first_labels import FirstLabels, first_labels
from service.state.revisions import RevisionStore

logger = structlog.get_logger(__name__)

CAPACITY = 200_000
# When a label is looked up, in seconds after it came: predictions are written within a moment, on other replicas too;
# later ones are those that came before their prediction, or while the database did not answer.
LOOKED_UP_AFTER_S = (0.5, 5.0, 60.0, 600.0)
_CALIBRATORS = 8


@dataclass(slots=True)
class _Waiting:
    model: str
    batch: int
    targets: list[tuple[int, str]]
    came_at: float
    tries: int = 0


class LabelCounts:
    """Counts first labels by their prediction's revision and bin, and how long they took.

    Args:
        database: Open state.
        models: The models of this process.
        metrics: Where labels are counted.
        after_s: When a label is looked up, in seconds after it came.
        capacity: Labels that may wait.
    """

    def __init__(
        self,
        database: Database,
        models: Models,
        metrics: Metrics,
        *,
        after_s: Sequence[float] = LOOKED_UP_AFTER_S,
        capacity: int = CAPACITY,
    ) -> None:
        self._database = database
        self._revisions = RevisionStore(database)
        self._models = models
        self._metrics = metrics
        self._after_s = after_s
        self._capacity = capacity
        self._queue: list[tuple[float, int, _Waiting]] = []
        self._numbers = count()
        self._waiting = 0
        self._closing = False
        self._changed = threading.Condition()
        self._document = lru_cache(_CALIBRATORS)(self._read)
        self._thread = threading.Thread(target=self._run, name="label-counts", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Labels that wait to be looked up."""
        return self._waiting

    def stored(self, model: str, batch: int, items: Sequence[FeedbackItem]) -> None:
        """Take the labels of feedback request number `batch`, and return at once; on the event loop."""
        targets = {
            (0, item.prediction_id) if item.prediction_id is not None else (1, str(item.reference)) for item in items
        }
        with self._changed:
            if self._closing or self._waiting + len(targets) > self._capacity:
                self._metrics.uncounted.add(model, "full", len(targets))
                return
            self._put(_Waiting(model, batch, sorted(targets), time.monotonic()))

    def close(self) -> None:
        """Count nothing more: these counters end with the process."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _put(self, waiting: _Waiting) -> None:
        due = waiting.came_at + self._after_s[waiting.tries]
        heappush(self._queue, (due, next(self._numbers), waiting))
        self._waiting += len(waiting.targets)
        self._changed.notify_all()

    def _run(self) -> None:
        while (waiting := self._take()) is not None:
            try:
                unknown = self._count(waiting)
            except StateUnavailableError:
                unknown = waiting.targets
            except Exception:
                logger.exception("labels not counted", model=waiting.model, labels=len(waiting.targets))
                unknown = []
            waiting.targets, waiting.tries = unknown, waiting.tries + 1
            with self._changed:
                if unknown and waiting.tries < len(self._after_s):
                    self._put(waiting)
                elif unknown:
                    self._metrics.uncounted.add(waiting.model, "unknown", len(unknown))

    def _take(self) -> _Waiting | None:
        with self._changed:
            while not self._closing:
                pause_s = self._queue[0][0] - time.monotonic() if self._queue else None
                if pause_s is not None and pause_s <= 0:
                    waiting = heappop(self._queue)[2]
                    self._waiting -= len(waiting.targets)
                    return waiting
                self._changed.wait(pause_s)
            return None

    def _count(self, waiting: _Waiting) -> list[tuple[int, str]]:
        """Count what has a prediction; return the targets that have none yet."""
        with self._database.connect() as connection:
            found = first_labels(connection, waiting.model, waiting.batch, waiting.targets)
        self._metrics.labelled_after(waiting.model, found.delay_s.tolist())
        loaded = list(self._models.get(waiting.model).loaded.values())
        by_digest = {served.revision.model_digest: served for served in loaded}
        for revision in np.unique(found.revision).tolist():
            rows = np.flatnonzero(found.revision == revision)
            served = by_digest.get(str(found.digest[rows[0]]))
            if served is None:  # the names of its labels are in a bundle that is not loaded
                self._metrics.uncounted.add(waiting.model, "other_model", len(rows))
            else:
                self._count_revision(served, revision, found, rows)
        return found.unknown

    def _count_revision(self, served: Served, revision: str, found: FirstLabels, rows: np.ndarray) -> None:
        names = np.array(served.labels, np.str_)
        model = served.revision.model
        named, propensity, sought = found.named[rows], found.propensity[rows], found.sought[rows]
        right = names[found.predicted[rows]] == named
        self._metrics.calibration.labelled(model, revision, TOP, found.confidence[rows], right, propensity, sought)
        calibrator, classes = self._document(model, revision)
        if calibrator is None or not classes:
            return
        logits = np.frombuffer(b"".join(found.logits[row] for row in rows), "<f4").reshape(len(rows), len(names))
        probabilities = calibrator.predict_proba(logits)
        for positive in classes:
            score = probabilities[:, served.labels.index(positive)]
            self._metrics.calibration.labelled(model, revision, positive, score, named == positive, propensity, sought)

    def _read(self, model: str, revision: str) -> tuple[Calibrator | None, list[str]]:
        """Return a revision's calibrator, and the classes that its policies call positive."""
        try:
            kept = self._revisions.get(model, revision)
            classes = positives(str(document["policy"]["positive"]) for document in kept.policies.values())
            return calibrator_from_dict(kept.calibrator), classes
        except StateUnavailableError:
            raise
        except (CandorError, CalibrationError, LookupError, TypeError, ValueError) as error:
            logger.warning("revision cannot be read", model=model, revision=revision, error=repr(error))
            return None, []
