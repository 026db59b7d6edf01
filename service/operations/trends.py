"""What the log says of one class over time: scores, base rate, decisions, labels, and how calibrated it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calibrators.metrics import PrecisionRecallCurve, precision_recall_curve
from candor.contract.policies import TOP
from service.decisions.calibrated import Calibrated
from service.decisions.maturity import maturity_us
from service.decisions.multicalibrated import of_two
from service.decisions.rows import Rows
from service.errors import InputValueError
from service.monitoring.estimates import share
from service.runtime import Runtime
from service.serving.model import Model
from service.serving.plane import Served
from service.state.database import now_us
from service.state.maturing import settled
from service.state.pointers import activations_in
from service.state.recent import rows_at_once
from service.state.revisions import RevisionStore
from service.state.row_cells import RowCells
from service.state.slices import LogSample, Span, load_sample, load_sought_sample
from service.state.window import Window
from service.times import DAY_US

ROWS: Final = 20_000
"""Maximum rows that either sample reads: of all predictions, and of those whose label was sought."""
HOURS: Final = 24
QUANTILES: Final = (0.5, 0.9, 0.99)
ARRIVED: Final = 0.95
"""Share of sought labels from which a span counts as labelled."""

_SPANS = 28
_BINS = 12
_POINTS = 60
_MOST_MARKS = 30
_LEAST = 1e-6


@dataclass(frozen=True, slots=True)
class Rate:
    """A share with its 95 % interval.

    Attributes:
        stated: Mean probability of the rows, as served.
        value: Share of positive rows.
        low: Lower end.
        high: Upper end.
        rows: Labelled rows.
        arrived: Share of the sought labels that have arrived.
    """

    stated: float
    value: float
    low: float
    high: float
    rows: int
    arrived: float


@dataclass(frozen=True, slots=True)
class Point:
    """A time span.

    Attributes:
        span: Its start and end.
        mean: Mean probability of the class, as served; None without rows.
        quantiles: `QUANTILES` of that probability; empty without rows.
        labelled: What its labels say; None without any.
    """

    span: Span
    mean: float | None
    quantiles: tuple[float, ...]
    labelled: Rate | None


@dataclass(frozen=True, slots=True, eq=False)
class Trends:
    """One class over time.

    Attributes:
        positive: The class; "top" for the predicted label.
        span: The whole time.
        points: Its parts, oldest first.
        marks: Time and revision of the activations in it.
        rows: Predictions read.
        cut: Whether that is a sample.
        sought: Rows read whose label was sought.
        mature: Whether reliability, precision and recall leave out rows younger than the maturity of the monitors.
        mature_days: That maturity in days.
        labelled: Labelled rows behind them.
        positives: Positive rows among these.
        reliability: Rates by bins of equal width in log-odds of the active revision's probability.
        curve: Precision and recall of that probability; None without positive rows.
        delay: Seconds and share of the sought labels that arrive within them (Kaplan–Meier).
        hours: Predictions of each of the last `HOURS` hours by action.
    """

    positive: str
    span: Span
    points: tuple[Point, ...]
    marks: tuple[tuple[int, str], ...]
    rows: int
    cut: bool
    sought: int
    mature: bool
    mature_days: float
    labelled: int
    positives: int
    reliability: tuple[Rate, ...]
    curve: PrecisionRecallCurve | None
    delay: tuple[tuple[float, float], ...]
    hours: dict[str, list[float]]


def trends(runtime: Runtime, model: Model, positive: str | None, days: int, hours: Sequence[int]) -> Trends:
    """Return what the log of the active model file says about a class; reads samples of bounded size.

    Args:
        runtime: The running service.
        model: The model.
        positive: One of its labels, or "top"; None for the class of its first policy.
        days: Length of the time, which ends now.
        hours: Predictions of each of the last `HOURS` hours, from the counter of traffic.

    Raises:
        NotReadyError: The model serves no revision.
        InputValueError: The model has no such label.
    """
    served, now = model.served, now_us()
    chosen = _class_of(served, positive)
    since = now - days * DAY_US
    spans = _spans((since, now), _SPANS)
    present = now - now % (DAY_US // 24)
    recent = _spans((present - (HOURS - 1) * (DAY_US // 24), present + DAY_US // 24), HOURS)
    window = Window(model.name, served.revision.model_digest, min(since, recent[0][0]))
    classes = len(served.labels)
    most = rows_at_once(classes, ROWS)
    with runtime.database.connect() as connection:
        seen = load_sample(connection, window, spans, classes=classes, at_most=most)
        cells = RowCells.of(served.bundle, served.calibrator)
        known = replace(settled(connection, window, now, served.labels), cells=cells)
        sought = load_sought_sample(connection, known, spans, label_names=served.labels, at_most=most)
        today = load_sample(connection, window, recent, classes=classes, at_most=most)
        marks = activations_in(connection, model.name, (since, now), _MOST_MARKS)
    revisions = RevisionStore(runtime.database)
    scores, sought_scores = (_as_served(revisions, served, chosen, sample) for sample in (seen, sought))
    positives = _positives(served, chosen, sought.rows)
    labelled = _labelled(sought, positives, sought_scores, len(spans))
    age = maturity_us(served.policies.values(), runtime.settings.monitor_maturity_s)
    mature = days * DAY_US > age
    tested = sought.rows.known()
    if mature:
        tested = tested & (sought.rows.predicted_at < now - age)
    judged = sought.rows.take(tested)
    judged_positive = _positives(served, chosen, judged)
    probability = _probability(served, chosen, judged)
    return Trends(
        positive=chosen,
        span=(since, now),
        points=tuple(_point(span, scores[seen.span == place], labelled[place]) for place, span in enumerate(spans)),
        marks=tuple(marks),
        rows=len(seen.rows),
        cut=seen.cut or sought.cut,
        sought=len(sought.rows),
        mature=mature,
        mature_days=age / DAY_US,
        labelled=len(judged),
        positives=int(judged_positive.sum()),
        reliability=tuple(_reliability(probability, judged_positive, judged)),
        curve=_curve(probability, judged_positive, judged),
        delay=tuple(arrivals(sought.rows, now)),
        hours=_by_action(today, hours),
    )


def arrivals(rows: Rows, now_us: int) -> list[tuple[float, float]]:
    """Return seconds after the prediction, and the share of labels that arrive within them, as far as that is known.

    Labels that have not arrived are later than the age of their prediction (Kaplan & Meier 1958).

    Args:
        rows: Predictions whose label was sought.
        now_us: The time, microseconds since the epoch.

    Example:
        >>> ages = [4_000_000, 3_000_000, 2_000_000, 1_000_000]
        >>> came = np.array([7_000_000, 8_000_000, 0, 0])
        >>> label = np.array([0, 0, -1, -1])
        >>> predicted = 10_000_000 - np.array(ages)
        >>> rows = Rows(group=np.arange(4), label=label, predicted_at=predicted, labelled_at=came)
        >>> arrivals(rows, 10_000_000)
        [(1.0, 0.5)]
    """
    came = rows.labelled_at > 0
    spent = np.where(came, rows.labelled_at, now_us) - rows.predicted_at
    spent = np.maximum(spent, 1)
    times = np.unique(spent[came])
    if not len(times):
        return []
    arrived = np.bincount(np.searchsorted(times, spent[came]), minlength=len(times))
    waiting = len(spent) - np.searchsorted(np.sort(spent), times)
    share_of = 1 - np.cumprod(1 - arrived / waiting)
    if len(times) > _POINTS:
        chosen = np.unique(np.searchsorted(times, np.geomspace(times[0], times[-1], _POINTS)))
        times, share_of = times[chosen], share_of[chosen]
    return [(float(at / 1e6), float(value)) for at, value in zip(times, share_of, strict=True)]


def _class_of(served: Served, positive: str | None) -> str:
    if positive is None:
        named = (solved.policy.positive for solved in served.policies.values())
        return next((name for name in named if name != TOP), served.labels[1] if len(served.labels) == 2 else TOP)
    if positive not in (TOP, *served.labels):
        raise InputValueError(
            "Unknown label.", where="positive", found=positive[:100], expected=[TOP, *served.labels[:50]]
        )
    return positive


def _spans(whole: Span, parts: int) -> list[Span]:
    edges = np.linspace(*whole, parts + 1).astype(np.int64).tolist()
    return list(pairwise(edges))


def _positives(served: Served, positive: str, rows: Rows) -> NDArray[np.bool_]:
    if positive != TOP:
        return np.asarray(rows.label == list(served.labels).index(positive))
    return Calibrated.of(served.calibrator, served.labels, rows).right


def _as_served(revisions: RevisionStore, served: Served, positive: str, sample: LogSample) -> NDArray[np.float64]:
    """Return the probability of the class that each row's own revision gave it, (N,)."""
    found = np.zeros(len(sample.rows))
    for name in np.unique(sample.revision).tolist():
        here = sample.revision == name
        if len(served.labels) == 2:  # the log tells it
            both = of_two(sample.predicted[here], sample.confidence[here])
            found[here] = sample.confidence[here] if positive == TOP else both[:, served.labels.index(positive)]
            continue
        own = served.revision if name == served.revision.id else revisions.get(served.revision.model, name)
        found[here] = _of(own.calibrator, served.labels, positive, sample.rows.take(here))
    return found


