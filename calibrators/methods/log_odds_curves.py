"""One-vs-rest calibrators with curves that are sigmoids of a few features of the log-odds."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from calibrators.arrays import Doubles
from calibrators.calibrator import Calibrator
from calibrators.chunks import row_maxima, row_sums
from calibrators.fitting.log_odds import log_odds_against_rest
from calibrators.softmax import normalise_in_place, softmax_in_place

_FARTHEST = 1e5


class LogOddsCurves(Calibrator):
    """A calibrator of log-odds against all other classes, p = σ(u(s)); final classes define and fit u.

    With two classes there is one curve, for class 1. With more, each class has its own and rows are divided by their
    sum; a row of zeros gets its softmax. A class with a probability of exactly zero or one (all logits but one are
    −inf) keeps it, and such rows teach the curves nothing.
    """

    def _transform(self, logits: Doubles, maxima: Doubles) -> Doubles:
        return self._top_chances(logits, maxima) if self.top_label_only else self._curve_chances(logits, maxima)

    def _curve_chances(self, logits: Doubles, maxima: Doubles) -> Doubles:
        """Return probabilities (n, K) of a chunk of logits, each class by its own curve."""
        if self.classes_ == 2:
            with np.errstate(over="ignore"):
                scores = np.subtract(logits[:, 1:], logits[:, :1])
            logits[:, 1:], logits[:, :1] = self._chances(scores)
            return logits
        result, _ = self._chances(log_odds_against_rest(logits.copy(), maxima))
        return normalise_in_place(result, logits, maxima)

    def _top_chances(self, logits: Doubles, maxima: Doubles) -> Doubles:
        """Return probabilities (n, K) of a chunk of logits: the largest by the curve, the others in proportion."""
        top = (np.arange(len(logits)), np.argmax(logits, axis=1))
        logits[top] = -np.inf
        others = row_maxima(logits)
        possible = others[:, 0] > -np.inf
        rest = np.where(possible[:, None], others, 0.0)
        with np.errstate(over="ignore", divide="ignore"):
            logits -= rest
            others = np.log(row_sums(np.exp(logits)))[:, 0]
            margins = (maxima - rest)[:, 0] - others
        calibrated = self._raised(margins[:, None])[:, 0]
        # In units of the others' share; beyond this limit a probability is 0 or 1 to all digits.
        logits[top] = np.where(possible, np.clip(calibrated, -_FARTHEST, _FARTHEST) + others, 0.0)
        return softmax_in_place(logits, row_maxima(logits))

    def _chances(self, scores: Doubles) -> tuple[Doubles, Doubles]:
        """Return probabilities (n, C) of log-odds (n, C), and 1 − p, exact even if one of them rounds to 1."""
        return sigmoids(self._raised(scores))

    def _raised(self, scores: Doubles) -> Doubles:
        """Return calibrated log-odds (n, C); infinite ones stay as they are."""
        finite = np.isfinite(scores)
        every = bool(finite.all())
        with np.errstate(over="ignore"):
            calibrated = self._calibrated(scores if every else np.where(finite, scores, 0.0))
        if not every:
            np.copyto(calibrated, scores, where=~finite)
        return calibrated

    @abstractmethod
    def _calibrated(self, scores: Doubles) -> Doubles:
        """Return calibrated log-odds (n, C), a new array, of finite ones; they may overflow, but only to infinity."""


def sigmoids(log_odds: Doubles) -> tuple[Doubles, Doubles]:
    """Return σ(u) and σ(−u), each exact to the last digits however small."""
    tail = np.exp(-np.abs(log_odds))
    larger = 1 / (1 + tail)
    smaller = tail * larger
    above = log_odds >= 0
    return np.where(above, larger, smaller), np.where(above, smaller, larger)
