"""Trends of a class: scores, base rate, decisions and labels over time, and how calibrated its probability is."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request, Response

from candor.contract.monitoring import FEWEST_DELAYS, Monitoring
from candor.contract.policies import TOP
from service.dashboard.charts.curves import arrivals, precision_recall
from service.dashboard.charts.indices import indices
from service.dashboard.charts.positives import Bin, positives
from service.dashboard.charts.stacked import KINDS, stacked
from service.dashboard.charts.timeline import Estimate, Series, timeline
from service.dashboard.pages import page
from service.dashboard.positive import Threshold, thresholds_of
from service.dashboard.words import count, percent
from service.errors import InputValueError
from service.operations import trends as operation
from service.operations.monitoring import monitoring
from service.operations.trends import ARRIVED, HOURS, QUANTILES, Rate, Trends
from service.rest.dependencies import ModelDep, RuntimeDep
from service.state.database import now_us
from service.state.traffic import MOST_PER_HOUR

DAYS: Final = {"1": "24 hours", "7": "7 days", "30": "30 days", "90": "90 days"}
_COLUMNS = 10
_HOUR_US = 3_600_000_000
_MOST_LABELS = 200
_SCORES = ("median", "90 % below", "99 % below")


def trends_page(
    request: Request,
    runtime: RuntimeDep,
    model: ModelDep,
    positive: str | None = None,
    days: str = "7",
) -> Response:
    """Show a class over time."""
    if days not in DAYS:
        raise InputValueError("Unknown time span.", where="days", found=days[:100], expected=list(DAYS))
    hours = runtime.models.traffic.hours(model.name, now_us())
    found = operation.trends(runtime, model, positive, int(days), hours)
    told = monitoring(runtime, model)
    return page(
        request.scope,
        "trends.html",
        model=model.name,
        labels=[TOP, *model.served.labels[:_MOST_LABELS]],
        days=days,
        spans=DAYS,
        found=found,
        maturity_days=found.mature_days,
        capped=any(hour >= MOST_PER_HOUR for hour in hours),
        charts=_charts(found, _named(found.positive)),
        kinds=list(zip([name or "no policy" for name in found.hours], KINDS, strict=False)),
        thresholds=_thresholds(found),
        drift=_drift(told),
        delays=_delays(told),
        fewest=FEWEST_DELAYS,
    )


def _named(positive: str) -> str:
    return "the predicted label being right" if positive == TOP else positive


def _charts(found: Trends, name: str) -> dict[str, Any]:
    labelled = [point.labelled for point in found.points]
    means = [point.mean for point in found.points]
    stated = [None if rate is None else rate.stated for rate in labelled]
    quantiles = [
        [point.quantiles[place] if point.quantiles else None for point in found.points]
        for place in range(len(QUANTILES))
    ]
    classes = ("first", "second", "third")
    lines = [Series(*line) for line in zip(classes, _SCORES, quantiles, strict=True)]
    return {
        "rate": timeline(
            "rate",
            f"Base rate and mean probability of {name}",
            found.span,
            [Series("second", "mean probability of these rows", stated), Series("third", "of all traffic", means)],
            marks=found.marks,
            estimates=[None if rate is None else _estimate(rate) for rate in labelled],
        ),
        "scores": timeline(
            "scores",
            f"Probability of {name}",
            found.span,
            lines,
            marks=found.marks,
            even_in_log_odds=True,
        ),
        "hours": stacked(
            "hours",
            "Decisions per hour",
            {key or "no policy": values for key, values in found.hours.items()},
            HOURS,
            [(at / _HOUR_US - found.span[1] // _HOUR_US + HOURS - 1, revision) for at, revision in found.marks],
        ),
        "reliability": positives("positives", f"Reliability of the probability of {name}", _bins(found)),
        "curve": None
        if found.curve is None
        else precision_recall(
            "curve",
            f"Precision and recall of {name}",
            found.curve.recall.tolist(),
            found.curve.precision.tolist(),
            float(found.curve.precision[-1]),
        ),
        "delay": arrivals("delay", "Time until a sought label arrives", found.delay) if found.delay else None,
    }


def _estimate(rate: Rate) -> Estimate:
    hint = (
        f"{percent(rate.value, 2)} ({percent(rate.low, 2)} to {percent(rate.high, 2)}) of {count(rate.rows)} labelled "
        f"rows, {percent(rate.arrived)} of the sought labels"
    )
    return Estimate(rate.value, rate.low, rate.high, rate.arrived >= ARRIVED, hint)


def _bins(found: Trends) -> list[Bin]:
    return [Bin(rate.stated, rate.value, rate.low, rate.high, rate.rows) for rate in found.reliability]


def _thresholds(found: Trends) -> list[Threshold]:
    curve = found.curve
    columns = () if curve is None else (curve.threshold, curve.recall, curve.precision, curve.flagged)
    return thresholds_of(*(column.tolist() for column in columns)) if columns else []


def _drift(told: Monitoring) -> tuple[Any, str | None]:
    """Return a chart of the columns with the largest index, or why there is none."""
    columns = [
        (column.name, column.psi, column.psi_without_drift or 0.0, column.alarm)
        for column in (() if told.drift is None else told.drift.columns)
        if column.psi is not None
    ]
    if not columns:
        return None, told.no_drift or "The open window has fewer than 500 rows."
    return indices("drift", "Stability index of the input columns", columns[:_COLUMNS]), None


def _delays(told: Monitoring) -> list[tuple[Any, Any]]:
    """Return each source's label delay as the monitors stored it, with a chart."""
    stored: Any = () if told.estimates is None else told.estimates.delays
    return [
        (one, arrivals(f"delay-{place}", f"Time until a label from {one['source']} arrives", one["curve"]))
        for place, one in enumerate(stored)
    ]


def add_to(router: APIRouter) -> None:
    """Mount the page."""
    router.add_api_route("/trends", trends_page, methods=["GET"])
