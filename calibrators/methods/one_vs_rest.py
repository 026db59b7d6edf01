"""Calibrators made of binary curves: one for two classes, one per class for more, renormalised."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy

from calibrators.arrays import Doubles
from calibrators.calibrator import Calibrator
from calibrators.chunks import check_label_logits, class_columns, logit_chunks, row_chunks
from calibrators.fitting.log_odds import log_odds_against_rest, probabilities_against_rest, row_totals
from calibrators.softmax import normalise_in_place
from calibrators.validation import LabelledRows

# Up to so many rows, all curves are searched together.
FEW_ROWS = 32
# Points of all curves up to which they are: a stack takes up to 40 bytes a point.
_MOST_STACKED = 8_388_608


class OneVsRest(Calibrator):
    """A calibrator of each class against all others; final classes define the curve.

    With two classes there is one curve, for class 1. With more, each class has its own and rows are divided by their
    sum; a row of zeros gets its softmax. A class with a probability of exactly zero or one (all logits but one are
    −inf) keeps it, and such rows teach the curves nothing.
    """

    # What the curves read: probabilities, which are faster to find, or log-odds, which do not round to 1.
    _reads_probabilities: ClassVar[bool] = True
    # Of more than a few rows, curves are evaluated class by class: each call should have some work to do. No power of
    # two, at whose multiples columns would share few places of the caches.
    _rows_at_once: ClassVar[int] = 2000
    _stacked: Any = None  # made by the first call for few rows

    def _fit(self, rows: LabelledRows) -> None:
        classes = rows.logits.shape[1]
        curves = []
        for k, scores in self._labelled_scores(rows):
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
        scores = self._scores(logits, maxima)
        finite = np.isfinite(scores)
        every = bool(finite.all())
        known = scores if every else np.where(finite, scores, 0.0)
        binary = self.classes_ == 2
        chances = np.stack(self._both_probabilities(known[:, 0]), axis=1) if binary else self._all_probabilities(known)
        if not every:
            signs = np.hstack([-scores, scores]) if binary else scores
            np.copyto(chances, signs > 0, where=np.isinf(signs))
        return chances if binary else normalise_in_place(chances, logits, np.zeros_like(maxima))

    def _all_probabilities(self, scores: Doubles) -> Doubles:
        """Return probabilities (n, K) of finite scores (n, K), which are overwritten: fresh memory costs time."""
        if len(scores) <= FEW_ROWS and (self._stacked is not None or 0 < self._points() <= _MOST_STACKED):
            if self._stacked is None:
                self._stacked = self._stack()
            together = self._evaluate_stacked(self._stacked, scores)
            if together is not None:
                return together
        columns = np.ascontiguousarray(scores.T)  # faster to read and write than columns of rows
        for k, column in enumerate(columns):
            columns[k] = self._evaluate(column, k)
        scores[...] = columns.T
        return scores

    def _scores(self, logits: Doubles, maxima: Doubles) -> Doubles:
        """Return what the curves read of one chunk (n, K), the same bits as in the fit.

        Of two classes that is (n, 1), of class 1 alone, else (n, K), and the row's maximum is taken off the logits. A
        class that is impossible or certain has −inf or +inf.
        """
        if self.classes_ == 2:
            return self._of_margins(_margins(logits)[:, None])
        if self._reads_probabilities:
            return probabilities_against_rest(logits, maxima)
        scores = log_odds_against_rest(logits.copy(), maxima)
        with np.errstate(over="ignore"):
            logits -= maxima
        return scores

    def _of_margins(self, margins: Doubles) -> Doubles:
        """Return what the curves read of log-odds of class 1 of two, any shape."""
        if not self._reads_probabilities:
            return margins
        return np.where(np.isfinite(margins), scipy.special.expit(margins), margins)

    def _labelled_scores(self, rows: LabelledRows) -> Iterator[tuple[int, Doubles]]:
        """Yield each class with a curve and what it reads of all rows, (N,).

        Raises:
            CalibrationDataError: Invalid logits, or a row whose own label has a probability of zero.
        """
        if rows.logits.shape[1] == 2:
            yield 1, self._of_margins(_labelled_margins(rows))
            return
        totals = row_totals(rows)
        read = totals.probabilities if self._reads_probabilities else totals.log_odds
        for k, column in class_columns(rows.logits):
            scores = np.empty(len(column))
            for part in row_chunks(len(column), 1):
                scores[part] = read(column[part].astype(np.float64), k, part)
            yield k, scores

    def _both_probabilities(self, scores: Doubles) -> tuple[Doubles, Doubles]:
        """Return the probabilities (n,) of classes 0 and 1 of two, by the curve of class 1, of finite scores (n,)."""
        chance = self._evaluate(scores, 0)
        return 1 - chance, chance

    @abstractmethod
    def _fit_curve(self, scores: Doubles, hits: npt.NDArray[np.bool_], weight: Doubles | None) -> Doubles:
        """Learn one curve from finite scores (N,), N ≥ 0, and hits (N,)."""

    @abstractmethod
    def _evaluate(self, scores: Doubles, curve: int) -> Doubles:
        """Return probabilities (n,) of finite scores (n,) under a curve."""

    @abstractmethod
    def _points(self) -> int:
        """Return how many points all curves have together; 0 if they cannot be searched together."""

    @abstractmethod
    def _stack(self) -> Any:
        """Return all K curves in the form that `_evaluate_stacked` needs."""

    @abstractmethod
    def _evaluate_stacked(self, stack: Any, scores: Doubles) -> Doubles | None:
        """Return probabilities (n, K) of finite scores (n, K), as `_evaluate` does to the last bit; None to ask it."""

    @abstractmethod
    def _keep(self, curves: list[Doubles]) -> None:
        """Store the results of `_fit_curve`, one per curve."""


def _margins(logits: Doubles) -> Doubles:
    """Return the log-odds (n,) of class 1 of two, z_1 − z_0."""
    with np.errstate(over="ignore"):
        return np.asarray(logits[:, 1] - logits[:, 0])


def _labelled_margins(rows: LabelledRows) -> Doubles:
    """Return the log-odds (N,) of class 1 of two, read chunk by chunk.

    Raises:
        CalibrationDataError: As `OneVsRest._labelled_scores`.
    """
    margins = np.empty(len(rows.labels))
    for part, chunk, _ in logit_chunks(rows.logits):
        margins[part] = _margins(chunk)
        if not np.isfinite(margins[part]).all():
            check_label_logits(chunk[np.arange(len(chunk)), rows.labels[part]], rows.labels, part.start)
    return margins
