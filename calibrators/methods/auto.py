"""The simplest calibrator that does not lose to the best one, chosen by cross-validation."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, ClassVar, Self, final

import numpy as np

from calibrators.arrays import ArrayLike, Doubles, Labels
from calibrators.calibrator import Calibrator
from calibrators.chunks import row_chunks
from calibrators.documents import Document, written
from calibrators.effective_rows import WEIGHT_KINDS, WeightKind, check_frequencies
from calibrators.errors import CalibrationDataError, CalibrationError, CalibrationFitError
from calibrators.fitting.top_confidence import top_confidences
from calibrators.methods.candidate import Candidate, read_candidate
from calibrators.registry import registered, restored, unfitted
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

# None of these gives a possible class a probability of 0 or next to it: a later row with that label would cost more
# than all others, and the floor below hides that from the comparison.
BINARY = ("identity", "temperature", "platt", "beta", "venn_abers")
MULTICLASS = ("identity", "temperature", "ensemble_temperature", "structured_vector")

# Both sides of a comparison are scored with (1 − 1e-4) p + 1e-4 / K, so that a probability of zero is not infinite.
_FLOOR = 1e-4


@final
class Auto(Calibrator):
    """Fit each of a list of calibrators by cross-validation, and choose the simplest that is as good as the best.

    As good: its out-of-fold log loss is within one standard error of the best one's. The standard error is that of the
    paired difference, clustered by group; folds never split a group. The choice is then fitted on all rows. The same
    rows in the same order and the same seed give the same choice. Large folds are not copied, so the logits may be a
    memory map.

    `identity` is always a candidate, and is chosen, as `report_` says, if fewer rows (or groups) have a wrong top label
    than there are folds: a fold might be fitted on none. A method with a temperature at its lower bound, in a fold or
    on all rows, is excluded: the next wrong label would cost 20 times its logits.

    Probabilities count as (1 − 1e-4) p + 1e-4 / K in the comparison, which therefore does not see probabilities of 0 or
    next to it. None of the default candidates produces them from finite logits. `isotonic`, `centred_isotonic` and
    `enir` produce 0 and 1, and `isotonic_multiclass` values next to them, beyond the first and the last label of a
    kind: the log loss of a later row there can be infinite.

    Preserves: what the chosen method does.
    When to use: if nobody reviews each fit, or to compare methods (`report_`).

    Args:
        candidates: Names of methods, the simplest first, `identity` among them. None: `auto.BINARY` for two classes
            and `auto.MULTICLASS` for more, ordered by their effective parameters.
        folds: Number of folds, 2 or more; fewer if there are fewer groups.
        seed: Seed of the folds.
        weight_kind: Meaning of sample weights in the standard error and in candidates that count rows:
            ``"importance"`` or ``"frequency"`` (a weight of 3 is a row seen three times, in one fold).

    Attributes:
        calibrator_: The chosen method, fitted on all rows.
        report_: One `Candidate` per method, in order.

    Raises:
        CalibrationDataError: An unknown option or method, a repeated method, no `identity`, or unordered candidates.

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
        """Fit as `fit` does, on rows that belong to groups (the frames of a video, the payments of a card).

        Args:
            logits: (N, K) raw scores.
            labels: (N,) integers in 0 … K−1.
            groups: (N,) integers or strings, equal for rows that belong together.
            sample_weight: (N,) weights of 0 or more, or None.

        Raises:
            CalibrationDataError: As `fit`, or groups of the wrong shape.
        """
        rows = labelled_rows(logits, labels, sample_weight)
        size = len(np.asarray(labels))
        numbers = as_groups(groups, size)
        weight = as_weight(sample_weight, size)
        check_frequencies(weight, self.weight_kind)
        if numbers is not None and weight is not None:
            numbers = as_groups(numbers[weight > 0], len(rows.labels))
        self._choose(rows, numbers)
        return self

    def _fit(self, rows: LabelledRows) -> None:
        self._choose(rows, None)

    def _choose(self, rows: LabelledRows, groups: Labels | None) -> None:
        classes = rows.logits.shape[1]
        names = self.candidates or (BINARY if classes == 2 else MULTICLASS)
        cluster = np.arange(len(rows.labels)) if groups is None else groups
        reason = self._too_little(rows, cluster, "rows" if groups is None else "groups")
        if reason is None:
            chosen, report = self._best(rows, names, cluster, grouped=groups is not None)
        else:
            chosen = self._fitted("identity", rows)
            report = [Candidate(name, None, None, None, None if name == chosen.name else reason) for name in names]
        self.calibrator_, self.report_, self.classes_ = chosen, report, classes
        self.top_label_only = chosen.top_label_only

    def _too_little(self, rows: LabelledRows, cluster: Labels, units: str) -> str | None:
        """Return why nothing can be compared, or None."""
        wrong = len(np.unique(cluster[top_confidences(rows)[1] != rows.labels]))
        least = max(2, min(self.folds, int(cluster.max()) + 1))
        return None if wrong >= least else f"Not compared: {wrong} {units} with a wrong top label, fewer than {least}"

    def _best(
        self, rows: LabelledRows, names: tuple[str, ...], cluster: Labels, *, grouped: bool
    ) -> tuple[Calibrator, list[Candidate]]:
        count = int(cluster.max()) + 1
        fold = (np.random.default_rng(self.seed).permutation(count) % min(self.folds, count))[cluster]
        losses = {name: self._out_of_fold(rows, name, fold) for name in names}
        while True:
            report = self._report(rows, losses, cluster, grouped=grouped)
            name = next(
                one.name
                for one in report
                if (one.difference or 0.0) <= (one.standard_error or 0.0) and one.error is None
            )
            try:
                return self._fitted(name, rows), report
            except CalibrationError as error:
                losses[name] = str(error)

    def _out_of_fold(self, rows: LabelledRows, name: str, fold: Labels) -> Doubles | str:
        classes = rows.logits.shape[1]
        losses = np.empty(len(rows.labels))
        for part in range(int(fold.max()) + 1):
            outside, inside = np.flatnonzero(fold != part), np.flatnonzero(fold == part)
            weight = None if rows.weight is None else rows.weight[outside]
            try:
                fitted = self._fitted(name, LabelledRows(take_rows(rows.logits, outside), rows.labels[outside], weight))
                for chunk in row_chunks(len(inside), classes):
                    index = inside[chunk]
                    probabilities = fitted.predict_proba(rows.logits[index])
                    own = probabilities[np.arange(len(index)), rows.labels[index]].astype(np.float64)
                    losses[index] = -np.log((1 - _FLOOR) * own + _FLOOR / classes)
            except CalibrationError as error:
                return str(error)
        return losses

    def _fitted(self, name: str, rows: LabelledRows) -> Calibrator:
        """Return a fitted method.

        Raises:
            CalibrationError: The fit failed, or its temperature stopped at the lower bound.
        """
        fitted = unfitted(name, "candidates", self.weight_kind).fit(rows.logits, rows.labels, rows.weight)
        if _sharpened_without_end(fitted):
            raise CalibrationFitError(
                "Not chosen", where=name, found="a temperature at its lower bound", expected="one above it"
            )
        return fitted

    def _report(
        self, rows: LabelledRows, losses: dict[str, Doubles | str], cluster: Labels, *, grouped: bool
    ) -> list[Candidate]:
        count = int(cluster.max()) + 1
        weight = np.ones(len(rows.labels)) if rows.weight is None else relative_weight(rows.weight)
        share = weight / weight.sum()
        found = {name: one for name, one in losses.items() if not isinstance(one, str)}
        means = {name: float(share @ one) for name, one in found.items()}
        best = min(means, key=lambda name: means[name])
        report = []
        for name, one in losses.items():
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
        report = {"candidates": [one.name for one in self.report_], "report": [asdict(one) for one in self.report_]}
        return {**written(self, "classes", "folds", "seed", "weight_kind", "calibrator"), **report}

    @classmethod
    def _restore(cls, document: Document) -> Self:
        classes = document.classes()
        calibrator = cls(
            [str(name) for name in document.objects("candidates")],
            document.count("folds", least=2),
            document.count("seed", least=0),
            document.weight_kind(),
        )
        names = calibrator.candidates or ()
        calibrator.report_ = [read_candidate(one) for one in document.objects("report")]
        if tuple(one.name for one in calibrator.report_) != names:
            document.refuse("report", f"{len(calibrator.report_)} entries", "one per candidate, in order")
        fitted = restored(document.anything("calibrator"), without=(cls.name,))
        taken = next((one for one in calibrator.report_ if one.name == fitted.name), None)
        if taken is None or taken.error is not None or fitted.classes_ not in (0, classes):
            document.refuse(
                "calibrator",
                f"{fitted.name!r} of {fitted.classes_} classes",
                f"a candidate without an error, for {classes} classes",
            )
        calibrator.calibrator_, calibrator.classes_ = fitted, classes
        calibrator.top_label_only = fitted.top_label_only
        return calibrator


def _checked(candidates: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    if not isinstance(candidates, tuple | list):
        raise CalibrationDataError(
            "Bad candidates",
            where="candidates",
            found=f"a {type(candidates).__name__}",
            expected="a tuple or list of names, the simplest method first",
        )
    names = tuple(candidates)
    for name in names:
        registered(name, "candidates", without=(Auto.name,))
    if "identity" not in names or len(set(names)) < len(names):
        raise CalibrationDataError(
            "Bad candidates",
            where="candidates",
            found=", ".join(names) or "nothing",
            expected="different methods, including 'identity'",
        )
    return names


def _sharpened_without_end(calibrator: Calibrator) -> bool:
    """Return whether a method, or the one inside it, has a temperature at the lower bound.

    Its fit then saw hardly any wrong label. At the upper bound the labels contradict the logits, and nothing becomes
    certain.
    """
    inside = getattr(calibrator, "calibrator_", None)
    if inside is not None:
        return _sharpened_without_end(inside)
    return bool(getattr(calibrator, "at_bound_", False) and getattr(calibrator, "temperature_", 1.0) < 1)
