"""Read the log-odds of one-vs-rest curves chunk by chunk, never all at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrators.arrays import Doubles, Floats
from calibrators.chunks import CHUNK_ENTRIES, check_label_logits, check_maxima, row_maxima
from calibrators.fitting.log_odds import log_odds_against_rest
from calibrators.validation import LabelledRows

# Minimum rows per chunk, to limit interpreter overhead; maximum entries kept in memory.
_FEW_ROWS = 64
_ENTRIES_KEPT = 262_144


@dataclass(frozen=True, slots=True)
class ScoreChunk:
    """Some rows as seen by C curves.

    Attributes:
        scores: (C, n) finite; 0 for infinite log-odds, which have no mass.
        mass: Weights (n,) or (C, n) relative to the largest of all rows, or None for ones.
        part: Slice of the rows.
    """

    scores: Doubles
    mass: Doubles | None
    part: slice


class ScoreChunks:
    """The log-odds of labelled rows.

    Two classes have one curve, for class 1; more classes have one each. With ``top`` there is one curve, for the class
    of the largest logit; its hits are the rows with that label.
    """

    def __init__(self, rows: LabelledRows, top: bool) -> None:
        classes = rows.logits.shape[1]
        self.rows = rows
        self.top = top
        self.curves = 1 if classes == 2 or top else classes
        self.largest = 1.0 if rows.weight is None else float(rows.weight.max())
        self._kept: list[ScoreChunk] | None = None
        if rows.logits.size <= _ENTRIES_KEPT:
            self._kept = list(self._chunks(None))

    def every(self, step: int) -> ScoreChunks:
        """Return every ``step``-th row."""
        weight = None if self.rows.weight is None else self.rows.weight[::step]
        return ScoreChunks(LabelledRows(self.rows.logits[::step], self.rows.labels[::step], weight), self.top)

    def chunks(self, chosen: npt.NDArray[np.intp] | None = None) -> Iterator[ScoreChunk]:
        """Yield all rows, for the chosen curves, in order (None: all curves).

        Raises:
            CalibrationDataError: Invalid logits, or a row whose own label has a probability of zero.
        """
        if chosen is not None and len(chosen) == self.curves:
            chosen = None
        if self._kept is None:
            yield from self._chunks(chosen)
        elif chosen is None:
            yield from self._kept
        else:
            for chunk in self._kept:
                mass = chunk.mass[chosen] if chunk.mass is not None and chunk.mass.ndim == 2 else chunk.mass
                yield ScoreChunk(chunk.scores[chosen], mass, chunk.part)

    def count_hits(self, part: slice) -> npt.NDArray[np.int64]:
        """Return the number (C,) of each curve's hits among some rows."""
        if self.curves > 1:
            return np.bincount(self.rows.labels[part], minlength=self.curves)
        return np.array([np.count_nonzero(self._hit(part))])

    def sums_of_hits(self, values: list[Doubles], part: slice) -> Doubles:
        """Return sums (C, D) of D arrays (C, n) over each curve's hits; (1, n) stands for C equal rows."""
        if self.curves == 1:
            hit = self._hit(part).astype(np.float64)
            return np.array([[float(one[0] @ hit) for one in values]])
        labels = self.rows.labels[part]
        own = [one[0] if len(one) == 1 else one[labels, np.arange(len(labels))] for one in values]
        return np.stack([np.bincount(labels, one, self.curves) for one in own], axis=1)

    def _hit(self, part: slice) -> npt.NDArray[np.bool_]:
        """Return the mask (n,) of hits of the only curve."""
        labels = self.rows.labels[part]
        return np.asarray(np.argmax(self.rows.logits[part], axis=1) == labels if self.top else labels == 1)

    def _chunks(self, chosen: npt.NDArray[np.intp] | None) -> Iterator[ScoreChunk]:
        count, classes = self.rows.logits.shape
        step = max(CHUNK_ENTRIES // classes, _FEW_ROWS)
        for start in range(0, count, step):
            part = slice(start, min(start + step, count))
            scores, finite = self._margins(part) if classes == 2 else self._log_odds(part, chosen)
            mass = None if self.rows.weight is None else self.rows.weight[part] / self.largest
            if not finite:
                known = np.isfinite(scores)
                mass = np.where(known, 1.0 if mass is None else mass, 0.0)
                scores[~known] = 0
            yield ScoreChunk(scores, mass, part)

    def _margins(self, part: slice) -> tuple[Doubles, bool]:
        logits = self.rows.logits[part]
        with np.errstate(over="ignore", invalid="ignore"):
            scores = np.subtract(logits[:, 1], logits[:, 0], dtype=np.float64)
            # Also false if the sum of huge scores overflows, which does no harm.
            finite = math.isfinite(np.add.reduce(scores))
        if not finite:
            check_maxima(row_maxima(logits), logits, part.start)
            self._check_labels(logits, part)
        return np.asarray(np.abs(scores) if self.top else scores)[None], finite

    def _log_odds(self, part: slice, chosen: npt.NDArray[np.intp] | None) -> tuple[Doubles, bool]:
        chunk: Doubles = self.rows.logits[part].astype(np.float64, order="C")
        maxima = row_maxima(chunk)
        check_maxima(maxima, chunk, part.start)
        self._check_labels(chunk, part)
        if self.top:
            top = np.arange(len(chunk)), np.argmax(chunk, axis=1)
            odds = log_odds_against_rest(chunk, maxima)[top][None]
        else:
            odds = log_odds_against_rest(chunk, maxima)
            odds = np.ascontiguousarray((odds if chosen is None else odds[:, chosen]).T)
        return odds, bool(np.isfinite(odds).all())

    def _check_labels(self, chunk: Floats, part: slice) -> None:
        own = chunk[np.arange(len(chunk)), self.rows.labels[part]]
        check_label_logits(own, self.rows.labels, part.start)
