"""The simplest calibrator that does not lose to the best one, chosen by cross-validation."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self, final

import numpy as np

from calibrators.arrays import ArrayLike, Doubles, Labels
from calibrators.calibrator import Calibrator
from calibrators.chunks import logit_chunks, row_chunks
from calibrators.documents import Document
from calibrators.effective_rows import WEIGHT_KINDS, WeightKind
from calibrators.errors import CalibrationDataError, CalibrationError
from calibrators.registry import registered, restored
from calibrators.row_subset import take_rows
from calibrators.validation import (
    LabelledRows,
    as_groups,
    as_weight,
    check_choice,
    check_count,
    labelled_rows,
    relative_weight,
)

BINARY = ("identity", "temperature", "platt", "beta", "centred_isotonic")
MULTICLASS = ("identity", "temperature", "ensemble_temperature", "structured_vector", "isotonic_multiclass")

# Both sides of a comparison are scored with (1 − 1e-4) p + 1e-4 / K, so that a probability of zero is not infinite.
_FLOOR = 1e-4


@dataclass(frozen=True, slots=True)
class Candidate:
    """How one method did.

    Attributes:
        name: The method.
        loss: Mean out-of-fold log loss, in nats; None where the method could not be fitted, or there were no folds.
        difference: Its mean excess over the best method's, on the same rows; None likewise.
        standard_error: Of that difference, paired and clustered by group; None likewise.
        error: Why the method could not be fitted, or None.
    """

    name: str
    loss: float | None
    difference: float | None
    standard_error: float | None
    error: str | None


@final
class Auto(Calibrator):
    """Fits each of a list of calibrators by cross-validation, and takes the simplest that is as good as the best.

    As good: its paired out-of-fold log loss is within one standard error of the best one's. The standard error is that
    of the difference on the same rows, not of either loss (which would nearly always keep `identity`), and clustered
    where rows belong to groups; folds never part a group. `identity` is always in the list: do no harm. Probabilities
    count as (1 − 1e-4) p + 1e-4 / K. The choice is then fitted on all rows. Folds come from a seed: the same rows in
    the same order give the same choice. Large folds are not copied, so the logits may be a memory map.

    Preserves: what the chosen method does.
    When to use: where nobody looks at each fit, or to see how the methods compare (`report_`).

    Args:
        candidates: Names of methods, the simplest first, `identity` among them. None: `auto.BINARY` for two classes
            and `auto.MULTICLASS` for more, ordered by their effective parameters.
        folds: Number of folds, 2 or more; fewer where there are fewer groups. With a single group nothing can be
            compared, and the first candidate is taken.
        seed: Of the folds.
        weight_kind: What sample weights count for in the standard error: ``"importance"`` or ``"frequency"`` (a weight
            of 3 is a row seen three times).

    Attributes:
        calibrator_: The chosen method, fitted on all rows.
        report_: One `Candidate` for each method, in order.

    Raises:
        CalibrationDataError: An unknown option or method, a method twice, or no `identity`.

    References:
        Breiman, Friedman, Olshen, Stone (1984), Classification and regression trees, section 3.4 (one standard error).

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(0, 3, (2000, 4))
        >>> labels = np.argmax(logits / 2 + rng.gumbel(size=(2000, 4)), axis=1)
        >>> Auto().fit(logits, labels).calibrator_.name
        'temperature'
    """

    name: ClassVar[str] = "auto"
    version: ClassVar[int] = 1
    preserves_order: ClassVar[bool] = False

    calibrator_: Calibrator
    report_: list[Candidate]

    def __init__(
        self,
        candidates: tuple[str, ...] | list[str] | None = None,
        folds: int = 5,
        seed: int = 0,
        weight_kind: WeightKind = "importance",
    ) -> None:
        check_count(folds, "folds", least=2)
        check_count(seed, "seed", least=0)
        check_choice(weight_kind, WEIGHT_KINDS, "weight_kind")
        self.candidates = None if candidates is None else _checked(candidates)
        self.folds = int(folds)
        self.seed = int(seed)
        self.weight_kind = weight_kind
        self.top_label_only = False

    def fit_grouped(
        self, logits: ArrayLike, labels: ArrayLike, groups: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """As `fit`, for rows of which some belong together (the frames of a video, the payments of a card).

        Args:
            logits: (N, K) raw scores.
            labels: (N,) integers in 0 … K−1.
            groups: (N,) integers or strings, equal for rows that belong together.
            sample_weight: (N,) weights of 0 or more, or None.

        Raises:
            CalibrationDataError: As `fit`, or groups of another shape.
            CalibrationFitError: No candidate could be fitted.
        """
        rows = labelled_rows(logits, labels, sample_weight)
        size = len(np.asarray(labels))
        numbers = as_groups(groups, size)
        weight = as_weight(sample_weight, size)
        if numbers is not None and weight is not None:
            numbers = as_groups(numbers[weight > 0], len(rows.labels))
        self._choose(rows, numbers)
        return self

    def _fit(self, rows: LabelledRows) -> None:
        self._choose(rows, None)

    def _choose(self, rows: LabelledRows, groups: Labels | None) -> None:
        for _ in logit_chunks(rows.logits):
            pass
        classes = rows.logits.shape[1]
        names = self.candidates or (BINARY if classes == 2 else MULTICLASS)
        cluster = np.arange(len(rows.labels)) if groups is None else groups
        report = self._compare(rows, names, cluster, grouped=groups is not None)
        failed: CalibrationError | None = None
        for place, one in enumerate(report):
            if one.error is not None or (one.difference or 0.0) > (one.standard_error or 0.0):
                continue
            try:
                chosen = registered(one.name, "candidates")().fit(rows.logits, rows.labels, rows.weight)
            except CalibrationError as error:
                failed = error
                report[place] = Candidate(one.name, one.loss, one.difference, one.standard_error, str(error))
                continue
            self.calibrator_, self.report_, self.classes_ = chosen, report, classes
            self.top_label_only = chosen.top_label_only
            return
        if failed is not None:
            raise failed

    def _compare(
        self, rows: LabelledRows, names: tuple[str, ...], cluster: Labels, *, grouped: bool
    ) -> list[Candidate]:
        count = int(cluster.max()) + 1
        if count < 2:
            return [Candidate(name, None, None, None, None) for name in names]
        order = np.random.default_rng(self.seed).permutation(count)
        fold = (order % min(self.folds, count))[cluster]
        losses: dict[str, Doubles | str] = {name: _out_of_fold(rows, name, fold) for name in names}
        weight = np.ones(len(rows.labels)) if rows.weight is None else relative_weight(rows.weight)
        share = weight / weight.sum()
        found = {name: one for name, one in losses.items() if not isinstance(one, str)}
        means = {name: float(share @ one) for name, one in found.items()}
        best = min(means, key=lambda name: means[name])
        report = []
        for name in names:
            one = losses[name]
            if isinstance(one, str):
                report.append(Candidate(name, None, None, None, one))
                continue
            excess = one - found[best]
            difference = float(share @ excess)
            if self.weight_kind == "frequency" and not grouped:
                seen = float(np.sum(weight if rows.weight is None else rows.weight))
                squared = float(share @ (excess - difference) ** 2) / max(seen - 1, 1e-300)
            else:
                influence = np.bincount(cluster, share * (excess - difference))
                squared = float(influence @ influence) * count / (count - 1)
            error = min(math.sqrt(squared), 1e300)
            report.append(Candidate(name, means[name], difference, error, None))
        return report

    def _transform(self, logits: Doubles, maxima: Doubles) -> Doubles:  # noqa: ARG002
        return self.calibrator_.predict_proba(logits).astype(np.float64, copy=False)

    def _parameters(self) -> dict[str, Any]:
        return {
            "classes": self.classes_,
            "candidates": [one.name for one in self.report_],
            "folds": self.folds,
            "seed": self.seed,
            "weight_kind": self.weight_kind,
            "calibrator": self.calibrator_.to_dict(),
            "report": [asdict(one) for one in self.report_],
        }

    @classmethod
    def _restore(cls, document: Document) -> Self:
        classes = document.count("classes", least=2)
        calibrator = cls(
            [str(name) for name in document.objects("candidates")],
            document.count("folds", least=2),
            document.count("seed", least=0),
            document.weight_kind(),
        )
        names = calibrator.candidates or ()
        calibrator.report_ = [_read(one) for one in document.objects("report")]
        if tuple(one.name for one in calibrator.report_) != names:
            document.refuse("report", f"{len(calibrator.report_)} entries", "one for each candidate, in order")
        fitted = restored(document.anything("calibrator"), without=(cls.name,))
        if fitted.name not in names or fitted.classes_ not in (0, classes):
            document.refuse("calibrator", f"{fitted.name!r} of {fitted.classes_} classes", "a candidate of as many")
        calibrator.calibrator_, calibrator.classes_ = fitted, classes
        calibrator.top_label_only = fitted.top_label_only
        return calibrator


def _checked(candidates: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    names = tuple(candidates)
    for name in names:
        registered(name, "candidates", without=(Auto.name,))
    if "identity" not in names or len(set(names)) < len(names):
        raise CalibrationDataError(
            "Bad candidates",
            where="candidates",
            found=", ".join(names) or "nothing",
            expected="different methods, 'identity' among them",
        )
    return names


def _out_of_fold(rows: LabelledRows, name: str, fold: Labels) -> Doubles | str:
    """Log loss of each row under the method fitted on the other folds, (N,), or why there is none."""
    classes = rows.logits.shape[1]
    losses = np.empty(len(rows.labels))
    for part in range(int(fold.max()) + 1):
        outside = np.flatnonzero(fold != part)
        weight = None if rows.weight is None else rows.weight[outside]
        inside = np.flatnonzero(fold == part)
        try:
            fitted = registered(name, "candidates")().fit(take_rows(rows.logits, outside), rows.labels[outside], weight)
            for chunk in row_chunks(len(inside), classes):
                index = inside[chunk]
                probabilities = fitted.predict_proba(rows.logits[index])
                own = probabilities[np.arange(len(index)), rows.labels[index]].astype(np.float64)
                losses[index] = -np.log((1 - _FLOOR) * own + _FLOOR / classes)
        except CalibrationError as error:
            return str(error)
    return losses


def _read(content: object) -> Candidate:
    document = Document(content)
    name = document.text("name")
    if name is None:
        document.refuse("name", "null", "the name of a method")
    candidate = Candidate(
        name,
        document.number_or_null("loss"),
        document.number_or_null("difference"),
        document.number_or_null("standard_error"),
        document.text("error"),
    )
    document.finish()
    return candidate
