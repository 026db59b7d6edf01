"""The simplest calibrator that does not lose to the best one, chosen by cross-validation."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import asdict, replace
from typing import Any, ClassVar, Self, cast, final

import numpy as np

from calibrators.arrays import Doubles, Floats, Labels
from calibrators.calibrator import Calibrator
from calibrators.chunks import logit_chunks, raise_to_floor, row_maxima
from calibrators.documents import Document, written
from calibrators.effective_rows import WEIGHT_KINDS, WeightKind
from calibrators.errors import CalibrationDataError, CalibrationError, CalibrationFitError
from calibrators.fitting.folds import floored_losses, folds_of
from calibrators.fitting.pool_weights import pool_weights
from calibrators.fitting.top_confidence import top_confidences
from calibrators.methods.candidate import Candidate, read_candidate
from calibrators.methods.pool import Pool
from calibrators.methods.tops import Tops
from calibrators.registry import registered, restored, unfitted
from calibrators.row_subset import RowSubset
from calibrators.softmax import PROBABILITY_FLOOR
from calibrators.validation import LabelledRows, check_choice, check_count, relative_weight

BINARY = ("identity", "temperature", "platt", "beta", "venn_abers", "centred_isotonic", "pool")
MULTICLASS = (
    "identity", "temperature", "ensemble_temperature", "structured_vector", "structured_matrix", "dirichlet",
    "isotonic_multiclass", "pool",
)  # fmt: skip
# With a pool in the list these are only mixed in: alone they give a possible class a probability of 0 or next to it. A
# later row with that label would cost more than all others, which the floor hides from the comparison.
ONLY_MIXED_IN = ("isotonic", "centred_isotonic", "enir", "isotonic_multiclass")
# Maps with K² parameters are candidates by default up to this many N · K²: their fits take up to a second or two.
_MOST_WORK = {"structured_matrix": 1.5e8, "dirichlet": 1e7}
# This share of a pool belongs to temperature scaling, so that no possible class has a probability of 0; smaller weights
# than that are dropped.
_LEAST_SHARE = 0.01
# Rows (or groups) that speak for equal weights in a pool; a row of frequency 3 is three. Without them few rows decide
# for a method that was lucky.
_ROWS_FOR_EQUAL = 3.0


@final
class Auto(Calibrator):
    """Fit each of a list of calibrators by cross-validation; choose the simplest of the best, or mix all of them.

    As good: its out-of-fold log loss is within one standard error of the best one's. The standard error is that of the
    paired difference, clustered by group; folds never split a group. The choice is then fitted on all rows. The same
    rows in the same order and the same seed give the same choice. A `pool` in the list is the weighted mean of all
    others' probabilities, with the weights of the smallest out-of-fold log loss and three rows for equal weights; its
    own out-of-fold losses come from weights that never saw the row's fold. It replaces `identity` or `temperature` if
    its loss is smaller, and any other choice unless its loss is larger by more than one standard error. Then
    `isotonic`, `centred_isotonic`, `enir` and `isotonic_multiclass` are mixed in and never chosen alone, and 1 % or
    more of a pool is `temperature`. What has a larger loss than `temperature` gives way to it, except `identity`.

    Large folds are not copied, so the logits may be a memory map.

    `identity` is always a candidate, and is chosen, as `report_` says, if fewer rows (or groups) have a wrong top label
    than there are folds: a fold might be fitted on none. A method with a temperature at its lower bound, in a fold or
    on all rows, is excluded: the next wrong label would cost 20 times its logits.

    Probabilities count as (1 − 1e-4) p + 1e-4 / K in the comparison, which therefore does not see probabilities of 0 or
    next to it. No default choice produces them from finite logits. `isotonic`, `centred_isotonic` and
    `enir` produce 0 and 1, and `isotonic_multiclass` values next to them, beyond the first and the last label of a
    kind: the log loss of a later row there can be infinite.

    If a label of the fit has a probability of 0, no other row's 0 can be believed: then probabilities below 1e-4 / K
    count as that, in the fit and afterwards (`floor_`), instead of leaving the choice to methods that cannot be fitted.

    Preserves: what the chosen method does.
    When to use: if nobody reviews each fit, or to compare methods (`report_`).

    Args:
        candidates: Names of methods, the simplest first, `identity` among them. None: `auto.BINARY` for two classes
            and `auto.MULTICLASS` for more, ordered by their effective parameters, without `structured_matrix` above
            N · K² = 1.5e8 and `dirichlet` above 1e7. ``"pool"``: see above.
        folds: Number of folds, 2 or more; fewer if there are fewer groups.
        seed: Seed of the folds.
        weight_kind: Meaning of sample weights in the standard error, a pool and candidates that count rows:
            ``"importance"`` or ``"frequency"`` (a weight of 3 is a row seen three times, in one fold).

    Attributes:
        calibrator_: The chosen method, or a `Pool` with its `members` and `weights`, fitted on all rows.
        report_: One `Candidate` per method, in order.
        floor_: The smallest probability of a class that the method is given; 0 for no floor.
        warnings_: What the fit found wrong, a sentence or two each: impossible labels, and out-of-fold probabilities of
            the choice (of a pool: on the fit rows) with an ECE above its null's 95 % quantile (one row per group).

    Raises:
        CalibrationDataError: An unknown option or method, a repeated method, no `identity`, or unordered candidates.

    References:
        Ranjan, Gneiting (2010), Combining probability forecasts (linear pools); Wolpert (1992), Stacked generalization;
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
    floor_: float
    warnings_: list[str]

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

    def _fit(self, rows: LabelledRows) -> None:
        classes = rows.logits.shape[1]
        work = len(rows.labels) * classes**2
        names = self.candidates or tuple(
            name for name in (BINARY if classes == 2 else MULTICLASS) if work <= _MOST_WORK.get(name, math.inf)
        )
        cluster = np.arange(len(rows.labels)) if rows.groups is None else rows.groups
        floor, warnings = PROBABILITY_FLOOR / classes, []
        impossible = _impossible_labels(rows)
        if impossible == 0:
            floor = 0.0
        else:
            every, raised = np.arange(len(rows.labels)), lambda chunk: raise_to_floor(chunk, row_maxima(chunk), floor)
            rows = replace(rows, logits=cast("Floats", RowSubset(rows.logits, every, raised)))
            warnings.append(
                f"{impossible} of {len(rows.labels)} rows have a label with a probability of 0: probabilities below "
                f"{floor:.2g} count as {floor:.2g}."
            )
        reason = self._too_little(rows, cluster)
        if reason is None:
            chosen, report, tops = self._best(rows, names, cluster)
        else:
            chosen, tops = self._fitted("identity", rows), Tops(len(rows.labels))
            tops.fill(chosen, rows, np.arange(len(rows.labels)))
            report = [Candidate(name, None, None, None, None if name == chosen.name else reason) for name in names]
        found = tops.warning(rows.weight, cluster, self.weight_kind)
        self.calibrator_, self.report_, self.classes_ = chosen, report, classes
        self.floor_, self.warnings_ = floor, warnings if found is None else [*warnings, found]
        self.top_label_only = chosen.top_label_only

    def _too_little(self, rows: LabelledRows, cluster: Labels) -> str | None:
        """Return why nothing can be compared, or None."""
        wrong = len(np.unique(cluster[top_confidences(rows)[1] != rows.labels]))
        least = max(2, min(self.folds, int(cluster.max()) + 1))
        units = "rows" if rows.groups is None else "groups"
        return None if wrong >= least else f"Not compared: {wrong} {units} with a wrong top label, fewer than {least}"

    def _best(
        self, rows: LabelledRows, names: tuple[str, ...], cluster: Labels
    ) -> tuple[Calibrator, list[Candidate], Tops]:
        fold = folds_of(cluster, self.folds, self.seed)
        tops = {name: Tops(len(fold)) for name in names}
        pools = Pool.name in names
        losses = {name: self._out_of_fold(rows, name, fold, tops[name]) for name in names if name != Pool.name}

        def compare(compared: dict[str, Doubles | str]) -> list[Candidate]:
            return self._report(rows, compared, cluster)

        while True:
            alone = {name: one for name, one in losses.items() if not pools or name not in ONLY_MIXED_IN}
            name = next(
                one.name
                for one in compare(alone)
                if (one.difference or 0.0) <= (one.standard_error or 0.0) and one.error is None
            )
            if not pools:
                report, weights = compare(losses), {name: 1.0}
            else:
                pooled, weights = _pooled(losses, rows, fold, self.weight_kind)
                report = compare({one: losses.get(one, pooled) for one in names})
                single, pool = compare({name: losses[name], Pool.name: pooled})
                worse = (pool.difference or 0.0) - (single.difference or 0.0)
                if worse >= 0 if name in ("identity", "temperature") else worse > (pool.standard_error or 0.0):
                    weights = {name: 1.0}
                else:
                    name = Pool.name
            if _worse_than_temperature(name, report):
                weights = {"temperature": 1.0}
            try:
                fitted = []
                for one in weights:
                    fitted.append(self._fitted(one, rows))  # noqa: PERF401
            except CalibrationError as error:
                losses[[*weights][len(fitted)]] = str(error)
                continue
            if len(fitted) == 1:
                return fitted[0], report, tops[next(iter(weights))]
            chosen, seen = Pool(fitted, np.array(list(weights.values()))), Tops(len(fold))
            seen.fill(chosen, rows, np.arange(len(fold)))
            return chosen, report, seen

    def _out_of_fold(self, rows: LabelledRows, name: str, fold: Labels, tops: Tops) -> Doubles | str:
        classes = rows.logits.shape[1]
        losses = np.empty(len(rows.labels))
        for part in range(int(fold.max()) + 1):
            outside, inside = np.flatnonzero(fold != part), np.flatnonzero(fold == part)
            try:
                fitted = self._fitted(name, rows.take(outside))
                losses[inside] = floored_losses(tops.fill(fitted, rows, inside), classes)
            except CalibrationError as error:
                return str(error)
        return losses

    def _fitted(self, name: str, rows: LabelledRows) -> Calibrator:
        """Return a fitted method.

        Raises:
            CalibrationError: The fit failed, or its temperature stopped at the lower bound.
        """
        method = unfitted(name, "candidates", self.weight_kind)
        fitted = method.fit_grouped(rows.logits, rows.labels, rows.groups, rows.weight)
        if _sharpened_without_end(fitted):
            raise CalibrationFitError(
                "Not chosen", where=name, found="a temperature at its lower bound", expected="one above it"
            )
        return fitted

    def _report(self, rows: LabelledRows, losses: dict[str, Doubles | str], cluster: Labels) -> list[Candidate]:
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
            if self.weight_kind == "frequency" and rows.groups is None:
                seen = float(np.sum(weight if rows.weight is None else rows.weight))
                squared = float(share @ (excess - difference) ** 2) / max(seen - 1, 1e-300)
            else:
                influence = np.bincount(cluster, share * (excess - difference))
                squared = float(influence @ influence) * count / (count - 1)
            error = min(math.sqrt(squared), 1e300)
            report.append(Candidate(name, means[name], difference, error, None))
        return report

    def _transform(self, logits: Doubles, maxima: Doubles) -> Doubles:
        if self.floor_ > 0:
            raise_to_floor(logits, maxima, self.floor_)
        return self.calibrator_.predict_proba(logits).astype(np.float64, copy=False)

    def _parameters(self) -> dict[str, Any]:
        report = {"candidates": [one.name for one in self.report_], "report": [asdict(one) for one in self.report_]}
        found = [name for name in ("floor", "warnings") if getattr(self, f"{name}_")]
        return {**written(self, "classes", "folds", "seed", "weight_kind", *found, "calibrator"), **report}

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
        calibrator.floor_ = document.number("floor", 0.0, PROBABILITY_FLOOR / classes) if document.has("floor") else 0.0
        warnings = document.objects("warnings") if document.has("warnings") else []
        calibrator.warnings_ = [one for one in warnings if isinstance(one, str)]
        if len(calibrator.warnings_) < len(warnings):
            document.refuse("warnings", "not only strings", "a list of strings")
        inside = document.anything("calibrator")
        if isinstance(inside, dict) and inside.get("method") == Pool.name:
            fitted: Calibrator = Pool.from_dict(inside)
        else:
            fitted = restored(inside, without=(cls.name,))
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


