"""The story's pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

_COLOURS = ("#4d4d4d", "#d55e00", "#0072b2", "#009e73")
_GROUPS = 20
_TICKS = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 0.9, 0.99, 0.999)


def calibration_plot(
    path: Path, title: str, sides: Mapping[str, NDArray[np.floating]], true: NDArray[np.float64]
) -> None:
    """Draw true against stated probabilities, in twenty groups of equal size, on axes of log-odds.

    Args:
        path: SVG file to write.
        title: Title of the plot.
        sides: Stated probabilities (N,) by name.
        true: True probabilities, (N,).
    """
    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.subplots()
    axes.axline((0.5, 0.5), (0.6, 0.6), color="#999999", linestyle=(0, (4, 3)), label="calibrated")
    for colour, (name, stated) in zip(_COLOURS, sides.items(), strict=False):
        groups = np.array_split(np.argsort(stated, kind="stable"), _GROUPS)
        points = np.array([(stated[group].mean(), true[group].mean()) for group in groups])
        axes.plot(*points.T, marker="o", markersize=4, linewidth=1.2, color=colour, label=name)
    axes.set(xscale="logit", yscale="logit", xlim=(1e-5, 0.9995), ylim=(1e-5, 0.9995), title=title)
    axes.set(xlabel="stated probability of fraud", ylabel="true probability of fraud")
    axes.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS], minor=False)
    axes.set_yticks(_TICKS, [f"{tick:g}" for tick in _TICKS], minor=False)
    axes.minorticks_off()
    axes.legend(loc="upper left", frameon=False)
    _save(figure, path)


def promise_plot(
    path: Path, precision: Mapping[str, float], flagged: Mapping[str, float], limits: tuple[float, float]
) -> None:
    """Draw the policy's promises beside the true values.

    Args:
        path: SVG file to write.
        precision: True precision of what was blocked, by phase.
        flagged: Share of payments that people saw or that were blocked, by phase.
        limits: The minimum precision and the maximum flag rate that the policy promises.
    """
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    for axes, values, limit, name in zip(
        figure.subplots(1, 2),
        (precision, flagged),
        limits,
        ("true precision of what is blocked", "flagged"),
        strict=True,
    ):
        bars = axes.bar(list(values), list(values.values()), color=_COLOURS[2], width=0.6)
        axes.bar_label(bars, fmt="{:.1%}", label_type="center", color="white")
        axes.axhline(limit, color=_COLOURS[1], label=f"promised: {limit:.0%}")
        axes.set(title=name, ylim=(0.0, 1.35 * limit))
        axes.legend(loc="upper right", frameon=False)
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    with mpl.rc_context({"svg.hashsalt": "candor"}):  # the same story, the same bytes
        figure.savefig(path, metadata={"Date": None})
