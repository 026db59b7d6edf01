"""Compare `calibrators.sklearn.CalibratedClassifier` with scikit-learn's `CalibratedClassifierCV`.

    OMP_NUM_THREADS=1 python -m benchmarks.sklearn_adapter

Held-out log loss and CPU seconds of `fit` (mean of the seeds) on data sets that scikit-learn ships or generates, for
classifiers with and without scores of their own. Both use five folds.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from calibrators.sklearn import CalibratedClassifier

CLASSIFIERS = {
    "naive Bayes": GaussianNB(),
    "random forest": RandomForestClassifier(100, random_state=0),
    "linear SVM": make_pipeline(StandardScaler(), LinearSVC(random_state=0)),
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
}
METHODS = {
    "`CalibratedClassifier`": CalibratedClassifier,
    "same, `ensemble=True`": lambda one: CalibratedClassifier(one, ensemble=True),
    "`CalibratedClassifierCV`, sigmoid": CalibratedClassifierCV,
    "same, isotonic": lambda one: CalibratedClassifierCV(one, method="isotonic"),
    "same, temperature": lambda one: CalibratedClassifierCV(one, method="temperature"),
}


def data_sets(seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Rows and labels by name: two classes with 5 % positives, ten classes of digits, five overlapping classes."""
    rare = make_classification(4000, 20, n_informative=6, n_redundant=8, weights=[0.95], random_state=seed)
    many = make_classification(4000, 20, n_informative=8, n_redundant=8, n_classes=5, random_state=seed)
    return {"2 classes, 5 %": rare, "digits": load_digits(return_X_y=True), "5 classes": many}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    print("| data | classifier |", " | ".join(METHODS), "|\n|---|---|" + "---|" * len(METHODS))
    for data in data_sets(0):
        for name, classifier in CLASSIFIERS.items():
            cells = []
            for method in METHODS.values():
                found = [measured(method(clone(classifier)), *data_sets(seed)[data], seed) for seed in range(seeds)]
                loss, seconds = np.mean(found, axis=0)
                cells.append(f"{loss:.4f}, {seconds:.2f} s")
            print(f"| {data} | {name} |", " | ".join(cells), "|", flush=True)


def measured(model: object, rows: np.ndarray, labels: np.ndarray, seed: int) -> tuple[float, float]:
    """Return the log loss on half of the rows, and the CPU seconds of the fit on the others."""
    fit_rows, test_rows, fit_labels, test_labels = train_test_split(
        rows, labels, test_size=0.5, stratify=labels, random_state=seed
    )
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(fit_rows, fit_labels)
    seconds = time.process_time() - start
    return log_loss(test_labels, model.predict_proba(test_rows)), seconds


if __name__ == "__main__":
    main()
