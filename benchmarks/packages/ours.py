"""The calibrators and metrics of this repository, on float32 logits."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.packages.job import TEMPERATURE, Floats, Job, Jobs, Labels, Maker, softmax, top_label


def fit(name: str, **options: Any) -> Maker:
    def make(logits: Floats, labels: Labels) -> Job:
        from calibrators import CALIBRATORS

        return Job(
            lambda: CALIBRATORS[name](**options).fit(logits, labels), lambda fitted: fitted.predict_proba(logits)
        )

    return make


def true_temperature(logits: Floats, labels: Labels) -> Any:
    """Return a fitted calibrator with the peers' temperature."""
    from calibrators import Temperature

    fitted = Temperature().fit(logits, labels)
    fitted.temperature_ = TEMPERATURE
    return fitted


def predict(logits: Floats, labels: Labels) -> Job:
    fitted, out = true_temperature(logits, labels), np.empty_like(logits)
    return Job(lambda: fitted.predict_proba(logits, out=out))


def predict_one_row(logits: Floats, labels: Labels) -> Job:
    fitted, row = true_temperature(logits, labels), logits[:1].copy()
    return Job(lambda: fitted.predict_proba(row))


def metric(name: str, **options: Any) -> Maker:
    def make(logits: Floats, labels: Labels) -> Job:
        from calibrators import metrics

        probabilities = softmax(logits, np.float32)
        return Job(lambda: getattr(metrics, name)(probabilities, labels, **options))

    return make


def smooth(logits: Floats, labels: Labels) -> Job:
    """Use class 1 of two classes, like the peers."""
    return metric("smooth_calibration_error", positive=1 if logits.shape[1] == 2 else None)(logits, labels)


def smooth_confidences(logits: Floats, labels: Labels) -> Job:
    """Use prepared confidences, as two columns."""
    from calibrators import metrics

    confidences, hits = top_label(logits, labels)
    columns = np.stack([1 - confidences, confidences], axis=1)
    return Job(lambda: metrics.smooth_calibration_error(columns, hits, positive=1))


JOBS: Jobs = {
    **{
        name: {"": fit(name)}
        for name in (
            "temperature",
            "vector",
            "structured_vector",
            "structured_matrix",
            "isotonic",
            "histogram",
            "platt",
            "beta",
            "venn_abers",
            "spline",
        )
    },
    # Without penalties, so that the peers have the same optimum.
    "matrix": {"": fit("matrix", off_diagonal=0.0, intercept=0.0)},
    "dirichlet": {"": fit("dirichlet", off_diagonal=0.0, intercept=0.0)},
    "histogram_width": {"": fit("histogram", bins=15, scheme="width", on="per_class")},
    "histogram_mass": {"": fit("histogram", bins=15, scheme="mass", on="per_class")},
    "predict": {"": predict},
    "predict_one_row": {"": predict_one_row},
    "ece": {"": metric("expected_calibration_error")},
    "debiased_absolute": {"": metric("debiased_calibration_error", bins=15, scheme="mass", norm=1)},
    "debiased_squared": {"": metric("debiased_calibration_error", bins=15, scheme="mass")},
    "smooth": {"": smooth},
    "smooth_confidences": {"": smooth_confidences},
}
