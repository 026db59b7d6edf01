"""Recent rows by probability and label, with the thresholds of a policy."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from service.dashboard.charts import svg
from service.dashboard.words import count

_SIZE = 880, 236
_LEFT, _WIDTH, _TOP, _HEIGHT = 44.0, 824.0, 48.0, 140.0
_ROW = 15.0  # between the names of two thresholds, which may lie close


def scores(
    key: str,
    title: str,
    kinds: Sequence[tuple[str, str, Sequence[int]]],
    cuts: Sequence[tuple[str, float]],
) -> Markup:
    """Draw a stacked histogram with a line for each threshold.

    Args:
        key: Makes its ids unique in the page.
        title: What it is of.
        kinds: Class of the bars, words for them, and counts in B bins of equal width from 0 to 1; from below to above.
        cuts: Action of each threshold, and where it lies.
    """
    bins = len(kinds[0][2])
    most = max(1, *(sum(counts[place] for _, _, counts in kinds) for place in range(bins)))
    words = ", ".join(f"{sum(counts)} {said}" for _, said, counts in kinds)
    description = f"Rows by probability: {words}. Thresholds: " + (
        ", ".join(f"{action} from {at:.3f}" for action, at in cuts) or "none"
    )
    parts = []
    step = _WIDTH / bins
    for place in range(bins):
        height = 0.0
        for class_, said, counts in kinds:
            own = _HEIGHT * counts[place] / most
            height += own
            if own:
                hint = f"{place / bins:.2f} to {(place + 1) / bins:.2f}: {counts[place]} {said}"
                parts.append(svg.bar(_LEFT + place * step + 0.5, _TOP + _HEIGHT - height, step - 1, own, class_, hint))
    parts += [
        svg.line(_LEFT, _TOP + _HEIGHT, _LEFT + _WIDTH, _TOP + _HEIGHT, "axis"),
        svg.text(_LEFT - 6, _TOP + 8, count(most), "tick", "end"),
        svg.text(_LEFT - 6, _TOP + _HEIGHT, "rows", "tick", "end"),
    ]
    for place, (action, at) in enumerate(cuts):
        x, top = _LEFT + _WIDTH * at, _TOP - 8 - _ROW * (place % 3)
        parts += [
            svg.line(x, top - 10, x, _TOP + _HEIGHT, "cut"),
            svg.text(x - 6 if at > 0.5 else x + 6, top, action, "label", "end" if at > 0.5 else "start"),
        ]
    parts += [
        svg.text(_LEFT + _WIDTH * at, _TOP + _HEIGHT + 16, f"{at:g}", "tick", "middle")
        for at in (0, 0.25, 0.5, 0.75, 1)
    ]
    parts.append(svg.text(_LEFT + _WIDTH / 2, _TOP + _HEIGHT + 34, "probability", "label", "middle"))
    return svg.figure(key, _SIZE, title, description, *parts)
