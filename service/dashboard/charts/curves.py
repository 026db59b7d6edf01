"""Two curves: precision against recall, and the labels that have arrived against time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from service.dashboard.charts import svg
from service.dashboard.charts.axes import written

_SIZE = 340, 356
_LEFT, _TOP, _SIDE = 58.0, 12.0, 272.0
_TIMES = ((1, "1 s"), (60, "1 min"), (3_600, "1 h"), (86_400, "1 d"), (604_800, "7 d"), (5_184_000, "60 d"))


def precision_recall(
    key: str, title: str, recall: Sequence[float], precision: Sequence[float], base_rate: float
) -> Markup:
    """Draw precision against recall, with the precision of flagging rows at random.

    Args:
        key: Makes its ids unique in the page.
        title: What it is of.
        recall: Of each threshold, rising.
        precision: Of each threshold.
        base_rate: Share of positive rows.
    """
    description = f"Precision against recall at {len(recall)} thresholds; flagging at random has {base_rate:.2%}."
    points = [(_x(at), _y(value)) for at, value in zip(recall, precision, strict=True)]
    parts = [*_frame("precision"), svg.line(_x(0), _y(base_rate), _x(1), _y(base_rate), "ideal"), _polyline(points)]
    parts += [svg.text(_x(at), _TOP + _SIDE + 16, written(at), "tick", "middle") for at in (0.0, 0.5, 1.0)]
    parts.append(svg.text(_x(0.5), _TOP + _SIDE + 36, "recall", "label", "middle"))
    return svg.figure(key, _SIZE, title, description, *parts)


def arrivals(key: str, title: str, steps: Sequence[tuple[float, float]]) -> Markup:
    """Draw the share of labels that have arrived against the time since the prediction, on a logarithmic axis.

    Args:
        key: Makes its ids unique in the page.
        title: What it is of.
        steps: Seconds, rising, and the share from then on.
    """
    longest = max((seconds for seconds, _ in steps), default=1.0)
    first, last = 0.0, math.log(next((seconds for seconds, _ in _TIMES if seconds >= longest), longest) + 1)

    def x(seconds: float) -> float:
        return _x(min(max((math.log(seconds + 1) - first) / max(last - first, 1e-9), 0.0), 1.0))

    points = [(x(0), _y(0))]
    for seconds, share in steps:
        points += [(x(seconds), points[-1][1]), (x(seconds), _y(share))]
    at_end = steps[-1][1] if steps else 0.0
    description = f"{at_end:.1%} of the labels arrive within {longest / 3600:.3g} hours."
    parts = [*_frame("labels arrived"), _polyline(points)]
    parts += [
        svg.text(x(seconds), _TOP + _SIDE + 16, said, "tick", "middle")
        for seconds, said in _TIMES
        if math.log(seconds + 1) <= last + 1e-9
    ]
    parts.append(svg.text(_x(0.5), _TOP + _SIDE + 36, "time since the prediction", "label", "middle"))
    return svg.figure(key, _SIZE, title, description, *parts)


def _frame(label: str) -> list[Markup]:
    parts = []
    for at in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts += [
            svg.line(_x(0), _y(at), _x(1), _y(at), "grid" if at else "axis"),
            svg.text(_LEFT - 6, _y(at) + 4, written(at), "tick", "end"),
        ]
    middle = _TOP + _SIDE / 2
    turned = f"rotate(-90 10 {middle})"
    return [
        *parts,
        svg.element("text", label, x=10.0, y=middle, class_="label", text_anchor="middle", transform=turned),
    ]


def _polyline(points: Sequence[tuple[float, float]]) -> Markup:
    return svg.element("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), class_="series first")


def _x(share: float) -> float:
    return _LEFT + _SIDE * share


def _y(share: float) -> float:
    return _TOP + _SIDE * (1 - share)
