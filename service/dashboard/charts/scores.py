"""Recent rows by probability and label, with the thresholds of a policy: rare classes are visible on both axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from markupsafe import Markup

from service.dashboard.charts import svg
from service.dashboard.charts.axes import LogOdds, written

_SIZE = 880, 236
_LEFT, _WIDTH, _TOP, _HEIGHT = 44.0, 824.0, 48.0, 140.0
_ROW = 15.0  # between the names of two thresholds, which may lie close


def scores(
    key: str,
    title: str,
    edges: Sequence[float],
    kinds: Sequence[tuple[str, str, Sequence[int]]],
    cuts: Sequence[tuple[str, float]],
) -> Markup:
    """Draw counts on a logarithmic scale over an axis of log-odds, with a line for each threshold.

    Args:
        key: Makes its ids unique in the page.
        title: What it is of.
        edges: Probabilities in (0, 1) between which the B bins lie, B + 1 of them, even in log-odds.
        kinds: Class of the bars, words for them, and counts in the bins; bars of a bin stand side by side.
        cuts: Action of each threshold, and where it lies.
    """
    axis = LogOdds(edges[0], edges[-1])
    most = max(1, *(max(counts) for _, _, counts in kinds))
    words = ", ".join(f"{sum(counts)} {said}" for _, said, counts in kinds)
    description = f"Rows by probability: {words}. Thresholds: " + (
        ", ".join(f"{action} from {at:.4g}" for action, at in cuts) or "none"
    )

    def height(rows: int) -> float:
        return _HEIGHT * math.log1p(rows) / math.log1p(most)

    parts = []
    step = _WIDTH / (len(edges) - 1)
    width = (step - 1) / len(kinds)
    for place, (low, high) in enumerate(pairwise(edges)):
        for column, (class_, said, counts) in enumerate(kinds):
            if own := height(counts[place]):
                hint = f"{low:.3g} to {high:.3g}: {counts[place]} {said}"
                x = _LEFT + place * step + 0.5 + column * width
                parts.append(svg.bar(x, _TOP + _HEIGHT - own, width, own, class_, hint))
    parts.append(svg.line(_LEFT, _TOP + _HEIGHT, _LEFT + _WIDTH, _TOP + _HEIGHT, "axis"))
    parts += [
        svg.text(_LEFT - 6, _TOP + _HEIGHT - height(rows) + 4, svg.thousands(rows), "tick", "end")
        for rows in sorted({1, most})
    ]
    for place, (action, at) in enumerate(cuts):
        share = axis.at(at)
        x, top = _LEFT + _WIDTH * share, _TOP - 8 - _ROW * (place % 3)
        parts += [
            svg.line(x, top - 10, x, _TOP + _HEIGHT, "cut"),
            svg.text(x - 6 if share > 0.5 else x + 6, top, action, "label", "end" if share > 0.5 else "start"),
        ]
    parts += [
        svg.text(_LEFT + _WIDTH * axis.at(tick), _TOP + _HEIGHT + 16, written(tick), "tick", "middle")
        for tick in axis.ticks
    ]
    below = "probability (log-odds scale); rows on a logarithmic scale"
    parts.append(svg.text(_LEFT + _WIDTH / 2, _TOP + _HEIGHT + 34, below, "label", "middle"))
    return svg.figure(key, _SIZE, title, description, *parts)
