"""The adapter keeps scikit-learn's contract, and calibrates on rows that the classifier has not seen."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, ShuffleSplit, StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from calibrators import CALIBRATORS, CalibrationDataError, Temperature
from calibrators.sklearn import CalibratedClassifier

X, Y = make_classification(900, 12, n_informative=5, n_redundant=5, n_classes=3, random_state=0)
FIT, TEST = slice(0, 500), slice(500, 900)


@parametrize_with_checks(
    [
        CalibratedClassifier(GaussianNB()),
        # The one that takes sparse matrices, with the method that is quick to fit: its checks are the largest.
        CalibratedClassifier(LogisticRegression(), method="temperature", cv=3, ensemble=True),
    ]
)
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


def test_the_calibrator_sees_logits_of_rows_that_the_classifier_has_not_seen():
    folds = StratifiedKFold(4)
    given = Temperature()
    model = CalibratedClassifier(LogisticRegression(), given, cv=folds).fit(X[FIT], Y[FIT])
    assert model.calibrator_ is not given
    logits = cross_val_predict(LogisticRegression(), X[FIT], Y[FIT], cv=folds, method="decision_function")
    expected = Temperature().fit(logits, Y[FIT])
    assert model.calibrator_.temperature_ == pytest.approx(expected.temperature_, rel=1e-9)
    final = LogisticRegression().fit(X[FIT], Y[FIT]).decision_function(X[TEST])
    np.testing.assert_allclose(model.predict_proba(X[TEST]), expected.predict_proba(final), rtol=1e-9)


@pytest.mark.parametrize("inside", [GaussianNB(), RandomForestClassifier(30, random_state=0), SVC()])
@pytest.mark.parametrize("ensemble", [False, True])
def test_it_lowers_the_log_loss_in_a_pipeline_too(inside, ensemble):
    model = CalibratedClassifier(make_pipeline(StandardScaler(), inside), ensemble=ensemble).fit(X[FIT], Y[FIT])
    raw = model.estimators_[0]
    scores = raw.predict_proba(X[TEST]) if hasattr(raw, "predict_proba") else np.full((400, 3), 1 / 3)
    assert log_loss(Y[TEST], model.predict_proba(X[TEST])) < log_loss(Y[TEST], scores)
    assert len(model.estimators_) == (5 if ensemble else 1)


def test_cross_val_predict_gives_weights_and_groups_to_each_fold():
    rng = np.random.default_rng(0)
    names, groups, weight = np.array(["a", "b", "c"])[Y], rng.integers(0, 90, 900), rng.uniform(0.1, 3, 900)
    model = CalibratedClassifier(LogisticRegression(), cv=3)
    found = cross_val_predict(
        model, X, names, method="predict_proba", cv=3, params={"sample_weight": weight, "groups": groups}
    )
    assert log_loss(names, found) < 1
    np.testing.assert_allclose(found.sum(axis=1), 1)


def test_groups_stay_whole_in_the_folds_and_in_those_of_auto():
    # Each group is one row, copied: a classifier that remembers its rows is certain of the copies.
    rows, groups = np.tile(X[:300], (3, 1)), np.tile(np.arange(300), 3)
    labels = np.tile(np.random.default_rng(0).integers(0, 3, 300), 3)
    model = CalibratedClassifier(DecisionTreeClassifier(random_state=0))
    leaking = model.fit(rows, labels).predict_proba(X[300:])
    honest = clone(model).fit(rows, labels, groups=groups).predict_proba(X[300:])
    assert np.median(leaking.max(axis=1)) > 0.9
    assert np.median(honest.max(axis=1)) < 0.5


def test_a_weight_is_a_number_of_copies():
    weight = np.random.default_rng(0).integers(0, 3, 500)
    again = np.repeat(np.arange(500), weight)
    parts, fold = [], np.arange(500) % 2
    for seen, one in ((np.arange(500), fold), (again, fold[again])):
        cv = [(np.flatnonzero(one == k), np.flatnonzero(one != k)) for k in (0, 1)]
        given = weight if len(seen) == 500 and seen is not again else None
        model = CalibratedClassifier(GaussianNB(), "vector", cv=cv)
        parts.append(model.fit(X[FIT][seen], Y[FIT][seen], sample_weight=given).predict_proba(X[TEST]))
    np.testing.assert_allclose(parts[0], parts[1], atol=1e-5)


def test_a_fitted_classifier_is_calibrated_as_it_is():
    fitted = GaussianNB().fit(X[FIT], Y[FIT])
    frozen = CalibratedClassifier(FrozenEstimator(fitted), "vector").fit(X[TEST], Y[TEST])
    named = CalibratedClassifier(fitted, "vector", cv="prefit").fit(X[TEST], Y[TEST])
    np.testing.assert_array_equal(frozen.predict_proba(X), named.predict_proba(X))
    expected = CALIBRATORS["vector"]().fit(fitted.predict_joint_log_proba(X[TEST]), Y[TEST])
    np.testing.assert_array_equal(named.predict_proba(X), expected.predict_proba(fitted.predict_joint_log_proba(X)))
    some = Y[TEST] < 2  # a class that the rows lack keeps its column
    assert clone(frozen).fit(X[TEST][some], Y[TEST][some]).predict_proba(X).shape == (900, 3)
    with pytest.raises(ValueError, match="Unknown labels: y has \\[7\\]"):
        clone(frozen).fit(X[TEST], np.where(Y[TEST] == 0, 7, Y[TEST]))


def test_a_class_that_a_fold_lacks_keeps_a_small_share():
    labels = np.where(np.arange(500) == 3, 9, Y[FIT])
    cv = [(np.arange(250), np.arange(250, 500)), (np.arange(250, 500), np.arange(250))]
    for inside in (GaussianNB(), LogisticRegression(), DecisionTreeClassifier(random_state=0)):
        found = CalibratedClassifier(inside, "temperature", cv=cv).fit(X[FIT], labels).predict_proba(X[TEST])
        assert found.shape == (400, 4)
        assert np.isfinite(found).all()


def test_metadata_is_routed_to_a_step():
    weight = np.where(Y == 0, 5.0, 1.0)
    plain = make_pipeline(StandardScaler(), LogisticRegression())
    with config_context(enable_metadata_routing=True):
        step = LogisticRegression().set_fit_request(sample_weight=True)
        model = CalibratedClassifier(
            make_pipeline(StandardScaler().set_fit_request(sample_weight=False), step), "vector"
        )
        found = model.set_fit_request(sample_weight=True, groups=False).fit(X, Y, sample_weight=weight)
    named = CalibratedClassifier(plain, "vector")
    with pytest.warns(UserWarning, match="only the calibrator is weighted"):
        unlike = named.fit(X, Y, sample_weight=weight).estimators_[0][-1].coef_
    named.fit(X, Y, logisticregression__sample_weight=weight)
    np.testing.assert_allclose(found.estimators_[0][-1].coef_, named.estimators_[0][-1].coef_)
    assert np.abs(found.estimators_[0][-1].coef_ - unlike).max() > 0.01


def test_its_options_can_be_searched_and_top_labels_stay():
    search = GridSearchCV(
        CalibratedClassifier(GaussianNB()), {"method": ["identity", "vector"]}, scoring="neg_log_loss"
    )
    assert search.fit(X[FIT], Y[FIT]).best_params_ == {"method": "vector"}
    model = CalibratedClassifier(GaussianNB(), "histogram").fit(X[FIT], Y[FIT])
    np.testing.assert_array_equal(model.predict(X[TEST]), model.estimators_[0].predict(X[TEST]))


def test_rows_in_no_test_part_only_fit_the_classifier():
    cv = [(np.arange(250), np.arange(250, 500))]
    model = CalibratedClassifier(GaussianNB(), "temperature", cv=cv).fit(X[FIT], Y[FIT])
    logits = GaussianNB().fit(X[:250], Y[:250]).predict_joint_log_proba(X[250:500])
    assert model.calibrator_.temperature_ == Temperature().fit(logits, Y[250:500]).temperature_


@pytest.mark.parametrize(
    ("options", "labels", "message"),
    [
        ({"cv": ShuffleSplit(3, random_state=0)}, Y, "expected each row in one test part"),
        ({"cv": LeaveOneGroupOut()}, Y, "groups"),
        ({"method": "magic"}, Y, "Unknown method"),
        ({"floor": 3.0, "estimator": DecisionTreeClassifier()}, Y, "floor is 3.0"),
        (
            {"estimator": SVC(decision_function_shape="ovo")},
            np.arange(900) % 4,
            "6 columns; expected one for each of 4",
        ),
        ({}, np.zeros(900, int), "of one class; expected"),
        ({}, np.linspace(0, 1, 900), "Unknown label type"),
    ],
)
def test_bad_input_is_refused_by_name(options, labels, message):
    model = CalibratedClassifier(LogisticRegression()).set_params(**options)
    with pytest.raises((ValueError, CalibrationDataError), match=message):
        model.fit(X, labels)


def test_the_guide_runs():
    guide = Path(__file__).parents[2] / "docs" / "how-to" / "scikit-learn.md"
    for block in re.findall(r"```python\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL):
        exec(block, {})


def test_calibrators_alone_do_not_import_scikit_learn():
    code = "import sys, calibrators; sys.exit('sklearn' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_no_classifier_and_what_is_not_fitted_are_refused():
    rows, labels = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    with pytest.raises(TypeError, match="Ridge has none of"):
        CalibratedClassifier(Ridge()).fit(rows, labels)
    with pytest.raises(NotFittedError):
        CalibratedClassifier(GaussianNB(), cv="prefit").fit(rows, labels)


@pytest.mark.parametrize("method", ["identity", "auto"])
def test_what_is_wrong_with_the_calibrator_is_said(method):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3_000, 1))
    y = (rng.random(3_000) < np.where(X[:, 0] > 0, 0.9, 0.1)).astype(int)  # a step, which a logistic curve misses
    off = CalibratedClassifier(LogisticRegression(), method=method).fit(X, y)
    if method == "identity":
        assert off.warnings_[0].startswith("Not calibrated: the ECE is ")
    else:
        assert off.warnings_ == off.calibrator_.warnings_
    straight = (rng.random(3_000) < 1 / (1 + np.exp(-X[:, 0]))).astype(int)
    assert CalibratedClassifier(LogisticRegression(), method=method).fit(X, straight).warnings_ == []
