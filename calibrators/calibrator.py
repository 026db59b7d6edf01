"""What every calibrator is."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np

from calibrators.arrays import ArrayLike, Doubles, Floats, Labels
from calibrators.chunks import logit_chunks
from calibrators.documents import Document, document_digest
from calibrators.effective_rows import WeightKind, check_frequencies
from calibrators.errors import CalibrationDataError, CalibrationFitError
from calibrators.options import FixedOptions
from calibrators.softmax import result_array
from calibrators.validation import LabelledRows, as_matrix, check_classes, labelled_rows


class Calibrator(FixedOptions, ABC):
    """Maps logits to probabilities that mean what they say, after learning how from labelled rows.

    Class attributes:
        name: Key in ``calibrators.CALIBRATORS`` and ``"method"`` in documents.
        version: Version of the document's form.
        preserves_order: With two classes the fitted map never reverses the order of two rows: the calibrated
            probability is a non-decreasing function of z_1 − z_0, whatever the fit, so a threshold on one side maps to
            a threshold on the other (ties broken by the raw log-odds). That is up to rounding, here and wherever a
            method says what it preserves: two rows close together may come out equal, or one unit in the last place
            the wrong way round. With more classes no method but `identity` promises it for the probabilities of one
            class.

    Attributes:
        top_label_only: The method calibrates the confidence of the largest logit's class, and spreads the rest over the
            other classes, one of which may end up larger; `top_label` then still returns the raw label.
        weight_kind: What sample weights count for, in methods that count rows and do not only average over them.
        classes_: Number of classes K that the calibrator was fitted for; 0 where it works for any, or is not fitted.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    preserves_order: ClassVar[bool]

    top_label_only: bool = False
    weight_kind: WeightKind = "importance"

    def fit(self, logits: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learns the map.

        Args:
            logits: (N, K) raw scores, N ≥ 1, K ≥ 2, of float16, float32 or float64; −inf means a probability of zero.
                Read in row chunks and never copied, so it may be a memory map.
            labels: (N,) integers in 0 … K−1. Some classes may be missing.
            sample_weight: (N,) importance weights of 0 or more; only their ratios matter. Whole numbers, where
                ``weight_kind`` is ``"frequency"``. None: all equal.

        Returns:
            The calibrator itself.

        Raises:
            CalibrationDataError: Data that cannot be used; the message says what was found and expected.
            CalibrationFitError: The optimum was not reached. The calibrator is then as it was before.
        """
        rows = labelled_rows(logits, labels, sample_weight)
        check_frequencies(sample_weight, self.weight_kind)
        self._fit(rows)
        return self

    def predict_proba(self, logits: ArrayLike, out: Floats | None = None) -> Floats:
        """Calibrated probabilities.

        Args:
            logits: (N, K) raw scores, N ≥ 0; as in `fit`.
            out: (N, K) of the result's type to write to; it may be ``logits`` itself, but share memory with it in no
                other way. After an error its content is undefined.

        Returns:
            (N, K) in [0, 1], rows sum to one; float32 for float32 and float16 input, float64 for float64. Computed in
            float64 whatever the input, unless the method says otherwise. A row's result does not depend on the rows
            beside it.

        Raises:
            CalibrationDataError: Another number of classes than fitted for, NaN, +inf, a row of nothing but −inf.
            CalibrationFitError: Not fitted yet.
        """
        matrix = as_matrix(logits, "logits")
        self.check_fitted(matrix.shape[1])
        result = result_array(matrix, out)
        single = self._single_precision_from <= matrix.shape[1] and matrix.dtype != np.float64
        for rows, chunk, maxima in logit_chunks(matrix, single):
            result[rows] = self._transform(chunk, maxima)
        return result

    def top_label(self, logits: ArrayLike, probabilities: ArrayLike) -> tuple[Labels, Floats]:
        """The predicted label of each row, and the probability that it is right.

        Args:
            logits: (N, K) raw scores.
            probabilities: (N, K), what `predict_proba` gave for them.

        Returns:
            Labels (N,) int64 and confidences (N,) of the probabilities' type. Top-label methods keep the class of the
            largest logit; the others take the class of the largest probability. The first of equals wins.

        Raises:
            CalibrationDataError: Arrays that differ in shape, or are none; another number of classes than fitted for.
            CalibrationFitError: Not fitted yet.
        """
        matrix, shares = as_matrix(logits, "logits"), as_matrix(probabilities, "probabilities")
        self.check_fitted(matrix.shape[1])
        if shares.shape != matrix.shape:
            raise CalibrationDataError(
                "Wrong shape",
                where="probabilities",
                found=f"an array of shape {shares.shape}",
                expected=f"shape {matrix.shape}, as the logits",
            )
        labels = np.argmax(matrix if self.top_label_only else shares, axis=1)
        return labels.astype(np.int64, copy=False), shares[np.arange(len(labels)), labels]

    def to_dict(self) -> dict[str, Any]:
        """The fitted calibrator as a document that `json` can write; `from_dict` restores it exactly.

        Raises:
            CalibrationFitError: Not fitted yet.
        """
        self.check_fitted()
        return {"method": self.name, "version": self.version, **self._parameters()}

    def fingerprint(self) -> str:
        """SHA-256 of the document, 64 hexadecimal digits: equal for calibrators whose documents are equal.

        The digest of `to_dict` as JSON with sorted keys and no spaces, so it is the same on every machine, after a
        round trip through `from_dict`, and for whoever computes it from the document alone.

        Raises:
            CalibrationFitError: Not fitted yet.
        """
        return document_digest(self.to_dict())

    def check_fitted(self, classes: int | None = None, name: str = "logits") -> None:
        """Refuses to go on without a fit, or with another number of classes than in the fit.

        Args:
            classes: Number of columns of what is to be used; None: any.
            name: What to call that in an error.

        Raises:
            CalibrationDataError: Another number of classes.
            CalibrationFitError: Not fitted yet.
        """
        if self.classes_ == 0 and self._needs_fit:
            raise CalibrationFitError(
                "Not fitted", where=f"{self.name} calibrator", found="not fitted yet", expected="a call of fit first"
            )
        if classes is not None and self.classes_ != 0:
            check_classes(classes, self.classes_, name)

    @classmethod
    def from_dict(cls, document: object) -> Self:
        """Restores a calibrator of this class from what `to_dict` made.

        Raises:
            CalibrationDataError: Another method or version, a field missing, unknown, or outside its range.
        """
        reader = Document(document)
        reader.header(cls.name, cls.version)
        calibrator = cls._restore(reader)
        reader.finish()
        return calibrator

    # From this many classes on, float32 logits are transformed in float32: never, unless a method bounds what it costs.
    _single_precision_from: ClassVar[float] = math.inf

    @abstractmethod
    def _fit(self, rows: LabelledRows) -> None:
        """Learns from checked rows; sets attributes only when all has gone well, `classes_` among them."""

    @abstractmethod
    def _transform(self, logits: Doubles, maxima: Doubles) -> Doubles:
        """Probabilities of one chunk: (n, K) float64 logits, free to overwrite, and their (n, 1) row maxima."""

    @abstractmethod
    def _parameters(self) -> dict[str, Any]:
        """The fields of the document beside method and version."""

    @classmethod
    @abstractmethod
    def _restore(cls, document: Document) -> Self:
        """Makes a calibrator from the fields that `_parameters` wrote, reading each through ``document``."""