def _worse_than_temperature(name: str, report: list[Candidate]) -> bool:
    """Return whether a method that is less simple has a larger loss than temperature scaling."""
    losses = {one.name: one.loss for one in report if one.loss is not None}
    return name not in ("identity", "temperature") and losses[name] > losses.get("temperature", math.inf)


def _pooled(
    losses: dict[str, Doubles | str], rows: LabelledRows, fold: Labels, kind: WeightKind
) -> tuple[Doubles, dict[str, float]]:
    """Return log losses (N,) of pools whose weights never saw a row's fold, and weights by name from all rows."""
    found = {name: one for name, one in losses.items() if not isinstance(one, str)}
    own = np.exp(-np.stack(list(found.values()), axis=1))
    weight = np.ones(len(own)) if rows.weight is None else relative_weight(rows.weight)
    cluster = np.arange(len(own)) if rows.groups is None else rows.groups

    def shares(kept: Labels) -> Doubles:
        share = weight[kept] / weight[kept].sum()
        of_units = np.bincount(cluster[kept], share)
        squared = float(of_units @ of_units)
        if kind == "frequency" and rows.groups is None and rows.weight is not None:
            squared = 1 / float(rows.weight[kept].sum())
        return _shares(found, own[kept], share, _ROWS_FOR_EQUAL * squared)

    mixed = np.empty(len(own))
    for part in range(int(fold.max()) + 1):
        outside, inside = np.flatnonzero(fold != part), np.flatnonzero(fold == part)
        mixed[inside] = own[inside] @ shares(outside)
    weights = shares(np.arange(len(own)))
    return -np.log(mixed), {name: float(one) for name, one in zip(found, weights, strict=True) if one > 0}


def _shares(names: Collection[str], own: Doubles, share: Doubles, prior: float) -> Doubles:
    """Return the weights of a pool: the best ones, without the smallest, and a share for temperature scaling."""
    weights = pool_weights(own, share, prior)
    weights[weights < _LEAST_SHARE] = 0
    weights *= (1 - _LEAST_SHARE) / weights.sum()
    safe = "temperature" if "temperature" in names else "identity"
    weights[list(names).index(safe)] += _LEAST_SHARE
    return np.asarray(weights / weights.sum())


def _impossible_labels(rows: LabelledRows) -> int:
    """Return the number of rows whose own label has a probability of zero."""
    count = 0
    for part, chunk, maxima in logit_chunks(rows.logits):
        own = chunk[np.arange(len(chunk)), rows.labels[part]]
        with np.errstate(over="ignore"):
            count += int(np.count_nonzero(own - maxima[:, 0] == -np.inf))
    return count


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
        if name != Pool.name:
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
