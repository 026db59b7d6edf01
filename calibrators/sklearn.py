"""A scikit-learn classifier that calibrates another one; requires scikit-learn (extra `sklearn`)."""

from __future__ import annotations

import warnings
from copy import deepcopy
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.ensemble import BaggingClassifier, ExtraTreesClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import StratifiedGroupKFold, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import Bunch, assert_all_finite, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params, check_is_fitted, column_or_1d, has_fit_parameter

from calibrators.arrays import ArrayLike, Doubles, Floats, Labels
from calibrators.calibrator import Calibrator
from calibrators.methods.auto import Auto
from calibrators.methods.tops import calibration_warning
from calibrators.registry import unfitted
from calibrators.softmax import PROBABILITY_FLOOR, logits_from_probabilities

# The first of these that a classifier has becomes its logits. A joint log-probability (naive Bayes, discriminant
# analysis) is exact where probabilities are rounded to 0 and 1.
_RESPONSES = ("decision_function", "predict_joint_log_proba", "predict_proba")


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Fit a classifier, and a calibrator on logits of rows that it was not fitted on.

    Each fold's rows get their logits from a copy of the classifier that was fitted on the other folds. One calibrator
    is fitted on all of these logits, and the classifier again on all rows.

    Logits are those of `decision_function`, else `predict_joint_log_proba`, else logarithms of `predict_proba`.

    Args:
        estimator: The classifier, or a pipeline that ends in one. `FrozenEstimator(fitted)`: it is not fitted again,
            and the rows given to `fit` must be others than those that it was fitted on.
        method: Name of a method in `calibrators.CALIBRATORS`, or an unfitted calibrator.
        cv: Number of stratified folds (with groups: that keep groups whole), a splitter, or an iterable of indices of
            (train, test) rows. Each row is in one test part, or in none. ``"prefit"``: the classifier is fitted.
        ensemble: Keep the classifiers of the folds and average their calibrated probabilities, instead of fitting the
            classifier again. Often a little better, and slower by the number of folds in each prediction.
        floor: As in `logits_from_probabilities`, for classifiers with nothing but probabilities. None: K / (2 T) for
            random forests and bags of T members, else 1e-4.
        n_jobs: Folds that are fitted at the same time, as in joblib.

    Attributes:
        classes_: (K,) labels of the classes, sorted.
        calibrator_: The fitted calibrator; `calibrator_.report_` for ``"auto"``.
        estimators_: The fitted classifiers: one, or with `ensemble` one per fold.
        warnings_: What is wrong with the calibrator, such as an ECE above that of 95 % of calibrated models. For
            ``"auto"`` it is measured on rows that each fit had not seen. For other methods it is measured on the fit
            rows, so it is too small and some faults are missed.

    Example:
        >>> from sklearn.datasets import make_classification
        >>> from sklearn.naive_bayes import GaussianNB
        >>> X, y = make_classification(2000, n_redundant=10, random_state=0)
        >>> model = CalibratedClassifier(GaussianNB(), method="beta").fit(X[:1000], y[:1000])
        >>> model.predict_proba(X[1000:]).shape
        (1000, 2)
    """

    def __init__(
        self,
        estimator: Any,
        method: str | Calibrator = "auto",
        *,
        cv: Any = 5,
        ensemble: bool = False,
        floor: float | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.ensemble = ensemble
        self.floor = floor
        self.n_jobs = n_jobs

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        **fit_params: Any,
    ) -> Self:
        """Fit the classifier and its calibrator.

        Args:
            X: (N, F), whatever the classifier accepts.
            y: (N,) labels of at least two classes.
            sample_weight: (N,) importance weights, for the calibrator and, if it accepts them, the classifier.
            groups: (N,) integers or strings, equal for rows that belong together. Folds keep them whole, those of
                `auto` included.
            **fit_params: Passed to the classifier's `fit`; those with N entries are split with the rows.

        Raises:
            ValueError: Labels of one class, or not of a classification; test parts that overlap or are empty.
            CalibrationError: What the calibrator refuses.
        """
        method = deepcopy(unfitted(self.method, "method", "importance"))
        sample_weight = None if sample_weight is None else np.asarray(sample_weight)
        if sample_weight is not None and sample_weight.ndim != 1:
            raise ValueError(f"Wrong shape: sample_weight is {sample_weight.shape}; expected one weight per row.")
        assert_all_finite(np.asarray(y), input_name="y")
        check_classification_targets(y)
        X, y, groups, sample_weight = indexable(X, y, groups, sample_weight)
        names = column_or_1d(y, warn=True)
        prefit = self.cv == "prefit" if isinstance(self.cv, str) else isinstance(self.estimator, FrozenEstimator)
        if prefit:
            check_is_fitted(self.estimator)
        classes: npt.NDArray[Any] = np.asarray(self.estimator.classes_) if prefit else np.unique(names)
        counted = names if sample_weight is None else names[np.asarray(sample_weight) != 0]
        if len(classes if prefit else np.unique(counted)) < 2:
            raise ValueError("Too few classes: rows with a weight above zero are of one class; expected 2 or more.")
        if unknown := sorted(set(np.unique(names).tolist()) - set(classes.tolist()), key=str):
            raise ValueError(f"Unknown labels: y has {unknown[:5]}; expected classes of the fitted classifier.")
        labels = np.searchsorted(classes, names)
        if prefit:
            fitted, rows = [self.estimator], np.arange(len(labels))
            logits = _logits(self.estimator, X, classes, self.floor)
        else:
            params = self._classifier_params(sample_weight, fit_params)
            fitted, rows, logits = self._cross_fitted(X, names, groups, classes, params)
            if not self.ensemble:
                fitted = [clone(self.estimator).fit(X, names, **_check_method_params(X, params))]
        weight = None if sample_weight is None else np.asarray(sample_weight)[rows]
        parts = None if groups is None else np.asarray(groups)[rows]
        self.calibrator_: Calibrator = method.fit_grouped(logits, labels[rows], parts, weight)
        if isinstance(self.calibrator_, Auto):
            self.warnings_ = self.calibrator_.warnings_
        else:
            said = calibration_warning(self.calibrator_, logits, labels[rows], parts, weight)
            self.warnings_ = [] if said is None else [said]
        self.classes_, self.estimators_ = classes, fitted
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(fitted[0], name):
                setattr(self, name, getattr(fitted[0], name))
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Return calibrated probabilities (N, K), columns in the order of `classes_`."""
        check_is_fitted(self)
        return self._predicted(X)[1]

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return labels (N,): the most probable ones.

        Top-label methods (`histogram`, `spline` …) keep the label of the largest logit, except with `ensemble`.
        """
        check_is_fitted(self)
        logits, probabilities = self._predicted(X)
        if len(self.estimators_) == 1:
            found = self.calibrator_.top_label(logits, probabilities)[0]
        else:
            found = np.argmax(probabilities, axis=1)
        return self.classes_[found]

    def get_metadata_routing(self) -> MetadataRouter:
        """Return who gets `sample_weight`, `groups` and other metadata when metadata routing is enabled."""
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=MethodMapping().add(caller="fit", callee="fit"))

    def __sklearn_tags__(self) -> Any:
        """Return the tags of scikit-learn: inputs are those of the classifier."""
        tags, inside = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags.sparse, tags.input_tags.pairwise = inside.input_tags.sparse, inside.input_tags.pairwise
        return tags

    def _predicted(self, X: Any) -> tuple[Floats, Floats]:
        """Return the logits of the last classifier, and calibrated probabilities."""
        total: Floats | float = 0.0
        for one in self.estimators_:
            logits = _logits(one, X, self.classes_, self.floor)
            total = total + self.calibrator_.predict_proba(logits)
        return logits, cast("Floats", total / len(self.estimators_))

    def _classifier_params(self, sample_weight: ArrayLike | None, fit_params: dict[str, Any]) -> dict[str, Any]:
        """Return what the classifier's `fit` gets beside rows and labels."""
        if get_config()["enable_metadata_routing"]:
            routed: Bunch = process_routing(self, "fit", sample_weight=sample_weight, **fit_params)
            return dict(routed.estimator.fit)
        if sample_weight is None:
            return fit_params
        if has_fit_parameter(self.estimator, "sample_weight"):
            return {**fit_params, "sample_weight": sample_weight}
        warnings.warn(
            f"{type(self.estimator).__name__}.fit has no `sample_weight`: only the calibrator is weighted. Pass a fit "
            "parameter (`step__sample_weight` of a pipeline), or enable metadata routing.",
            stacklevel=3,
        )
        return fit_params

    def _cross_fitted(
        self,
        X: Any,
        names: npt.NDArray[Any],
        groups: ArrayLike | None,
        classes: npt.NDArray[Any],
        params: dict[str, Any],
    ) -> tuple[list[Any], Labels, Doubles]:
        """Return the classifiers of the folds, the rows that are in a test part, and their logits."""
        cv = self.cv
        if groups is not None and isinstance(cv, int):
            cv = StratifiedGroupKFold(cv)
        parts = [*check_cv(cv, names, classifier=True).split(X, names, groups)]
        rows = np.concatenate([np.arange(len(names))[test] for _, test in parts])
        if len(np.unique(rows)) < max(1, len(rows)):
            raise ValueError(f"Wrong cv: {len(rows)} test rows; expected each row in one test part, or in none.")
        found = Parallel(n_jobs=self.n_jobs)(
            delayed(_fold)(clone(self.estimator), X, names, train, test, classes, self.floor, params)
            for train, test in parts
        )
        return [one for one, _ in found], rows, np.concatenate([logits for _, logits in found])


