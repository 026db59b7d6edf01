"""The monitors of a running service: a thread that feeds them, on one replica at a time, and what all replicas see.

It looks again and again which predictions have become old enough that their labels had the time to come, and lets each
monitor count them, in order of prediction and each row once: what a monitor has counted is written in one transaction
with how far it has counted. A lock in the state keeps the other replicas off a model meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from service.errors import StateUnavailableError
from service.models import Model, Models
from service.monitoring.estimates import Observed, from_labels, without_labels
from service.plane import Served
from service.settings import Settings
from service.state.cohorts import cohort_end
from service.state.database import Database, now_us
from service.state.monitors import Counted, MonitorStore, StoredEstimates, StoredMonitor
from service.state.recent import RecentRows, load_recent_rows, rows_at_once
from service.state.window import Window
from service.times import iso
from service.watching import Subject, count, subjects

logger = structlog.get_logger(__name__)

_MOST_ROWS, _LOGITS_BYTES = 20_000, 16 << 20  # of a cohort, and of what is estimated from
_PATIENCE_S = 10.0  # with one model, before the others have their turn
_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Status:
    """What is known of a model: monitors that run and those that have voided a certificate, oldest first; estimates."""

    monitors: Sequence[StoredMonitor]
    estimates: StoredEstimates | None


class Monitors:
    """Feeds the monitors of all models, and says what they have found.

    Args:
        settings: Settings of the service.
        database: Open state.
        models: The models that are watched.
        clock: Gives the time, microseconds since the epoch, UTC.
    """

    def __init__(
        self, settings: Settings, database: Database, models: Models, *, clock: Callable[[], int] = now_us
    ) -> None:
        self.clock = clock
        self._settings = settings
        self._database = database
        self._store = MonitorStore(database)
        self._models = models
        self._seen: dict[str, Status] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monitors", daemon=True)

    def start(self) -> None:
        """Feed the monitors from now on."""
        self._thread.start()

    def close(self) -> None:
        """Stop when the cohort in hand is counted."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def step(self) -> bool:
        """Let every model's monitors count what is due, and look at what has been found here or elsewhere.

        Returns:
            Whether more is due than was counted.
        """
        more = False
        for model in self._models.all():
            if self._stopping.is_set():
                return False
            try:
                with self._database.try_lock(f"monitors/{model.name}") as mine:
                    more = (mine and self._step(model)) or more
                self._seen[model.name] = self.status(model.name)
            except StateUnavailableError as error:
                logger.warning("monitors wait for the state", model=model.name, error=str(error))
            except Exception:
                logger.exception("monitors cannot go on", model=model.name)
        return more

    def status(self, model: str) -> Status:
        """Return what is known of a model.

        Raises:
            StateUnavailableError: The database does not answer.
        """
        return Status(self._store.of(model), self._store.estimates(model))

    def last_alarm(self, model: str) -> int | None:
        """Return when an alarm of a model went off last, in microseconds since the epoch; None where none ever has.

        Raises:
            StateUnavailableError: The database does not answer.
        """
        return self._store.last_alarm(model)

    def seen(self, model: str) -> Status | None:
        """Return what was known of a model when this replica looked last, None before."""
        return self._seen.get(model)

    def _run(self) -> None:
        pause_s = self._settings.monitor_interval_s
        while not self._stopping.wait(pause_s):
            pause_s = 0.0 if self.step() else self._settings.monitor_interval_s

    def _step(self, model: Model) -> bool:
        # In this order: a swap in between makes the epoch stale.
        epoch, served = model.pointer.epoch, model.plane.served
        if served is None:
            return False
        wanted = subjects(served, self._settings.monitor_tolerance)
        running = self._store.follow(
            model.name,
            epoch,
            served.revision.id,
            [(subject.watched, subject.document) for subject in wanted],
            self._settings.monitor_alpha,
        )
        if running is None:  # the pointer has moved, and this replica is about to follow it
            return False
        now = self.clock()
        mature = now - int(self._settings.monitor_maturity_s * _US)
        more = self._feed(served, wanted, running, mature)
        known = self._store.estimates(model.name)
        if known is None or known.at + self._settings.monitor_interval_s * _US / 2 <= now:
            self._store.estimated(model.name, self._estimate(served, now, mature))
        return more

    def _feed(self, served: Served, wanted: Sequence[Subject], running: Sequence[StoredMonitor], mature: int) -> bool:
        """Let the monitors count all predictions before `mature`; return whether some are left when the time is up."""
        monitors = {one.id: one for one in running}
        until_s = time.monotonic() + _PATIENCE_S
        while not self._stopping.is_set():
            behind = [one for one in monitors.values() if one.fired_at is None and one.through < mature]
            if not behind:
                return False
            if time.monotonic() > until_s:
                return True
            began_s = time.monotonic()
            counted = self._cohort(served, wanted, behind, mature)
            if not self._store.count(served.revision.model, counted):
                return True  # the lock went with its connection, and another replica goes on
            monitors |= {one.before.id: _after(one) for one in counted}
            for one in counted:
                if one.fired_at is not None:
                    logger.warning("alarm", model=served.revision.model, monitor=one.before.name)
            self._stopping.wait(time.monotonic() - began_s)  # half of the time is for predictions
        return False

    def _cohort(
        self, served: Served, wanted: Sequence[Subject], behind: Sequence[StoredMonitor], mature: int
    ) -> list[Counted]:
        """Let the monitors that are the farthest behind count their next cohort."""
        start = min(one.through for one in behind)
        due = [one for one in behind if one.through == start]
        revision = served.revision
        until = min([mature, *(one.through for one in behind if one.through > start)])
        window = Window(revision.model, revision.model_digest, start, until)
        with self._database.connect() as connection:
            end = cohort_end(connection, window, since_us=start, until_us=until, rows=_rows_at_once(len(served.labels)))
            rows = load_recent_rows(connection, replace(window, until_us=end), label_names=served.labels)
        refit = self._settings.alarm_refit == "propose"
        return count(served, wanted, due, rows, end=end, refit=refit)

    def _estimate(self, served: Served, now: int, mature: int) -> StoredEstimates:
        """Return what matured labels and recent confidences say."""
        span = int(self._settings.monitor_window_s * _US)
        matured = self._newest(served, mature - span, mature)
        recent = self._newest(served, now - span, now)
        observed = _observed(served, matured)
        document = {
            "labelled": {"window": _window(matured), **from_labels(observed, served.labels)},
            "recent": {
                "window": _window(recent),
                **without_labels(_observed(served, recent).confidence, recent.cluster),
            },
        }
        return StoredEstimates(served.revision.id, now, document)

    def _newest(self, served: Served, since: int, until: int) -> RecentRows:
        revision = served.revision
        window = Window(revision.model, revision.model_digest, since, until)
        with self._database.connect() as connection:
            return load_recent_rows(
                connection, window, label_names=served.labels, at_most=_rows_at_once(len(served.labels))
            )


def _after(one: Counted) -> StoredMonitor:
    return replace(
        one.before,
        document=one.document,
        evidence=one.evidence,
        through=one.through,
        cohorts=one.before.cohorts + one.rows,
        fired_at=one.fired_at,
    )


def _rows_at_once(classes: int) -> int:
    return rows_at_once(classes, _MOST_ROWS, _LOGITS_BYTES)


def _observed(served: Served, rows: RecentRows) -> Observed:
    predicted, confidence = served.calibrator.top_label(rows.logits, served.calibrator.predict_proba(rows.logits))
    return Observed(
        confidence=confidence,
        predicted=predicted,
        labels=rows.labels,
        propensity=rows.propensity,
        sought=rows.sought,
        group=rows.cluster,
        delay_s=(rows.labelled_at - rows.predicted_at) / _US,
    )


def _window(rows: RecentRows) -> list[str] | None:
    return [iso(int(rows.predicted_at[0])), iso(int(rows.predicted_at[-1]))] if len(rows) else None
