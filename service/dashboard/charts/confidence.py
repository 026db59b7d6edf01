"""The distribution of confidences, of right and of wrong answers."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from service.dashboard.charts import svg

_SIZE = 340, 392
_LEFT, _WIDTH = 46.0, 280.0
_TOP, _HEIGHT = 24.0, 306.0
_LEAST = 12.0  # height of either half


def confidence(key: str, title: str, edges: Sequence[float], right: Sequence[int], wrong: Sequence[int]) -> Markup:
    """Draw right answers upwards and wrong ones downwards from one axis, on one scale.

    Args:
        key: Makes its ids unique in the page.
        title: What it is of.
        edges: Of the B bins, B + 1 of them.
        right: Right answers in each bin.
        wrong: Wrong answers in each bin.
    """
    up, down = max(1, *right), max(1, *wrong)
    below = min(max(_HEIGHT * down / (up + down), _LEAST), _HEIGHT - _LEAST)
    scale = min((_HEIGHT - below) / up, below / down)
    middle, end = _TOP + _HEIGHT - below, _TOP + _HEIGHT
    counts = sum(right), sum(wrong)
    share = counts[1] / max(1, sum(counts))
    description = f"{counts[0]} right answers and {counts[1]} wrong ones ({share:.1%}), by confidence."
    parts = [
        svg.line(_LEFT, middle - scale * up, _LEFT + _WIDTH, middle - scale * up, "grid"),
        svg.line(_LEFT, middle - scale * up / 2, _LEFT + _WIDTH, middle - scale * up / 2, "grid"),
        svg.text(_LEFT - 6, middle - scale * up + 4, svg.thousands(up), "tick", "end"),
        svg.text(_LEFT - 6, middle + 4, "0", "tick", "end"),
        svg.text(_LEFT, _TOP - 10, f"{svg.thousands(counts[0])} right, above", "label"),
        svg.text(_LEFT + _WIDTH, _TOP - 10, f"{svg.thousands(counts[1])} wrong, below", "label", "end"),
    ]
    for low, high, good, bad in zip(edges[:-1], edges[1:], right, wrong, strict=True):
        x, width = _LEFT + _WIDTH * low + 1, _WIDTH * (high - low) - 2
        said = f"confidence {low:.0%} to {high:.0%}"
        parts += [
            svg.bar(x, middle - scale * good, width, scale * good, "right", f"{said}: {good} right"),
            svg.bar(x, middle + 2, width, scale * bad, "wrong", f"{said}: {bad} wrong"),
        ]
    parts += [svg.line(_LEFT, middle + 1, _LEFT + _WIDTH, middle + 1, "axis")]
    parts += [svg.text(_LEFT + _WIDTH * at, end + 16, f"{at:g}", "tick", "middle") for at in (0, 0.25, 0.5, 0.75, 1)]
    parts.append(svg.text(_LEFT + _WIDTH / 2, end + 34, "confidence", "label", "middle"))
    return svg.figure(key, _SIZE, title, description, *parts)