def _fold(
    estimator: Any,
    X: Any,
    names: npt.NDArray[Any],
    train: Labels,
    test: Labels,
    classes: npt.NDArray[Any],
    floor: float | None,
    params: dict[str, Any],
) -> tuple[Any, Doubles]:
    """Return the classifier, fitted on a fold's rows for training, and its logits of the others."""
    inside, outside = (_check_method_params(X, {"X": X}, indices=part)["X"] for part in (train, test))
    estimator.fit(inside, names[train], **_check_method_params(X, params, indices=train))
    return estimator, _logits(estimator, outside, classes, floor)


def _logits(estimator: Any, X: Any, classes: npt.NDArray[Any], floor: float | None) -> Doubles:
    """Return logits (N, K) of a fitted classifier; classes that it never saw have the floor as their share."""
    response = next((name for name in _RESPONSES if hasattr(estimator, name)), None)
    if response is None:
        raise TypeError(
            f"{type(estimator).__name__} has none of {', '.join(_RESPONSES)}: it gives no scores to calibrate"
        )
    scores = np.asarray(getattr(estimator, response)(X), np.float64)
    least = _floor(estimator, len(classes)) if floor is None else floor
    if scores.ndim == 1:
        scores = np.stack([np.zeros(len(scores)), scores], axis=1)
    if response == "predict_proba":
        scores = np.asarray(logits_from_probabilities(scores, least), np.float64)
    known = np.searchsorted(classes, estimator.classes_)
    if scores.shape[1] != len(known):
        raise ValueError(
            f"Wrong scores: {response} of {type(estimator).__name__} has {scores.shape[1]} columns; expected "
            f"one for each of {len(known)} classes (for support vector machines, decision_function_shape='ovr')."
        )
    if len(known) == len(classes):
        return scores
    logits = np.empty((len(scores), len(classes)))
    lowest = np.log(max(least, PROBABILITY_FLOOR) / len(classes))
    logits[:] = np.logaddexp.reduce(scores, axis=1, keepdims=True) + lowest
    logits[:, known] = scores
    return logits


def _floor(estimator: Any, classes: int) -> float:
    """Return the default floor: a mean of T votes cannot tell 0 from 1 / T."""
    while isinstance(estimator, FrozenEstimator | Pipeline):
        estimator = estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator[-1]
    if isinstance(estimator, RandomForestClassifier | ExtraTreesClassifier | BaggingClassifier):
        return float(min(1.0, classes / (2 * len(estimator.estimators_))))
    return PROBABILITY_FLOOR
