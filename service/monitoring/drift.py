"""The test of input drift: whether a table's columns are distributed in the traffic as in the reference rows.

Every replica samples the rows that it answers and adds their counts to the window that all share. A window that has
lasted and has rows enough is tested once, and the next begins. The level of the k-th window is level/(k(k + 1)), so
that the probability that any window ever raises a false alarm is at most `level`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import structlog
from numpy.typing import NDArray

from bundle import Columns, Profile
from bundle.manifest import COLUMNS_FILE, PROFILE_FILE
from service.decisions.levels import level_of
from service.monitoring.homogeneity import evidence, index_without_drift, rejected, stability_index
from service.monitoring.rounds import Rounds
from service.monitoring.traffic_window import LEAST_ROWS, TrafficWindow
from service.serving.model import Model
from service.serving.models import Models
from service.serving.plane import Served
from service.serving.sampling import Sample, Taken
from service.settings import Settings
from service.state.database import Database, now_us
from service.state.drift import DriftStore, StoredDrift

logger = structlog.get_logger(__name__)

MOST_SHOWN: Final = 50
"""Columns in an answer and in the metrics."""
_ROWS_TO_SHOW = 500  # of the open window; before, the last tested one is shown
_ATTEMPTS = 5  # to write, while other replicas are quicker
_US = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class ColumnDrift:
    """A column in the shown window and in the last tested one.

    Attributes:
        name: Its name.
        bins: Names of its bins.
        reference: Reference rows in each bin, int64 (B,).
        traffic: Rows of the shown window in each bin, int64 (B,); None without one.
        evidence: Evidence of the last tested window, in nats; None before the first.
        alarm: Whether that window raised the alarm.
    """

    name: str
    bins: tuple[str, ...]
    reference: NDArray[np.int64]
    traffic: NDArray[np.int64] | None
    evidence: float | None
    alarm: bool

    @property
    def psi(self) -> float | None:
        """The population stability index; None without rows of either sample."""
        return None if self.traffic is None else _index(self.reference, self.traffic)

    @property
    def psi_without_drift(self) -> float | None:
        """Mean of the index with as many rows and no drift."""
        if self.traffic is None or not self.reference.any():
            return None
        return index_without_drift(self.reference, self.traffic)


@dataclass(frozen=True, slots=True, eq=False)
class Drift:
    """What is known about a model's input drift.

    Attributes:
        level: Probability that the test of this reference ever raises a false alarm.
        place: Its number among the model's tests.
        windows: Number of tested windows.
        open: The open window.
        measured: The window that the columns' indices describe, and its end (None: still open); None before the first.
        tested: Start, end and rows of the last tested window; None before the first.
        columns: All columns with a profile.
    """

    level: float
    place: int
    windows: int
    open: TrafficWindow
    measured: tuple[TrafficWindow, int | None] | None
    tested: tuple[TrafficWindow, int] | None
    columns: tuple[ColumnDrift, ...]

    def shown(self) -> list[ColumnDrift]:
        """Return the columns to show: those with an alarm, then those with the largest index, at most `MOST_SHOWN`."""
        return sorted(self.columns, key=lambda column: (not column.alarm, -(column.psi or 0.0)))[:MOST_SHOWN]


class DriftTests(Rounds):
    """Collects the samples of this replica and tests windows that are full.

    Args:
        settings: Settings of the service.
        database: Open state.
        models: The models.
        clock: Returns the time, microseconds since the epoch, UTC.
    """

    def __init__(
        self, settings: Settings, database: Database, models: Models, *, clock: Callable[[], int] = now_us
    ) -> None:
        super().__init__("drift", models, settings.monitor_interval_s)
        self.clock = clock
        self._settings = settings
        self._store = DriftStore(database)
        self._random = np.random.default_rng()
        self._seen: dict[str, Drift | None] = {}

    def of(self, served: Served) -> Drift | None:
        """Return what is known about a revision's inputs; None before its first window has begun.

        Raises:
            StateUnavailableError: The database does not answer.
        """
        stored = self._store.of(served.revision.model)
        return None if stored is None or stored.subject != _subject(served) else _read(served, stored)

    def seen(self, model: str) -> Drift | None:
        """Return what was known at this replica's last step."""
        return self._seen.get(model)

    def _visit(self, model: Model) -> bool:
        # Read in this order, so that a swap in between makes the epoch stale.
        epoch, served = model.pointer.epoch, model.plane.served
        if served is None or served.sample is None:
            self._seen.pop(model.name, None)
            return False
        self._collect(served, served.sample, epoch)
        self._seen[model.name] = self.of(served)
        return False

    def _collect(self, served: Served, sample: Sample, epoch: int) -> None:
        """Add the sample to the open window, and test the window if it is due."""
        profile, columns = _profile_of(served)
        taken = sample.take()
        bins = profile.bins(columns, taken.rows)
        for _ in range(_ATTEMPTS):
            stored = self._started(served, epoch)
            if stored is None:  # the pointer has moved; this replica follows it soon
                return
            document, alarm = self._advanced(served, stored, taken, bins)
            if document is stored.document or self._store.change(served.revision.model, stored, document, alarm):
                if alarm is not None:
                    logger.warning("alarm", model=served.revision.model, monitor="inputs", columns=alarm["columns"])
                return

    def _started(self, served: Served, epoch: int) -> StoredDrift | None:
        revision, subject = served.revision, _subject(served)
        stored = self._store.of(revision.model)
        if stored is not None and stored.subject == subject:
            return stored
        document = {"number": 1, "window": self._begin(served, self.clock()), "tested": None}
        alpha = self._settings.monitor_alpha
        return self._store.start(revision.model, epoch, revision.id, subject, document, alpha)

    def _begin(self, served: Served, now: int) -> dict[str, Any]:
        profile, _ = _profile_of(served)
        return TrafficWindow.empty(now, [len(column.counts) for column in profile.columns]).to_dict()

    def _advanced(
        self, served: Served, stored: StoredDrift, taken: Taken, bins: Sequence[NDArray[np.int64]]
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return the next document, the same object if nothing changes, and the detail of a new alarm."""
        document, now = stored.document, self.clock()
        window = TrafficWindow.from_dict(document["window"])
        if len(taken.rows):
            window = window.joined(bins, taken.rate, self._random)
        if window.rows < LEAST_ROWS or now < window.since + self._settings.drift_window_s * _US:
            return document | {"window": window.to_dict()} if len(taken.rows) else document, None
        level = level_of(stored.level, document["number"])
        tested = self._tested(served, window, level) | {"until": now}
        before = set() if document["tested"] is None else set(document["tested"]["alarms"])
        new = [name for name in tested["alarms"] if name not in before]
        alarm = {
            "kind": "drift",
            "revision": served.revision.id,
            "level": level,
            "columns": new[:MOST_SHOWN],
            "rows": window.rows,
            "since": window.since,
            "fired_at": now,
        }
        following = {"number": document["number"] + 1, "window": self._begin(served, now), "tested": tested}
        return following, alarm if new else None

    def _tested(self, served: Served, window: TrafficWindow, level: float) -> dict[str, Any]:
        profile, _ = _profile_of(served)
        pairs = [
            (np.array(column.counts, np.int64), traffic)
            for column, traffic in zip(profile.columns, window.counts, strict=True)
        ]
        found = [evidence(*pair) if pair[0].any() else 0.0 for pair in pairs]
        alarms = [
            column.name
            for column, pair, drifted in zip(profile.columns, pairs, rejected(found, level), strict=True)
            if drifted and stability_index(*pair) > self._settings.drift_psi
        ]
        return {"window": window.to_dict(), "evidence": found, "alarms": alarms}


def _profile_of(served: Served) -> tuple[Profile, Columns]:
    profile, columns = served.bundle.profile, served.bundle.columns
    assert profile is not None  # noqa: S101 — without it there is no sample
    assert columns is not None  # noqa: S101 — else there is no profile
    return profile, columns


def _subject(served: Served) -> str:
    """Return the digest of the profile and of the columns that its bins are about."""
    files = served.bundle.manifest.files
    return f"{files[COLUMNS_FILE]} {files[PROFILE_FILE]}"


def _read(served: Served, stored: StoredDrift) -> Drift:
    profile, columns = _profile_of(served)
    document = stored.document
    window, last = TrafficWindow.from_dict(document["window"]), document["tested"]
    tested = None if last is None else (TrafficWindow.from_dict(last["window"]), int(last["until"]))
    measured: tuple[TrafficWindow, int | None] | None = (window, None) if window.rows >= _ROWS_TO_SHOW else tested
    return Drift(
        level=stored.level,
        place=stored.place,
        windows=document["number"] - 1,
        open=window,
        measured=measured,
        tested=tested,
        columns=tuple(
            ColumnDrift(
                name=column.name,
                bins=column.bin_names(columns.columns[place]),
                reference=np.array(column.counts, np.int64),
                traffic=None if measured is None else measured[0].counts[place],
                evidence=None if last is None else last["evidence"][place],
                alarm=last is not None and column.name in last["alarms"],
            )
            for place, column in enumerate(profile.columns)
        ),
    )


def _index(reference: NDArray[np.int64], traffic: NDArray[np.int64]) -> float | None:
    return stability_index(reference, traffic) if reference.any() and traffic.any() else None
