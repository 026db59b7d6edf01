"""Charts: what is drawn is what was given, it is well-formed, and nothing in it can be anything but text."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree as ET

import pytest
from markupsafe import Markup

from service.dashboard.charts import svg
from service.dashboard.charts.confidence import confidence
from service.dashboard.charts.difference import difference
from service.dashboard.charts.evidence import evidence
from service.dashboard.charts.reliability import Curve, reliability
from service.dashboard.charts.scores import scores
from service.dashboard.charts.traffic import traffic

HOSTILE = "<script>alert('x')</script>\"&"
CURVE = Curve([0.2, 0.9], [0.5, 0.9], [0.3, 0.8], [0.7, 0.95], [10, 90])
CHARTS: dict[str, Callable[[str], Markup]] = {
    "reliability": lambda title: reliability("a", title, CURVE),
    "reliability of nothing": lambda title: reliability("a", title, Curve([], [], [], [], [])),
    "confidence": lambda title: confidence("a", title, [0, 0.5, 1], [3, 90], [5, 2]),
    "confidence of nothing": lambda title: confidence("a", title, [0, 0.5, 1], [0, 0], [0, 0]),
    "traffic": lambda title: traffic("a", title, [0] * 23 + [7], 50),
    "difference": lambda title: difference("a", title, -0.1, -0.2, 0.05),
    "evidence": lambda title: evidence("a", title, 1.2, 2.0, 3.0),
    "evidence below none": lambda title: evidence("a", title, -40.0, 0.0, 3.0),
    "no difference": lambda title: difference("a", title, 0.0, 0.0, 0.0),
    "scores": lambda title: scores("a", title, [("right", title, [1, 2]), ("rows", title, [0, 0])], [(title, 0.9)]),
}


@pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS)
def test_a_chart_is_well_formed_named_and_harmless(chart: Callable[[str], Markup]) -> None:
    root = ET.fromstring(chart(HOSTILE))
    assert root[0].text == HOSTILE
    assert root[1].tag == "desc"
    assert root.get("aria-labelledby") == f"{root[0].get('id')} {root[1].get('id')}"
    assert not [element for element in root.iter() if element.tag == "script" or element.get("style")]
    for element in root.iter():
        for name in ("x", "y", "width", "height", "cx", "cy", "x1", "y2"):
            float(element.get(name, "0"))


def test_points_lie_where_their_numbers_say() -> None:
    root = ET.fromstring(reliability("a", "t", CURVE))
    ideal = next(element for element in root.iter("line") if element.get("class") == "ideal")
    (x0, y0), (x1, y1) = ((float(ideal.get(f"x{end}", 0)), float(ideal.get(f"y{end}", 0))) for end in (1, 2))
    points = [(float(p.get("cx", 0)), float(p.get("cy", 0))) for p in root.iter("circle")]
    shares = [((x - x0) / (x1 - x0), (y - y0) / (y1 - y0)) for x, y in points]
    assert shares == [pytest.approx(pair, abs=1e-3) for pair in ((0.2, 0.5), (0.9, 0.9))]
    assert "In 0 of them confidence lies above the 95 % interval of the accuracy, in 1 below it." in (
        root[1].text or ""
    )


def test_right_and_wrong_are_on_one_scale() -> None:
    root = ET.fromstring(confidence("a", "t", [0, 0.5, 1], [30, 90], [60, 0]))
    heights = [float(bar.get("height", 0)) for bar in root.iter("rect")]
    assert heights[2] / heights[0] == pytest.approx(3, rel=1e-2)
    assert heights[1] / heights[0] == pytest.approx(2, rel=1e-2)


def test_a_capped_hour_is_said_to_be_one() -> None:
    assert "at least" in traffic("a", "t", [50], 50)
    assert "at least" not in traffic("a", "t", [49], 50)


def test_attributes_and_text_are_escaped() -> None:
    assert svg.element("text", HOSTILE, class_=HOSTILE).count("<") == 2
