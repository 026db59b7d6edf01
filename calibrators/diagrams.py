"""Reliability diagrams and confidence histograms.

matplotlib is optional and imported on the first call. A figure uses no global state and opens no window, so it is
thread-safe; save it with ``figure.savefig(...)``. The colours suit colour-blind readers and grey print.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import scipy

from calibrators.arrays import ArrayLike
from calibrators.binning import Scheme, bin_index
from calibrators.effective_rows import WeightKind
from calibrators.errors import CalibrationDataError, shown
from calibrators.metrics.corp import CorpCurve, corp_reliability
from calibrators.metrics.null_test import CalibrationTest, calibration_test
from calibrators.metrics.reliability import ReliabilityCurve, reliability_curve
from calibrators.metrics.rows import top_labels, weighted_mean
from calibrators.validation import check_choice

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Axis: TypeAlias = Literal["linear", "logit"]
AXES: tuple[Axis, ...] = ("linear", "logit")
_BLUE, _VERMILION, _GREY, _INK = "#0072B2", "#D55E00", "#8C8C8C", "#262626"


def reliability_diagram(
    probabilities: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    scheme: Scheme = "width",
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
    positive: int | None = None,
    axis: Axis = "linear",
    title: str = "Reliability",
    weight_kind: WeightKind = "importance",
) -> Figure:
    """Draw accuracy against confidence: a bar per bin, its gap to the mean confidence, and the share of rows in it.

    Below the title stands the expected calibration error (ECE), with the mean and 95 % quantile of a calibrated model
    on these rows.

    For rare events use ``positive=1, axis="logit", scheme="mass"``: axes of log-odds, a point per bin, and the isotonic
    curve with its 90 % consistency band. A bin in which the event never or always happened becomes a triangle at the
    edge.

    `calibrators.metrics` describes the shared arguments. ``axis`` is ``"linear"`` or ``"logit"``; ``title`` is drawn as
    given.

    Raises:
        CalibrationDataError: Wrong shapes, types, values or options; for ``"logit"``, only probabilities of exactly 0
            or 1.
        ImportError: matplotlib is not installed.

    References:
        DeGroot, Fienberg (1983); gaps: Guo et al. (2017), figure 1; isotonic curve: Dimitriadis, Gneiting, Jordan
        (2021).
    """
    check_choice(axis, AXES, "axis")
    stated, happened = "confidence", "accuracy"
    if positive is not None:
        stated, happened = f"probability of class {positive}", "frequency"
    judged: dict[str, Any] = {"predicted": predicted, "positive": positive}
    curve = reliability_curve(probabilities, labels, bins, scheme, sample_weight, **judged)
    test = calibration_test(probabilities, labels, bins, scheme, 1, sample_weight, **judged, weight_kind=weight_kind)
    figure, axes, strip = _panels(title, _calibration_note(test))
    axes.set(ylabel=happened)
    strip.set(xlabel=stated, ylabel="share of rows")
    if axis == "logit":
        band = corp_reliability(probabilities, labels, sample_weight, **judged, weight_kind=weight_kind)
        _draw_log_odds(axes, strip, curve, band)
        return figure
    width = curve.upper - curve.lower
    edge: dict[str, Any] = {"align": "edge", "edgecolor": "white", "linewidth": 0.8}
    axes.bar(curve.lower, curve.accuracy, width, color=_BLUE, label=happened, **edge)
    axes.bar(
        curve.lower,
        curve.confidence - curve.accuracy,
        width,
        bottom=curve.accuracy,
        align="edge",
        facecolor=(*_rgb(_VERMILION), 0.25),
        edgecolor=_VERMILION,
        linewidth=0.8,
        hatch="////",
        label="gap to what was stated" if positive is not None else "gap to confidence",
    )
    axes.plot([0, 1], [0, 1], color=_INK, linewidth=1, linestyle=(0, (4, 3)), label="calibrated")
    axes.set(ylim=(0, 1))
    axes.legend(loc="upper left", framealpha=0.9, edgecolor="white", fontsize=9)
    strip.bar(curve.lower, curve.share, width, color=_GREY, **edge)
    strip.set(xlim=(0, 1), ylim=(0, None))
    return figure


def confidence_histogram(
    probabilities: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
    title: str = "Confidence",
    weight_kind: WeightKind = "importance",
) -> Figure:
    """Draw the distribution of confidences, right and wrong answers apart, with lines at mean confidence and accuracy.

    The two lines of a calibrated model coincide. The ECE stands below the title, and the arguments are the same as in
    `reliability_diagram`. Bins have equal width.

    Raises:
        CalibrationDataError: Wrong shapes, types, values or options.
        ImportError: matplotlib is not installed.

    References:
        Guo et al. (2017), figure 1, top.
    """
    test = calibration_test(
        probabilities, labels, bins, "width", 1, sample_weight, predicted=predicted, weight_kind=weight_kind
    )
    rows = top_labels(probabilities, labels, sample_weight, predicted)
    figure, axes, strip = _panels(title, _calibration_note(test))
    edges = np.arange(bins + 1) / bins
    weight = np.ones(len(rows.correct)) if rows.weight is None else rows.weight
    index = bin_index(rows.confidence, edges.astype(rows.confidence.dtype))
    right = np.bincount(index[rows.correct], weight[rows.correct], bins) / weight.sum()
    wrong = np.bincount(index[~rows.correct], weight[~rows.correct], bins) / weight.sum()
    shape: dict[str, Any] = {"width": 1 / bins, "align": "edge", "edgecolor": "white", "linewidth": 0.8}
    axes.bar(edges[:-1], right, color=_BLUE, label="right", **shape)
    axes.bar(edges[:-1], wrong, bottom=right, color=_VERMILION, hatch="////", label="wrong", **shape)
    lines: tuple[tuple[str, float, Any], ...] = (
        ("accuracy", weighted_mean(rows.correct.astype(np.float64), rows.weight), "solid"),
        ("mean confidence", weighted_mean(rows.confidence.astype(np.float64), rows.weight), (0, (4, 3))),
    )
    for name, value, style in lines:
        axes.axvline(value, color=_INK, linewidth=1.2, linestyle=style, label=f"{name} {value:.3f}")
    axes.set(ylabel="share of rows", ylim=(0, None))
    axes.legend(loc="upper left", framealpha=0.9, edgecolor="white", fontsize=9)
    total = right + wrong
    strip.bar(edges[:-1], np.divide(wrong, total, out=np.zeros(bins), where=total > 0), color=_VERMILION, **shape)
    strip.set(xlabel="confidence", ylabel="share wrong", xlim=(0, 1), ylim=(0, 1))
    return figure


def _draw_log_odds(axes: Axes, strip: Axes, curve: ReliabilityCurve, band: CorpCurve) -> None:
    """Draw points, isotonic curve and band on axes of log-odds, and the distribution of rows below."""
    inner = (band.probability > 0) & (band.probability < 1)
    if not inner.any():
        raise CalibrationDataError(
            "Nothing to draw",
            where="probabilities",
            found="exactly 0 or 1 in every row",
            expected="some inside (0, 1), for a log-odds axis",
        )
    stated, share = band.probability[inner], band.share[inner]
    seen = curve.accuracy[(curve.accuracy > 0) & (curve.accuracy < 1)]
    ends = scipy.special.logit([min(stated[0], *seen), max(stated[-1], *seen)] if len(seen) else stated[[0, -1]])
    margin = 0.05 * (ends[1] - ends[0]) + 0.2
    low, high = scipy.special.expit([ends[0] - margin, ends[1] + margin]).tolist()
    strip.set_xscale("logit")
    axes.set_yscale("logit")
    axes.tick_params(axis="x", which="both", labelbottom=False)

    lower, upper, frequency = (np.clip(values[inner], low, high) for values in (band.lower, band.upper, band.frequency))
    axes.fill_between(stated, lower, upper, color=_GREY, alpha=0.25, linewidth=0, label="90 % if calibrated")
    cuts = np.linspace(ends[0] - margin, ends[1] + margin, 41)
    line = scipy.special.expit(cuts)
    axes.plot(line, line, color=_INK, linewidth=1, linestyle=(0, (4, 3)), label="calibrated")
    axes.plot(stated, frequency, color=_VERMILION, linewidth=1.4, label="isotonic")
    centre = np.clip(curve.confidence, low, high)
    for kept, height, marker in (
        ((curve.accuracy > 0) & (curve.accuracy < 1), curve.accuracy, "o"),
        (curve.accuracy == 0, np.full(len(centre), low), "v"),
        (curve.accuracy == 1, np.full(len(centre), high), "^"),
    ):
        if not kept.any():
            continue
        label = "bins" if marker == "o" else "_" + marker
        axes.plot(centre[kept], height[kept], marker, color=_BLUE, markersize=5, clip_on=False, zorder=5, label=label)
    axes.set(xlim=(low, high), ylim=(low, high))
    axes.legend(loc="upper left", framealpha=0.9, edgecolor="white", fontsize=9)

    heights = np.histogram(scipy.special.logit(stated), cuts, weights=share)[0]
    strip.stairs(heights, line, fill=True, color=_GREY)
    strip.set(ylim=(0, None))


def _calibration_note(test: CalibrationTest) -> str:
    # Rare events have errors below any fixed number of decimals.
    places = 3 if test.error >= 0.01 or test.null_mean >= 0.01 else 5
    error, mean, quantile = (f"{value:.{places}f}" for value in (test.error, test.null_mean, test.null_quantile))
    return f"ECE {error}   if calibrated: mean {mean}, 95 % below {quantile}"


def _panels(title: str, note: str) -> tuple[Figure, Axes, Axes]:
    """Return a figure with a tall panel above a strip with the same horizontal axis."""
    from matplotlib.figure import Figure

    if not isinstance(title, str):
        raise CalibrationDataError("Bad option", where="title", found=shown(title), expected="a string")
    figure = Figure(figsize=(5.2, 5.6), layout="constrained")
    axes, strip = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    # A title with dollar signs must not be read as a formula.
    figure.suptitle(title, x=0.02, ha="left", fontsize=13, fontweight="bold", color=_INK, parse_math=False)
    axes.set_title(note, loc="left", fontsize=9.5, color=_INK)
    for panel in (axes, strip):
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color="#E6E6E6", linewidth=0.8)
        panel.set_axisbelow(True)
        panel.tick_params(labelsize=9, colors=_INK)
        panel.yaxis.label.set_size(9)
    return figure, axes, strip


def _rgb(colour: str) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    return to_rgb(colour)
