"""Log losses of other packages on held-out logits; runs in each package's environment.

Run as `python -m benchmarks.suite.peers PACKAGE FILE`: FILE has logits (N, K), labels (N,) and an order of the rows for
each seed, whose first half fits and whose second half tests. Prints a JSON object: losses by method, one per seed.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from benchmarks.packages.job import Floats, Labels, label_probabilities, one_for_two, softmax
from benchmarks.packages.scikit_learn import scores, scores_classifier

Fitted: TypeAlias = Callable[[Floats], Any]
"""Converts logits (M, K) to calibrated probabilities, (M, K) or (M,) of class 1."""
Fit: TypeAlias = Callable[[Floats, Labels], Fitted]

LEAST: Final = 1e-15
"""Smallest probability of a label: several packages answer zero, whose loss would be infinite."""


def estimator(module: str, name: str, values_of: Callable[[Floats], Floats], applied: str, **options: Any) -> Fit:
    """Fit a class that learns from an array, and apply its method of that name."""

    def fit(logits: Floats, labels: Labels) -> Fitted:
        fitted = getattr(importlib.import_module(module), name)(**options)
        fitted.fit(values_of(logits), labels)
        return lambda others: getattr(fitted, applied)(values_of(others))

    return fit


def of_logits(name: str) -> Fit:
    """Fit a calibrator of probmetrics that takes the logits themselves."""

    def fit(logits: Floats, labels: Labels) -> Fitted:
        import torch
        from probmetrics import calibrators
        from probmetrics.distributions import CategoricalLogits

        fitted = getattr(calibrators, name)()
        fitted.fit_torch(CategoricalLogits(torch.from_numpy(logits)), torch.from_numpy(labels))

        def apply(others: Floats) -> Any:
            told = fitted.predict_proba_torch(CategoricalLogits(torch.from_numpy(others)))
            return told.get_probs().detach().numpy()

        return apply

    return fit


def prefit(method: str) -> Fit:
    """Fit scikit-learn's CalibratedClassifierCV around a classifier whose inputs are its scores."""

    def fit(logits: Floats, labels: Labels) -> Fitted:
        from sklearn.calibration import CalibratedClassifierCV
        from sklearn.frozen import FrozenEstimator

        frozen = FrozenEstimator(scores_classifier(logits.shape[1]))
        fitted = CalibratedClassifierCV(frozen, method=method).fit(scores(logits), labels)
        return lambda others: fitted.predict_proba(scores(others))

    return fit


METHODS: Final[Mapping[str, Mapping[str, Fit]]] = {
    "probmetrics": {
        "temperature": of_logits("TemperatureScalingCalibrator"),
        **{
            name: estimator("probmetrics.calibrators", kind, softmax, "predict_proba")
            for name, kind in (
                ("structured vector", "SVSCalibrator"),
                ("structured matrix", "SMSCalibrator"),
                ("logistic", "LogisticCalibrator"),
            )
        },
    },
    "netcal": {
        "temperature": estimator("netcal.scaling", "TemperatureScaling", one_for_two, "transform"),
        "logistic": estimator("netcal.scaling", "LogisticCalibration", one_for_two, "transform"),
        "beta": estimator("netcal.scaling", "BetaCalibration", one_for_two, "transform"),
        "isotonic": estimator("netcal.binning", "IsotonicRegression", one_for_two, "transform"),
        "histogram": estimator("netcal.binning", "HistogramBinning", one_for_two, "transform"),
    },
    "scikit-learn": {name: prefit(name) for name in ("sigmoid", "isotonic", "temperature")},
    "betacal": {"beta": estimator("betacal", "BetaCalibration", one_for_two, "predict")},
    "venn-abers": {"Venn–Abers": estimator("venn_abers", "VennAbers", softmax, "predict_proba")},
    "splinecalib": {"spline": estimator("splinecalib", "SplineCalib", one_for_two, "calibrate")},
}
"""Methods by package. Those of betacal and venn-abers take two classes."""
_OF_TWO_CLASSES: Final = {"betacal", "venn-abers"}


def main() -> None:
    package, file = sys.argv[1:]
    warnings.simplefilter("ignore")
    with np.load(file) as held:
        logits, labels, orders = held["logits"], held["labels"], held["orders"]
    found: dict[str, list[float]] = {}
    if logits.shape[1] == 2 or package not in _OF_TWO_CLASSES:
        for name, fit in METHODS[package].items():
            try:
                found[name] = [_loss(fit, logits[order], labels[order]) for order in orders]
            except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
                print(f"{package}, {name}: {type(error).__name__}: {error}"[:300], file=sys.stderr)
    print(json.dumps(found))


def _loss(fit: Fit, logits: Floats, labels: Labels) -> float:
    half = len(labels) // 2
    answer = fit(logits[:half], labels[:half])(logits[half:])
    answer = answer[0] if isinstance(answer, tuple) else answer
    own = label_probabilities(answer, labels[half:])
    return float(-np.mean(np.log(np.maximum(own, LEAST))))


if __name__ == "__main__":
    main()
