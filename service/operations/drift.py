"""Tell how the columns of a table are distributed in the traffic, beside the reference rows."""

from __future__ import annotations

from candor.contract.drift import BinShare, ColumnDrift, DriftWindow, InputDrift
from service.monitoring import drift as found
from service.monitoring.traffic_window import TrafficWindow
from service.serving.plane import Served
from service.times import iso


def input_drift(drift: found.Drift) -> InputDrift:
    """Return the test of input drift with the columns to show."""
    return InputDrift(
        level=drift.level,
        place=drift.place,
        windows=drift.windows,
        open=_window(drift.open, None),
        measured=None if drift.measured is None else _window(*drift.measured),
        tested=None if drift.tested is None else _window(*drift.tested),
        watched=len(drift.columns),
        columns=tuple(map(_column, drift.shown())),
    )


def why_no_drift(served: Served) -> str:
    """Return why nothing is known about a revision's input drift."""
    if served.sample is not None:
        return "The first window has not begun."
    if served.bundle.columns is None:
        return "The model takes no table columns."
    if served.bundle.profile is None:
        return "The bundle has no profile of its columns. Import or train the model again."
    return "CANDOR_DRIFT_WINDOW_S is 0."


def _window(window: TrafficWindow, until: int | None) -> DriftWindow:
    return DriftWindow(since=iso(window.since), until=None if until is None else iso(until), rows=window.rows)


def _column(column: found.ColumnDrift) -> ColumnDrift:
    bins: tuple[BinShare, ...] = ()
    if column.psi is not None and column.traffic is not None:
        shares = (counts / counts.sum() for counts in (column.reference, column.traffic))
        bins = tuple(
            BinShare(bin=name, reference=reference, traffic=traffic)
            for name, reference, traffic in zip(column.bins, *(share.tolist() for share in shares), strict=True)
        )
    return ColumnDrift(
        name=column.name,
        alarm=column.alarm,
        psi=column.psi,
        psi_without_drift=column.psi_without_drift,
        evidence=column.evidence,
        bins=bins,
    )
