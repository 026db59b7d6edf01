"""Predictions of the last day, hour by hour."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from service.dashboard.charts import svg

_SIZE = 480, 96
_HEIGHT = 70.0


def traffic(key: str, title: str, hours: Sequence[int], at_most: int) -> Markup:
    """Draw a bar an hour, the present one last.

    Args:
        key: Makes its ids unique in the page.
        title: What it is of.
        hours: Predictions of each hour.
        at_most: What an hour is counted to; more is drawn as much, with a mark.
    """
    most = max(1, *hours)
    step = _SIZE[0] / len(hours)
    capped = any(count >= at_most for count in hours)
    total = f"{'at least ' if capped else ''}{svg.thousands(sum(hours))} predictions"
    parts = [svg.line(0, _HEIGHT + 1, _SIZE[0], _HEIGHT + 1, "axis")]
    for place, count in enumerate(hours):
        ago = len(hours) - 1 - place
        when = "this hour" if not ago else f"{ago} h ago"
        height = _HEIGHT * count / most
        said = f"{'at least ' if count >= at_most else ''}{svg.thousands(count)}"
        parts.append(svg.bar(place * step + 1.5, _HEIGHT - height, step - 3, height, "volume", f"{when}: {said}"))
    parts += [
        svg.text(0, _SIZE[1] - 6, f"{len(hours) - 1} h ago", "tick"),
        svg.text(_SIZE[0], _SIZE[1] - 6, "now", "tick", "end"),
        svg.text(
            _SIZE[0] / 2, _SIZE[1] - 6, f"most in an hour: {svg.thousands(max(hours, default=0))}", "tick", "middle"
        ),
    ]
    return svg.figure(key, _SIZE, title, f"{total} in {len(hours)} hours.", *parts)
