"""Reliability of the probability of a rare class, on axes of log-odds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from service.dashboard.charts import svg
from service.dashboard.charts.axes import LogOdds, written

_SIZE = 340, 356
_LEFT, _TOP, _SIDE = 58.0, 12.0, 272.0


@dataclass(frozen=True, slots=True)
class Bin:
    """Rows of similar probability.

    Attributes:
        stated: Mean probability.
        value: Share of positive rows.
        low: Lower end of its interval.
        high: Upper end.
        rows: How many rows.
    """

    stated: float
    value: float
    low: float
    high: float
    rows: int


def positives(key: str, title: str, bins: Sequence[Bin]) -> Markup:
    """Draw the share of positive rows against their probability.

    Args:
        key: Makes its ids unique in the page.
        title: What it is of.
        bins: The points. A share of 0 or 1 lies at the end of the axis.
    """
    axis = LogOdds.around([share for bin_ in bins for share in (bin_.stated, bin_.value)])

    def x(share: float) -> float:
        return _LEFT + _SIDE * axis.at(share)

    def y(share: float) -> float:
        return _TOP + _SIDE * (1 - axis.at(share))

    over, under = sum(bin_.stated > bin_.high for bin_ in bins), sum(bin_.stated < bin_.low for bin_ in bins)
    description = (
        f"Share of positive rows against their probability in {len(bins)} bins of {sum(bin_.rows for bin_ in bins)} "
        f"rows. In {over} of them the probability lies above the 95 % interval of the share, in {under} below it."
    )
    parts = []
    ticks = axis.ticks
    for tick in ticks:
        parts += [
            svg.line(x(axis.low), y(tick), x(axis.high), y(tick), "axis" if tick == ticks[0] else "grid"),
            svg.text(_LEFT - 6, y(tick) + 4, written(tick), "tick", "end"),
        ]
    some = ticks[:: len(ticks) // 5 + 1]
    parts += [svg.text(x(tick), _TOP + _SIDE + 16, written(tick), "tick", "middle") for tick in some]
    parts.append(svg.line(x(axis.low), y(axis.low), x(axis.high), y(axis.high), "ideal"))
    for bin_ in bins:
        hint = (
            f"probability {written(float(f'{bin_.stated:.3g}'))}, positive {written(float(f'{bin_.value:.3g}'))} "
            f"({written(float(f'{bin_.low:.3g}'))} to {written(float(f'{bin_.high:.3g}'))}), {bin_.rows} rows"
        )
        parts += [
            svg.line(x(bin_.stated), y(bin_.low), x(bin_.stated), y(bin_.high), "interval"),
            svg.element(
                "circle",
                *svg.hinted(hint),
                cx=x(bin_.stated),
                cy=y(bin_.value),
                r=4.5,
                class_="point" if 0 < bin_.value < 1 else "point hollow",
            ),
        ]
    parts.append(svg.text(_LEFT + _SIDE / 2, _TOP + _SIDE + 36, "probability (log-odds scale)", "label", "middle"))
    return svg.figure(key, _SIZE, title, description, *parts)
