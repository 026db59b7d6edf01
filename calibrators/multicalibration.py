"""Multicalibration: probabilities of two classes that are right for every value of every named column, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self, final

import numpy as np
import scipy

from calibrators.arrays import ArrayLike, Doubles, Floats, Labels
from calibrators.calibrator import Calibrator
from calibrators.cells import Cells, ColumnValues, named_columns
from calibrators.documents import Document, document_digest
from calibrators.errors import CalibrationFitError
from calibrators.fitting.folds import folds_of
from calibrators.metrics import expected_calibration_error
from calibrators.registry import restored, unfitted
from calibrators.validation import as_groups, as_matrix, check_classes, check_count, checked_rows, relative_weight

NAME: Final = "multicalibration"
_VERSION: Final = 1
_FOLDS, _SEED = 5, 0
_RIDGE: Final = 5.0  # prior Fisher information of a cell's shift and slope: a cell of few rows moves little
_LEAST_GAIN: Final = 1.0  # nats per coefficient, as Akaike's criterion takes off
_RATE: Final = 0.3
_LARGEST: Final = float(np.log(1 / np.finfo(np.float32).tiny))  # |log-odds|


@dataclass(frozen=True, slots=True)
class CellCalibration:
    """How well the rows of a cell are calibrated.

    Attributes:
        column: The column.
        cell: Name of the cell, see `Cells.names`.
        rows: Number of rows whose weight is not 0.
        rate: Share of rows of class 1, weighted.
        mean_probability: Mean probability of class 1, weighted.
        error: Expected calibration error of P(class 1), ten bins of equal mass, biased upwards by noise.
        base_error: The same with the base calibrator alone.
    """

    column: str
    cell: str
    rows: int
    rate: float
    mean_probability: float
    error: float
    base_error: float


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """What a round adds to the log-odds z in each cell of a column: shift + slope · (z − centre)."""

    column: int
    shift: Doubles
    slope: Doubles
    centre: Doubles

    def applied(self, z: Doubles, cell: Labels) -> Doubles:
        return np.asarray(z + self.shift[cell] + self.slope[cell] * (z - self.centre[cell]))


@final
class Multicalibration:
    """Calibrate P(class 1) for all cells of named columns at once; cells of different columns overlap.

    A base calibrator is fitted on all rows. Boosting then corrects it: each round takes the column whose cells gain
    most log-likelihood by an own shift and slope of the log-odds, and moves a part of the way there. The number of
    rounds is chosen by five-fold cross-validation. **It does no harm by this measure**: unless the held-out log loss
    falls by more than its standard error, no round is kept, and the base calibrator answers alone.

    Columns are those of the rows as they will be when it predicts.

    Args:
        base: Method of the base calibrator, or an unfitted calibrator.
        rounds: Largest number of rounds.
        least_rows: Rows that a text needs to have its own cell.

    Attributes:
        base_: The fitted base calibrator.
        cells_: The cells of each column.
        columns_: Names of the columns.
        rounds_: Number of rounds kept.
        gain_: By how much they lower the held-out log loss, in nats per row; 0 without rounds. It is optimistic,
            because it chose their number: where nothing is wrong, one fit in ten keeps rounds that gain nothing.

    Raises:
        CalibrationDataError: A bad option.

    References:
        Hébert-Johnson, Kim, Reingold, Rothblum (2018), Multicalibration: calibration for the (computationally
        identifiable) masses; Tax et al. (2025), MCGrad: multicalibration at web scale, arXiv 2509.19884, for boosting
        with the score as a feature and early stopping. Cells instead of trees, and Newton steps in them, are ours.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> z, site = rng.normal(size=4000), np.where(rng.random(4000) < 0.2, "b", "a")
        >>> labels = (rng.random(4000) < scipy.special.expit(z + np.where(site == "b", 1.5, 0))).astype(int)
        >>> logits = np.stack([np.zeros_like(z), z], axis=1)
        >>> found = Multicalibration("platt").fit(logits, labels, {"site": site})
        >>> [f"{cell.cell}: {cell.base_error:.2f} to {cell.error:.2f}" for cell in found.cells(
        ...     logits, labels, {"site": site})]
        ['a: 0.06 to 0.02', 'b: 0.23 to 0.04']
    """

    base_: Calibrator
    cells_: list[Cells]
    columns_: tuple[str, ...]
    rounds_: int
    gain_: float

    def __init__(self, base: str | Calibrator = "auto", *, rounds: int = 100, least_rows: int = 100) -> None:
        check_count(rounds, "rounds")
        check_count(least_rows, "least_rows")
        unfitted(base, "base", "importance")
        self.base = base
        self.rounds = int(rounds)
        self.least_rows = int(least_rows)

    def fit(
        self,
        logits: ArrayLike,
        labels: ArrayLike,
        columns: ColumnValues,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit the base calibrator, and correct it.

        Args:
            logits: (N, 2) raw scores.
            labels: (N,) 0 or 1.
            columns: Named columns of the N rows, or a data frame.
            groups: (N,) integers or strings, equal for rows that belong together: folds keep them whole.
            sample_weight: (N,) importance weights of 0 or more; only ratios matter.

        Raises:
            CalibrationDataError: Wrong shapes, types or values; the message names the entry.
            CalibrationFitError: The base calibrator does not converge.
        """
        matrix, y, weight = checked_rows(logits, labels, sample_weight, "logits")
        check_classes(matrix.shape[1], 2, "logits")
        named = named_columns(columns, len(y))
        group = as_groups(groups, len(y))
        if weight is not None:
            kept = np.flatnonzero(weight)
            matrix, y, weight = matrix[kept], y[kept], relative_weight(weight[kept])
            named = {name: column[kept] for name, column in named.items()}
            group = None if group is None else as_groups(group[kept], len(kept))
        base = unfitted(self.base, "base", "importance").fit_grouped(matrix, y, group, weight)
        z = _log_odds(base.predict_proba(matrix))
        cluster = np.arange(len(y)) if group is None else group
        own = np.ones(len(y)) if weight is None else weight / weight.mean()
        cells = [Cells.of(name, column, self.least_rows) for name, column in named.items()]
        codes = [one.cell_of(named[one.name]) for one in cells]
        rounds, gain = self._chosen(z, y, own, cells, codes, cluster)
        steps: list[_Step] = []
        for _ in range(rounds):
            if (step := _best_step(z, y, own, cells, codes)) is None:
                break
            steps.append(step)
            z = step.applied(z, codes[step.column])
        self.base_, self.cells_, self._steps = base, cells, steps
        self.columns_, self.rounds_, self.gain_ = tuple(one.name for one in cells), len(steps), gain
        return self

    def predict_proba(self, logits: ArrayLike, columns: ColumnValues) -> Floats:
        """Return calibrated probabilities (N, 2) float64. A class with a logit of −inf has 0, any other more.

        Args:
            logits: (N, 2) raw scores.
            columns: The columns of the fit, at least. Values that were not there in the fit count as missing.

        Raises:
            CalibrationDataError: Wrong shapes, types or values, or a missing column.
            CalibrationFitError: Not fitted yet.
        """
        self._check_fitted()
        matrix = as_matrix(logits, "logits")
        z = _log_odds(self.base_.predict_proba(matrix))
        codes = self._codes(columns, len(matrix))
        for step in self._steps:
            z = step.applied(z, codes[step.column])
        z = np.where(np.isneginf(matrix[:, 0]), np.inf, np.where(np.isneginf(matrix[:, 1]), -np.inf, z))
        return np.stack([scipy.special.expit(-z), scipy.special.expit(z)], axis=1)

    def cells(
        self,
        logits: ArrayLike,
        labels: ArrayLike,
        columns: ColumnValues,
        sample_weight: ArrayLike | None = None,
        *,
        least_rows: int = 100,
    ) -> list[CellCalibration]:
        """Return the calibration of each cell with ``least_rows`` rows or more; use rows that were not in the fit.

        Raises:
            CalibrationDataError: As `predict_proba`, or labels and weights that do not fit.
            CalibrationFitError: Not fitted yet.
        """
        check_count(least_rows, "least_rows")
        self._check_fitted()
        matrix, y, weight = checked_rows(logits, labels, sample_weight, "logits")
        after, before = self.predict_proba(matrix, columns), self.base_.predict_proba(matrix)
        found = []
        for one, code in zip(self.cells_, self._codes(columns, len(y)), strict=True):
            for number, name in enumerate(one.names):
                part = np.flatnonzero(code == number if weight is None else (code == number) & (weight > 0))
                if len(part) < least_rows:
                    continue
                own = None if weight is None else weight[part]
                errors = (
                    expected_calibration_error(each[part], y[part], 10, "mass", sample_weight=own, positive=1)
                    for each in (after, before)
                )
                mean = np.average(np.stack([y[part], after[part, 1]]), axis=1, weights=own)
                found.append(CellCalibration(one.name, name, len(part), *mean.tolist(), *errors))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the fitted map as a JSON document; `from_dict` restores it exactly, but no options of another fit.

        Raises:
            CalibrationFitError: Not fitted yet.
        """
        self._check_fitted()
        return {
            "method": NAME,
            "version": _VERSION,
            "base": self.base_.to_dict(),
            "gain": self.gain_,
            "columns": [one.document() for one in self.cells_],
            "steps": [
                {
                    "column": self.cells_[step.column].name,
                    "shift": step.shift.tolist(),
                    "slope": step.slope.tolist(),
                    "centre": step.centre.tolist(),
                }
                for step in self._steps
            ],
        }

    def fingerprint(self) -> str:
        """Return the SHA-256 of the document, 64 hexadecimal digits.

        Raises:
            CalibrationFitError: Not fitted yet.
        """
        return document_digest(self.to_dict())

    @classmethod
    def from_dict(cls, document: object) -> Multicalibration:
        """Restore a calibrator from the result of `to_dict`.

        Raises:
            CalibrationDataError: A different method or version, or a field that is missing, unknown or out of range.
        """
        reader = Document(document)
        reader.header(NAME, _VERSION)
        base = restored(reader.anything("base"))
        base.check_fitted(2)
        found = cls(type(base)())
        found.base_, found.gain_ = base, reader.number("gain", 0.0)
        found.cells_ = [Cells.from_document(one) for one in reader.objects("columns")]
        found.columns_ = tuple(one.name for one in found.cells_)
        found._steps = [found._step(one) for one in reader.objects("steps")]
        found.rounds_ = len(found._steps)
        reader.finish()
        return found

    def _step(self, content: object) -> _Step:
        reader = Document(content)
        name = reader.choice("column", self.columns_)
        column = self.columns_.index(name)
        count = self.cells_[column].count
        shift, slope, centre = (reader.numbers(field, count=count) for field in ("shift", "slope", "centre"))
        step = _Step(column, shift, slope, centre)
        reader.finish()
        return step

    def _check_fitted(self) -> None:
        if not hasattr(self, "base_"):
            raise CalibrationFitError(
                "Not fitted", where=f"{NAME} calibrator", found="not fitted yet", expected="a call of fit"
            )

    def _codes(self, columns: ColumnValues, rows: int) -> list[Labels]:
        named = named_columns(columns, rows, self.columns_)
        return [one.cell_of(named[one.name]) for one in self.cells_]

    def _chosen(
        self, z: Doubles, y: Labels, weight: Doubles, cells: list[Cells], codes: list[Labels], cluster: Labels
    ) -> tuple[int, float]:
        """Return the number of rounds with the least held-out log loss, and its gain; 0 if it is within its noise."""
        fold = folds_of(cluster, _FOLDS, _SEED)
        if fold.max() == 0:
            return 0, 0.0
        losses = np.empty((self.rounds + 1, len(y)))
        for number in range(fold.max() + 1):
            inside, outside = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
            own, held = z[inside], z[outside]
            parts = [code[inside] for code in codes]
            losses[:, outside] = _losses(held, y[outside])
            for done in range(1, self.rounds + 1):
                if (step := _best_step(own, y[inside], weight[inside], cells, parts)) is None:
                    break
                own = step.applied(own, parts[step.column])
                held = step.applied(held, codes[step.column][outside])
                losses[done:, outside] = _losses(held, y[outside])
        rounds = int(np.argmin(losses @ weight))
        gains = np.bincount(cluster, weight * (losses[0] - losses[rounds]))
        noise = float(np.sqrt(len(gains)) * gains.std())
        total = float(gains.sum())
        return (rounds, total / len(y)) if total > noise else (0, 0.0)


def _losses(z: Doubles, y: Labels) -> Doubles:
    return np.asarray(np.logaddexp(0, z) - y * z)


def _log_odds(probabilities: Floats) -> Doubles:
    """Return the log-odds (N,) of class 1, finite."""
    both = probabilities.astype(np.float64)
    with np.errstate(divide="ignore"):
        return np.asarray(np.clip(np.log(both[:, 1]) - np.log(both[:, 0]), -_LARGEST, _LARGEST))


def _best_step(z: Doubles, y: Labels, weight: Doubles, cells: list[Cells], codes: list[Labels]) -> _Step | None:
    """Return the step in the column whose cells gain most; None where no cell gains more than a coefficient costs.

    Shift and slope of a cell are taken one by one: around the cell's weighted mean of z, the Hessian of the log-loss is
    diagonal. Half the product of gradient and Newton step is what a step gains, to second order.
    """
    p = scipy.special.expit(z)
    gradient, curvature = weight * (y - p), weight * p * (1 - p)
    tilted = curvature * z
    most, best = 0.0, None
    for number, (one, cell) in enumerate(zip(cells, codes, strict=True)):
        count = one.count
        total = np.bincount(cell, curvature, count)
        centre = np.bincount(cell, tilted, count) / np.maximum(total, np.finfo(np.float64).tiny)
        distance = z - centre[cell]
        moves, gained = [], 0.0
        for slope, information in (
            (np.bincount(cell, gradient, count), total),
            (np.bincount(cell, gradient * distance, count), np.bincount(cell, tilted * distance, count)),
        ):
            move = slope / (np.maximum(information, 0) + _RIDGE)
            gain = slope * move / 2 - _LEAST_GAIN
            moves.append(np.where(gain > 0, _RATE * move, 0.0))
            gained += float(np.maximum(gain, 0).sum())
        if gained > most:
            most, best = gained, _Step(number, moves[0], moves[1], centre)
    return best
