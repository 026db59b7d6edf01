"""What a model's monitors say, as rows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from service.dashboard import words
from service.dashboard.charts.evidence import evidence


@dataclass(frozen=True, slots=True)
class Watched:
    """One monitor.

    Attributes:
        name: What it watches.
        promise: What is promised of that.
        state: "alarm", "quiet", or "waiting" for labels that are old enough.
        monitor: Its document; None where it has none yet.
        chart: Its evidence, drawn; None where there is none yet.
    """

    name: str
    promise: str
    state: str
    monitor: dict[str, Any] | None
    chart: Markup | None


def watched(document: dict[str, Any]) -> list[Watched]:
    """Read what GET …/monitoring answers: certificates that are watched, then the calibration alarm."""
    alarm = document["alarm"]
    tolerance = alarm["tolerance"]
    calibrated = "calibrated" if tolerance is None else f"calibrated within {tolerance:g}"
    found = [
        (certificate["name"], words.promise(certificate), certificate["monitor"])
        for certificate in document["certificates"]
        if certificate["valid"] or certificate["monitor"] is not None
    ]
    found.append(("calibration", calibrated, alarm["monitor"]))
    return [_of(place, *each) for place, each in enumerate(found)]


def _of(place: int, name: str, promise: str, monitor: dict[str, Any] | None) -> Watched:
    if monitor is None:
        return Watched(name, promise, "waiting", None, None)
    chart = evidence(
        f"evidence-{place}", f"Evidence against {name}", *(monitor[key] for key in ("evidence", "peak", "fires_at"))
    )
    return Watched(name, promise, "quiet" if monitor["fired_at"] is None else "alarm", monitor, chart)
