"""Diagrams of studies. matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from training.studies.measure import DENSITY_BINS
from training.studies.study import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#000000", "#8C564B")
_DASHES = ("solid", "dashed", "dashdot", "dotted")


def curves_by_epoch(
    groups: Mapping[str, Sequence[Result]], metric: str, *, title: str, ylabel: str, scale: float = 100.0
) -> Figure:
    """A metric of the validation rows after each epoch: the mean over seeds, and the range between them.

    Args:
        groups: Results by name of a line.
        metric: One of `training.evaluate.Evaluation`.
        title: What to write above.
        ylabel: What the axis shows.
        scale: What the metric is multiplied by.
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
        table = scale * np.array([run[:shortest] for run in runs], np.float64)
        epochs = np.arange(1, shortest + 1)
        colour = COLOURS[place % len(COLOURS)]
        axes.plot(
            epochs,
            table.mean(axis=0),
            color=colour,
            label=name,
            linestyle=_DASHES[place // len(COLOURS) % len(_DASHES)],
        )
        if len(runs) > 1:
            axes.fill_between(epochs, table.min(axis=0), table.max(axis=0), color=colour, alpha=0.15, linewidth=0)
    axes.set(xlabel="epoch", ylabel=ylabel, ylim=(0, None))
    _legend(axes)
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
    """Lines through points.

    Args:
        lines: Places and heights by name.
        title: What to write above.
        xlabel: What the horizontal axis shows.
        ylabel: What the vertical one shows.
        log: Whether the horizontal axis is logarithmic.
        marks: Places to mark by a vertical line, by the name of the line whose colour they take.
        levels: Heights to mark by a horizontal line, by their name.
    """
    figure, axes = _single(title)
    for place, (name, (across, up)) in enumerate(lines.items()):
        colour = COLOURS[place % len(COLOURS)]
        axes.plot(across, up, color=colour, label=name, marker="o" if len(across) < 15 else None, markersize=4)
        if marks and name in marks:
            axes.axvline(marks[name], color=colour, linewidth=1, linestyle=(0, (4, 3)))
    for name, height in (levels or {}).items():
        axes.axhline(height, color="#262626", linewidth=1, linestyle=(0, (1, 2)), label=name)
    axes.set(xlabel=xlabel, ylabel=ylabel, ylim=(0, None))
    if log:
        axes.set_xscale("log")
    _legend(axes)
    return figure


def densities(groups: Mapping[str, Sequence[Result]], method: str, *, title: str) -> Figure:
    """A panel a name: how confidences of right and of wrong answers are spread, all seeds together."""
    figure, panels = _panels(title, len(groups))
    edges = np.linspace(0, 1, DENSITY_BINS + 1)
    for axes, (name, results) in zip(panels, groups.items(), strict=True):
        for what, colour in (("right", COLOURS[0]), ("wrong", COLOURS[1])):
            counts = np.sum([result["density"][method][what] for result in results], axis=0).astype(np.float64)
            share = counts / max(counts.sum(), 1.0) * DENSITY_BINS
            axes.stairs(share, edges, fill=True, alpha=0.45, color=colour, label=what)
        axes.set_title(name, fontsize=9, loc="left")
        axes.set(xlim=(0, 1), yscale="log", xlabel="confidence")
    _legend(panels[0])
    return figure


def largest_logit_histograms(groups: Mapping[str, Sequence[Result]], *, title: str) -> Figure:
    """A panel a name: the largest logit of training rows by learned epoch, in the first seed."""
    figure, panels = _panels(title, len(groups))
    for axes, (name, results) in zip(panels, groups.items(), strict=True):
        for place, group in enumerate(results[0]["largest_logits"]):
            epochs = f"epochs {group['first']}–{group['last']}"
            axes.stairs(group["counts"], group["edges"], fill=True, alpha=0.5, color=COLOURS[place], label=epochs)
        axes.set_title(name, fontsize=9, loc="left")
        axes.set(xlabel="largest logit", yscale="log")
        _legend(axes)
    return figure


def confusions(groups: Mapping[str, Sequence[Result]], labels: Sequence[str], *, title: str) -> Figure:
    """A panel a name: how many test rows of each class got each label, the mean over seeds."""
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


def _single(title: str) -> tuple[Figure, Axes]:
    figure, panels = _panels(title, 1, width=7.0, height=4.2)
    return figure, panels[0]


def _panels(title: str, count: int, *, width: float = 3.2, height: float = 2.8) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    columns = min(count, 3)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows + 0.4), layout="constrained")
    figure.suptitle(title, x=0.02, ha="left", fontsize=11, fontweight="bold")
    panels = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#E6E6E6", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=8)
    for axes in panels[count:]:
        axes.remove()
    return figure, panels[:count]


def _legend(axes: Axes) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, framealpha=0.9, edgecolor="white")
