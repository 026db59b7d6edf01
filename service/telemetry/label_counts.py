"""Counts stored labels for the metrics, on a separate thread.

A label can arrive before its prediction is written, so the prediction is looked up a few times. A label without a
prediction, or beyond the queue's capacity, counts as uncounted.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count

import numpy as np
import structlog

from calibrators import Calibrator
from candor.contract.policies import TOP
from service.errors import CandorError, StateUnavailableError
from service.serving.models import Models
from service.serving.plane import Served
from service.state.database import Database
from service.state.feedback import TARGETS_PER_QUERY, FeedbackItem
from service.state.first_labels import FirstLabels, first_labels
from service.state.revisions import RevisionStore
from service.telemetry.calibration_counts import positives
from service.telemetry.metrics import Metrics

logger = structlog.get_logger(__name__)

CAPACITY = 200_000
# Times of the look-ups, in seconds after the label arrived. Predictions are usually written at once, on other replicas
# too; the later look-ups find labels that came before their prediction or during a database outage.
LOOKED_UP_AFTER_S = (0.5, 5.0, 60.0, 600.0)
_TOGETHER_S = 0.25  # labels that come singly within this time are looked up together
_CALIBRATORS = 8


@dataclass(slots=True)
class _Waiting:
    model: str
    batches: set[int]
    targets: set[tuple[int, str]]
    came_at: float
    tries: int = 0

    def join(self, later: _Waiting) -> bool:
        """Take in labels of a later request, if both can be looked up at once; return whether they can."""
        joined = self.model == later.model and self.tries == later.tries
        joined = joined and len(self.targets) + len(later.targets) <= TARGETS_PER_QUERY
        if joined:
            self.batches |= later.batches
            self.targets |= later.targets
        return joined


class LabelCounts:
    """Counts first labels and their delay by their prediction's revision and bin.

    Args:
        database: Open state.
        models: The models of this process.
        metrics: Receives the counts.
        after_s: Times of the look-ups, in seconds after the label arrived.
        capacity: Maximum waiting labels.
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
        """Number of labels that wait for a look-up."""
        return self._waiting

    def stored(self, model: str, batch: int, items: Sequence[FeedbackItem]) -> None:
        """Queue the labels of feedback request number `batch`; never blocks the event loop."""
        targets = {
            (0, item.prediction_id) if item.prediction_id is not None else (1, str(item.reference)) for item in items
        }
        with self._changed:
            if self._closing or self._waiting + len(targets) > self._capacity:
                self._metrics.uncounted.add(model, "full", len(targets))
                return
            self._put(_Waiting(model, {batch}, targets, time.monotonic()))

    def close(self) -> None:
        """Stop; waiting labels are not counted."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _put(self, waiting: _Waiting) -> None:
        due = math.ceil((waiting.came_at + self._after_s[waiting.tries]) / _TOGETHER_S) * _TOGETHER_S
        sooner = not self._queue or due < self._queue[0][0]
        heappush(self._queue, (due, next(self._numbers), waiting))
        self._waiting += len(waiting.targets)
        if sooner:
            self._changed.notify_all()

    def _run(self) -> None:
        while (waiting := self._take()) is not None:
            try:
                unknown = self._count(waiting)
            except StateUnavailableError:
                unknown = waiting.targets
            except Exception:
                logger.exception("labels not counted", model=waiting.model, labels=len(waiting.targets))
                unknown = set()
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
                    waiting = self._pop()
                    while self._queue and self._queue[0][0] <= time.monotonic() and waiting.join(self._queue[0][2]):
                        self._pop()
                    return waiting
                self._changed.wait(pause_s)
            return None

    def _pop(self) -> _Waiting:
        waiting = heappop(self._queue)[2]
        self._waiting -= len(waiting.targets)
        return waiting

    def _count(self, waiting: _Waiting) -> set[tuple[int, str]]:
        """Count labels whose prediction is written; return the other targets."""
        with self._database.connect() as connection:
            found = first_labels(connection, waiting.model, waiting.batches, waiting.targets)
        self._metrics.labelled_after(waiting.model, found.delay_s.tolist())
        loaded = list(self._models.get(waiting.model).loaded.values())
        by_digest = {served.revision.model_digest: served for served in loaded}
        for revision in np.unique(found.revision).tolist():
            rows = np.flatnonzero(found.revision == revision)
            served = by_digest.get(str(found.digest[rows[0]]))
            if served is None:  # its label names are in a bundle that is not loaded
                self._metrics.uncounted.add(waiting.model, "other_model", len(rows))
            else:
                self._count_revision(served, revision, found, rows)
        return set(found.unknown)

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
        several = None if len(names) == 2 else calibrator.predict_proba(logits)
        for positive in classes:
            column = served.labels.index(positive)
            if several is not None:
                score = several[:, column]
            else:  # the log tells both, even of a calibrator that reads more than logits
                confidence = found.confidence[rows]
                score = np.where(found.predicted[rows] == column, confidence, 1 - confidence)
            self._metrics.calibration.labelled(model, revision, positive, score, named == positive, propensity, sought)

    def _read(self, model: str, revision: str) -> tuple[Calibrator | None, list[str]]:
        """Return a revision's calibrator and its policies' positive classes."""
        try:
            kept = self._revisions.get(model, revision)
        except StateUnavailableError:
            raise
        except CandorError as error:
            logger.warning("revision cannot be read", model=model, revision=revision, error=repr(error))
            return None, []
        return kept.calibrator, positives(solved.policy.positive for solved in kept.policies.values())
