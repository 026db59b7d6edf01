"""Prior shift: adjust calibrated probabilities to new class frequencies."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, ClassVar, Self, final

import numpy as np

from calibrators.arrays import ArrayLike, Doubles
from calibrators.calibrator import Calibrator
from calibrators.chunks import logit_chunks
from calibrators.documents import Document, written
from calibrators.effective_rows import WEIGHT_KINDS, WeightKind, check_frequencies, counting_weight
from calibrators.errors import CalibrationDataError, shown
from calibrators.fitting.mixture import mixture_weights
from calibrators.registry import restored, unfitted
from calibrators.row_subset import take_rows
from calibrators.validation import LabelledRows, as_array, as_groups, as_matrix, as_weight, check_choice

_NORMAL_975 = 1.959963984540054
_NEXT_TO_NOTHING = 1e-200


@final
class PriorShift(Calibrator):
    """Wrap a calibrator and re-weight its probabilities to new class priors: p'_k ∝ p_k π'_k / π_k.

    `fit` fits the wrapped calibrator and takes its mean probabilities on the same rows as the priors π (the class
    frequencies, if it is calibrated; a class with none counts half a row). `adapt` then estimates π' from unlabelled
    rows of the target, or `adapt_to` takes given ones.

    The estimate is the maximum of the likelihood Σ log Σ_k π'_k p_k / π_k, the fixed point of Saerens's expectation
    maximisation. It assumes that only the class frequencies differ (pure label shift) and that the wrapped calibrator
    is calibrated on the source; neither can be checked without labels. The 95 % intervals are for the given target
    rows, from a robust normal approximation, without the source's own calibration error. An adaptation voids
    certificates of precision, risk and flag rate; recall and false-positive rate survive.

    Preserves: before an adaptation, what the wrapped calibrator does; after it, with two classes, the order that the
    wrapped one gives. The arg max follows the new priors.
    When to use: if classes became rarer or more frequent, and labels are not available.

    Args:
        calibrator: Name of a method, or an unfitted calibrator, which is copied.
        weight_kind: Meaning of sample weights in the half row, in the intervals of `adapt` and in a method given by
            name: ``"importance"`` (the Kish effective number of rows) or ``"frequency"`` (a weight of 3 is a row seen
            three times). A given calibrator keeps its own.

    Attributes:
        calibrator_: The fitted calibrator.
        source_priors_: (K,) float64, π.
        target_priors_: (K,) float64, π'; equal to π before an adaptation.
        lower_priors_: (K,) float64, lower ends of the intervals for π'; π' itself if it was not estimated.
        upper_priors_: (K,) float64, their upper ends.
        adapted_: Whether `adapt` or `adapt_to` was called since the fit.

    Raises:
        CalibrationDataError: An unknown method or weight kind.

    References:
        Saerens, Latinne, Decaestecker (2002), Adjusting the outputs of a classifier to new a priori probabilities: a
        simple procedure, sections 2.2 and 3.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[2.0, 0.0], [0.0, 2.0]] * 4)
        >>> calibrator = PriorShift().fit(logits, np.array([0, 1, 0, 1, 0, 1, 1, 0]))
        >>> calibrator.adapt_to([0.2, 0.8]).predict_proba(logits[:2]).round(4)
        array([[0.4286, 0.5714], [0.0769, 0.9231]])
    """

    name: ClassVar[str] = "prior_shift"

    calibrator_: Calibrator
    source_priors_: Doubles
    target_priors_: Doubles
    lower_priors_: Doubles
    upper_priors_: Doubles
    adapted_: bool

    def __init__(self, calibrator: str | Calibrator = "temperature", weight_kind: WeightKind = "importance") -> None:
        check_choice(weight_kind, WEIGHT_KINDS, "weight_kind")
        self.calibrator = unfitted(calibrator, "calibrator", weight_kind, without=(self.name,))
        self.weight_kind = weight_kind
        self.top_label_only = self.calibrator.top_label_only

    def adapt(
        self, target_logits: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """Estimate the target's priors from its rows, without labels, and re-weight to them from now on.

        Args:
            target_logits: (N, K) raw scores of rows drawn from the target, N ≥ 2.
            sample_weight: (N,) weights of 0 or more, or None.
            groups: (N,) integers or strings, equal for rows that belong together, for the intervals; None: each row is
                its own.

        Returns:
            The calibrator itself.

        Raises:
            CalibrationDataError: Invalid logits, weights or groups, or too few rows.
            CalibrationFitError: Not fitted yet, or no convergence.
        """
        matrix = as_matrix(target_logits, "target_logits")
        self.check_fitted(matrix.shape[1], "target_logits")
        weight = as_weight(sample_weight, len(matrix))
        check_frequencies(weight, self.weight_kind)
        group = as_groups(groups, len(matrix))
        if weight is not None and not weight.all():
            kept = np.flatnonzero(weight)
            matrix, weight, group = take_rows(matrix, kept), weight[kept], None if group is None else group[kept]
        if len(matrix) < 2:
            raise CalibrationDataError(
                "Too few rows", where="target_logits", found=f"{len(matrix)} rows", expected="at least 2"
            )
        mass = np.ones(len(matrix)) if weight is None else weight
        total = float(mass.sum())

        def passes() -> Iterator[tuple[Doubles, Doubles]]:
            for part, chunk, _ in logit_chunks(matrix):
                yield self._probabilities(chunk) / self.source_priors_, mass[part] / total

        priors = mixture_weights(passes, self.classes_)
        spread = np.zeros((self.classes_, self.classes_))
        information = np.zeros_like(spread)
        sums = None if group is None else np.zeros((int(group.max()) + 1, self.classes_))
        start = 0
        for ratios, share in passes():
            relative = ratios / np.maximum.reduce(ratios, axis=1, keepdims=True)
            mixed = relative @ priors
            # Rows excluded by the priors weigh less than 1e-50 of all.
            pull = relative / np.where(mixed > _NEXT_TO_NOTHING, mixed, np.inf)[:, None]
            rooted = pull * np.sqrt(share)[:, None]
            information += rooted.T @ rooted
            if group is not None and sums is not None:
                np.add.at(sums, group[start : start + len(share)], (pull - 1) * share[:, None])
                start += len(share)
                continue
            moves = (pull - 1) * (np.sqrt(share / total) if self.weight_kind == "frequency" else share)[:, None]
            spread += moves.T @ moves
        if sums is not None:
            spread = sums.T @ sums
        # Along the simplex only: priors move so that their sum stays one.
        along = np.linalg.svd(np.ones((1, self.classes_)))[2][1:].T
        inverse = along @ np.linalg.pinv(along.T @ information @ along, rcond=1e-12, hermitian=True) @ along.T
        reach = _NORMAL_975 * np.sqrt(np.maximum(np.diag(inverse @ spread @ inverse), 0))
        self.target_priors_, self.adapted_, self.top_label_only = priors, True, False
        self.lower_priors_, self.upper_priors_ = np.maximum(priors - reach, 0), np.minimum(priors + reach, 1)
        return self

    def adapt_to(self, priors: ArrayLike) -> Self:
        """Re-weight to given priors from now on.

        Args:
            priors: (K,) numbers of 0 or more with a sum of 1, within 1e-6; divided by their sum.

        Returns:
            The calibrator itself.

        Raises:
            CalibrationDataError: Wrong shape, type or sum, or a negative number.
            CalibrationFitError: Not fitted yet.
        """
        self.check_fitted()
        array = as_array(priors, "priors")
        given = array.astype(np.float64) if array.dtype.kind in "fiu" else np.empty(0)
        usable = given.shape == (self.classes_,) and bool((given >= 0).all()) and abs(float(given.sum()) - 1) <= 1e-6
        if not usable:
            raise CalibrationDataError(
                "Bad priors",
                where="priors",
                found=shown(priors),
                expected=f"{self.classes_} numbers of 0 or more that add up to 1",
            )
        self.target_priors_ = self.lower_priors_ = self.upper_priors_ = given / given.sum()
        self.adapted_, self.top_label_only = True, False
        return self

    def _fit(self, rows: LabelledRows) -> None:
        classes = rows.logits.shape[1]
        calibrator = copy.deepcopy(self.calibrator).fit_grouped(rows.logits, rows.labels, rows.groups, rows.weight)
        mass = counting_weight(rows.weight, len(rows.labels), self.weight_kind)
        sums = np.zeros(classes)
        for part, chunk, _ in logit_chunks(rows.logits):
            sums += mass[part] @ calibrator.predict_proba(chunk)
        priors = sums / mass.sum()
        priors = np.where(priors > 0, priors, 0.5 / (float(mass.sum()) + 1))
        priors /= priors.sum()
        self.calibrator_ = calibrator
        self.source_priors_ = self.target_priors_ = self.lower_priors_ = self.upper_priors_ = priors
        self.adapted_, self.top_label_only = False, calibrator.top_label_only
        self.classes_ = classes

    def _probabilities(self, logits: Doubles) -> Doubles:
        return self.calibrator_.predict_proba(logits).astype(np.float64, copy=False)

    def _transform(self, logits: Doubles, maxima: Doubles) -> Doubles:  # noqa: ARG002
        before = self._probabilities(logits)
        if not self.adapted_:
            return before
        with np.errstate(divide="ignore"):
            scores = np.log(before) + (np.log(self.target_priors_) - np.log(self.source_priors_))
        largest = np.maximum.reduce(scores, axis=1, keepdims=True)
        # A row whose possible classes all have a prior of zero keeps its probabilities.
        impossible = largest[:, 0] == -np.inf
        np.exp(scores - np.where(impossible[:, None], 0, largest), out=scores)
        scores[impossible] = before[impossible]
        scores /= np.add.reduce(scores, axis=1, keepdims=True)
        return np.asarray(scores)

    def _parameters(self) -> dict[str, Any]:
        priors = ("source_priors", "target_priors", "lower_priors", "upper_priors")
        return written(self, "classes", "weight_kind", "calibrator", "adapted", *priors)

    @classmethod
    def _restore(cls, document: Document) -> Self:
        classes = document.classes()
        kind = document.weight_kind()
        fitted = restored(document.anything("calibrator"), without=(cls.name,))
        if fitted.classes_ not in (0, classes):
            document.refuse("calibrator", f"for {fitted.classes_} classes", f"{classes} classes")
        calibrator = cls(fitted, kind)
        calibrator.calibrator_, calibrator.classes_ = fitted, classes
        calibrator.adapted_ = document.flag("adapted")
        calibrator.top_label_only = fitted.top_label_only and not calibrator.adapted_
        calibrator.source_priors_ = document.shares("source_priors", classes)
        calibrator.target_priors_ = document.shares("target_priors", classes)
        if not calibrator.source_priors_.all():
            document.refuse("source_priors", "a prior of 0", "numbers above 0")
        lower, upper = (document.numbers(field, 0.0, 1.0, classes) for field in ("lower_priors", "upper_priors"))
        if not ((lower <= calibrator.target_priors_) & (calibrator.target_priors_ <= upper)).all():
            document.refuse("target_priors", "outside its interval", "a prior inside it")
        if not calibrator.adapted_:
            ends = {"target_priors": calibrator.target_priors_, "lower_priors": lower, "upper_priors": upper}
            for field, kept in ends.items():
                if not np.array_equal(kept, calibrator.source_priors_):
                    document.refuse(field, "different from source_priors", "equal priors, as 'adapted' is false")
        calibrator.lower_priors_, calibrator.upper_priors_ = lower, upper
        return calibrator
