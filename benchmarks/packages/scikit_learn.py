"""scikit-learn, and scipy's softmax in its environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.packages.job import BARE, TEMPERATURE, Floats, Job, Jobs, Labels, Maker, log_softmax, margin, softmax


def regression(solver: str, features_of: Callable[[Floats], Floats]) -> Maker:
    """Fit a logistic regression with a negligible penalty."""

    def make(logits: Floats, labels: Labels) -> Job:
        from sklearn.linear_model import LogisticRegression

        features = features_of(logits)
        return Job(
            lambda: LogisticRegression(C=1e8, solver=solver, max_iter=1_000).fit(features, labels),
            lambda fitted: fitted.predict_proba(features),
        )

    return make


def solvers(features_of: Callable[[Floats], Floats]) -> dict[str, Maker]:
    return {solver: regression(solver, features_of) for solver in ("lbfgs", "newton-cholesky")}


def calibrated(method: str) -> Maker:
    """Fit CalibratedClassifierCV around a classifier whose inputs are its scores."""

    def make(logits: Floats, labels: Labels) -> Job:
        from sklearn.calibration import CalibratedClassifierCV
        from sklearn.frozen import FrozenEstimator

        inputs = scores(logits)
        frozen = FrozenEstimator(scores_classifier(logits.shape[1]))
        return Job(
            lambda: CalibratedClassifierCV(frozen, method=method).fit(inputs, labels),
            lambda fitted: fitted.predict_proba(inputs),
        )

    return make


def scores(logits: Floats) -> Floats:
    """Return the scores of a classifier, (N, K), or (N, 1) of class 1 of two."""
    return margin(logits)[:, None] if logits.shape[1] == 2 else logits


def scores_classifier(classes: int) -> Any:
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Scores(ClassifierMixin, BaseEstimator):
        def __init__(self) -> None:
            self.classes_ = np.arange(classes)

        def fit(self, inputs: Floats, labels: Labels) -> Scores:  # noqa: ARG002
            return self

        def predict(self, inputs: Floats) -> Labels:
            return (inputs[:, 0] > 0).astype(np.int64) if classes == 2 else inputs.argmax(axis=1)

        def decision_function(self, inputs: Floats) -> Floats:
            return inputs[:, 0] if classes == 2 else inputs

    return Scores()


def isotonic(logits: Floats, labels: Labels) -> Job:
    """Fit one regression of class 1, or one per class on prepared columns."""
    from sklearn.isotonic import IsotonicRegression

    def curve(scores: Floats, hits: Any) -> IsotonicRegression:
        return IsotonicRegression(out_of_bounds="clip").fit(scores, hits)

    if logits.shape[1] == 2:
        scores = margin(logits)
        return Job(lambda: curve(scores, labels), lambda fitted: fitted.predict(scores))
    # It merges float32 scores closer than 1e-6, which misses the optimum at small probabilities.
    columns = np.ascontiguousarray(softmax(logits).T)

    def divided(fitted: list[IsotonicRegression]) -> Floats:
        raw = np.stack([one.predict(column) for one, column in zip(fitted, columns, strict=True)], axis=1)
        raw /= raw.sum(axis=1, keepdims=True)
        return raw

    return Job(lambda: [curve(column, labels == k) for k, column in enumerate(columns)], divided)


def predict(logits: Floats, labels: Labels) -> Job:  # noqa: ARG001
    from scipy import special

    kind = logits.dtype.type
    return Job(lambda: special.softmax(logits / kind(TEMPERATURE), axis=1), other=BARE)


def predict_one_row(logits: Floats, labels: Labels) -> Job:  # noqa: ARG001
    from scipy import special

    row, kind = logits[:1].copy(), logits.dtype.type
    return Job(lambda: special.softmax(row / kind(TEMPERATURE), axis=1), other=BARE)


JOBS: Jobs = {
    "temperature": {"": calibrated("temperature")},
    "platt": solvers(lambda logits: margin(logits)[:, None]),
    "matrix": solvers(lambda logits: logits),
    "dirichlet": solvers(lambda logits: log_softmax(logits).astype(np.float32)),
    "isotonic": {"": isotonic},
    "predict": {"scipy": predict},
    "predict_one_row": {"scipy": predict_one_row},
}
