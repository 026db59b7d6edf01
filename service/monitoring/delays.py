"""How long labels take, by source, from the labels that have come.

A label is seen only if it takes no longer than its prediction is old: young predictions show quick labels only. The
product-limit estimate in reversed time corrects this. It says what share of the labels that come within the largest age
seen have come within a shorter time; nothing is known about later ones. It assumes that delays do not change with time.

References:
    Lagakos, Barraj & De Gruttola (1988), Nonparametric analysis of truncated survival data, with application to AIDS.
    Fay & Feuer (1997), Confidence intervals for directly standardized rates: a method based on the gamma distribution.
    Woodroofe (1985), Estimating a distribution function with truncated data.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import scipy
from numpy.typing import NDArray

from candor.contract.monitoring import FEWEST_DELAYS

MOST_SOURCES: Final = 10
"""Maximum sources with a curve, those of the most labels."""
_FEWEST: Final = 20
_POINTS: Final = 60
_ENOUGH: Final = 0.99
_MISSED: Final = 0.05
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
        the share of labels that come within them, among labels that come within `oldest_s`, the largest age at which
        enough labels could be seen. `mature_in` is a duration within which 99 % have come, with a confidence of 95 %;
        None with too few labels, or if labels still come at the largest age, so that a longer time must be awaited.
    """
    names, labels = np.unique(source, return_counts=True)
    found = []
    for place in np.argsort(-labels, kind="stable")[:MOST_SOURCES].tolist():
        if labels[place] < _FEWEST:
            continue
        of = source == names[place]
        delay = np.maximum(received_at[of] - predicted_at[of], 1) / 1e6
        age = np.maximum((now_us - predicted_at[of]) / 1e6, delay)
        if (oldest := _largest_age(delay, age)) is None:
            continue
        mature = _enough_by(delay, age)
        delay, age = delay[delay <= oldest], age[delay <= oldest]
        times, share = arrived(delay, age)
        median, q95 = (float(times[np.searchsorted(share, level)]) for level in (0.5, 0.95))
        steps = np.unique(np.searchsorted(times, np.geomspace(times[0], times[-1], _POINTS)).clip(max=len(times) - 1))
        found.append(
            {
                "source": str(names[place]),
                "labels": int(labels[place]),
                "oldest_s": oldest,
                "median_s": median,
                "q95_s": q95,
                "curve": [(float(times[at]), float(share[at])) for at in steps.tolist()],
                "mature_in": None if mature is None else duration(mature),
            }
        )
    return found


def _largest_age(delay: NDArray[np.float64], age: NDArray[np.float64], fewest: int = _FEWEST) -> float | None:
    """Return the largest age at which enough labels could be seen that had come by then; None if there is none.

    The estimate is a product from the largest age down: a single old prediction would decide it.
    """
    ages = np.sort(age)
    enough = ages[_at_risk(delay, age, ages) >= fewest]
    return float(enough[-1]) if len(enough) else None


def _at_risk(delay: NDArray[np.float64], age: NDArray[np.float64], time: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return how many labels had come by each time, and would have been seen if they had come just then."""
    come = np.searchsorted(np.sort(delay), time, side="right")
    found: NDArray[np.intp] = come - np.searchsorted(np.sort(age), time, side="left")
    return found


def _enough_by(delay: NDArray[np.float64], age: NDArray[np.float64]) -> float | None:
    """Return the first time by which the lower bound of the share is 99 %; None without one.

    The share is of the labels that come within the largest age at which `FEWEST_DELAYS`, and a tenth of all, could be
    seen. Its logarithm is minus a sum over later labels, each divided by the number at risk, so those of few old
    predictions weigh much: the bound is that of a weighted sum of Poisson counts.
    """
    if (oldest := _largest_age(delay, age, max(FEWEST_DELAYS, len(delay) // 10))) is None:
        return None
    delay, age = delay[delay <= oldest], age[delay <= oldest]
    times, events = np.unique(delay, return_counts=True)
    weight = 1.0 / np.append(_at_risk(delay, age, times), _at_risk(delay, age, np.array([oldest])))
    later = [np.cumsum((events * weight[:-1] ** power)[::-1])[::-1] for power in (1, 2)]
    largest = np.maximum.accumulate(weight[::-1])[::-1][1:]
    total, squares = (np.append(sums[1:], 0.0) + largest**power for power, sums in enumerate(later, start=1))
    upper = squares / total * scipy.special.gammaincinv(total**2 / squares, 1.0 - _MISSED)
    found = times[upper <= -math.log(_ENOUGH)]
    # Labels that came in the last quarter of the time show that others would come later.
    return float(found[0]) if len(found) and found[0] <= 0.75 * oldest else None


def arrived(delay: NDArray[np.float64], age: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return times, and the share of labels that come within each, among labels that come within the last one.

    Args:
        delay: Time that each label took, (N,), N ≥ 1.
        age: Age of its prediction, (N,), at least the delay.

    Example:
        >>> arrived(np.array([1.0, 1.0, 3.0]), np.array([2.0, 4.0, 4.0]))  # one of two that could show 3 took 3
        (array([1., 3.]), array([0.5, 1. ]))
    """
    times, events = np.unique(delay, return_counts=True)
    hazard = events / _at_risk(delay, age, times)  # in reversed time
    later = np.append(np.cumprod((1.0 - hazard)[::-1])[::-1][1:], 1.0)
    return times, later


def duration(seconds: float) -> str:
    """Return a duration of at least this many seconds, as policies write it.

    >>> duration(3.2 * 86_400), duration(90), duration(0.5)
    ('4d', '2m', '1s')
    """
    for size, unit in _UNITS:
        if seconds > size or unit == "s":
            return f"{max(math.ceil(seconds / size), 1)}{unit}"
    raise AssertionError
