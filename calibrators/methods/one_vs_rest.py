"""Calibrators made of binary curves: one for two classes, one per class for more, renormalised."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from calibrators.arrays import Doubles
from calibrators.calibrator import Calibrator
from calibrators.chunks import check_label_logits, class_columns, logit_chunks, row_chunks
from calibrators.fitting.log_odds import log_odds_against_rest, row_totals
from calibrators.softmax import normalise_in_place
from calibrators.validation import LabelledRows

# Up to so many rows, all curves are searched together.
FEW_ROWS = 32
# Points of all curves up to which they are: a stack takes up to 40 bytes a point.
_MOST_STACKED = 8_388_608


class OneVsRest(Calibrator):
    """A calibrator of log-odds against all other classes; final classes define the curve.

    With two classes there is one curve, for class 1. With more, each class has its own and rows are divided by their
    sum; a row of zeros gets its softmax. A class with a probability of exactly zero or one (all logits but one are
    −inf) keeps it, and such rows teach the curves nothing.
    """

    # Of more than a few rows, curves are evaluated class by class: each call should have some work to do.
    _rows_at_once: ClassVar[int] = 2048
    _stacked: Any = None  # made by the first call for few rows

    def _fit(self, rows: LabelledRows) -> None:
        classes = rows.logits.shape[1]
        curves = []
        for k, scores in [(1, _margins(rows))] if classes == 2 else _log_odds(rows):
            hits, weight = rows.labels == k, rows.weight
            open_rows = np.isfinite(scores)
            if not open_rows.all():
                scores, hits = scores[open_rows], hits[open_rows]
                weight = None if weight is None else weight[open_rows]
            curves.append(self._fit_curve(scores, hits, weight))
        self._keep(curves)
        vars(self).pop("_stacked", None)  # of the fit before
        self.classes_ = classes

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what the first call for few rows makes again."""
        return {name: value for name, value in vars(self).items() if name != "_stacked"}

    def _transform(self, logits: Doubles, maxima: Doubles) -> Doubles:
        few = self.classes_ > 2 and len(logits) <= FEW_ROWS
        if few and (self._stacked is not None or 0 < self._points() <= _MOST_STACKED):
            chances = self._together(log_odds_against_rest(logits.copy(), maxima))
            if chances is not None:
                return normalise_in_place(chances, logits, maxima)
        result = np.empty_like(logits)
        for curve, (k, scores) in enumerate(chunk_log_odds(logits, maxima)):
            result[:, k], rest = self._curve(scores, curve)
        if self.classes_ == 2:
            result[:, 0] = rest
            return result
        return normalise_in_place(result, logits, maxima)

    def _together(self, scores: Doubles) -> Doubles | None:
        """Return probabilities (n, K) of log-odds (n, K), to the last bit those of `_curve`; None to ask that."""
        if self._stacked is None:
            self._stacked = self._stack()
        finite = np.isfinite(scores)
        if finite.all():
            return self._evaluate_stacked(self._stacked, scores)
        found = self._evaluate_stacked(self._stacked, np.where(finite, scores, 0.0))
        return None if found is None else np.where(finite, found, scores > 0)

    def _curve(self, scores: Doubles, curve: int) -> tuple[Doubles, Doubles]:
        with np.errstate(over="ignore", invalid="ignore"):
            finite = math.isfinite(scores.sum())
        if finite:
            return self._evaluate(scores, curve)
        certain, impossible = np.isposinf(scores), np.isneginf(scores)
        chance, rest = self._evaluate(np.where(certain | impossible, 0.0, scores), curve)
        chance[certain], rest[certain] = 1, 0
        chance[impossible], rest[impossible] = 0, 1
        return chance, rest

    @abstractmethod
    def _fit_curve(self, scores: Doubles, hits: npt.NDArray[np.bool_], weight: Doubles | None) -> Doubles:
        """Learn one curve from finite log-odds (N,), N ≥ 0, and hits (N,)."""

    @abstractmethod
    def _evaluate(self, scores: Doubles, curve: int) -> tuple[Doubles, Doubles]:
        """Return probabilities p (n,) of finite log-odds (n,) under a curve, and 1 − p, exact if p rounds to 1."""

    @abstractmethod
    def _points(self) -> int:
        """Return how many points all curves have together; 0 if they cannot be searched together."""

    @abstractmethod
    def _stack(self) -> Any:
        """Return all K curves in the form that `_evaluate_stacked` needs."""

    @abstractmethod
    def _evaluate_stacked(self, stack: Any, scores: Doubles) -> Doubles | None:
        """Return probabilities (n, K) of finite log-odds (n, K), as `_evaluate` does; None where only that can."""

    @abstractmethod
    def _keep(self, curves: list[Doubles]) -> None:
        """Store the results of `_fit_curve`, one per curve."""


def chunk_log_odds(logits: Doubles, maxima: Doubles) -> Iterator[tuple[int, Doubles]]:
    """Yield each class with a curve and its log-odds (n,) in one chunk (n, K), the same bits as in the fit.

    Of two classes that is class 1 alone, else 0 … K−1.
    """
    classes = logits.shape[1]
    if classes == 2:
        yield 1, _margin(logits)
        return
    # Contiguous per class, which is faster to read than a column.
    yield from enumerate(np.ascontiguousarray(log_odds_against_rest(logits.copy(), maxima).T))


def _margin(logits: Doubles) -> Doubles:
    """Return the log-odds (n,) of class 1 of two, z_1 − z_0."""
    with np.errstate(over="ignore"):
        return np.asarray(logits[:, 1] - logits[:, 0])


def _margins(rows: LabelledRows) -> Doubles:
    """Return the log-odds (N,) of class 1 of two, read chunk by chunk.

    Raises:
        CalibrationDataError: As `_log_odds`.
    """
    margins = np.empty(len(rows.labels))
    for part, chunk, _ in logit_chunks(rows.logits):
        margins[part] = _margin(chunk)
        if not np.isfinite(margins[part]).all():
            check_label_logits(chunk[np.arange(len(chunk)), rows.labels[part]], rows.labels, part.start)
    return margins


def _log_odds(rows: LabelledRows) -> Iterator[tuple[int, Doubles]]:
    """Yield each class of three or more and its log-odds (N,) against all others.

    Raises:
        CalibrationDataError: Invalid logits, or a row whose own label has a probability of zero.
    """
    totals = row_totals(rows)
    for k, column in class_columns(rows.logits):
        scores = np.empty(len(column))
        for part in row_chunks(len(column), 1):
            scores[part] = totals.log_odds(column[part].astype(np.float64), k, part)
        yield k, scores