def _probability(served: Served, positive: str, rows: Rows) -> NDArray[np.float64]:
    return _of(served.calibrator, served.labels, positive, rows)


def _of(calibrator: Any, labels: Sequence[str], positive: str, rows: Rows) -> NDArray[np.float64]:
    seen = Calibrated.of(calibrator, labels, rows)
    if positive == TOP:
        return seen.confidence.astype(np.float64)
    return seen.probabilities[:, list(labels).index(positive)].astype(np.float64)


def _point(span: Span, scores: NDArray[np.float64], labelled: Rate | None) -> Point:
    if not len(scores):
        return Point(span, None, (), labelled)
    return Point(span, float(scores.mean()), tuple(np.quantile(scores, QUANTILES).tolist()), labelled)


def _labelled(
    sample: LogSample, positives: NDArray[np.bool_], scores: NDArray[np.float64], spans: int
) -> list[Rate | None]:
    known, sought = sample.rows.known(), np.bincount(sample.span, minlength=spans)
    return [
        _rate(here, positives, scores, sample.rows, arrived=float(here.sum() / sought[place])) if here.any() else None
        for place in range(spans)
        for here in [known & (sample.span == place)]
    ]


def _reliability(probability: NDArray[np.float64], positives: NDArray[np.bool_], rows: Rows) -> list[Rate]:
    """Return the rate of positives in bins of equal width in log-odds.

    Bins at either end are joined until one positive row, or one negative row, is expected in them.
    """
    if not len(rows):
        return []
    clipped = np.clip(probability, _LEAST, 1 - _LEAST)
    log_odds = np.log(clipped / (1 - clipped))
    edges = np.linspace(log_odds.min(), log_odds.max(), _BINS + 1)
    place = np.searchsorted(edges[1:-1], log_odds)
    expected = np.cumsum(np.bincount(place, probability, _BINS))
    others = np.cumsum(np.bincount(place, 1 - probability, _BINS)[::-1])
    low, high = int(np.searchsorted(expected, 1.0)), _BINS - 1 - int(np.searchsorted(others, 1.0))
    place = np.clip(place, min(low, _BINS - 1), max(high, 0)) if low <= high else np.zeros_like(place)
    return [_rate(place == bin_, positives, probability, rows, arrived=1.0) for bin_ in np.unique(place).tolist()]


