"""Bars of several kinds, hour by hour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from markupsafe import Markup

from service.dashboard.charts import svg

KINDS: Final = ("first", "second", "third", "fourth", "fifth", "sixth")
"""Classes of the stylesheet, in the order of the kinds; further kinds share the last."""

_SIZE = 880, 236
_LEFT, _WIDTH, _TOP, _HEIGHT = 70.0, 796.0, 46.0, 150.0


def stacked(
    key: str,
    title: str,
    kinds: Mapping[str, Sequence[float]],
    hours: int,
    marks: Sequence[tuple[float, str]] = (),
) -> Markup:
    """Draw a bar an hour, the present one last.

    Args:
        key: Makes its ids unique in the page.
        title: What it is of.
        kinds: Rows of each hour by kind; from below to above.
        hours: How many hours.
        marks: Hours from the start of the first one, and names of activations; those outside are left out.
    """
    totals = [sum(values[hour] for values in kinds.values()) for hour in range(hours)]
    most = max([*totals, 1.0])
    said = ", ".join(f"{name}: {round(sum(values))}" for name, values in kinds.items())
    step = _WIDTH / hours
    parts = [
        svg.line(_LEFT, _TOP, _LEFT + _WIDTH, _TOP, "grid"),
        svg.text(_LEFT - 6, _TOP + 4, svg.thousands(round(most)), "tick", "end"),
        svg.text(_LEFT - 6, _TOP + _HEIGHT + 4, "0", "tick", "end"),
    ]
    for hour in range(hours):
        height = 0.0
        for place, (name, values) in enumerate(kinds.items()):
            own = _HEIGHT * values[hour] / most
            height += own
            if own:
                class_ = KINDS[min(place, len(KINDS) - 1)]
                hint = f"{hours - 1 - hour} h ago: {round(values[hour])} {name}"
                parts.append(
                    svg.bar(_LEFT + hour * step + 1, _TOP + _HEIGHT - height, step - 2, own, f"kind {class_}", hint)
                )
    bottom = _TOP + _HEIGHT
    shown = [(at, revision) for at, revision in marks if 0 <= at <= hours]
    for place, (at, revision) in enumerate(shown):
        x = _LEFT + at * step
        parts += [
            svg.line(x, _TOP - 4, x, bottom, "mark"),
            svg.text(x, _TOP - 8 - 13 * (place % 3), revision, "label", "middle"),
        ]
    activated = ", ".join(revision for _, revision in shown)
    parts += [
        svg.line(_LEFT, bottom, _LEFT + _WIDTH, bottom, "axis"),
        svg.text(_LEFT, bottom + 18, f"{hours} hours ago", "tick"),
        svg.text(_LEFT + _WIDTH, bottom + 18, "now", "tick", "end"),
    ]
    return svg.figure(key, _SIZE, title, f"{said or 'no rows'}. Activated: {activated or 'nothing'}.", *parts)
