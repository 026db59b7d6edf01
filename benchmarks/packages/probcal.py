"""probcal: two classes, float64 probabilities of class 1."""

from __future__ import annotations

from typing import Any

from benchmarks.packages.job import Floats, Job, Jobs, Labels, Maker, one_for_two


def fit(name: str, **options: Any) -> Maker:
    def make(logits: Floats, labels: Labels) -> Job:
        import probcal

        values = one_for_two(logits)
        return Job(
            lambda: getattr(probcal, name)(**options).fit(values, labels), lambda fitted: fitted.predict_proba(values)
        )

    return make


def smooth(logits: Floats, labels: Labels) -> Job:
    from probcal import metrics

    values = one_for_two(logits)
    return Job(lambda: metrics.smooth_ece(labels, values), other="kernel on the logit axis")


JOBS: Jobs = {
    "temperature/c": {"": fit("TemperatureCalibrator")},
    "platt": {"": fit("PlattCalibrator")},
    "beta": {"": fit("BetaCalibrator")},
    "isotonic/c": {"": fit("IsotonicCalibrator")},
    "histogram_width": {"": fit("HistogramBinningCalibrator", n_bins=15, strategy="width")},
    "histogram_mass": {"": fit("HistogramBinningCalibrator", n_bins=15)},
    "venn_abers": {"": fit("VennAbersCalibrator")},
    "spline": {"": fit("SplineCalibrator")},
    "smooth/c": {"": smooth},
}
