"""A calibrator for each segment of the rows, with one for all to fall back on."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np

from calibrators.arrays import ArrayLike, Floats, Labels
from calibrators.calibrator import Calibrator
from calibrators.chunks import row_chunks
from calibrators.documents import Document, document_digest
from calibrators.effective_rows import WEIGHT_KINDS, WeightKind, check_frequencies, counting_weight
from calibrators.errors import CalibrationError, CalibrationFitError
from calibrators.options import FixedOptions
from calibrators.registry import restored, unfitted
from calibrators.segments import Segment, number_segments, read_segment
from calibrators.softmax import result_array
from calibrators.top_confidence import top_confidences
from calibrators.validation import (
    LabelledRows,
    as_labels,
    as_matrix,
    as_weight,
    check_choice,
    check_classes,
    check_count,
    labelled_rows,
)


class SegmentedCalibrator(FixedOptions):
    """Fits a method on each segment alone (a country, a camera, a card scheme), and one on all rows to fall back on.

    A segment with too few rows or too few errors gets no calibrator of its own, nor does one whose fit is refused; its
    rows, and those of segments never seen, get the fallback. `fell_back_` says which and why. An error is a row whose
    largest logit is not the label's: without any, a temperature, say, has no finite optimum, and few say little about
    it. Segments are compared by value and type: 1 and "1" are two. Choose them before looking at the labels.

    Not one of `CALIBRATORS`: fit and predict need to be told the segments. Each row's result is that of its segment's
    calibrator, to the last bit.

    Preserves: within a segment what its method preserves. Rows of different segments may change their order.
    When to use: when segments are miscalibrated in different ways, with dozens of errors in the large ones.

    Args:
        calibrator: Name of a method, or an unfitted calibrator, which is copied; for the segments.
        fallback: Likewise, fitted on all rows. None: the same as ``calibrator``.
        min_rows: Rows that a segment needs, 1 or more.
        min_errors: Errors that it needs, 0 or more.
        weight_kind: What sample weights count for beside these numbers: ``"importance"`` (the Kish effective number of
            the segment's rows, and their weighted share of errors) or ``"frequency"`` (a weight of 3 is a row seen
            three times). It goes for methods given by name too; a calibrator keeps its own.

    Attributes:
        fallback_: The calibrator fitted on all rows.
        calibrators_: Those of segments that have their own, by segment.
        fell_back_: Why the other segments of the fit have none, by segment.
        classes_: Number of classes K; 0 before the fit.

    Raises:
        CalibrationDataError: An unknown method or weight kind, or a bad number.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[2.0, 0.0]] * 9)
        >>> segments = ["north"] * 4 + ["south"] * 4 + ["west"]
        >>> labels = np.array([0, 0, 0, 1, 0, 0, 1, 1, 0])
        >>> calibrator = SegmentedCalibrator(min_rows=4, min_errors=1).fit(logits, labels, segments)
        >>> calibrator.predict_proba(logits[:3], ["north", "south", "west"]).round(3)
        array([[0.75 , 0.25 ],
               [0.525, 0.475],
               [0.667, 0.333]])
        >>> calibrator.fell_back_
        {'west': '1 row of at least 4'}
    """

    name: ClassVar[str] = "segmented"
    version: ClassVar[int] = 1

    fallback_: Calibrator
    calibrators_: dict[Segment, Calibrator]
    fell_back_: dict[Segment, str]

    def __init__(
        self,
        calibrator: str | Calibrator = "temperature",
        fallback: str | Calibrator | None = None,
        min_rows: int = 100,
        min_errors: int = 25,
        weight_kind: WeightKind = "importance",
    ) -> None:
        check_count(min_rows, "min_rows")
        check_count(min_errors, "min_errors", least=0)
        check_choice(weight_kind, WEIGHT_KINDS, "weight_kind")
        self.calibrator = unfitted(calibrator, "calibrator", weight_kind)
        self.fallback = self.calibrator if fallback is None else unfitted(fallback, "fallback", weight_kind)
        self.min_rows = int(min_rows)
        self.min_errors = int(min_errors)
        self.weight_kind = weight_kind

    def fit(
        self, logits: ArrayLike, labels: ArrayLike, segments: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learns the fallback from all rows, and a calibrator from each segment that is large enough.

        Args:
            logits: (N, K) raw scores, as in `Calibrator.fit`. A segment's rows are copied while it is fitted.
            labels: (N,) integers in 0 … K−1.
            segments: (N,) strings or integers.
            sample_weight: (N,) weights of 0 or more, or None.

        Returns:
            The calibrator itself.

        Raises:
            CalibrationDataError: Data that the fallback cannot be fitted on, or bad segments.
            CalibrationFitError: The fallback's fit did not converge.
        """
        matrix = as_matrix(logits, "logits")
        distinct, numbers = number_segments(segments, len(matrix))
        truth = as_labels(labels, *matrix.shape)
        weight = as_weight(sample_weight, len(matrix))
        check_frequencies(weight, self.weight_kind)
        fallback = copy.deepcopy(self.fallback).fit(matrix, truth, weight)
        calibrators: dict[Segment, Calibrator] = {}
        fell_back: dict[Segment, str] = {}
        for number, index in _runs(numbers):
            segment = distinct[number]
            if weight is not None:
                index = index[weight[index] > 0]
            if len(index) == 0:
                fell_back[segment] = "no row with a weight above 0"
                continue
            rows = labelled_rows(matrix[index], truth[index], None if weight is None else weight[index])
            reason = self._too_small(rows)
            if reason is None:
                try:
                    calibrators[segment] = copy.deepcopy(self.calibrator).fit(rows.logits, rows.labels, rows.weight)
                except CalibrationError as error:
                    reason = str(error)
            if reason is not None:
                fell_back[segment] = reason
        self.fallback_, self.classes_ = fallback, matrix.shape[1]
        self.calibrators_, self.fell_back_ = calibrators, fell_back
        return self

    def predict_proba(self, logits: ArrayLike, segments: ArrayLike, out: Floats | None = None) -> Floats:
        """Calibrated probabilities, each row's by its segment's calibrator or the fallback.

        Args:
            logits: (N, K) raw scores, N ≥ 0.
            segments: (N,) strings or integers; those that the fit did not see get the fallback.
            out: (N, K) of the result's type to write to; it may be ``logits`` itself, but share memory with it in no
                other way. After an error its content is undefined.

        Returns:
            (N, K) in [0, 1], rows sum to one; float32 for float32 and float16 input, float64 for float64.

        Raises:
            CalibrationDataError: Logits that cannot be used, another number of classes, or bad segments.
            CalibrationFitError: Not fitted yet.
        """
        matrix = self._checked(logits)
        result = result_array(matrix, out)
        for calibrator, index in self._rows_of(segments, matrix):
            result[index] = calibrator.predict_proba(matrix[index])
        return result

    def top_label(self, logits: ArrayLike, probabilities: ArrayLike, segments: ArrayLike) -> tuple[Labels, Floats]:
        """The predicted label of each row and the probability that it is right, as its calibrator's `top_label`.

        Args:
            logits: (N, K) raw scores.
            probabilities: (N, K), what `predict_proba` gave for them.
            segments: (N,) as in `predict_proba`.

        Returns:
            Labels (N,) int64 and confidences (N,) of the probabilities' type.

        Raises:
            CalibrationDataError: The arrays differ in shape.
            CalibrationFitError: Not fitted yet.
        """
        matrix, shares = self._checked(logits), as_matrix(probabilities, "probabilities")
        labels, confidences = self.fallback_.top_label(matrix, shares)
        for calibrator, index in self._rows_of(segments, matrix):
            labels[index], confidences[index] = calibrator.top_label(matrix[index], shares[index])
        return labels, confidences

    def to_dict(self) -> dict[str, Any]:
        """The fitted calibrator as a document that `json` can write; `from_dict` restores it exactly.

        Raises:
            CalibrationFitError: Not fitted yet.
        """
        self._check_fitted()
        return {
            "method": self.name,
            "version": self.version,
            "classes": self.classes_,
            "min_rows": self.min_rows,
            "min_errors": self.min_errors,
            "weight_kind": self.weight_kind,
            "fallback": self.fallback_.to_dict(),
            "calibrators": [
                {"segment": segment, "calibrator": calibrator.to_dict()}
                for segment, calibrator in self.calibrators_.items()
            ],
            "fell_back": [{"segment": segment, "reason": reason} for segment, reason in self.fell_back_.items()],
        }

    def fingerprint(self) -> str:
        """SHA-256 of the document, as `Calibrator.fingerprint`.

        Raises:
            CalibrationFitError: Not fitted yet.
        """
        return document_digest(self.to_dict())

    @classmethod
    def from_dict(cls, document: object) -> Self:
        """Restores a fitted calibrator from what `to_dict` made.

        Raises:
            CalibrationDataError: Another method or version, a field missing, unknown, or outside its range.
        """
        reader = Document(document)
        reader.header(cls.name, cls.version)
        classes = reader.count("classes", least=2)
        fallback = _restored(reader, "fallback", classes)
        calibrators: dict[Segment, Calibrator] = {}
        for entry in reader.objects("calibrators"):
            one = Document(entry)
            segment = read_segment(one, calibrators)
            calibrators[segment] = _restored(one, "calibrator", classes)
            one.finish()
        fell_back: dict[Segment, str] = {}
        for entry in reader.objects("fell_back"):
            one = Document(entry)
            segment = read_segment(one, {**calibrators, **fell_back})
            reason = one.text("reason")
            if reason is None:
                one.refuse("reason", "null", "a string")
            fell_back[segment] = reason
            one.finish()
        segmented = cls(
            next(iter(calibrators.values()), fallback),
            fallback,
            reader.count("min_rows"),
            reader.count("min_errors", least=0),
            reader.weight_kind(),
        )
        reader.finish()
        segmented.fallback_, segmented.classes_ = fallback, classes
        segmented.calibrators_, segmented.fell_back_ = calibrators, fell_back
        return segmented

    def _too_small(self, rows: LabelledRows) -> str | None:
        counted = counting_weight(rows.weight, len(rows.labels), self.weight_kind)
        worth = float(counted.sum())
        if worth < self.min_rows * (1 - 1e-9):
            return f"{_counted(worth, 'row')} of at least {self.min_rows}"
        errors = float(counted @ (top_confidences(rows)[1] != rows.labels))
        if errors < self.min_errors * (1 - 1e-9):
            return f"{_counted(errors, 'error')} of at least {self.min_errors}"
        return None

    def _rows_of(self, segments: ArrayLike, matrix: Floats) -> Iterator[tuple[Calibrator, Labels]]:
        distinct, numbers = number_segments(segments, len(matrix))
        for number, index in _runs(numbers):
            calibrator = self.calibrators_.get(distinct[number], self.fallback_)
            for part in row_chunks(len(index), matrix.shape[1]):
                yield calibrator, index[part]

    def _checked(self, logits: ArrayLike) -> Floats:
        self._check_fitted()
        matrix = as_matrix(logits, "logits")
        check_classes(matrix.shape[1], self.classes_, "logits")
        return matrix

    def _check_fitted(self) -> None:
        if self.classes_ == 0:
            raise CalibrationFitError(
                "Not fitted", where="segmented calibrator", found="not fitted yet", expected="a call of fit first"
            )


def _restored(document: Document, field: str, classes: int) -> Calibrator:
    calibrator = restored(document.anything(field))
    if calibrator.classes_ not in (0, classes):
        document.refuse(field, f"one for {calibrator.classes_} classes", f"{classes}, as 'classes' says")
    return calibrator


def _counted(number: float, what: str) -> str:
    text = f"{number:.6g}"
    return f"{text} {what}" if text == "1" else f"{text} {what}s"


def _runs(numbers: Labels) -> Iterator[tuple[int, Labels]]:
    """Yields each number that occurs, and the rows where it does."""
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    for rows in np.split(order, starts[1:]) if len(order) else []:
        yield int(numbers[rows[0]]), rows
