"""Online Platt scaling: probabilities of two classes that follow the labels one by one, with a regret bound."""

from __future__ import annotations

import math
from typing import Final, Self, final

import numpy as np

from calibrators.arrays import Doubles
from calibrators.errors import CalibrationDataError, shown
from calibrators.validation import check_count

_SLOPES: Final = np.geomspace(0.1, 5.0, 18)
_SHIFTS: Final = np.linspace(-6.0, 6.0, 37)
_LARGEST: Final = 1e6  # log-odds


@final
class OnlinePlatt:
    """Mix the Platt maps p = σ(a z + b) of a grid by how well each predicted the labels so far.

    The forecast is the mean of all maps, weighted by their likelihood; after each label every map gets back a small
    share of the weight (fixed share), so that the mixture can turn to another map when the data drift. The bound holds
    for every sequence of logits and labels, also one that an adversary chooses: see `regret_bound`.

    `calibrated` is the calibeating forecast: the mean label of earlier rows whose forecast fell in the same bin. It
    removes errors that no Platt map can remove, and costs almost nothing where there are none.

    The state is that of one stream in memory; the service does not use it. No certificate can stand on probabilities
    that change with each label: recalibrate with a fixed calibrator for that.

    Args:
        share: Share of the weight that is spread anew after each label, in [0, 1). About the number of changes
            expected, divided by the number of labels.
        bins: Number of equal bins of the forecast in `calibrated`.

    Attributes:
        labels_: Number of labels seen.

    Raises:
        CalibrationDataError: A bad option.

    References:
        Gupta, Ramdas (2023), Online Platt scaling with calibeating; Foster, Hart (2023), "Calibeating": beating
        forecasters at their own game; Herbster, Warmuth (1998), Tracking the best expert (fixed share).

    Example:
        >>> stream = OnlinePlatt()
        >>> for _ in range(200):
        ...     stream = stream.update(3.0, 1).update(3.0, 0)
        >>> round(stream.forecast(3.0), 1)
        0.5
    """

    labels_: int

    def __init__(self, share: float = 1e-3, bins: int = 20) -> None:
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
            raise CalibrationDataError("Bad option", where="share", found=shown(share), expected="a number in [0, 1)")
        check_count(bins, "bins")
        self.share = float(share)
        self.bins = int(bins)
        self.slopes, self.shifts = (one.ravel() for one in np.meshgrid(_SLOPES, _SHIFTS))
        self.labels_ = 0
        # Logarithms: a map that would vanish in float64 may still be the best one later.
        self._logs = np.full(len(self.slopes), -math.log(len(self.slopes)))
        self._counts, self._hits = np.zeros(self.bins), np.zeros(self.bins)

    def forecast(self, logit: float) -> float:
        """Return the mixture's P(label 1) for log-odds ``logit``.

        Raises:
            CalibrationDataError: The logit is not a finite number.
        """
        return math.exp(self.log_forecast(logit, 1))

    def log_forecast(self, logit: float, label: int) -> float:
        """Return the mixture's log-probability of a label, also where 1 − `forecast` rounds to 0.

        Raises:
            CalibrationDataError: As `update`.
        """
        return min(float(np.logaddexp.reduce(self._logs + self.log_likelihoods(logit, label))), 0.0)

    def calibrated(self, logit: float) -> float:
        """Return the mean label of the forecast's bin so far; the forecast itself counts as one row.

        Raises:
            CalibrationDataError: As `forecast`.
        """
        forecast = self.forecast(logit)
        bin_ = self._bin(forecast)
        return float((self._hits[bin_] + forecast) / (self._counts[bin_] + 1))

    def update(self, logit: float, label: int) -> Self:
        """Learn the label, 0 or 1, of a row that was predicted; rows in the order of their predictions.

        Raises:
            CalibrationDataError: As `forecast`, or another label.
        """
        likelihoods = self.log_likelihoods(logit, label)
        bin_ = self._bin(self.forecast(logit))
        self._counts[bin_] += 1
        self._hits[bin_] += label
        logs = self._logs + likelihoods
        logs -= logs.max()  # else the sum would be rounded away where all are very small
        logs -= np.logaddexp.reduce(logs)
        if self.share > 0:
            logs = np.logaddexp(logs + math.log1p(-self.share), math.log(self.share / len(logs)))
        self._logs = logs
        self.labels_ += 1
        return self

    def log_likelihoods(self, logit: float, label: int) -> Doubles:
        """Return the log-probability (M,) of a label under each map of the grid.

        Raises:
            CalibrationDataError: The logit is not a finite number, or the label neither 0 nor 1.
        """
        if isinstance(label, bool) or not isinstance(label, int | float | np.number) or label not in (0, 1):
            raise CalibrationDataError("Bad label", where="label", found=shown(label), expected="0 or 1")
        if isinstance(logit, bool) or not isinstance(logit, int | float | np.number) or not math.isfinite(logit):
            raise CalibrationDataError("Bad logit", where="logit", found=shown(logit), expected="a finite number")
        with np.errstate(over="ignore"):  # a sum of many losses must stay finite
            scores = np.clip(self.slopes * float(logit) + self.shifts, -_LARGEST, _LARGEST)
        return np.asarray(-np.logaddexp(0, -scores if label == 1 else scores))

    def regret_bound(self, labels: int, changes: int = 0) -> float:
        """Return how much log loss, in nats over all labels, `log_forecast` can lose to the best maps of the grid.

        Args:
            labels: T, number of labels, 1 or more.
            changes: How often the compared map may change, 0 … T − 1; its maps are the best for each part, in
                hindsight.

        Returns:
            log M + changes · log(M / share) + (T − 1 − changes) · log(1 / (1 − share)), for any sequence; infinite with
            changes and a share of 0.

        Raises:
            CalibrationDataError: Not whole numbers in these ranges.
        """
        check_count(labels, "labels")
        check_count(changes, "changes", least=0)
        if changes >= labels:
            raise CalibrationDataError(
                "Bad option", where="changes", found=str(changes), expected=f"fewer than the {labels} labels"
            )
        count = len(self.slopes)
        turns = changes * math.log(count / self.share) if changes and self.share else math.inf if changes else 0.0
        return math.log(count) + turns - max(labels - 1 - changes, 0) * math.log1p(-self.share)

    def _bin(self, forecast: float) -> int:
        return min(int(forecast * self.bins), self.bins - 1)
