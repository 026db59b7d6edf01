"""How long labels take, by source, from the labels that have come.

A label is seen only if it takes no longer than its prediction is old: young predictions show quick labels only. The
product-limit estimate in reversed time corrects this. It says what share of the labels that come within the largest age
seen have come within a shorter time; nothing is known about later ones. It assumes that delays do not change with time.

References:
    Lagakos, Barraj & De Gruttola (1988), Nonparametric analysis of truncated survival data, with application to AIDS.
    Woodroofe (1985), Estimating a distribution function with truncated data.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

MOST_SOURCES: Final = 10
"""Maximum sources with a curve, those of the most labels."""
_FEWEST: Final = 20
_POINTS: Final = 60
_ENOUGH: Final = 0.99
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def by_source(
    source: NDArray[np.str_], predicted_at: NDArray[np.int64], received_at: NDArray[np.int64], now_us: int
) -> list[dict[str, Any]]:
    """Return the delays of each source, that of the most labels first.

    Args:
        source: Source of each label, (N,): the first one of each prediction and source.
        predicted_at: Time of its prediction, in microseconds since the epoch, (N,).
        received_at: When it was received, (N,).
        now_us: The time.

    Returns:
        `{"source", "labels", "oldest_s", "median_s", "q95_s", "curve", "mature_in"}`: `curve` is pairs of seconds and
        the share of labels that have come within them. `mature_in` is a duration within which 99 % have come; None if
        labels still come at the largest age, so that a longer time must be awaited.
    """
    names, labels = np.unique(source, return_counts=True)
    found = []
    for place in np.argsort(-labels, kind="stable")[:MOST_SOURCES].tolist():
        if labels[place] < _FEWEST:
            continue
        of = source == names[place]
        delay = np.maximum(received_at[of] - predicted_at[of], 1) / 1e6
        age = np.maximum((now_us - predicted_at[of]) / 1e6, delay)
        times, share = arrived(delay, age)
        quantiles = [float(times[np.searchsorted(share, level)]) for level in (0.5, 0.95, _ENOUGH)]
        oldest = float(age.max())
        steps = np.unique(np.searchsorted(times, np.geomspace(times[0], times[-1], _POINTS)).clip(max=len(times) - 1))
        found.append(
            {
                "source": str(names[place]),
                "labels": int(labels[place]),
                "oldest_s": oldest,
                "median_s": quantiles[0],
                "q95_s": quantiles[1],
                "curve": [(float(times[at]), float(share[at])) for at in steps.tolist()],
                # Labels that came in the last quarter of the time show that others would come later.
                "mature_in": duration(quantiles[2]) if quantiles[2] <= 0.75 * oldest else None,
            }
        )
    return found


def arrived(delay: NDArray[np.float64], age: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return times, and the share of labels that have come within each, of those that come within the last one.

    Args:
        delay: Time that each label took, (N,), N ≥ 1.
        age: Age of its prediction, (N,), at least the delay.

    Example:
        >>> arrived(np.array([1.0, 1.0, 3.0]), np.array([2.0, 4.0, 4.0]))  # one of two that could show 3 took 3
        (array([1., 3.]), array([0.5, 1. ]))
    """
    times, events = np.unique(delay, return_counts=True)
    # At risk in reversed time: those that had come by then, and would have been seen if they had come just then.
    come = np.searchsorted(np.sort(delay), times, side="right")
    young = np.searchsorted(np.sort(age), times, side="left")
    hazard = events / (come - young)
    later = np.append(np.cumprod((1.0 - hazard)[::-1])[::-1][1:], 1.0)
    return times, later


def duration(seconds: float) -> str:
    """Return a duration of at least so many seconds, as policies write it.

    >>> duration(3.2 * 86_400), duration(90), duration(0.5)
    ('4d', '2m', '1s')
    """
    for size, unit in _UNITS:
        if seconds > size or unit == "s":
            return f"{max(math.ceil(seconds / size), 1)}{unit}"
    raise AssertionError
