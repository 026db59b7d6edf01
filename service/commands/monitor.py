"""`candor monitor`: certificates, calibration and labels of the traffic."""

from __future__ import annotations

from collections.abc import Iterator

from rich.markup import escape
from rich.table import Table

from candor import DEFAULT_URL, Client
from candor.contract.monitoring import Estimate, Estimates, Monitor, Monitoring
from service.commands.output import console, counted, print_json, reporting, whole_column
from service.commands.remote import AsJson, Key, Model, Url
from service.times import spoken

_COLUMNS = 5


def monitor(url: Url = DEFAULT_URL, api_key: Key = None, model: Model = None, as_json: AsJson = False) -> None:
    """Show whether certificates and calibration still hold, and what labels say about the traffic."""
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        found = client.monitoring()
    if as_json:
        print_json(found.document)
        return
    console.print(f"{escape(found.model)} {escape(found.revision)}")
    console.print(_monitors(found))
    for one in found.certificates:
        if not one.valid:
            console.print(f"[red]{escape(one.name)}[/red]: {escape(str(one.reason))}", soft_wrap=True)
        if one.per_day is not None and one.per_day.warning is not None:
            console.print(f"[yellow]{escape(one.name)}[/yellow]: {escape(one.per_day.warning)}", soft_wrap=True)
    off = [one.job for one in found.calibration if one.segment is None and one.fired]
    if found.alarm.fired or off:
        job = next(filter(None, [found.alarm.job, *off]), None)
        started = f"; recalibration {job} has started" if job else ": candor recalibrate"
        console.print(f"[yellow]The calibration is off: recalibrate{escape(started)}[/yellow]")
    if segments := [one.name for one in found.calibration if one.segment is not None and one.fired]:
        console.print(f"[yellow]The calibration is off in segments: {escape(', '.join(segments))}[/yellow]")
    for line in _drift(found):
        console.print(line)
    if (guard := found.guard) is not None:
        said = guard.reason or f"until {guard.until[:19]}, back to {guard.previous}"
        console.print(f"guard of {guard.revision}: {guard.state.replace('_', ' ')}, {escape(said)}", soft_wrap=True)
    if found.estimates is None:
        console.print("[dim]nothing estimated yet[/dim]")
        return
    for line in _estimates(found.estimates):
        console.print(escape(line))


def _monitors(found: Monitoring) -> Table:
    table = Table(
        whole_column("watched"),
        "promise",
        "state",
        "evidence",
        "fires at",
        "rows",
        "unlabelled",
        box=None,
        pad_edge=False,
    )
    for one in found.certificates:
        bound = f"≤ {one.at_most:g}" if one.at_least is None else f"≥ {one.at_least:g}"
        state = "[green]holds[/green]" if one.valid else "[red]void[/red]"
        table.add_row(escape(one.name), escape(f"{one.metric} {bound}"), state, *_evidence(one.monitor))
        if one.propensity is not None:
            sought = "[green]quiet[/green]" if one.propensity.fired_at is None else "[red]alarm[/red]"
            table.add_row(escape(f"{one.name}/propensity"), "sought as logged", sought, *_evidence(one.propensity))
    promise = "" if found.alarm.tolerance is None else f"within {found.alarm.tolerance:g}"
    watched = [("calibration", found.alarm.monitor), *((one.name, one.monitor) for one in found.calibration)]
    for name, monitor in watched:
        state = "[green]quiet[/green]" if monitor is None or monitor.fired_at is None else "[red]alarm[/red]"
        table.add_row(escape(name), promise, state, *_evidence(monitor))
    return table


def _drift(found: Monitoring) -> Iterator[str | Table]:
    """Say which columns have drifted, and show those with the largest index."""
    drift = found.drift
    if drift is None or drift.measured is None:
        return
    alarms = [column.name for column in drift.columns if column.alarm]
    tested = f"{drift.windows} window{'s' * (drift.windows != 1)} tested"
    if alarms:
        yield f"[red]input drift: {escape(', '.join(alarms))}[/red] ({tested})"
    else:
        yield f"input drift: none in {drift.watched} columns ({tested})"
    table = Table(whole_column("column"), "state", "PSI", "without drift", "largest change", box=None, pad_edge=False)
    for column in drift.columns[: max(len(alarms), _COLUMNS)]:
        state = "[red]alarm[/red]" if column.alarm else "[green]quiet[/green]"
        change = max(column.bins, key=lambda one: abs(one.traffic - one.reference), default=None)
        moved = "—" if change is None else f"{change.bin}: {change.reference:.1%} → {change.traffic:.1%}"
        index = ("—" if value is None else f"{value:.3f}" for value in (column.psi, column.psi_without_drift))
        table.add_row(escape(column.name), state, *index, escape(moved))
    yield table


def _evidence(one: Monitor | None) -> tuple[str, ...]:
    if one is None:
        return ("—",) * 4
    return f"{one.evidence:.2f}", f"{one.fires_at:.2f}", str(one.rows), str(one.unlabelled)


def _estimates(found: Estimates) -> Iterator[str]:
    labelled = found.labelled
    share = "" if labelled.labelled_share is None else f" ({labelled.labelled_share:.0%})"
    yield f"labels: {labelled.labelled} of {labelled.sought} sought{share}, of {labelled.rows} matured predictions"
    if labelled.delay_s is not None:
        yield f"  they take {labelled.delay_s.median:.3g} s (median), {labelled.delay_s.q90:.3g} s (90 %)"
    for one in found.delays:
        some, most = (spoken(seconds) for seconds in (one.median_s, one.q95_s))
        mature = "they still come at that age" if one.mature_in is None else f"mature in {one.mature_in}"
        oldest = f"{counted(one.labels, 'label')}, predictions up to {spoken(one.oldest_s)} old"
        yield f"  from {one.source}: half within {some}, 95 % within {most} ({oldest}): {mature}"
    if labelled.accuracy is not None and labelled.mean_confidence is not None:
        yield f"  accuracy {_number(labelled.accuracy)}, mean confidence {_number(labelled.mean_confidence)}"
    if labelled.base_rate:
        yield "  base rates " + ", ".join(f"{label} {rate.value:.4f}" for label, rate in labelled.base_rate.items())
    if found.recent.estimated_accuracy is not None:
        yield (
            f"without labels: accuracy {_number(found.recent.estimated_accuracy)} over {found.recent.rows} recent "
            "predictions, if confidences are calibrated"
        )


def _number(found: Estimate) -> str:
    if found.interval is None:
        return f"{found.value:.4f}"
    return f"{found.value:.4f} ({found.interval[0]:.4f} to {found.interval[1]:.4f})"
