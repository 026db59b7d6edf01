"""netcal: takes float64 probabilities; for two classes, those of class 1 only."""

from __future__ import annotations

from typing import Any

from benchmarks.packages.job import Floats, Job, Jobs, Labels, Maker, one_for_two, softmax


def fit(module: str, name: str, **options: Any) -> Maker:
    def make(logits: Floats, labels: Labels) -> Job:
        import importlib

        method = getattr(importlib.import_module(f"netcal.{module}"), name)
        values = one_for_two(logits)
        return Job(lambda: method(**options).fit(values, labels), lambda fitted: fitted.transform(values))

    return make


def ece(logits: Floats, labels: Labels) -> Job:
    """Use the top label, from both columns of two classes."""
    from netcal.metrics import ECE

    probabilities = softmax(logits)
    return Job(lambda: ECE(15).measure(probabilities, labels), float)


JOBS: Jobs = {
    "temperature": {"": fit("scaling", "TemperatureScaling")},
    "platt": {"": fit("scaling", "LogisticCalibration")},
    "beta": {"": fit("scaling", "BetaCalibration")},
    "isotonic": {"": fit("binning", "IsotonicRegression")},
    "histogram_width": {"": fit("binning", "HistogramBinning", bins=15)},
    "ece": {"": ece},
}
