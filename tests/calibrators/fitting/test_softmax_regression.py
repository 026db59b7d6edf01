from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from calibrators import CalibrationFitError
from calibrators.fitting.softmax_newton import newton_minimum
from calibrators.fitting.softmax_objective import SoftmaxObjective
from calibrators.fitting.softmax_regression import fit_affine, fit_shrunk, log_probabilities, raw_logits
from calibrators.validation import labelled_rows


def objective(rows, fit, **options):
    """The objective that a fit makes, caught on its way to the minimum."""
    caught = []
    original = SoftmaxObjective.minimum
    SoftmaxObjective.minimum = lambda self, *given: caught.append(self) or original(self, *given)
    try:
        fit(rows, **options)
    finally:
        SoftmaxObjective.minimum = original
    return caught[0]


CASES = [
    (fit_affine, {"features": raw_logits, "full": False}),
    (fit_affine, {"features": raw_logits, "full": True, "off_diagonal": 0.01, "intercept": 0.02}),
    (
        fit_shrunk,
        {"features": log_probabilities, "full": True, "diagonal": 0.01, "off_diagonal": 0.02, "intercept": 0.03},
    ),
]


@pytest.mark.parametrize(("fit", "options"), CASES)
@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kept", [True, False])
def test_derivatives_are_those_of_the_value(fit, options, classes, weighted, kept, world, monkeypatch):
    if not kept:
        monkeypatch.setattr("calibrators.fitting.feature_chunks._ENTRIES_KEPT", 0)
    logits, labels = world(90, classes, 1.5)
    logits[::9, 0] = np.where(labels[::9] == 0, logits[::9, 0], -np.inf)
    weight = np.random.default_rng(0).uniform(0.1, 2, 90) if weighted else None
    one = objective(labelled_rows(logits, labels, weight), fit, **options)
    theta = one.target + np.random.default_rng(1).normal(0, 0.3, len(one.target))
    derivatives = one._binary_derivatives if classes == 2 else one._derivatives
    value, gradient, hessian = derivatives(theta)
    plain, slope = one.value_and_gradient(theta)
    assert value == pytest.approx(plain, rel=1e-12)
    np.testing.assert_allclose(gradient, slope, atol=1e-12)
    np.testing.assert_allclose(gradient, optimize.approx_fprime(theta, lambda at: derivatives(at)[0], 1e-7), atol=1e-5)
    for i, axis in enumerate(np.eye(len(theta))):
        np.testing.assert_allclose(hessian[i], one.hessian_product(theta, axis), atol=1e-12)


@pytest.mark.parametrize(("fit", "options"), CASES)
@pytest.mark.parametrize("classes", [2, 5])
def test_both_methods_find_the_same_minimum(fit, options, classes, world, monkeypatch):
    logits, labels = world(2000, classes, 1.5)
    rows = labelled_rows(logits, labels, None)
    few = objective(rows, fit, **options)
    newton = np.concatenate([part.ravel() for part in few.minimum(few.target)])
    monkeypatch.setattr("calibrators.fitting.softmax_objective.FEW_PARAMETERS", 0)
    gradients = np.concatenate([part.ravel() for part in few.minimum(few.target)])
    best, other = few.value_and_gradient(newton), few.value_and_gradient(gradients)
    assert np.linalg.norm(best[1]) < 1e-7
    assert best[0] <= other[0] + 1e-12
    assert other[0] - best[0] < 1e-7


def test_a_function_that_never_settles_is_refused():
    def uphill(theta):
        return float(np.random.default_rng().random()) + 1e6 * float(theta @ theta > 0), np.ones(2), np.eye(2)

    with pytest.raises(CalibrationFitError, match="No convergence"):
        newton_minimum(uphill, np.zeros(2))
