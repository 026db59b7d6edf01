"""Series over time, with the activations of revisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from service.dashboard.charts import svg
from service.dashboard.charts.axes import LogOdds, moment, written

_SIZE = 880, 246
_LEFT, _WIDTH, _TOP, _HEIGHT = 70.0, 796.0, 46.0, 150.0
_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Series:
    """A line.

    Attributes:
        class_: Its class in the stylesheet: "first", "second" or "third".
        name: What it is.
        values: A share for each part of the time; None leaves a gap.
    """

    class_: str
    name: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A point with an interval.

    Attributes:
        value: The share.
        low: Lower end.
        high: Upper end.
        whole: Whether it is drawn full; hollow else.
        hint: What it says where a pointer rests on it.
    """

    value: float
    low: float
    high: float
    whole: bool
    hint: str


def timeline(
    key: str,
    title: str,
    span: tuple[int, int],
    series: Sequence[Series],
    *,
    marks: Sequence[tuple[int, str]],
    estimates: Sequence[Estimate | None] = (),
    even_in_log_odds: bool = False,
) -> Markup:
    """Draw lines over equal parts of a time span.

    Args:
        key: Makes its ids unique in the page.
        title: What it is of.
        span: Start and end, microseconds since the epoch.
        series: Lines of P values.
        marks: Times and names of activations.
        estimates: P points with intervals; None leaves a part out.
        even_in_log_odds: Whether the axis of shares is one of log-odds; else it begins at 0.
    """
    values = [value for line in series for value in line.values if value is not None]
    found = [estimate for estimate in estimates if estimate is not None]
    values += [estimate.value for estimate in found]
    largest = max(max(values, default=0.0) or 1.0, 1e-6)  # without a value above 0, the axis ends at 100 %
    most = min(max(1.2 * largest, min(max([estimate.high for estimate in found], default=0.0), 3 * largest)), 1.0)
    axis = LogOdds.around(values)
    ticks = axis.ticks if even_in_log_odds else [0.0, most / 2, most]

    def y(share: float) -> float:
        return _TOP + _HEIGHT * (1 - (axis.at(share) if even_in_log_odds else min(share / most, 1.0)))

    parts_of_time = max([len(line.values) for line in series] + [len(estimates), 1])
    xs = [_LEFT + _WIDTH * (place + 0.5) / parts_of_time for place in range(parts_of_time)]
    parts: list[Markup] = []
    for tick in ticks:
        said = written(tick if even_in_log_odds else float(f"{tick:.2g}"))
        parts += [
            svg.line(_LEFT, y(tick), _LEFT + _WIDTH, y(tick), "axis" if tick == ticks[0] else "grid"),
            svg.text(_LEFT - 6, y(tick) + 4, said, "tick", "end"),
        ]
    parts += _times(span)
    for place, (at, revision) in enumerate(marks):
        x = _LEFT + _WIDTH * (at - span[0]) / max(span[1] - span[0], 1)
        parts += [
            svg.line(x, _TOP - 4, x, _TOP + _HEIGHT, "mark"),
            svg.text(x, _TOP - 8 - 13 * (place % 3), revision, "label", "middle"),
        ]
    for line in series:
        parts += _line(line, xs, y)
    for x, estimate in zip(xs, estimates, strict=False):
        if estimate is not None:
            parts += [
                svg.line(x, y(estimate.low), x, y(estimate.high), "interval"),
                svg.element(
                    "circle",
                    *svg.hinted(estimate.hint),
                    cx=x,
                    cy=y(estimate.value),
                    r=4.5,
                    class_="point" if estimate.whole else "point hollow",
                ),
            ]
    said = "; ".join(f"{line.name} {_ends(line.values)}" for line in series)
    activated = ", ".join(revision for _, revision in marks)
    description = f"{said}. {len(found)} points with intervals. Activated: {activated or 'nothing'}."
    return svg.figure(key, _SIZE, title, description, *parts)


def _line(line: Series, xs: Sequence[float], y: Callable[[float], float]) -> list[Markup]:
    """Return a line, broken where a value is missing; a value between two gaps is a dot."""
    parts, run = [], list[tuple[float, float]]()
    for x, value in [*zip(xs, line.values, strict=False), (0.0, None)]:
        if value is not None:
            run.append((x, y(value)))
            continue
        if len(run) == 1:
            parts.append(svg.element("circle", cx=run[0][0], cy=run[0][1], r=2.5, class_=f"dot {line.class_}"))
        elif run:
            points = " ".join(f"{at:.1f},{height:.1f}" for at, height in run)
            parts.append(svg.element("polyline", points=points, class_=f"series {line.class_}"))
        run = []
    return parts


def _times(span: tuple[int, int]) -> list[Markup]:
    days = span[1] - span[0] > 2 * _DAY_US
    return [
        svg.text(
            _LEFT + _WIDTH * place / 4,
            _TOP + _HEIGHT + 18,
            moment(span[0] + (span[1] - span[0]) * place // 4, days=days),
            "tick",
            ("start", "middle", "middle", "middle", "end")[place],
        )
        for place in range(5)
    ]


def _ends(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    ends = [written(float(f"{value:.3g}")) for value in (*known[:1], *known[-1:])]
    return f"from {ends[0]} to {ends[1]}" if known else "without rows"
