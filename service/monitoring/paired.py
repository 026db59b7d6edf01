"""Which of two arms has the smaller mean loss: evidence and an interval, both valid at every look.

Each row has a difference x of the arms' losses with |x| ≤ b. For a fixed λ < 1/b, Fan's inequality gives

    exp(λx − ψ(λ)x²) ≤ 1 + λx,  ψ(λ) = (−ln(1 − λb) − λb)/b²,

so exp(λ Σ(xᵢ − μᵢ) − ψ(λ) Σxᵢ²) has mean at most 1 at all times, where μᵢ is the mean of xᵢ given all rows before. A
mixture over λ is evidence against "the mean of all μᵢ so far is at most 0", and inverting it bounds that mean. The mean
may drift. λ depends on no row: rows would be weighted by it, and the weighted mean may have another sign.

For each direction, an unknown label counts as the least favourable one: a row has a smallest and a largest difference.

References:
    Fan, Grama & Liu (2015), Exponential inequalities for martingales with applications, eq. 4.1.
    Howard, Ramdas, McAuliffe & Sekhon (2021), Time-uniform, nonparametric, nonasymptotic confidence sequences.
    Choe & Ramdas (2023; arXiv 2110.00115), Comparing sequential forecasters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from service.decisions.numbers import number, whole

Arm = Literal["active", "challenger"]

_STEPS: Final = np.arange(14)
_LAMBDAS: Final = 0.8 * 0.5**_STEPS  # in units of 1/b
_PSI: Final = -np.log1p(-_LAMBDAS) - _LAMBDAS
_WEIGHTS: Final = 1.0 / ((_STEPS + 1.0) * (_STEPS + 2.0))
_LOG_WEIGHTS: Final = np.log(_WEIGHTS / _WEIGHTS.sum())
_BLOCK: Final = 4096
# A challenger is better if the differences are below 0 even with the least favourable labels.
_SIDES: Final[Mapping[Arm, tuple[str, float]]] = {"challenger": ("high", -1.0), "active": ("low", 1.0)}
_NUMBERS: Final = ("low", "low_squares", "high", "high_squares", "weight", "active", "challenger")


def log_evidence(sums: NDArray[np.float64] | float, squares: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return the log evidence that the mean is above 0, shape (…).

    Args:
        sums: Sum of the differences in units of their bound, shape (…).
        squares: Sum of their squares, shape (…).
    """
    terms = np.multiply.outer(sums, _LAMBDAS) - np.multiply.outer(squares, _PSI) + _LOG_WEIGHTS
    top = terms.max(axis=-1, keepdims=True)
    found: NDArray[np.float64] = np.log(np.exp(terms - top).sum(axis=-1)) + top[..., 0]
    return found


def boundary(squares: float, threshold: float) -> float:
    """Return the smallest sum with log evidence `threshold` > 0."""
    low, high = 0.0, float(((threshold - _LOG_WEIGHTS + _PSI * squares) / _LAMBDAS).min())
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if log_evidence(middle, squares) < threshold else (low, middle)
    return high


class Paired:
    """Evidence on the difference of two arms' mean losses, challenger minus active.

    Args:
        bound: Largest possible difference b > 0 of a row.
        level: Probability that ever the worse arm is called better, or that the interval ever misses the mean.

    Attributes:
        rows: Rows counted.
        better: The arm with the smaller mean loss; None while undecided. It never changes again.
        decided_at: Time of the prediction that decided it.

    Example:
        >>> paired = Paired(bound=1.0, level=0.05)
        >>> gain = np.full(100, -0.3)
        >>> paired.add(gain, gain, time=np.arange(100))
        >>> paired.better, [round(end, 2) for end in paired.interval(floor=1.0)]
        ('challenger', [-0.44, -0.16])
    """

    def __init__(self, *, bound: float, level: float) -> None:
        self.bound = number(bound, "bound", above=0.0)
        self.level = number(level, "level", above=0.0, below=1.0)
        self.rows = 0
        self.peak = 0.0
        self.better: Arm | None = None
        self.decided_at: int | None = None
        self._totals = dict.fromkeys(_NUMBERS, 0.0)

    @property
    def fires_at(self) -> float:
        """Log evidence at which an arm is better: each direction has half of the level."""
        return math.log(2.0 / self.level)

    def evidence(self, arm: Arm) -> float:
        """Return the current log evidence that an arm is better."""
        name, sign = _SIDES[arm]
        return float(log_evidence(sign * self._totals[name], self._totals[f"{name}_squares"]))

    def add(
        self,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        *,
        time: NDArray[np.int64],
        weight: NDArray[np.float64] | None = None,
        losses: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
    ) -> None:
        """Count rows in order of prediction.

        Args:
            low: Smallest possible difference of each row times its weight, shape (N,).
            high: Largest possible difference times the weight; equal to `low` where the label is known.
            time: Times of prediction, shape (N,).
            weight: Weight in [0, 1] of each labelled row, 0 for others; only for `means`.
            losses: Losses of the active revision and of the challenger at labelled rows, 0 elsewhere.
        """
        for start in range(0, len(low), _BLOCK):
            part = slice(start, start + _BLOCK)
            for arm, (name, sign) in _SIDES.items():
                scaled = (high if name == "high" else low)[part] / self.bound
                sums = self._totals[name] + np.cumsum(scaled)
                squares = self._totals[f"{name}_squares"] + np.cumsum(scaled**2)
                found = log_evidence(sign * sums, squares)
                self.peak = max(self.peak, float(found.max()))
                if self.better is None and (found >= self.fires_at).any():
                    self.better = arm
                    self.decided_at = int(time[part][np.argmax(found >= self.fires_at)])
                self._totals[name], self._totals[f"{name}_squares"] = float(sums[-1]), float(squares[-1])
        self.rows += len(low)
        if weight is not None and losses is not None:
            self._totals["weight"] += float(weight.sum())
            self._totals["active"] += float((weight * losses[0]).sum())
            self._totals["challenger"] += float((weight * losses[1]).sum())

    def interval(self, *, floor: float) -> tuple[float, float]:
        """Return the ends between which the mean difference lies; at all looks together, with confidence 1 − level.

        Args:
            floor: The propensity that has weight 1.
        """
        if not self.rows:
            return -self.bound, self.bound
        totals, scale = self._totals, self.bound / (self.rows * floor)
        low = (totals["low"] - boundary(totals["low_squares"], self.fires_at)) * scale
        high = (totals["high"] + boundary(totals["high_squares"], self.fires_at)) * scale
        return max(low, -self.bound), min(high, self.bound)

    def means(self) -> tuple[float, float] | None:
        """Return the mean losses of the active revision and the challenger on labelled rows; None without any."""
        weight = self._totals["weight"]
        return (self._totals["active"] / weight, self._totals["challenger"] / weight) if weight else None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document; JSON keeps every number exactly."""
        own = {"rows": self.rows, "peak": self.peak, "better": self.better, "decided_at": self.decided_at}
        return {"bound": self.bound, **own, **self._totals}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], *, level: float) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            InputValueError: A value is impossible.
        """
        paired = cls(bound=document["bound"], level=level)
        paired.rows = whole(document["rows"], "rows", least=0)
        paired.peak = number(document["peak"], "peak", above=0.0, closed="below")
        paired.better, paired.decided_at = document["better"], document["decided_at"]
        paired._totals = {name: number(document[name], name) for name in _NUMBERS}
        return paired
