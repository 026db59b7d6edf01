"""The base class of all calibrators."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from calibrators.arrays import ArrayLike, Doubles, Floats, Labels
from calibrators.chunks import logit_chunks
from calibrators.documents import Document, document_digest
from calibrators.effective_rows import WeightKind, check_frequencies
from calibrators.errors import CalibrationDataError, CalibrationFitError, shown
from calibrators.softmax import result_array
from calibrators.validation import LabelledRows, as_matrix, check_classes, check_shape, labelled_rows


class Calibrator(ABC):
    """Learn a map from logits to calibrated probabilities, and apply it.

    Class attributes:
        name: Key in ``calibrators.CALIBRATORS`` and ``"method"`` in documents.
        version: Version of the document's form.
        preserves_order: With two classes, the calibrated probability never falls as z_1 − z_0 rises, whatever the fit.
            A threshold before calibration then maps to a threshold after it. Rounding may make two close rows equal,
            or swap them by one unit in the last place.

    Attributes:
        top_label_only: The method calibrates the confidence of the class with the largest logit and spreads the rest
            over the other classes. One of these may end up larger; `top_label` still returns the raw label.
        weight_kind: Meaning of sample weights in methods that count rows.
        classes_: Number of classes K of the fit; 0 if the calibrator works for any number, or is not fitted.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    preserves_order: ClassVar[bool] = False
    _needs_fit: ClassVar[bool] = True
    _defaults: ClassVar[dict[str, Any]] = {}

    top_label_only: bool = False
    weight_kind: WeightKind = "importance"
    classes_: int = 0

    def __init_subclass__(cls) -> None:
        """Note the names and defaults of the constructor's arguments."""
        super().__init_subclass__()
        cls._defaults = {name: one.default for name, one in inspect.signature(cls).parameters.items()}

    def __repr__(self) -> str:
        """Show the class, options other than the defaults, and the number of classes of the fit."""
        options = ((name, default, getattr(self, name, default)) for name, default in self._defaults.items())
        parts = [f"{name}={value!r}" for name, default, value in options if value != default]
        if self.classes_ != 0 or self._needs_fit:
            parts.append(f"fitted for {self.classes_} classes" if self.classes_ != 0 else "not fitted")
        return f"{type(self).__name__}({', '.join(parts)})"

    # Hidden from type checkers, which would otherwise allow any attribute to be set.
    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: object) -> None:
            """Set an attribute; raise CalibrationDataError when an option is set a second time."""
            if name in self.__dict__ and name in self._defaults:
                raise CalibrationDataError(
                    "Options are fixed",
                    where=f"{name} of {self!r}",
                    found=f"set to {shown(value)}",
                    expected="a new calibrator with that option",
                )
            super().__setattr__(name, value)

    def fit(self, logits: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the map.

        Args:
            logits: (N, K) raw scores, N ≥ 1, K ≥ 2, of float16, float32 or float64; −inf means a probability of zero.
                Read in row chunks and never copied, so it may be a memory map.
            labels: (N,) integers in 0 … K−1. Classes may be missing.
            sample_weight: (N,) importance weights of 0 or more; only ratios matter. With ``weight_kind="frequency"``,
                whole numbers. None: equal weights.

        Returns:
            The calibrator itself.

        Raises:
            CalibrationDataError: Wrong shapes, types or values; the message names the entry.
            CalibrationFitError: No convergence. The calibrator keeps its previous state.
        """
        return self.fit_grouped(logits, labels, None, sample_weight)

    def fit_grouped(
        self,
        logits: ArrayLike,
        labels: ArrayLike,
        groups: ArrayLike | None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit as `fit` does, on rows that belong to groups (the frames of a video, the payments of a card).

        Methods that cross-validate (`auto`, `matrix`, `dirichlet`, and `prior_shift` around one of these) keep the rows
        of a group in one fold; all others ignore groups.

        Args:
            logits: (N, K) raw scores.
            labels: (N,) integers in 0 … K−1.
            groups: (N,) integers or strings, equal for rows that belong together; None: each row is its own.
            sample_weight: (N,) weights of 0 or more, or None.

        Raises:
            CalibrationDataError: As `fit`, or groups of the wrong shape.
            CalibrationFitError: As `fit`.
        """
        rows = labelled_rows(logits, labels, sample_weight, groups)
        check_frequencies(sample_weight, self.weight_kind)
        self._fit(rows)
        return self

    def predict_proba(self, logits: ArrayLike, out: Floats | None = None) -> Floats:
        """Return calibrated probabilities.

        Args:
            logits: (N, K) raw scores, N ≥ 0; as in `fit`.
            out: (N, K) array of the result's type to write to: ``logits`` itself, or memory that does not overlap it.
                After an error its content is undefined.

        Returns:
            (N, K) in [0, 1], rows sum to one; float32 for float32 and float16 input, float64 for float64. Computed in
            float64 unless the method says otherwise. Each row's result depends on that row alone.

        Raises:
            CalibrationDataError: A different number of classes than in the fit, NaN, +inf, or a row with only −inf.
            CalibrationFitError: Not fitted yet.
        """
        matrix = as_matrix(logits, "logits")
        self.check_fitted(matrix.shape[1])
        result = result_array(matrix, out)
        single = self._single_precision_from <= matrix.shape[1] and matrix.dtype != np.float64
        for rows, chunk, maxima in logit_chunks(matrix, single, self._rows_at_once):
            result[rows] = self._transform(chunk, maxima)
        return result

    def top_label(self, logits: ArrayLike, probabilities: ArrayLike) -> tuple[Labels, Floats]:
        """Return the predicted label of each row and its confidence.

        Args:
            logits: (N, K) raw scores.
            probabilities: (N, K) from `predict_proba` on these logits.

        Returns:
            Labels (N,) int64 and confidences (N,) in the probabilities' type. Top-label methods keep the class of the
            largest logit; others take the class of the largest probability. The first of equals wins.

        Raises:
            CalibrationDataError: Shapes that differ, or a different number of classes than in the fit.
            CalibrationFitError: Not fitted yet.
        """
        matrix, shares = as_matrix(logits, "logits"), as_matrix(probabilities, "probabilities")
        self.check_fitted(matrix.shape[1])
        check_shape(shares, matrix.shape, "probabilities")
        labels = np.argmax(matrix if self.top_label_only else shares, axis=1)
        return labels.astype(np.int64, copy=False), shares[np.arange(len(labels)), labels]

    def to_dict(self) -> dict[str, Any]:
        """Return the fitted calibrator as a JSON document; `from_dict` restores it exactly.

        Raises:
            CalibrationFitError: Not fitted yet.
        """
        self.check_fitted()
        return {"method": self.name, "version": self.version, **self._parameters()}

    def fingerprint(self) -> str:
        """Return the SHA-256 of the document, 64 hexadecimal digits: the same on every machine and after a round trip.

        The digest is of `to_dict` as JSON with sorted keys and no spaces.

        Raises:
            CalibrationFitError: Not fitted yet.
        """
        return document_digest(self.to_dict())

    def check_fitted(self, classes: int | None = None, name: str = "logits") -> None:
        """Refuse an unfitted calibrator, or ``classes`` columns of ``name`` that do not match the fit.

        Raises:
            CalibrationDataError: A different number of classes.
            CalibrationFitError: Not fitted yet.
        """
        if self.classes_ == 0 and self._needs_fit:
            raise CalibrationFitError(
                "Not fitted", where=f"{self.name} calibrator", found="not fitted yet", expected="a call of fit"
            )
        if classes is not None and self.classes_ != 0:
            check_classes(classes, self.classes_, name)

    @classmethod
    def from_dict(cls, document: object) -> Self:
        """Restore a calibrator of this class from the result of `to_dict`.

        Raises:
            CalibrationDataError: A different method or version, or a field that is missing, unknown or out of range.
        """
        reader = Document(document)
        reader.header(cls.name, cls.version)
        calibrator = cls._restore(reader)
        reader.finish()
        return calibrator

    # From this many classes on, float32 logits are transformed in float32; never, unless a method bounds the error.
    _single_precision_from: ClassVar[float] = math.inf
    # Rows to transform at once; see `logit_chunks`.
    _rows_at_once: ClassVar[int] = 1

    @abstractmethod
    def _fit(self, rows: LabelledRows) -> None:
        """Learn from checked rows; set attributes, `classes_` among them, only after everything succeeded."""

    @abstractmethod
    def _transform(self, logits: Doubles, maxima: Doubles) -> Doubles:
        """Return probabilities (n, K) of one chunk of float64 logits, free to overwrite, and its row maxima (n, 1)."""

    @abstractmethod
    def _parameters(self) -> dict[str, Any]:
        """Return the document's fields besides method and version."""

    @classmethod
    @abstractmethod
    def _restore(cls, document: Document) -> Self:
        """Build a calibrator from the fields of `_parameters`, reading each through ``document``."""
