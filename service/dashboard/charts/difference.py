"""A difference with its interval, against no difference."""

from __future__ import annotations

from markupsafe import Markup

from service.dashboard.charts import svg

_SIZE = 160, 24


def difference(key: str, title: str, value: float, low: float, high: float) -> Markup:
    """Draw a point and its interval on an axis whose middle is zero.

    Args:
        key: Makes its ids unique in the page.
        title: What it is of.
        value: The difference.
        low: Lower end of its interval.
        high: Upper end.
    """
    reach = max(abs(low), abs(high), abs(value), 1e-12) * 1.15
    x_value, x_low, x_high = (_SIZE[0] / 2 * (1 + at / reach) for at in (value, low, high))
    return svg.figure(
        key,
        _SIZE,
        title,
        f"{value:+.4f}, from {low:+.4f} to {high:+.4f}.",
        svg.line(_SIZE[0] / 2, 2, _SIZE[0] / 2, _SIZE[1] - 2, "ideal"),
        svg.line(x_low, _SIZE[1] / 2, x_high, _SIZE[1] / 2, "interval"),
        svg.element("circle", cx=x_value, cy=_SIZE[1] / 2, r=4.5, class_="point"),
    )
