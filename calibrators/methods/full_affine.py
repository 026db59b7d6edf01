"""Affine maps with a full matrix: the base of matrix and Dirichlet calibration."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np

from calibrators.arrays import Doubles
from calibrators.calibrator import Calibrator
from calibrators.chunks import check_label_logits, logit_chunks
from calibrators.documents import Document, written
from calibrators.errors import CalibrationDataError
from calibrators.fitting.best_temperature import best_temperature
from calibrators.fitting.folds import floored_losses, folds_of
from calibrators.fitting.softmax_regression import AffineMap, check_penalty, fit_affine
from calibrators.validation import LabelledRows, relative_weight

# Candidates for the off-diagonal penalty, divided by the K (K − 1) weights of its mean: from a diagonal map, for any
# useful number of labels, to hardly any penalty.
_PENALTIES = (1.0, 0.1, 0.01, 1e-3, 1e-4)
_FOLDS = 3
# With fewer groups of rows per class, folds tell nothing.
_FEWEST = 5
# Leaves the losses that are compared within 1e-5 of their minimum.
_SEARCH_TOLERANCE = 3e-5
# Above this many N · K² the search takes longer than 10 seconds.
_MOST_WORK = 6e7


class FullAffine(Calibrator):
    """A calibrator p = softmax(W f + b) with a full, regularised W; final classes define the features f.

    Attributes:
        off_diagonal_: The penalty in use; None where temperature scaling replaces the map.
    """

    off_diagonal_: float | None
    weights_: Doubles
    intercepts_: Doubles

    @staticmethod
    @abstractmethod
    def _features(logits: Doubles, maxima: Doubles) -> Doubles:
        """Return features (n, K) of one chunk of logits (n, K), not to be changed, and its row maxima (n, 1)."""

    def __init__(self, off_diagonal: float | None = None, intercept: float = 1e-2) -> None:
        self.off_diagonal = None if off_diagonal is None else check_penalty(off_diagonal, "off_diagonal")
        self.intercept = check_penalty(intercept, "intercept")

    def _fit(self, rows: LabelledRows) -> None:
        penalty = self._best_penalty(rows) if self.off_diagonal is None else self.off_diagonal
        found = _tempered(rows) if penalty is None else self._map(rows, penalty)
        self.off_diagonal_, self.weights_, self.intercepts_ = penalty, found.weights, found.intercepts
        self.classes_ = rows.logits.shape[1]

    def _map(self, rows: LabelledRows, penalty: float, **search: Any) -> AffineMap:
        return fit_affine(rows, self._features, full=True, off_diagonal=penalty, intercept=self.intercept, **search)

    def _best_penalty(self, rows: LabelledRows) -> float | None:
        """Return a penalty with a small out-of-fold loss; None for temperature scaling, if its loss is smaller.

        The search goes from the largest penalty down, as long as the loss falls by more than one standard error of the
        difference: smaller penalties overfit few labels, and take far longer to fit.

        Raises:
            CalibrationDataError: Too many rows and classes for a search.
        """
        count, classes = rows.logits.shape
        if count * classes**2 > _MOST_WORK:
            raise CalibrationDataError(
                "Too large",
                where=f"logits for {self.name}",
                found=f"{count} rows of {classes} classes",
                expected=f"at most {int(_MOST_WORK // classes**2)} rows for a search of the penalty; for more, "
                "structured_vector or temperature, or a given off_diagonal",
            )
        for chunk, logits, _ in logit_chunks(rows.logits):  # errors name rows of the whole, not of a fold
            check_label_logits(logits[np.arange(len(logits)), rows.labels[chunk]], rows.labels, chunk.start)
        cluster = np.arange(count) if rows.groups is None else rows.groups
        if cluster.max() + 1 < _FEWEST * classes:
            return None
        fold = folds_of(cluster, _FOLDS, seed=0)
        parts = [(rows.take(np.flatnonzero(fold != part)), np.flatnonzero(fold == part)) for part in range(_FOLDS)]
        weight = np.ones(count) if rows.weight is None else relative_weight(rows.weight)

        def losses_of(maps: list[AffineMap]) -> Doubles:
            own = np.empty(count)
            for found, (_, inside) in zip(maps, parts, strict=True):
                held = rows.take(inside)
                for chunk, logits, maxima in logit_chunks(held.logits):
                    shares = self._shares(found, logits, maxima)
                    own[inside[chunk]] = shares[np.arange(len(shares)), held.labels[chunk]]
            return weight * floored_losses(own, classes)

        penalties = [classes * (classes - 1) * one for one in _PENALTIES]
        best: float | None = None
        least = np.zeros(count)
        maps: list[AffineMap] | list[None] = [None] * len(parts)
        for penalty in penalties:
            maps = [
                self._map(outside, penalty, near=near, tolerance=_SEARCH_TOLERANCE)
                for (outside, _), near in zip(parts, maps, strict=True)
            ]
            losses = losses_of(maps)
            gained = np.bincount(cluster, least - losses)
            if best is not None and gained.sum() <= np.sqrt(len(gained)) * gained.std():
                break
            best, least = penalty, losses
        return None if losses_of([_tempered(outside) for outside, _ in parts]).sum() <= least.sum() else best

    def _transform(self, logits: Doubles, maxima: Doubles) -> Doubles:
        return self._shares(AffineMap(self.weights_, self.intercepts_), logits, maxima)

    def _shares(self, found: AffineMap, logits: Doubles, maxima: Doubles) -> Doubles:
        with np.errstate(over="ignore", invalid="ignore"):
            return found.probabilities(self._features(logits, maxima), logits > -np.inf)

    def _parameters(self) -> dict[str, Any]:
        # The field's name says whether the penalty was given: a fit after a round trip searches where the first did.
        penalty = "found_off_diagonal" if self.off_diagonal is None else "off_diagonal"
        return {penalty: self.off_diagonal_, **written(self, "intercept", "weights", "intercepts")}

    @classmethod
    def _restore(cls, document: Document) -> Self:
        found = document.has("found_off_diagonal")
        penalty = document.number_or_null("found_off_diagonal", 0.0) if found else document.number("off_diagonal", 0.0)
        calibrator = cls(None if found else penalty, document.number("intercept", 0.0))
        calibrator.off_diagonal_ = penalty
        calibrator.intercepts_ = document.numbers("intercepts")
        calibrator.classes_ = classes = len(calibrator.intercepts_)
        if classes < 2:
            document.refuse("intercepts", f"{classes} numbers", "2 or more, one per class")
        calibrator.weights_ = document.table("weights", classes, classes)
        return calibrator


def _tempered(rows: LabelledRows) -> AffineMap:
    """Return temperature scaling as a map; it is the same of logits and of log-probabilities."""
    classes = rows.logits.shape[1]
    return AffineMap(np.eye(classes) / best_temperature(rows)[0], np.zeros(classes))
