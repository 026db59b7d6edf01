"""The reliability diagram: accuracy against confidence, with intervals, and below it the rows of each point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from markupsafe import Markup

from service.dashboard.charts import svg

_SIZE = 340, 392
_LEFT, _TOP, _SIDE = 46.0, 12.0, 280.0
_STRIP_TOP, _STRIP = 306.0, 44.0


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of a reliability diagram, one for each bin that holds a row.

    Attributes:
        confidence: Mean confidence of the bin's rows.
        accuracy: Share of them that is right.
        lower: Lower end of an interval of that share.
        upper: Upper end.
        count: Rows.
    """

    confidence: Sequence[float]
    accuracy: Sequence[float]
    lower: Sequence[float]
    upper: Sequence[float]
    count: Sequence[int]

    @classmethod
    def of(cls, document: dict[str, Any]) -> Self:
        """Read one side of a report's `reliability`."""
        return cls(*(document[name] for name in ("confidence", "accuracy", "lower", "upper", "count")))

    @property
    def rows(self) -> list[tuple[float, float, float, float, int]]:
        """The points, as rows of a table."""
        return list(zip(self.confidence, self.accuracy, self.lower, self.upper, self.count, strict=True))


def reliability(key: str, title: str, curve: Curve) -> Markup:
    """Draw a reliability diagram.

    Args:
        key: Makes its ids unique in the page.
        title: What it is of.
        curve: Its points.
    """
    total, most = sum(curve.count), max(curve.count, default=1)
    under = sum(1 for low, high, said in zip(curve.lower, curve.upper, curve.confidence, strict=True) if said < low)
    over = sum(1 for high, said in zip(curve.upper, curve.confidence, strict=True) if said > high)
    description = (
        f"Accuracy against confidence in {len(curve.count)} bins of {total} rows. In {over} of them confidence lies "
        f"above the 95 % interval of the accuracy, in {under} below it."
    )
    parts = [*_frame(), svg.line(_x(0), _y(0), _x(1), _y(1), "ideal")]
    for said, right, low, high, count in curve.rows:
        hint = f"confidence {said:.1%}, accuracy {right:.1%} ({low:.1%} to {high:.1%}), {count} rows"
        parts += [
            svg.line(_x(said), _y(low), _x(said), _y(high), "interval"),
            svg.element("circle", *svg.hinted(hint), cx=_x(said), cy=_y(right), r=4.5, class_="point"),
            svg.bar(
                _x(said) - 6,
                _STRIP_TOP + _STRIP * (1 - count / most),
                12,
                _STRIP * count / most,
                "rows",
                f"{count} rows",
            ),
        ]
    parts += [
        svg.line(_x(0), _STRIP_TOP + _STRIP, _x(1), _STRIP_TOP + _STRIP, "axis"),
        svg.text(_LEFT - 6, _STRIP_TOP + 10, svg.thousands(most), "tick", "end"),
        svg.text(_LEFT - 6, _STRIP_TOP + _STRIP, "rows", "tick", "end"),
    ]
    parts += [svg.text(_x(at), _STRIP_TOP + _STRIP + 16, f"{at:g}", "tick", "middle") for at in (0, 0.25, 0.5, 0.75, 1)]
    parts.append(svg.text(_x(0.5), _STRIP_TOP + _STRIP + 34, "confidence", "label", "middle"))
    return svg.figure(key, _SIZE, title, description, *parts)


def _frame() -> list[Markup]:
    """Return the grid with its numbers, which all such diagrams share."""
    parts = []
    for at in (0, 0.25, 0.5, 0.75, 1):
        parts += [
            svg.line(_x(0), _y(at), _x(1), _y(at), "grid" if at else "axis"),
            svg.text(_LEFT - 6, _y(at) + 4, f"{at:g}", "tick", "end"),
        ]
    middle = _TOP + _SIDE / 2
    label = svg.element(
        "text", "accuracy", x=12.0, y=middle, class_="label", text_anchor="middle", transform=f"rotate(-90 12 {middle})"
    )
    return [*parts, label]


def _x(share: float) -> float:
    return _LEFT + _SIDE * share


def _y(share: float) -> float:
    return _TOP + _SIDE * (1 - share)
