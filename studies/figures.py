"""Figures of studies. matplotlib is imported when the first is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from studies.measure import DENSITY_BINS
from studies.study import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#000000", "#8C564B")
_DASHES = ("solid", "dashed", "dashdot", "dotted")
_LEVELS = ((0, (1, 2)), (0, (5, 2)), (0, (5, 2, 1, 2)))


def curves_by_epoch(
    groups: Mapping[str, Sequence[Result]],
    metric: str,
    *,
    title: str,
    ylabel: str,
    levels: Mapping[str, float],
) -> Figure:
    """Draw a metric of the validation rows after each epoch: mean and range over seeds.

    Args:
        groups: Results by name of a line.
        metric: Field of `training.evaluate.Evaluation`.
        title: Title of the figure.
        ylabel: Label of the vertical axis.
        levels: Heights of horizontal lines, by name.
    """
    figure, axes = _single(title)
    for place, (name, results) in enumerate(groups.items()):
        runs = [
            [
                np.nan if epoch["validation"][metric] is None else epoch["validation"][metric]
                for epoch in result["epochs"]
            ]
            for result in results
            if result["epochs"] and result["epochs"][0]["validation"] is not None
        ]
        if not runs:
            continue
        shortest = min(map(len, runs))
        table = 100 * np.array([run[:shortest] for run in runs], np.float64)
        epochs = np.arange(1, shortest + 1)
        axes.plot(epochs, table.mean(axis=0), label=name, **_style(place))
        if len(runs) > 1:
            low, high = table.min(axis=0), table.max(axis=0)
            axes.fill_between(epochs, low, high, color=_style(place)["color"], alpha=0.12, linewidth=0)
    _levels(axes, levels)
    axes.set(xlabel="epoch", ylabel=ylabel, ylim=(0, None))
    axes.locator_params(axis="x", integer=True)
    _legend(figure, axes)
    return figure


def curves(
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    log: bool = False,
    marks: Mapping[str, float] | None = None,
    levels: Mapping[str, float] | None = None,
) -> Figure:
    """Draw lines through points.

    Args:
        lines: Horizontal and vertical positions by name.
        title: Title of the figure.
        xlabel: Label of the horizontal axis.
        ylabel: Label of the vertical axis.
        log: Whether the horizontal axis is logarithmic.
        marks: Positions of vertical lines, by the name of the line whose colour they take.
        levels: Heights of horizontal lines, by name.
    """
    figure, axes = _single(title)
    for place, (name, (across, up)) in enumerate(lines.items()):
        axes.plot(across, up, label=name, marker="o" if _few(across) else None, markersize=4, **_style(place))
        if marks and name in marks:
            axes.axvline(marks[name], color=_style(place)["color"], linewidth=1, linestyle=(0, (4, 3)))
    _levels(axes, levels)
    axes.set(xlabel=xlabel, ylabel=ylabel, ylim=(0, None))
    if log:
        _logarithmic(axes, sorted({place for across, _ in lines.values() for place in across}))
    _legend(figure, axes)
    return figure


def sweeps(
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    coefficients: Mapping[str, Sequence[float]],
    *,
    title: str,
    ylabel: str,
    levels: Mapping[str, float],
) -> Figure:
    """Draw a metric against the coefficient, one panel per loss.

    Args:
        panels: For each loss, heights by name of a line, one for each coefficient.
        coefficients: Coefficients of each loss, ascending; drawn at equal distances.
        title: Title of the figure.
        ylabel: Label of the vertical axis.
        levels: Heights of horizontal lines in every panel, by name.
    """
    figure, axes_of = _panels(title, len(panels))
    for axes, (loss, lines) in zip(axes_of, panels.items(), strict=True):
        for place, (name, up) in enumerate(lines.items()):
            axes.plot(range(len(up)), up, label=name, marker="o", markersize=4, **_style(place))
        _levels(axes, levels)
        axes.set_title(loss, fontsize=9, loc="left")
        axes.set_xticks(range(len(coefficients[loss])), [f"{value:g}" for value in coefficients[loss]])
        axes.set(xlabel="coefficient", ylim=(0, None))
    axes_of[0].set_ylabel(ylabel)
    _legend(figure, axes_of[0])
    return figure


def densities(groups: Mapping[str, Sequence[Result]], method: str, *, title: str) -> Figure:
    """Draw the densities of confidence for right and wrong answers, all seeds together, one panel per name."""
    figure, panels = _panels(title, len(groups), share="all")
    edges = np.linspace(0, 1, DENSITY_BINS + 1)
    first = DENSITY_BINS
    for axes, (name, results) in zip(panels, groups.items(), strict=True):
        for place, what in enumerate(("right", "wrong")):
            counts = np.sum([result["density"][method][what] for result in results], axis=0).astype(np.float64)
            first = min(first, *np.flatnonzero(counts).tolist()[:1], DENSITY_BINS - 1)
            _steps(axes, counts / max(counts.sum(), 1.0) * DENSITY_BINS, edges, place, what)
        axes.set_title(name, fontsize=9, loc="left")
        axes.set(yscale="log", xlabel="confidence")
        axes.minorticks_off()
    panels[0].set(xlim=(edges[first], 1), ylabel="density")
    _legend(figure, panels[0])
    return figure


def reliability(groups: Mapping[str, Sequence[Result]], method: str, *, title: str) -> Figure:
    """Draw accuracy by confidence in ten bins, first seed, one panel per name; the darker a bar, the more rows."""
    figure, panels = _panels(title, len(groups), share="all")
    edges = np.linspace(0, 1, 11)
    for axes, (name, results) in zip(panels, groups.items(), strict=True):
        right, wrong = (
            np.reshape(results[0]["density"][method][what], (10, -1)).sum(axis=1) for what in ("right", "wrong")
        )
        rows = right + wrong
        heights = right / np.maximum(rows, 1)
        for place in np.flatnonzero(rows):
            shade = 0.2 + 0.8 * float(np.sqrt(rows[place] / rows.max()))
            axes.bar(edges[place], heights[place], 0.1, align="edge", color=COLOURS[0], alpha=shade)
        axes.plot((0, 1), (0, 1), color="#262626", linewidth=1, linestyle=(0, (4, 3)))
        axes.set_title(name, fontsize=9, loc="left")
        axes.set(xlabel="confidence", xlim=(0, 1), ylim=(0, 1))
    panels[0].set_ylabel("accuracy")
    return figure


def largest_logit_histograms(groups: Mapping[str, Sequence[Result]], *, title: str) -> Figure:
    """Draw the largest logit of training rows by learned epoch, first seed, one panel per name.

    All panels share the horizontal axis, so that they show how far each loss compresses logits.
    """
    figure, panels = _panels(title, len(groups), share="x")
    for axes, (name, results) in zip(panels, groups.items(), strict=True):
        last = len(results[0]["epochs"])
        for place, group in enumerate(results[0]["largest_logits"]):
            _steps(axes, group["counts"], group["edges"], place, _learned(group["first"], group["last"], last))
        axes.set_title(name, fontsize=9, loc="left")
        axes.set(xlabel="largest logit", yscale="log")
        axes.minorticks_off()
    panels[0].set_ylabel("training rows")
    _legend(figure, max(panels, key=lambda axes: len(axes.get_legend_handles_labels()[0])))
    return figure


def confusions(groups: Mapping[str, Sequence[Result]], labels: Sequence[str], *, title: str) -> Figure:
    """Draw confusion matrices of the test rows, mean over seeds, one panel per name."""
    figure, panels = _panels(title, len(groups))
    for axes, (name, results) in zip(panels, groups.items(), strict=True):
        mean = np.mean([result["confusion"] for result in results], axis=0)
        axes.imshow(mean, cmap="Blues", vmin=0)
        for (row, column), count in np.ndenumerate(mean):
            dark = count > mean.max() / 2
            axes.text(column, row, f"{count:.0f}", ha="center", va="center", color="white" if dark else "black")
        axes.set_title(name, fontsize=9, loc="left")
        axes.set_xticks(range(len(labels)), labels)
        axes.set_yticks(range(len(labels)), labels)
        axes.set(xlabel="predicted", ylabel="true")
        axes.grid(visible=False)
    return figure


def _style(place: int) -> dict[str, Any]:
    """Return colour and dashes of a line; the first 36 pairs are distinct."""
    return {
        "color": COLOURS[place % len(COLOURS)],
        "linestyle": _DASHES[place // len(COLOURS) % len(_DASHES)],
        "linewidth": 1.6,
    }


def _steps(axes: Axes, heights: ArrayLike, edges: ArrayLike, place: int, name: str) -> None:
    """Draw a histogram that others show through: its outline with a faint fill."""
    colour = COLOURS[place % len(COLOURS)]
    axes.stairs(heights, edges, color=colour, label=name, linewidth=1.2)
    axes.stairs(heights, edges, color=colour, fill=True, alpha=0.12)


def _levels(axes: Axes, levels: Mapping[str, float] | None) -> None:
    for (name, height), dashes in zip((levels or {}).items(), _LEVELS, strict=False):
        axes.axhline(height, color="#262626", linewidth=1, linestyle=dashes, label=name)


def _learned(first: int, last: int, epochs: int) -> str:
    """Name a range of learned epochs; the one after the last means that the row was wrong in the last epoch."""
    if last > epochs:
        return f"epoch {first} or never" if first >= epochs else f"epochs {first}–{epochs} or never"
    return f"epoch {first}" if first == last else f"epochs {first}–{last}"


def _few(places: Sequence[float]) -> bool:
    return len(places) < 15


def _logarithmic(axes: Axes, places: Sequence[float]) -> None:
    """Make the axis logarithmic with plain numbers: ticks at the points if they are few, else at powers of two."""
    axes.set_xscale("log")
    low, high = np.log2(places[0]), np.log2(places[-1])
    ticks = places if _few(places) else 2.0 ** np.arange(np.ceil(low), np.floor(high) + 1)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def _single(title: str) -> tuple[Figure, Axes]:
    figure, panels = _panels(title, 1, width=8.6, height=4.2)
    return figure, panels[0]


def _panels(
    title: str, count: int, *, width: float = 3.2, height: float = 2.8, share: Literal["all", "x"] | None = None
) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    columns = min(count, 3)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns + (1.4 if count > 1 else 0), height * rows + 0.4), layout="constrained")
    figure.suptitle(title, x=0.02, ha="left", fontsize=11, fontweight="bold")
    panels = list(
        figure.subplots(rows, columns, squeeze=False, sharex=share is not None, sharey=share == "all").ravel()
    )
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#E6E6E6", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=8, labelbottom=True, labelleft=True)
    for axes in panels[count:]:
        axes.remove()
    return figure, panels[:count]


def _legend(figure: Figure, axes: Axes) -> None:
    """Draw one legend beside the panels."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside right upper", fontsize=8, frameon=False)
