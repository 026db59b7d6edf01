"""Read the features of a softmax regression chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import scipy

from calibrators.arrays import Doubles
from calibrators.chunks import check_label_logits, logit_chunks
from calibrators.validation import LabelledRows

Features: TypeAlias = Callable[[Doubles, Doubles], Doubles]

_ENTRIES_KEPT = 2_097_152
# Differences of numbers up to this are finite in float32.
_SAFE_IN_SINGLE = 1e37
# Weights divided by this are finite.
_LEAST_SCALE = 1e-300


class FeatureChunks:
    """The features of all rows, chunk by chunk; kept in memory if they are few, else computed for each pass.

    Iteration yields row slices, features (n, K), Fortran-ordered for two classes, and the mask (n, K) of possible
    classes, or None if all are possible.

    Attributes:
        extent: The largest absolute feature, if known; else inf.
    """

    def __init__(self, rows: LabelledRows, features: Features) -> None:
        self.extent = np.inf
        self._rows = rows
        self._features = features
        self._place: tuple[Doubles, float] | None = None
        self._single, self._fits_single = False, rows.logits.dtype != np.float64
        self._kept = list(self._read()) if rows.logits.size <= _ENTRIES_KEPT else None

    def __iter__(self) -> Iterator[tuple[slice, Doubles, npt.NDArray[np.bool_] | None]]:
        return self._read() if self._kept is None else iter(self._kept)

    def single_precision(self, wanted: bool) -> bool:
        """Use float32 features from now on if ``wanted`` and lossless; return whether they are used."""
        self._single = wanted and self._kept is None and self._fits_single
        return self._single

    def standardise(self) -> tuple[Doubles, float]:
        """Centre the columns and divide all by one standard deviation (1 if nothing varies); return both."""
        classes = self._rows.logits.shape[1]
        # Divide by the largest feature, so that squares neither overflow nor vanish.
        largest = max(float(np.abs(inputs).max()) for _, inputs, _ in self)
        self._fits_single &= largest < _SAFE_IN_SINGLE
        total, first, second = 0.0, np.zeros(classes), np.zeros(classes)
        start: Doubles | None = None  # moments about the first row cancel nothing where columns hardly vary
        for part, inputs, _ in self:
            relative = inputs / (largest or 1.0)
            start = relative[0].astype(np.float64) if start is None else start
            relative -= start
            weight = np.ones(len(relative)) if self._rows.weight is None else self._rows.weight[part]
            total += float(weight.sum())
            first += weight @ relative
            relative *= relative
            second += weight @ relative
        mean = first / total
        variance = float(np.mean(second / total - mean**2))
        centre = (mean if start is None else start + mean) * largest
        scale = max(largest * variance**0.5, _LEAST_SCALE) if variance > 1e-24 else 1.0
        if self._kept is None:
            self._place = (centre, scale)
        for _, inputs, _ in self._kept or ():
            inputs -= centre
            inputs /= scale
        if self._kept is not None:
            self.extent = max(float(np.abs(inputs).max()) for _, inputs, _ in self._kept)
        return centre, scale

    def label_sums(self, full: bool) -> Doubles:
        """Return weighted sums of each label's derivatives of its own score, by A and then b: the same for every map.

        The shape is (K² + K,) for a ``full`` matrix A, else (2K,).
        """
        classes = self._rows.logits.shape[1]
        slopes, shifts = np.zeros((classes, classes) if full else classes), np.zeros(classes)
        for part, inputs, _ in self:
            labels = self._rows.labels[part]
            weight = np.ones(len(labels)) if self._rows.weight is None else self._rows.weight[part]
            shifts += np.bincount(labels, weight, classes)
            if full:
                mine = scipy.sparse.csr_array((weight, labels, np.arange(len(labels) + 1)), (len(labels), classes))
                slopes += np.asarray(mine.T @ inputs)
            else:
                slopes += np.bincount(labels, weight * inputs[np.arange(len(labels)), labels], classes)
        return np.concatenate([slopes.ravel(), shifts])

    def _read(self) -> Iterator[tuple[slice, Doubles, npt.NDArray[np.bool_] | None]]:
        labels = self._rows.labels
        for part, chunk, maxima in logit_chunks(self._rows.logits, self._single):
            check_label_logits(chunk[np.arange(len(chunk)), labels[part]], labels, part.start)
            possible = None if np.minimum.reduce(chunk, axis=None) > -np.inf else chunk > -np.inf
            inputs = self._features(chunk, maxima)
            if inputs.shape[1] == 2:
                inputs = np.asfortranarray(inputs)
            if self._place is not None:
                inputs -= self._place[0].astype(inputs.dtype)
                inputs /= self._place[1]
            yield part, inputs, possible
