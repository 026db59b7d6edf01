"""Multicalibration as a calibrator of revisions: it reads named columns of each row beside its logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn, Self, final

import numpy as np
from numpy.typing import NDArray

from calibrators import Calibrator, Multicalibration, from_dict
from calibrators.cells import named_columns
from service.decisions.rows import Rows
from service.errors import RevisionStateError

METHOD: Final = "multicalibration"
FEWEST: Final = 100
"""Rows that a group needs for evidence on its calibration."""


@final
class Multicalibrated(Calibrator):
    """A fitted `Multicalibration`. Without columns it refuses to answer, so that nothing falls back to its base.

    Args:
        fitted: The fitted calibrator of two classes.
    """

    name = METHOD
    classes_ = 2

    def __init__(self, fitted: Multicalibration) -> None:
        self.fitted = fitted

    @classmethod
    def fitted_on(cls, rows: Rows, columns: Sequence[str]) -> Self:
        """Fit on weighted rows with cells of these columns; raises as `Multicalibration.fit`."""
        assert rows.cells is not None  # noqa: S101 — they were read for it
        found = Multicalibration().fit(rows.logits, rows.label, _by_name(rows.cells, columns), rows.group, rows.weight)
        return cls(found)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that it reads."""
        return self.fitted.columns_

    def of_cells(self, logits: NDArray[np.float32], cells: NDArray[np.void] | None) -> NDArray[np.float32]:
        """Return calibrated probabilities, float32 (N, 2).

        Args:
            logits: float32 (N, 2).
            cells: Its columns of the N rows, see `Columns.cells_of`.

        Raises:
            RevisionStateError: A column is missing.
            CalibrationDataError: As `Multicalibration.predict_proba`.
        """
        if cells is None or not set(self.columns) <= set(cells.dtype.names or ()):
            self.refuse()
        return self.fitted.predict_proba(logits, _by_name(cells, self.columns)).astype(np.float32)

    def groups(self, cells: NDArray[np.void]) -> Iterator[tuple[str, str, NDArray[np.intp]]]:
        """Yield column, value or range, and the places of its rows, for each cell with `FEWEST` rows or more."""
        columns = named_columns(_by_name(cells, self.columns), len(cells))
        for one in self.fitted.cells_:
            code = one.cell_of(columns[one.name])
            for number, value in enumerate(one.names):
                if len(rows := np.flatnonzero(code == number)) >= FEWEST:
                    yield one.name, value, rows

    def to_dict(self) -> dict[str, Any]:
        """Return the document of the fitted calibrator."""
        return self.fitted.to_dict()

    @classmethod
    def from_dict(cls, document: object) -> Self:
        """Restore a calibrator from its document; raises CalibrationDataError."""
        return cls(Multicalibration.from_dict(document))

    def refuse(self) -> NoReturn:
        """Raise RevisionStateError: rows lack the columns."""
        raise RevisionStateError(
            "The calibrator `multicalibration` requires columns of each row, and these rows lack them.",
            where="calibrator",
            expected=list(self.columns),
            remedy="Reference rows and logits alone have no columns. Use labelled traffic with stored inputs "
            "(CANDOR_KEEP_INPUTS=all), or activate a revision with another calibrator first.",
        )

    def _fit(self, rows: object) -> NoReturn:  # noqa: ARG002
        self.refuse()

    def _transform(self, logits: object, maxima: object) -> NoReturn:  # noqa: ARG002
        self.refuse()

    def _parameters(self) -> NoReturn:
        self.refuse()

    @classmethod
    def _restore(cls, document: object) -> NoReturn:
        raise NotImplementedError


def require_no_columns(calibrator: Calibrator) -> None:
    """Raise RevisionStateError if a calibrator reads columns, where rows have none."""
    if isinstance(calibrator, Multicalibrated):
        calibrator.refuse()


def restored(document: object) -> Calibrator:
    """Restore the calibrator of a revision from its document; raises CalibrationDataError."""
    if isinstance(document, dict) and document.get("method") == METHOD:
        return Multicalibrated.from_dict(document)
    return from_dict(document)


def probabilities_of(
    calibrator: Calibrator, logits: NDArray[np.float32], cells: NDArray[np.void] | None
) -> NDArray[np.float32]:
    """Return what a calibrator makes of rows, float32 (N, K), with their columns if it reads any; see `of_cells`."""
    if isinstance(calibrator, Multicalibrated):
        return calibrator.of_cells(logits, cells)
    return np.asarray(calibrator.predict_proba(logits), np.float32)


def of_two(predicted: NDArray[np.int64], confidence: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the probabilities (N, 2) of two classes from the index of the predicted one, and its probability.

    >>> of_two(np.array([1, 0]), np.array([0.75, 0.5]))
    array([[0.25, 0.75],
           [0.5 , 0.5 ]], dtype=float32)
    """
    first = np.where(predicted == 0, confidence, 1 - confidence)
    return np.stack([first, 1 - first], axis=1).astype(np.float32)


def _by_name(cells: NDArray[np.void], names: Sequence[str]) -> dict[str, NDArray[Any]]:
    return {name: cells[name] for name in names}
