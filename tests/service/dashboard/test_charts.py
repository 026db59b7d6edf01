"""Charts: what is drawn is what was given, it is well-formed, and nothing in it can be anything but text."""

from __future__ import annotations

import math
from collections.abc import Callable
from xml.etree import ElementTree as ET

import pytest
from markupsafe import Markup

from service.dashboard.charts import svg
from service.dashboard.charts.confidence import confidence
from service.dashboard.charts.curves import arrivals, precision_recall
from service.dashboard.charts.difference import difference
from service.dashboard.charts.evidence import evidence
from service.dashboard.charts.indices import indices
from service.dashboard.charts.positives import Bin, positives
from service.dashboard.charts.reliability import Curve, reliability
from service.dashboard.charts.scores import scores
from service.dashboard.charts.stacked import stacked
from service.dashboard.charts.timeline import Estimate, Series, timeline
from service.dashboard.charts.traffic import traffic

HOSTILE = "<script>alert('x')</script>\"&"
CURVE = Curve([0.2, 0.9], [0.5, 0.9], [0.3, 0.8], [0.7, 0.95], [10, 90])
DAY = (0, 86_400_000_000)
BINS = [Bin(0.001, 0.0, 0.0, 0.004, 900), Bin(0.02, 0.05, 0.03, 0.08, 90), Bin(0.9, 1.0, 0.6, 1.0, 9)]
CHARTS: dict[str, Callable[[str], Markup]] = {
    "reliability": lambda title: reliability("a", title, CURVE),
    "reliability of nothing": lambda title: reliability("a", title, Curve([], [], [], [], [])),
    "confidence": lambda title: confidence("a", title, [0, 0.5, 1], [3, 90], [5, 2]),
    "confidence of nothing": lambda title: confidence("a", title, [0, 0.5, 1], [0, 0], [0, 0]),
    "traffic": lambda title: traffic("a", title, [0] * 23 + [7], 50),
    "difference": lambda title: difference("a", title, -0.1, -0.2, 0.05),
    "evidence": lambda title: evidence("a", title, 1.2, 2.0, 3.0),
    "evidence below none": lambda title: evidence("a", title, -40.0, 0.0, 3.0),
    "positives": lambda title: positives("a", title, BINS),
    "positives of nothing": lambda title: positives("a", title, []),
    "precision and recall": lambda title: precision_recall("a", title, [0.5, 1], [1, 0.1], 0.001),
    "arrivals": lambda title: arrivals("a", title, [(0.5, 0.2), (90_000.0, 0.9)]),
    "arrivals of nothing": lambda title: arrivals("a", title, []),
    "stacked": lambda title: stacked("a", title, {title: [1, 2], **{f"{n}": [0, n] for n in range(9)}}, 2),
    "stacked nothing": lambda title: stacked("a", title, {}, 24),
    "indices": lambda title: indices("a", title, [(title, 0.3, 0.01, True), ("x", 0.0, 0.01, False)]),
    "timeline": lambda title: timeline(
        "a",
        title,
        DAY,
        [Series("first", title, [0.1, None, 0.2, 0.3])],
        marks=[(DAY[1] // 2, title)],
        estimates=[None, Estimate(0.1, 0.0, 0.9, False, title), None, None],
    ),
    "timeline of nothing": lambda title: timeline("a", title, DAY, [Series("first", title, [None])], marks=[]),
    "timeline of log-odds": lambda title: timeline(
        "a", title, DAY, [Series("first", title, [0.0, 1e-9, 1.0])], marks=[], even_in_log_odds=True
    ),
    "no difference": lambda title: difference("a", title, 0.0, 0.0, 0.0),
    "scores": lambda title: scores(
        "a", title, [0.001, 0.1, 0.9], [("right", title, [1, 2]), ("rows", title, [0, 0])], [(title, 0.9)]
    ),
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


def test_rare_positives_lie_evenly_in_log_odds() -> None:
    root = ET.fromstring(positives("a", "t", BINS))
    ideal = next(element for element in root.iter("line") if element.get("class") == "ideal")
    (x0, y0), (x1, y1) = ((float(ideal.get(f"x{end}", 0)), float(ideal.get(f"y{end}", 0))) for end in (1, 2))
    points = [(float(p.get("cx", 0)), float(p.get("cy", 0))) for p in root.iter("circle")]
    ends = [math.log(share / (1 - share)) for share in (0.001, 0.9)]
    place = [(math.log(share / (1 - share)) - ends[0]) / (ends[1] - ends[0]) for share in (0.02, 0.05)]
    shares = [((x - x0) / (x1 - x0), (y - y0) / (y1 - y0)) for x, y in points]
    assert shares == [pytest.approx(pair, abs=1e-3) for pair in ((0, 0), tuple(place), (1, 1))]
    assert [p.get("class") for p in root.iter("circle")] == ["point hollow", "point", "point hollow"]
    assert "In 0 of them the probability lies above the 95 % interval of the share, in 1 below it." in (
        root[1].text or ""
    )


@pytest.mark.parametrize("values", [[], [None, None], [0.0, 0.0]])
def test_the_axis_of_a_chart_without_shares_ends_at_the_whole(values: list[float | None]) -> None:
    root = ET.fromstring(timeline("a", "t", DAY, [Series("first", "t", values)], marks=[]))
    ticks = [one.text for one in root.iter("text") if one.get("text-anchor") == "end"][:3]
    assert ticks == ["0\xa0%", "50\xa0%", "100\xa0%"]


def test_a_gap_breaks_a_line_and_a_mark_lies_at_its_time() -> None:
    line = Series("first", "t", [0.1, 0.1, None, 0.2, 0.2])
    root = ET.fromstring(timeline("a", "t", DAY, [line], marks=[(DAY[1] // 4, "r7")]))
    assert [len((one.get("points") or "").split()) for one in root.iter("polyline")] == [2, 2]
    mark = next(element for element in root.iter("line") if element.get("class") == "mark")
    grid = next(element for element in root.iter("line") if element.get("class") == "axis")
    left, right = float(grid.get("x1", 0)), float(grid.get("x2", 0))
    assert float(mark.get("x1", 0)) == pytest.approx(left + (right - left) / 4, abs=0.01)


def test_an_activation_lies_between_the_hours_before_and_after_it() -> None:
    root = ET.fromstring(stacked("a", "hours", {"allow": [1.0, 1.0]}, 2, [(1.5, "r7"), (-3.0, "r1")]))
    (mark,) = (line for line in root.iter() if line.get("class") == "mark")
    first, second = (bar for bar in root.iter() if bar.tag == "rect")
    middle = float(second.get("x", "0")) + float(second.get("width", "0")) / 2
    assert float(first.get("x", "0")) < float(mark.get("x1", "0")) == pytest.approx(middle)
    assert str(root[1].text).endswith("Activated: r7.")


def test_right_and_wrong_are_on_one_scale() -> None:
    root = ET.fromstring(confidence("a", "t", [0, 0.5, 1], [30, 90], [60, 0]))
    heights = [float(bar.get("height", 0)) for bar in root.iter("rect")]
    assert heights[2] / heights[0] == pytest.approx(3, rel=1e-2)
    assert heights[1] / heights[0] == pytest.approx(2, rel=1e-2)


def test_one_rare_positive_stands_beside_a_thousand_others() -> None:
    edges, kinds = [0.001, 0.01, 0.1], [("right", "positive", [1, 0]), ("wrong", "negative", [999, 0])]
    root = ET.fromstring(scores("a", "rows", edges, kinds, [("block", 0.01)]))
    bars = {bar.get("class"): bar for bar in root.iter() if bar.tag == "rect"}
    heights = {name: float(bar.get("height", "0")) for name, bar in bars.items()}
    assert heights["right"] == pytest.approx(0.1 * heights["wrong"], rel=0.01)  # ln 2 of ln 1,000
    (cut,) = (line for line in root.iter() if line.get("class") == "cut")
    assert float(cut.get("x1", "0")) == pytest.approx(float(bars["wrong"].get("x", "0")) + 206, abs=15)


def test_a_capped_hour_is_said_to_be_one() -> None:
    assert "at least" in traffic("a", "t", [50], 50)
    assert "at least" not in traffic("a", "t", [49], 50)


def test_attributes_and_text_are_escaped() -> None:
    assert svg.element("text", HOSTILE, class_=HOSTILE).count("<") == 2
