"""The thread that feeds monitors with mature predictions.

Each monitor counts predictions once and in order: its evidence and its position are written in one transaction. A lock
in the state admits one replica per model at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from service.decisions.calibrated import Calibrated
from service.decisions.rows import Rows
from service.monitoring.estimates import from_labels, without_labels
from service.monitoring.rounds import Rounds
from service.monitoring.watching import Subject, count, subjects
from service.serving.model import Model
from service.serving.models import Models
from service.serving.plane import Served
from service.settings import Settings
from service.state.cohorts import cohort_end
from service.state.database import Database, now_us
from service.state.monitors import Counted, MonitorStore, StoredEstimates, StoredMonitor
from service.state.recent import load_recent_rows, rows_at_once
from service.state.window import Window
from service.times import iso

logger = structlog.get_logger(__name__)

_MOST_ROWS, _LOGITS_BYTES = 20_000, 16 << 20  # maximum per cohort and per estimate
_PATIENCE_S = 10.0  # maximum time for one model before the next has its turn
_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Status:
    """A model's running monitors and those that voided a certificate, oldest first, and its estimates."""

    monitors: Sequence[StoredMonitor]
    estimates: StoredEstimates | None


class Monitors(Rounds):
    """Feeds the monitors of all models and reports their status.

    Args:
        settings: Settings of the service.
        database: Open state.
        models: The models to monitor.
        clock: Returns the time, microseconds since the epoch, UTC.
    """

    def __init__(
        self, settings: Settings, database: Database, models: Models, *, clock: Callable[[], int] = now_us
    ) -> None:
        super().__init__("monitors", models, settings.monitor_interval_s)
        self.clock = clock
        self._settings = settings
        self._database = database
        self._store = MonitorStore(database)
        self._seen: dict[str, Status] = {}

    def status(self, model: str) -> Status:
        """Return a model's monitors and estimates.

        Raises:
            StateUnavailableError: The database does not answer.
        """
        return Status(self._store.of(model), self._store.estimates(model))

    def last_alarm(self, model: str) -> int | None:
        """Return the time of a model's last alarm, in microseconds since the epoch; None without one.

        Raises:
            StateUnavailableError: The database does not answer.
        """
        return self._store.last_alarm(model)

    def seen(self, model: str) -> Status | None:
        """Return a model's status as of this replica's last step; None before the first."""
        return self._seen.get(model)

    def _visit(self, model: Model) -> bool:
        with self._database.try_lock(f"monitors/{model.name}") as mine:
            more = mine and self._step(model)
        self._seen[model.name] = self.status(model.name)
        return more

    def _step(self, model: Model) -> bool:
        # Read in this order, so that a swap in between makes the epoch stale.
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
        if running is None:  # the pointer has moved; this replica follows it soon
            return False
        now = self.clock()
        mature = now - int(self._settings.monitor_maturity_s * _US)
        more = self._feed(served, wanted, running, mature)
        known = self._store.estimates(model.name)
        if known is None or known.at + self._settings.monitor_interval_s * _US / 2 <= now:
            self._store.estimated(model.name, self._estimate(served, now, mature))
        return more

    def _feed(self, served: Served, wanted: Sequence[Subject], running: Sequence[StoredMonitor], mature: int) -> bool:
        """Count predictions before `mature` until the time is up; return whether some are left."""
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
                return True  # the lock was lost with its connection; another replica continues
            monitors |= {one.before.id: _after(one) for one in counted}
            for one in counted:
                if one.fired_at is not None:
                    logger.warning("alarm", model=served.revision.model, monitor=one.before.name)
            self._stopping.wait(time.monotonic() - began_s)  # leave half of the time to predictions
        return False

    def _cohort(
        self, served: Served, wanted: Sequence[Subject], behind: Sequence[StoredMonitor], mature: int
    ) -> list[Counted]:
        """Count the next cohort of the monitors that are farthest behind."""
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
        """Return the estimates from mature labels and recent confidences."""
        span = int(self._settings.monitor_window_s * _US)
        matured = self._newest(served, mature - span, mature)
        recent = self._newest(served, now - span, now)
        document = {
            "labelled": {"window": _window(matured), **from_labels(_seen(served, matured))},
            "recent": {
                "window": _window(recent),
                **without_labels(_seen(served, recent)),
            },
        }
        return StoredEstimates(served.revision.id, now, document)

    def _newest(self, served: Served, since: int, until: int) -> Rows:
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


def _seen(served: Served, rows: Rows) -> Calibrated:
    return Calibrated.of(served.calibrator, served.labels, rows)


def _window(rows: Rows) -> list[str] | None:
    return [iso(int(rows.predicted_at[0])), iso(int(rows.predicted_at[-1]))] if len(rows) else None