def _rate(
    here: NDArray[np.bool_],
    positives: NDArray[np.bool_],
    probability: NDArray[np.float64],
    rows: Rows,
    *,
    arrived: float,
) -> Rate:
    weight = 1.0 / rows.propensity[here]
    found = share(positives[here], weight, np.unique(rows.group[here], return_inverse=True)[1])
    stated = float(np.average(probability[here], weights=weight))
    low, high = found["interval"]
    return Rate(stated, found["value"], low, high, rows=int(here.sum()), arrived=arrived)


def _curve(probability: NDArray[np.float64], positives: NDArray[np.bool_], rows: Rows) -> PrecisionRecallCurve | None:
    if not positives.any():
        return None
    both = np.stack([1 - probability, probability], axis=1)
    return precision_recall_curve(both, positives.astype(np.int64), _POINTS, 1.0 / rows.propensity, positive=1)


def _by_action(sample: LogSample, hours: Sequence[int]) -> dict[str, list[float]]:
    """Split the counts of hours by the actions of the rows that were read of each."""
    actions = np.array([action or "" for action in sample.rows.action.tolist()], np.str_)
    read = np.maximum(np.bincount(sample.span, minlength=len(hours)), 1)
    return {
        name: (np.bincount(sample.span[actions == name], minlength=len(hours)) / read * np.array(hours)).tolist()
        for name in np.unique(actions).tolist()
    }
