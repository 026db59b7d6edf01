"""The thread that feeds monitors with mature predictions.

Each monitor counts predictions once and in order: its evidence and its position are written in one transaction. A lock
in the state admits one replica per model at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import structlog

from service.decisions.calibrated import Calibrated
from service.decisions.maturity import maturity_us
from service.decisions.rows import Rows
from service.errors import StateUnavailableError
from service.monitoring.challengers import compare
from service.monitoring.delays import by_source
from service.monitoring.estimates import from_labels, without_labels
from service.monitoring.guard import Guards
from service.monitoring.rounds import Rounds
from service.monitoring.watching import Subject, count, subject_of, subjects
from service.serving.model import Model
from service.serving.models import Models
from service.serving.plane import Served
from service.settings import Settings
from service.state.challengers import Challenger, ChallengerStore
from service.state.cohorts import cohort_end
from service.state.database import Database, now_us
from service.state.guards import StoredGuard
from service.state.label_times import label_times
from service.state.maturing import settled
from service.state.monitors import Counted, MonitorStore, StoredEstimates, StoredMonitor
from service.state.recent import load_recent_rows, rows_at_once
from service.state.revisions import RevisionStore
from service.state.row_cells import RowCells
from service.state.window import Window
from service.times import iso

logger = structlog.get_logger(__name__)

_MOST_ROWS, _LOGITS_BYTES = 20_000, 16 << 20  # maximum per cohort and per estimate
_MOST_LABELS = 50_000  # maximum whose delays are read
_PATIENCE_S = 10.0  # maximum time for one model before the next has its turn
_US = 1_000_000
_CLOCKS_DIFFER_US = 60 * _US  # between replicas


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
        self._challengers = ChallengerStore(database)
        self._revisions = RevisionStore(database)
        self._seen: dict[str, Status] = {}
        self._problems: dict[int, str] = {}  # by number of the challenger
        self._ahead: dict[str, int] = {}
        self._guards = Guards(database, models, lambda: self.clock())

    def status(self, model: str) -> Status:
        """Return a model's monitors and estimates.

        Raises:
            StateUnavailableError: The database does not answer.
        """
        return Status(self._store.of(model), self._store.estimates(model))

    def guard(self, model: str) -> StoredGuard | None:
        """Return a model's latest guard; None without one.

        Raises:
            StateUnavailableError: The database does not answer.
        """
        return self._guards.of(model)

    def last_alarm(self, model: str) -> int | None:
        """Return the time of a model's last alarm, in microseconds since the epoch; None without one.

        Raises:
            StateUnavailableError: The database does not answer.
        """
        return self._store.last_alarm(model)

    def comparison(self, active: str, challenger: Challenger) -> StoredMonitor | None:
        """Return the running comparison of a challenger with a revision; None before its first cohort.

        Raises:
            StateUnavailableError: The database does not answer.
        """
        running = self._store.of(challenger.model)
        return next((one for one in running if one.subject == subject_of(active, challenger)), None)

    def comparison_problem(self, challenger: Challenger) -> str | None:
        """Return why this replica could not count the last cohort of a comparison; None if it could."""
        return self._problems.get(challenger.number)

    def seen(self, model: str) -> Status | None:
        """Return a model's status as of this replica's last step; None before the first."""
        return self._seen.get(model)

    def _visit(self, model: Model) -> bool:
        with self._database.try_lock(f"monitors/{model.name}") as mine:
            more = False
            if mine:
                self._guards.look(model)
                until_s = time.monotonic() + _PATIENCE_S
                more = self._models.traffic.count_days(
                    model.name, self.clock(), lambda: self._stopping.is_set() or time.monotonic() > until_s
                )
                more |= self._step(model)
        self._seen[model.name] = self.status(model.name)
        return more

    def _step(self, model: Model) -> bool:
        # Read in this order, so that a swap in between makes the epoch stale.
        epoch, served = model.pointer.epoch, model.plane.served
        if served is None:
            return False
        beside = {one.challenger: one for one in model.beside if one.active == served.revision.bundle_id}
        refused = {one for one, found in beside.items() if found.refused}
        challengers = [one for one in self._challengers.of(model.name) if one not in refused]
        wanted = subjects(served, self._settings.monitor_tolerance, challengers)
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
        self._warn_if_ahead(model.name, max((one.through for one in running), default=0), now)
        mature = now - maturity_us(served.policies.values(), self._settings.monitor_maturity_s)
        ready = {one for one, found in beside.items() if found.problem is None}
        more = self._feed(served, wanted, running, ready, mature)
        known = self._store.estimates(model.name)
        if known is None or known.at + self._settings.monitor_interval_s * _US / 2 <= now:
            self._store.estimated(model.name, self._estimate(served, now, mature))
        return more

    def _warn_if_ahead(self, model: str, through: int, now: int) -> None:
        """Log once that monitors count nothing until a time that a clock which was ahead has left."""
        if through > now + _CLOCKS_DIFFER_US and self._ahead.get(model) != through:
            self._ahead[model] = through
            logger.warning("monitors wait, a clock was ahead", model=model, until=iso(through), now=iso(now))

    def _feed(
        self,
        served: Served,
        wanted: Sequence[Subject],
        running: Sequence[StoredMonitor],
        ready: Collection[Challenger],
        mature: int,
    ) -> bool:
        """Count predictions before `mature` until the time is up; return whether some are left.

        A comparison waits for the next round if its challenger is not among `ready` or if it fails.
        """
        monitors = {one.id: one for one in running}
        about = {subject.watched.subject: subject.challenger for subject in wanted}
        waiting = {one.id for one in running if (of := about[one.subject]) is not None and of not in ready}
        until_s = time.monotonic() + _PATIENCE_S
        while not self._stopping.is_set():
            behind = [
                one for one in monitors.values() if not _ended(one) and one.through < mature and one.id not in waiting
            ]
            if not behind:
                return False
            if time.monotonic() > until_s:
                return True
            began_s = time.monotonic()
            due, rows, end = self._cohort(served, behind, mature)
            refit = self._settings.alarm_refit == "propose"
            counted = count(served, wanted, due, rows, end=end, refit=refit)
            if not self._store.count(served.revision.model, counted):
                return True  # the lock was lost with its connection; another replica continues
            for one in due:
                if (challenger := about[one.subject]) is not None:
                    compared = self._compare(served, challenger, one, rows, end)
                    counted += compared
                    waiting |= set() if compared else {one.id}
            monitors |= {after.before.id: _after(after) for after in counted}
            for after in counted:
                if after.fired_at is not None and after.before.kind != "challenger":
                    logger.warning("alarm", model=served.revision.model, monitor=after.before.name)
            self._stopping.wait(time.monotonic() - began_s)  # leave half of the time to predictions
        return False

    def _cohort(
        self, served: Served, behind: Sequence[StoredMonitor], mature: int
    ) -> tuple[list[StoredMonitor], Rows, int]:
        """Return the monitors that are farthest behind, the rows of their next cohort, and its end."""
        start = min(one.through for one in behind)
        due = [one for one in behind if one.through == start]
        revision = served.revision
        until = min([mature, *(one.through for one in behind if one.through > start)])
        cells = RowCells.of(served.bundle, served.calibrator)
        window = Window(revision.model, revision.model_digest, start, until, cells=cells)
        with self._database.connect() as connection:
            end = cohort_end(connection, window, since_us=start, until_us=until, rows=_rows_at_once(len(served.labels)))
            window = settled(connection, replace(window, until_us=end), self.clock(), served.labels)
            rows = load_recent_rows(connection, window, label_names=served.labels)
        return due, rows, end

    def _compare(
        self, served: Served, challenger: Challenger, stored: StoredMonitor, rows: Rows, end: int
    ) -> list[Counted]:
        """Count a cohort in a comparison; return nothing, and record why, if that fails."""
        model = served.revision.model
        try:
            revision = self._revisions.get(model, challenger.revision)
            counted = [compare(self._database, served, challenger, revision, stored, rows, end=end)]
            if not self._store.count(model, counted):
                return []
        except StateUnavailableError:
            raise
        except Exception as error:  # a challenger may fail in any way, and other monitors go on
            problem = f"The comparison fails: {error!r}"
            if self._problems.get(challenger.number) != problem:
                logger.exception("challenger not compared", model=model, challenger=challenger.name)
            self._problems[challenger.number] = problem
            return []
        self._problems.pop(challenger.number, None)
        return counted

    def _estimate(self, served: Served, now: int, mature: int) -> StoredEstimates:
        """Return the estimates from mature labels and recent confidences."""
        span = int(self._settings.monitor_window_s * _US)
        matured = self._newest(served, mature - span, mature, with_silence=True)
        recent = self._newest(served, now - span, now)
        with self._database.connect() as connection:
            times = label_times(connection, served.revision.model, at_most=_MOST_LABELS)
        old, new = (Calibrated.of(served.calibrator, served.labels, rows) for rows in (matured, recent))
        document = {
            "delays": by_source(*times, now),
            "labelled": {"window": matured.window(), **from_labels(old)},
            "recent": {"window": recent.window(), **without_labels(new)},
        }
        return StoredEstimates(served.revision.id, now, document)

    def _newest(self, served: Served, since: int, until: int, *, with_silence: bool = False) -> Rows:
        revision = served.revision
        cells = RowCells.of(served.bundle, served.calibrator)
        window = Window(revision.model, revision.model_digest, since, until, cells=cells)
        with self._database.connect() as connection:
            if with_silence:
                window = settled(connection, window, self.clock(), served.labels)
            return load_recent_rows(
                connection, window, label_names=served.labels, at_most=_rows_at_once(len(served.labels))
            )


def _ended(one: StoredMonitor) -> bool:
    """Return whether a monitor counts no more; a comparison goes on."""
    return one.fired_at is not None and one.kind != "challenger"


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
