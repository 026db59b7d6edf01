"""The evidence of a monitor against the level of its alarm."""

from __future__ import annotations

from markupsafe import Markup

from service.dashboard.charts import svg

_SIZE = 200, 20


def evidence(key: str, title: str, value: float, peak: float, fires_at: float) -> Markup:
    """Draw the evidence as a bar, with the level at which the alarm fires.

    Args:
        key: Makes its ids unique in the page.
        title: What it is of.
        value: Logarithm of the monitor's capital; drawn as 0 where it is below.
        peak: Its largest value so far.
        fires_at: At which the alarm goes off, > 0.
    """
    reach = max(fires_at, peak, value) * 1.05
    length, most, end = (_SIZE[0] * min(max(at, 0.0) / reach, 1.0) for at in (value, peak, fires_at))
    return svg.figure(
        key,
        _SIZE,
        title,
        f"Evidence {value:.2f}, at most {peak:.2f} so far; the alarm goes off at {fires_at:.2f}.",
        svg.bar(0, 6, _SIZE[0], 8, "track"),
        svg.bar(0, 6, length, 8, "wrong" if peak >= fires_at else "right"),
        svg.line(most, 4, most, 16, "axis"),
        svg.line(end, 1, end, 19, "cut"),
    )
